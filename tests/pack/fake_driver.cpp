// Stands for libcuda.so.1 where there is no GPU: device memory is the host's, and what is launched is printed.
// FAKE_CAPABILITY is the GPU's, as in 90; FAKE_TYPES names the parameters' types, a letter each: p, i32, l (i64), m (map).

#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

struct FakeMap {  // what cuTensorMapEncodeTiled was asked for
  uint64_t address, extents[3], strides[2];
  uint32_t box[3], type, swizzle;
};
static_assert(sizeof(FakeMap) <= sizeof(CUtensorMap), "a map has 128 bytes");

extern "C" {
CUresult CUDAAPI cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult CUDAAPI cuGetErrorName(CUresult, const char** name) { return *name = "CUDA_ERROR_FAKE", CUDA_SUCCESS; }
CUresult CUDAAPI cuDeviceGet(CUdevice* device, int) { return *device = 0, CUDA_SUCCESS; }
CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) { return *context = nullptr, CUDA_SUCCESS; }
CUresult CUDAAPI cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
CUresult CUDAAPI cuCtxSynchronize() { return CUDA_SUCCESS; }
CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  int capability = std::atoi(std::getenv("FAKE_CAPABILITY"));
  *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? capability / 10
           : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? capability % 10
                                                                       : 3;  // multiprocessors
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned, CUlibraryOption*,
                                   void**, unsigned) {
  std::printf("load %d %d\n", std::memcmp(code, "\x7f" "ELF", 4), int(reinterpret_cast<uintptr_t>(code) % 16));
  return *library = nullptr, CUDA_SUCCESS;
}
CUresult CUDAAPI cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char* name) {
  std::printf("kernel %s\n", name);
  return *kernel = nullptr, CUDA_SUCCESS;
}
CUresult CUDAAPI cuKernelGetFunction(CUfunction* function, CUkernel) { return *function = nullptr, CUDA_SUCCESS; }
CUresult CUDAAPI cuFuncSetAttribute(CUfunction, CUfunction_attribute, int value) {
  std::printf("allowed %d\n", value);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuOccupancyMaxActiveClusters(int* clusters, CUfunction, const CUlaunchConfig*) {
  return *clusters = 2, CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemAlloc(CUdeviceptr* pointer, size_t bytes) {
  void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  *pointer = reinterpret_cast<CUdeviceptr>(memory);
  std::printf("memory %llu %zu\n", (unsigned long long)*pointer, bytes);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  return std::memcpy(reinterpret_cast<void*>(to), from, bytes), CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  return std::memcpy(to, reinterpret_cast<void*>(from), bytes), CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemsetD8(CUdeviceptr at, unsigned char value, size_t bytes) {
  std::printf("set %llu %d %zu\n", (unsigned long long)at, value, bytes);
  return std::memset(reinterpret_cast<void*>(at), value, bytes), CUDA_SUCCESS;
}
CUresult CUDAAPI cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                        const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                                        const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                        CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  if (rank != 3 || reinterpret_cast<uintptr_t>(map) % 64) return CUDA_ERROR_INVALID_VALUE;
  FakeMap made = {reinterpret_cast<uint64_t>(address), {extents[0], extents[1], extents[2]}, {strides[0], strides[1]},
                  {box[0], box[1], box[2]}, uint32_t(type), uint32_t(swizzle)};
  std::memcpy(map, &made, sizeof made);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction, void** values, void**) {
  unsigned x = 1, y = 1;
  if (config->numAttrs) x = config->attrs[0].value.clusterDim.x, y = config->attrs[0].value.clusterDim.y;
  std::printf("launch %u %u %u %u %u %u %u %u %u\n", config->gridDimX, config->gridDimY, config->gridDimZ,
              config->blockDimX, config->blockDimY, config->blockDimZ, config->sharedMemBytes, x, y);
  for (const char* type = std::getenv("FAKE_TYPES"); *type; ++type, ++values) {
    if (*type == 'i') std::printf("value %d\n", *static_cast<int32_t*>(*values));
    if (*type == 'l') std::printf("value %lld\n", (long long)*static_cast<int64_t*>(*values));
    if (*type == 'p') std::printf("value %llu\n", *static_cast<unsigned long long*>(*values));
    if (*type == 'm') {
      const FakeMap& map = *static_cast<FakeMap*>(*values);
      std::printf("map %llu %llu %llu %llu %llu %llu %u %u %u %u %u\n", (unsigned long long)map.address,
                  (unsigned long long)map.extents[0], (unsigned long long)map.extents[1],
                  (unsigned long long)map.extents[2], (unsigned long long)map.strides[0],
                  (unsigned long long)map.strides[1], map.box[0], map.box[1], map.box[2], map.type, map.swizzle);
    }
  }
  return CUDA_SUCCESS;
}
}
