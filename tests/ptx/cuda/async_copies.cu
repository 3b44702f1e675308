// Asynchronous copies that an mbarrier tracks: cp.async of each thread, and bulk copies of runs of bytes.
#include <cuda_fp16.h>
#include <stdint.h>

__device__ __forceinline__ uint32_t shared_address(const void *place) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(place));
}

__device__ __forceinline__ void init(uint64_t *barrier, int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void wait(uint64_t *barrier, int parity) {
    asm volatile(
        "{\n .reg .pred done;\n"
        "again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n @!done bra again;\n}"
        ::"r"(shared_address(barrier)), "r"(parity) : "memory");
}

constexpr int THREADS = 128, STAGES = 3;

// Adds up tiles of 128 x 4 floats; a stage is full when the copies of all threads have arrived at its mbarrier.
extern "C" __global__ void sum_of_tiles(const float4 *tiles, float4 *sums, int count) {
    __shared__ float4 stage[STAGES][THREADS];
    __shared__ uint64_t full[STAGES];
    const int i = threadIdx.x;
    if (i == 0)
        for (int s = 0; s < STAGES; ++s) init(&full[s], THREADS);
    __syncthreads();
    float4 sum = {0, 0, 0, 0};
    for (int tile = 0; tile < count + STAGES - 1; ++tile) {
        if (tile < count) {
            const int s = tile % STAGES;
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                         ::"r"(shared_address(&stage[s][i])), "l"(tiles + tile * THREADS + i) : "memory");
            asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(&full[s])) : "memory");
        }
        const int ready = tile - (STAGES - 1);
        if (ready >= 0) {
            const int s = ready % STAGES;
            wait(&full[s], ready / STAGES & 1);
            const float4 value = stage[s][THREADS - 1 - i];
            sum.x += value.x, sum.y += value.y, sum.z += value.z, sum.w += value.w;
            __syncthreads();
        }
    }
    sums[i] = sum;
}

// The same of one tile; every thread arrives by itself, and its copy only delays the phase.
extern "C" __global__ void mirror(const float4 *tile, float4 *out) {
    __shared__ float4 stage[THREADS];
    __shared__ uint64_t full;
    const int i = threadIdx.x;
    if (i == 0) init(&full, THREADS);
    __syncthreads();
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(shared_address(&stage[i])), "l"(tile + i) : "memory");
    asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" ::"r"(shared_address(&full)) : "memory");
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(&full)) : "memory");
    wait(&full, 0);
    out[i] = stage[THREADS - 1 - i];
}

constexpr int ROW = 256;

// Scales a row per block: one thread loads it by a bulk copy, and stores it, or adds it to a sum, by another.
template <bool ADDS> __device__ __forceinline__ void scale_row(const float *rows, float *out, float factor) {
    __shared__ alignas(16) float row[ROW];
    __shared__ uint64_t full;
    const int i = threadIdx.x;
    if (i == 0) {
        init(&full, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(rows + blockIdx.x * ROW), "r"(ROW * 4));
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(&full)), "r"(ROW * 4) : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
            ::"r"(shared_address(row)), "l"(rows + blockIdx.x * ROW), "r"(ROW * 4), "r"(shared_address(&full)) : "memory");
    }
    __syncthreads();
    wait(&full, 0);
    for (int j = i; j < ROW; j += blockDim.x) row[j] *= factor;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (i == 0) {
        if (ADDS)
            asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;"
                         ::"l"(out), "r"(shared_address(row)), "r"(ROW * 4) : "memory");
        else
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                         ::"l"(out + blockIdx.x * ROW), "r"(shared_address(row)), "r"(ROW * 4) : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
}

extern "C" __global__ void scale_rows(const float *rows, float *out, float factor) { scale_row<false>(rows, out, factor); }
extern "C" __global__ void add_scaled_rows(const float *rows, float *sum, float factor) { scale_row<true>(rows, sum, factor); }
