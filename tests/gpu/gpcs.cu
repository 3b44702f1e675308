// Prints which GPC each CTA of a launch runs on: nvcc -arch=sm_90 -o gpcs tests/gpu/gpcs.cu && ./gpcs
//
// A CTA that takes nearly all shared memory has a multiprocessor to itself. No register holds the number of its GPC,
// but a cluster never leaves one: multiprocessors (%smid) that were seen in one cluster are of one GPC. What an H100
// printed is what cutegen/plan/schedule/order.py goes by: without clusters 16 or 18 CTAs side by side, clusters in
// turn.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

constexpr int MULTIPROCESSORS = 132, THREADS = 384, SMEM_BYTES = 200 * 1024, LAUNCHES = 20;
constexpr long long CYCLES = 20000;  // long enough that all CTAs of a launch are there at once

__global__ void note_multiprocessor(int* of_cta) {
  unsigned smid;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(smid));
  if (threadIdx.x == 0) of_cta[blockIdx.x] = int(smid);
  for (long long start = clock64(); clock64() - start < CYCLES;) {
  }
}

// The multiprocessor of each of `ctas` CTAs in clusters of `cluster`, 1 for a launch without clusters.
std::vector<int> launched(int ctas, int cluster, int* on_device) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(ctas);
  config.blockDim = dim3(THREADS);
  config.dynamicSmemBytes = SMEM_BYTES;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = cluster;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  config.attrs = &attribute;
  config.numAttrs = cluster > 1;
  std::vector<int> found(ctas, -1);
  cudaLaunchKernelEx(&config, note_multiprocessor, on_device);
  cudaDeviceSynchronize();
  if (cudaError_t refused = cudaGetLastError()) {
    printf("clusters of %d: %s\n", cluster, cudaGetErrorString(refused));
    return {};
  }
  cudaMemcpy(found.data(), on_device, ctas * sizeof(int), cudaMemcpyDeviceToHost);
  return found;
}

int main() {
  int* on_device;
  cudaMalloc(&on_device, 4096 * sizeof(int));
  cudaFuncSetAttribute(note_multiprocessor, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES);
  cudaFuncSetAttribute(note_multiprocessor, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  std::vector<int> gpc(256);
  for (int sm = 0; sm < 256; sm++) gpc[sm] = sm;
  for (int cluster : {2, 4, 8, 16})
    for (int launch = 0; launch < LAUNCHES; launch++) {
      std::vector<int> sms = launched(32 * cluster, cluster, on_device);
      for (size_t cta = 0; cta < sms.size(); cta++) {
        int from = gpc[sms[cta]], to = gpc[sms[cta / cluster * cluster]];
        for (int& each : gpc)
          if (each == from) each = to;
      }
    }
  for (int cluster : {1, 2, 4}) {
    printf("clusters of %d, the GPC of each CTA by one of its multiprocessors:", cluster);
    for (int sm : launched(MULTIPROCESSORS / cluster * cluster, cluster, on_device)) printf(" %d", gpc[sm]);
    printf("\n");
  }
}
