// The kernel of layouts/wmma_padded_256x128x32.toml, hand-written with nvcuda::wmma: 256x128 of C per CTA, k-tiles of 32,
// 8 warps of 64x64, rows padded by 8 halfs, three stages of cp.async, bands of 16 tiles that alternate in direction. It
// follows the algorithm of the WMMA kernels in Bruce-Lee-LY's cuda_hgemm (github.com/Bruce-Lee-LY/cuda_hgemm); the code
// is our own.

#include "wmma_gemm.h"

#include <cstdint>
#include <mma.h>

namespace {

namespace wmma = nvcuda::wmma;

constexpr int CTA_M = M_MULTIPLE, CTA_N = N_MULTIPLE, CTA_K = K_MULTIPLE, STAGES = 3;
constexpr int WARPS_N = 2, WARPS = 8, THREADS = 32 * WARPS;
constexpr int WARP_MN = 64, WMMA_MNK = 16, WMMAS = WARP_MN / WMMA_MNK, K_BLOCKS = CTA_K / WMMA_MNK;
constexpr int PAD = 8, ROW = CTA_K + PAD, C_ROW = CTA_N + PAD;
constexpr int VECTOR = 8, VECTORS_PER_ROW = CTA_K / VECTOR, ROWS_PER_COPY = THREADS / VECTORS_PER_ROW; // of 16 bytes
constexpr int B_OFFSET = CTA_M * ROW, STAGE_ELEMS = (CTA_M + CTA_N) * ROW;
constexpr int SMEM_ELEMS = STAGES * STAGE_ELEMS > CTA_M * C_ROW ? STAGES * STAGE_ELEMS : CTA_M * C_ROW;
constexpr int BAND = 16; // tiles along N

struct Fragments {
    wmma::fragment<wmma::matrix_a, WMMA_MNK, WMMA_MNK, WMMA_MNK, half, wmma::row_major> a[WMMAS];
    wmma::fragment<wmma::matrix_b, WMMA_MNK, WMMA_MNK, WMMA_MNK, half, wmma::col_major> b[WMMAS];
};
using Accumulator = wmma::fragment<wmma::accumulator, WMMA_MNK, WMMA_MNK, WMMA_MNK, half>;

__device__ __forceinline__ void copy_16_bytes(half *to, const half *from)
{
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}

__device__ __forceinline__ void commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int IN_FLIGHT> __device__ __forceinline__ void wait_group()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(IN_FLIGHT) : "memory");
}

template <int ROWS> __device__ __forceinline__ void fetch_rows(half *to, const half *from, int k)
{
    const int row = threadIdx.x / VECTORS_PER_ROW, column = threadIdx.x % VECTORS_PER_ROW * VECTOR;
#pragma unroll
    for (int i = row; i < row + ROWS; i += ROWS_PER_COPY)
        copy_16_bytes(to + i * ROW + column, from + static_cast<int64_t>(i) * k + column);
}

// Commits one group: a k-tile of A and of B.
__device__ __forceinline__ void fetch(half *stage, const half *a, const half *b, int k)
{
    fetch_rows<CTA_M>(stage, a, k);
    fetch_rows<CTA_N>(stage + B_OFFSET, b, k);
    commit_group();
}

__device__ __forceinline__ void load(Fragments &to, const half *stage, int k_block)
{
    const int warp = threadIdx.x / 32;
    const half *a = stage + warp / WARPS_N * WARP_MN * ROW + k_block * WMMA_MNK;
    const half *b = stage + B_OFFSET + warp % WARPS_N * WARP_MN * ROW + k_block * WMMA_MNK;
#pragma unroll
    for (int i = 0; i < WMMAS; ++i) {
        wmma::load_matrix_sync(to.a[i], a + i * WMMA_MNK * ROW, ROW);
        wmma::load_matrix_sync(to.b[i], b + i * WMMA_MNK * ROW, ROW);
    }
}

__device__ __forceinline__ void multiply(Accumulator (&c)[WMMAS][WMMAS], const Fragments &x)
{
#pragma unroll
    for (int i = 0; i < WMMAS; ++i)
#pragma unroll
        for (int j = 0; j < WMMAS; ++j) {
            const int turned = i % 2 ? WMMAS - 1 - j : j; // consecutive MMAs share a fragment of B
            wmma::mma_sync(c[i][turned], x.a[i], x.b[turned], c[i][turned]);
        }
}

// Writes C to shared memory; then each warp stores 32 complete rows of 256 bytes, 16 bytes per thread.
__device__ __forceinline__ void store(half *smem, Accumulator (&c)[WMMAS][WMMAS], half *to, int n)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    half *mine = smem + warp / WARPS_N * WARP_MN * C_ROW + warp % WARPS_N * WARP_MN;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < WMMAS; ++i)
#pragma unroll
        for (int j = 0; j < WMMAS; ++j)
            wmma::store_matrix_sync(mine + i * WMMA_MNK * C_ROW + j * WMMA_MNK, c[i][j], C_ROW, wmma::mem_row_major);
    __syncthreads();

    constexpr int LANES_PER_ROW = CTA_N / VECTOR, ROWS_PER_WARP = CTA_M / WARPS;
    const int first = warp * ROWS_PER_WARP + lane / LANES_PER_ROW, column = lane % LANES_PER_ROW * VECTOR;
#pragma unroll
    for (int row = first; row < first + ROWS_PER_WARP; row += 32 / LANES_PER_ROW)
        *reinterpret_cast<int4 *>(to + static_cast<int64_t>(row) * n + column) =
            *reinterpret_cast<const int4 *>(smem + row * C_ROW + column);
}

// The grid is (BAND, tiles along M, bands): BAND neighbors along N, then M, then the next band, every second one backwards.
__global__ void __launch_bounds__(THREADS) kernel(Problem problem, const half *a, const half *b, half *c)
{
    const int tile_m = blockIdx.z % 2 ? gridDim.y - 1 - blockIdx.y : blockIdx.y;
    const int tile_n = blockIdx.z * BAND + blockIdx.x;
    if (tile_n * CTA_N >= problem.n)
        return;
    a += static_cast<int64_t>(tile_m) * CTA_M * problem.k;
    b += static_cast<int64_t>(tile_n) * CTA_N * problem.k;
    c += static_cast<int64_t>(tile_m) * CTA_M * problem.n + tile_n * CTA_N;

    extern __shared__ __align__(128) half smem[];
    Accumulator accumulators[WMMAS][WMMAS];
#pragma unroll
    for (int i = 0; i < WMMAS; ++i)
#pragma unroll
        for (int j = 0; j < WMMAS; ++j)
            wmma::fill_fragment(accumulators[i][j], __float2half(0.0f));

    for (int stage = 0; stage < STAGES - 1; ++stage, a += CTA_K, b += CTA_K)
        fetch(smem + stage * STAGE_ELEMS, a, b, problem.k);
    wait_group<STAGES - 2>();
    __syncthreads();

    static_assert(K_BLOCKS == 2 && STAGES == 3, "the loop and its drain are written for these");
    Fragments x[K_BLOCKS];
    half *now = smem, *next = smem + STAGE_ELEMS, *free = smem + 2 * STAGE_ELEMS;
    load(x[0], now, 0);
    for (int left = problem.k / CTA_K; left > STAGES - 1; --left, a += CTA_K, b += CTA_K) {
        load(x[1], now, 1);
        fetch(free, a, b, problem.k);
        multiply(accumulators, x[0]);
        wait_group<1>();
        __syncthreads();
        load(x[0], next, 0);
        multiply(accumulators, x[1]);
        half *read = now;
        now = next, next = free, free = read;
    }
    load(x[1], now, 1);
    multiply(accumulators, x[0]);
    wait_group<0>();
    __syncthreads();
    load(x[0], next, 0);
    multiply(accumulators, x[1]);
    load(x[1], next, 1);
    multiply(accumulators, x[0]);
    multiply(accumulators, x[1]);

    store(smem, accumulators, c, problem.n);
}

} // namespace

cudaError_t wmma_gemm(Problem problem, const half *a, const half *b, half *c, cudaStream_t stream)
{
    constexpr int smem_bytes = SMEM_ELEMS * sizeof(half); // more than the default limit of 48 KiB
    const auto error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes);
    if (error != cudaSuccess)
        return error;
    const int tiles_m = problem.m / CTA_M, tiles_n = problem.n / CTA_N;
    const dim3 grid(BAND, tiles_m, (tiles_n + BAND - 1) / BAND);
    kernel<<<grid, THREADS, smem_bytes, stream>>>(problem, a, b, c);
    return cudaGetLastError();
}
