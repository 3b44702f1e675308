// Stands for libcuda.so.1 where there is no GPU: device memory is the host's, and what programs ask of the driver is printed.
// FAKE_CAPABILITY is the GPU's, as in 90; FAKE_TYPES names the parameters' types, a letter each: p, i (i32), l (i64), f,
// m (map). FAKE_FAILS names a function that fails.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

struct Attribute {
  int id, pad;
  unsigned value[16];
};
struct Config {
  unsigned grid[3], block[3], smem;
  void* stream;
  Attribute* attributes;
  unsigned count;
};
struct Map {
  std::uint64_t address, extents[5], strides[4];
  std::uint32_t box[5], type, swizzle, others, rank;
};

static int failed(const char* name) {
  const char* fails = std::getenv("FAKE_FAILS");
  return fails && !std::strcmp(fails, name) ? 700 : 0;
}

extern "C" {
int cuInit(unsigned) { return 0; }
int cuDeviceGet(int* device, int) { return *device = 0, 0; }
int cuDevicePrimaryCtxRetain(void** context, int) { return *context = nullptr, 0; }
int cuCtxSetCurrent(void*) { return 0; }
int cuCtxSynchronize() { return 0; }
int cuMemAlloc_v2(std::uint64_t* pointer, std::size_t bytes) {
  void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  *pointer = reinterpret_cast<std::uint64_t>(memory);
  std::printf("memory %llu %zu\n", (unsigned long long)*pointer, bytes);
  return 0;
}
int cuMemcpyHtoD_v2(std::uint64_t to, const void* from, std::size_t bytes) {
  return std::memcpy(reinterpret_cast<void*>(to), from, bytes), 0;
}
int cuMemcpyDtoH_v2(void* to, std::uint64_t from, std::size_t bytes) {
  return std::memcpy(to, reinterpret_cast<void*>(from), bytes), 0;
}
int cuMemsetD8_v2(std::uint64_t at, unsigned char value, std::size_t bytes) {
  std::printf("set_bytes %llu %d %zu\n", (unsigned long long)at, value, bytes);
  return std::memset(reinterpret_cast<void*>(at), value, bytes), 0;
}
int cuGetErrorName(int, const char** name) { return *name = "CUDA_ERROR_FAKE", 0; }
int cuCtxGetDevice(int* device) { return *device = 0, failed("cuCtxGetDevice"); }
int cuDeviceGetAttribute(int* value, int attribute, int) {
  int capability = std::atoi(std::getenv("FAKE_CAPABILITY"));
  *value = attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : attribute == 16 ? 3 : -1;
  return 0;
}
int cuLibraryLoadData(void** library, const void* code, void*, void*, unsigned, void*, void*, unsigned) {
  std::printf("load %.3s %d\n", static_cast<const char*>(code) + 1, int(reinterpret_cast<std::uintptr_t>(code) % 16));
  return *library = nullptr, 0;
}
int cuLibraryGetKernel(void** kernel, void*, const char* name) {
  std::printf("kernel %s\n", name);
  return *kernel = &std::puts ? reinterpret_cast<void*>(1) : nullptr, 0;
}
int cuKernelGetFunction(void** function, void*) { return *function = nullptr, 0; }
int cuFuncSetAttribute(void*, int attribute, int value) {
  std::printf("attribute %d %d\n", attribute, value);
  return 0;
}
int cuOccupancyMaxActiveClusters(int* clusters, void*, const Config*) { return *clusters = 2, 0; }
int cuMemsetD2D8Async(std::uint64_t at, std::size_t pitch, unsigned char value, std::size_t width, std::size_t height, void*) {
  std::printf("set %llu %zu %d %zu %zu\n", (unsigned long long)at, pitch, value, width, height);
  return 0;
}
int cuTensorMapEncodeTiled(void* map, int type, unsigned rank, void* address, const std::uint64_t* extents,
                           const std::uint64_t* strides, const unsigned* box, const unsigned* ones, int interleave,
                           int swizzle, int promotion, int fill) {
  if (rank < 3 || rank > 5 || reinterpret_cast<std::uintptr_t>(map) % 64) return 1;
  Map made = {};
  made.address = reinterpret_cast<std::uint64_t>(address);
  made.type = std::uint32_t(type);
  made.swizzle = std::uint32_t(swizzle);
  made.others = std::uint32_t(100 * interleave + 10 * promotion + fill);
  made.rank = rank;
  for (unsigned i = 0; i < rank; ++i) {
    if (ones[i] != 1) return 1;
    made.extents[i] = extents[i];
    made.box[i] = box[i];
    if (i + 1 < rank) made.strides[i] = strides[i];
  }
  static_assert(sizeof made <= 128, "a map has 128 bytes");
  return std::memcpy(map, &made, sizeof made), 0;
}
int cuLaunchKernelEx(const Config* config, void*, void** values, void**) {
  if (int status = failed("cuLaunchKernelEx")) return status;
  std::printf("launch %u %u %u %u %u %u %u\n", config->grid[0], config->grid[1], config->grid[2], config->block[0],
              config->block[1], config->block[2], config->smem);
  std::printf("stream %llu\n", (unsigned long long)reinterpret_cast<std::uintptr_t>(config->stream));
  for (unsigned i = 0; i < config->count; ++i) {
    const Attribute& each = config->attributes[i];
    std::printf("launch_attribute %d %u %u %u\n", each.id, each.value[0], each.value[1], each.value[2]);
  }
  for (const char* type = std::getenv("FAKE_TYPES"); *type; ++type, ++values) {
    if (*type == 'i') std::printf("value %d\n", *static_cast<std::int32_t*>(*values));
    if (*type == 'l') std::printf("value %lld\n", (long long)*static_cast<std::int64_t*>(*values));
    if (*type == 'p') std::printf("value %llu\n", (unsigned long long)*static_cast<std::uint64_t*>(*values));
    if (*type == 'f') std::printf("value %.9g\n", *static_cast<float*>(*values));
    if (*type == 'm') {
      const Map& map = *static_cast<Map*>(*values);
      std::printf("map %llu", (unsigned long long)map.address);
      for (unsigned i = 0; i < map.rank; ++i) std::printf(" %llu", (unsigned long long)map.extents[i]);
      for (unsigned i = 0; i + 1 < map.rank; ++i) std::printf(" %llu", (unsigned long long)map.strides[i]);
      for (unsigned i = 0; i < map.rank; ++i) std::printf(" %u", map.box[i]);
      std::printf(" %u %u %u\n", map.type, map.swizzle, map.others);
    }
  }
  return 0;
}
}
