// Prints how fast few CTAs read, side by side and on every second multiprocessor: nvcc -arch=sm_90 -o spread
// tests/gpu/spread.cu && ./spread
//
// A CTA takes nearly all shared memory, so that it has a multiprocessor to itself, and streams its share of a buffer by
// bulk copies through a ring of stages, as the kernels of wgmma do. "x 2" launches twice as many CTAs, of which every
// second leaves at once. What an H100 printed is what LaunchContract.spread and cutegen/plan/schedules.py go by.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

constexpr int CHUNK_BYTES = 32 * 1024, STAGES = 6, THREADS = 128, ROUNDS = 11;
constexpr long BUFFERS_BYTES = 512L << 20;  // of all launches of a graph that reads device memory
constexpr int LAUNCHES = 48;

__device__ uint32_t shared_address(const void* pointer) { return uint32_t(__cvta_generic_to_shared(pointer)); }

__device__ void wait(uint32_t barrier, int phase) {
  asm volatile(
      "{.reg .pred done; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @done bra END; bra AGAIN; "
      "END: }" ::"r"(barrier),
      "r"(phase)
      : "memory");
}

__global__ void __launch_bounds__(THREADS) read_share(const char* buffer, int chunks, int stride, int* seen) {
  extern __shared__ __align__(1024) char stages[];
  __shared__ uint64_t full[STAGES];
  if (blockIdx.x % stride || threadIdx.x) return;
  for (int stage = 0; stage < STAGES; stage++)
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(full + stage)));
  asm volatile("fence.mbarrier_init.release.cluster;");
  const char* share = buffer + long(blockIdx.x / stride) * chunks * CHUNK_BYTES;
  auto copy = [&](int chunk) {
    uint32_t barrier = shared_address(full + chunk % STAGES);
    uint32_t to = shared_address(stages + chunk % STAGES * CHUNK_BYTES);
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(CHUNK_BYTES));
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(share + long(chunk) * CHUNK_BYTES), "r"(CHUNK_BYTES), "r"(barrier)
        : "memory");
  };
  int sum = 0;
  for (int chunk = 0; chunk < min(STAGES, chunks); chunk++) copy(chunk);
  for (int chunk = 0; chunk < chunks; chunk++) {
    wait(shared_address(full + chunk % STAGES), chunk / STAGES & 1);
    sum += *reinterpret_cast<volatile int*>(stages + chunk % STAGES * CHUNK_BYTES);
    if (chunk + STAGES < chunks) copy(chunk + STAGES);
  }
  if (sum == 1) *seen = sum;
}

// TB/s of launches behind each other in a graph, each on the next of the buffers.
double rate(const char* buffers, long bytes, int count, int ctas, int stride, int* seen) {
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  cudaEvent_t begin, end;
  cudaStreamCreate(&stream);
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  int chunks = int(bytes / ctas / CHUNK_BYTES);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  for (int launch = 0; launch < LAUNCHES; launch++) {
    const char* buffer = buffers + launch % count * bytes;
    read_share<<<ctas * stride, THREADS, STAGES * CHUNK_BYTES, stream>>>(buffer, chunks, stride, seen);
  }
  cudaStreamEndCapture(stream, &graph);
  cudaGraphInstantiate(&ready, graph, 0);
  std::vector<float> milliseconds(ROUNDS);
  for (float& each : milliseconds) {
    cudaEventRecord(begin, stream);
    cudaGraphLaunch(ready, stream);
    cudaEventRecord(end, stream);
    cudaEventSynchronize(end);
    cudaEventElapsedTime(&each, begin, end);
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  cudaGraphExecDestroy(ready);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  return double(chunks) * CHUNK_BYTES * ctas * LAUNCHES / milliseconds[ROUNDS / 2] * 1e-9;
}

int main() {
  char* buffers;
  int* seen;
  cudaMalloc(&buffers, BUFFERS_BYTES);
  cudaMalloc(&seen, sizeof(int));
  cudaMemset(buffers, 1, BUFFERS_BYTES);
  cudaFuncSetAttribute(read_share, cudaFuncAttributeMaxDynamicSharedMemorySize, STAGES * CHUNK_BYTES);
  const long bytes = 32L << 20;
  for (bool in_l2 : {true, false})
    for (int ctas : {8, 16, 32, 64, 128}) {
      int count = in_l2 ? 1 : int(BUFFERS_BYTES / bytes);
      printf("%s, TB/s of %3d CTAs:", in_l2 ? "L2" : "device memory", ctas);
      for (int stride : {1, 2, 4})
        if (ctas * stride <= 128) printf(" x %d %5.2f", stride, rate(buffers, bytes, count, ctas, stride, seen));
      printf("\n");
    }
  cudaError_t failed = cudaDeviceSynchronize();
  if (failed) printf("%s\n", cudaGetErrorString(failed));
  return failed != cudaSuccess;
}
