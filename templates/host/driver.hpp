// A launch through the driver API by the numbers of its contract, without headers and libraries of CUDA. Errors begin with
// the `kName` of the namespace around it.

// The driver's types, as in cuda.h.
struct LaunchAttribute {
  int id;
  char pad[4];
  unsigned value[16];
};
struct LaunchConfig {
  unsigned grid[3], block[3], smem_bytes;
  void* stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};
struct alignas(64) TensorMap {
  std::uint64_t opaque[16];
};

struct Driver {
  int (*error_name)(int, const char**);
  int (*current_device)(int*);
  int (*device_attribute)(int*, int, int);
  int (*load)(void**, const void*, void*, void*, unsigned, void*, void*, unsigned);
  int (*kernel)(void**, void*, const char*);
  int (*function)(void**, void*);
  int (*set_attribute)(void*, int, int);
  int (*active_clusters)(int*, void*, const LaunchConfig*);
  int (*encode)(TensorMap*, int, unsigned, void*, const std::uint64_t*, const std::uint64_t*, const unsigned*,
                const unsigned*, int, int, int, int);
  int (*clear)(std::uint64_t, std::size_t, unsigned char, std::size_t, std::size_t, void*);
  int (*launch)(const LaunchConfig*, void*, void**, void**);
};

[[noreturn]] inline void fail(const std::string& why) { throw std::runtime_error(std::string(kName) + ": " + why); }

template <class Function>
void find(Function& function, const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) fail("libcuda.so.1 is not installed");
  void* symbol = dlsym(library, name);
  if (!symbol) fail(std::string("the driver has no ") + name);
  function = reinterpret_cast<Function>(symbol);
}

inline const Driver& driver() {
  static const Driver made = [] {
    Driver driver;
    find(driver.error_name, "cuGetErrorName");
    find(driver.current_device, "cuCtxGetDevice");
    find(driver.device_attribute, "cuDeviceGetAttribute");
    find(driver.load, "cuLibraryLoadData");
    find(driver.kernel, "cuLibraryGetKernel");
    find(driver.function, "cuKernelGetFunction");
    find(driver.set_attribute, "cuFuncSetAttribute");
    find(driver.active_clusters, "cuOccupancyMaxActiveClusters");
    find(driver.encode, "cuTensorMapEncodeTiled");
    find(driver.clear, "cuMemsetD2D8Async");
    find(driver.launch, "cuLaunchKernelEx");
    return driver;
  }();
  return made;
}

inline void check(int status, const char* call) {
  if (status == 0) return;
  const char* name = nullptr;
  driver().error_name(status, &name);
  fail(std::string(call) + ": " + (name ? name : "unknown error"));
}

inline void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(std::string(kName) + ": " + what);
}

constexpr std::int64_t ceil_div(std::int64_t x, std::int64_t y) { return (x + y - 1) / y; }

// The numbers of a launch contract.
struct Contract {
  std::int64_t cluster_x, cluster_y;
  std::int64_t block_m, block_n;  // rows and columns of a cluster
  std::int64_t cluster_tiles, grid_y;
  std::int64_t slices, bytes_per_slice;  // of K, with sums in a workspace; 0 without
  std::int64_t ctas_per_sm;              // 0: a CTA for each tile
  bool spread;                           // every second CTA of a small grid exits at once
  bool programmatic;
  unsigned threads, smem_bytes;
};

// A kernel on one GPU.
struct Bound {
  void* function = nullptr;
  int multiprocessors = 0, active_clusters = 0;
};

inline LaunchConfig config_of(const Contract& contract, std::int64_t clusters, std::int64_t batch,
                              LaunchAttribute* attributes) {
  LaunchConfig config = {};
  config.grid[0] = unsigned(clusters * contract.cluster_x);
  config.grid[1] = unsigned(contract.grid_y);
  config.grid[2] = unsigned(batch);
  config.block[0] = contract.threads;
  config.block[1] = config.block[2] = 1;
  config.smem_bytes = contract.smem_bytes;
  config.attributes = attributes;
  if (contract.cluster_x * contract.cluster_y > 1) {
    LaunchAttribute& cluster = attributes[config.attribute_count++];
    cluster.id = 4;  // CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    cluster.value[0] = unsigned(contract.cluster_x);
    cluster.value[1] = unsigned(contract.cluster_y);
    cluster.value[2] = 1;
  }
  if (contract.programmatic) {
    LaunchAttribute& early = attributes[config.attribute_count++];
    early.id = 6;  // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    early.value[0] = 1;
  }
  return config;
}

inline void* loaded(const void* cubin, const char* entry) {
  void *library = nullptr, *kernel = nullptr;
  check(driver().load(&library, cubin, nullptr, nullptr, 0, nullptr, nullptr, 0), "cuLibraryLoadData");
  check(driver().kernel(&kernel, library, entry), "cuLibraryGetKernel");
  return kernel;
}

inline int attribute_of(int device, int attribute) {
  int found = 0;
  check(driver().device_attribute(&found, attribute, device), "cuDeviceGetAttribute");
  return found;
}

// Binds a loaded kernel to the current context, which is one of `device`.
inline Bound bound_to(int device, const Contract& contract, void* kernel) {
  Bound made;
  made.multiprocessors = attribute_of(device, 16);
  check(driver().function(&made.function, kernel), "cuKernelGetFunction");
  check(driver().set_attribute(made.function, 8, int(contract.smem_bytes)),  // the maximum of dynamic shared memory
        "cuFuncSetAttribute");
  if (contract.cluster_x * contract.cluster_y > 1) {
    LaunchAttribute attributes[2] = {};
    LaunchConfig one = config_of(contract, 1, 1, attributes);
    one.grid[1] = unsigned(contract.cluster_y);
    check(driver().active_clusters(&made.active_clusters, made.function, &one), "cuOccupancyMaxActiveClusters");
    require(made.active_clusters > 0, "the GPU has no room for a cluster of this kernel");
  }
  return made;
}

// Returns how many clusters are launched for so many: of persistent CTAs as many as are resident at once.
inline std::int64_t launched(const Contract& contract, const Bound& kernel, std::int64_t clusters, std::int64_t batch) {
  if (!contract.ctas_per_sm) return clusters;
  std::int64_t room = contract.ctas_per_sm * kernel.multiprocessors;
  if (contract.spread && 2 * clusters * contract.grid_y * batch <= room) clusters *= 2;
  std::int64_t together = std::max<std::int64_t>(1, room / (contract.cluster_x * contract.cluster_y));
  return std::min<std::int64_t>(clusters, kernel.active_clusters ? kernel.active_clusters : together);
}

// Bytes of the counters at the begin of a workspace, and of the sums after them.
inline std::int64_t counter_bytes(const Contract& contract, std::int64_t clusters, std::int64_t batch) {
  std::int64_t tiles = clusters * contract.cluster_tiles * batch;
  return contract.bytes_per_slice ? ceil_div(4 * tiles * contract.cluster_y, 256) * 256 : 0;
}
inline std::int64_t sums_bytes(const Contract& contract, std::int64_t clusters, std::int64_t batch) {
  return clusters * contract.cluster_tiles * batch * contract.slices * contract.bytes_per_slice;
}

struct MapMode {
  std::int64_t extent, stride;  // in elements
  unsigned box;
};

template <unsigned kRank>
TensorMap map_of(std::uint64_t address, std::uint64_t result, int type, std::int64_t bytes, int swizzle,
                 const MapMode (&modes)[kRank]) {
  TensorMap made;
  bool empty = std::any_of(modes, modes + kRank, [](const MapMode& mode) { return mode.extent == 0; });
  if (empty) address = result;  // nothing of it is read, and it may have no address
  std::uint64_t extents[kRank], strides[kRank];
  unsigned box[kRank], ones[kRank];
  for (unsigned i = 0; i < kRank; ++i) {
    extents[i] = empty ? 1 : std::uint64_t(modes[i].extent);
    strides[i] = empty ? 16 : std::uint64_t(modes[i].stride * bytes);
    box[i] = modes[i].box;
    ones[i] = 1;
  }
  // The first mode has no stride. No interleave, 128 bytes of L2 promotion, no fill.
  check(driver().encode(&made, type, kRank, reinterpret_cast<void*>(address), extents, strides + 1, box, ones, 0, swizzle, 2, 0),
        "cuTensorMapEncodeTiled");
  return made;
}
