// C (f32, row-major) = A (f16, row-major M x K) * B (f16, N x K): 64x64x32 tiles, 4 warps, 3 stages of cp.async in
// dynamic shared memory (24 KiB), XOR swizzle, ldmatrix, mma.sync.m16n8k16. M and N any, K a multiple of 8.

#include <cuda_fp16.h>
#include <cstdint>

namespace {
constexpr int BM = 64, BN = 64, BK = 32, STAGES = 3;
constexpr int TILE_BYTES = BM * BK * 2, STAGE_BYTES = 2 * TILE_BYTES;

// Byte offset of 16-byte chunk `chunk` of row `row` in a tile of 64-byte rows; the swizzle keeps 8 rows apart in the banks.
__device__ __forceinline__ uint32_t place(int row, int chunk)
{
    return row * (BK * 2) + ((chunk ^ ((row >> 1) & 3)) << 4);
}

__device__ __forceinline__ void copy16(uint32_t to, const void *from, bool valid)
{
    const int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}

__device__ __forceinline__ void load_tile(uint32_t to, const __half *from, int rows, int K, int row0, int k0)
{
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int piece = threadIdx.x + i * 128, row = piece >> 2, chunk = piece & 3;
        const bool valid = row0 + row < rows && k0 + chunk * 8 < K;
        const __half *source = valid ? from + (long long)(row0 + row) * K + k0 + chunk * 8 : from;
        copy16(to + place(row, chunk), source, valid);
    }
}

__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
} // namespace

extern "C" __global__ void __launch_bounds__(128)
    pipelined_gemm(const __half *A, const __half *B, float *C, int M, int N, int K)
{
    extern __shared__ __align__(128) unsigned char memory[];
    const uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(memory));
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    const int warp_m = (warp >> 1) * 32, warp_n = (warp & 1) * 32;
    const int tiles = (K + BK - 1) / BK;
    float c[2][4][4] = {};

    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < tiles) {
            load_tile(base + s * STAGE_BYTES, A, M, K, row0, s * BK);
            load_tile(base + s * STAGE_BYTES + TILE_BYTES, B, N, K, col0, s * BK);
        }
        asm volatile("cp.async.commit_group;");
    }
    for (int t = 0; t < tiles; ++t) {
        asm volatile("cp.async.wait_group 1;");
        __syncthreads();
        const int next = t + STAGES - 1;
        if (next < tiles) {
            const uint32_t to = base + next % STAGES * STAGE_BYTES;
            load_tile(to, A, M, K, row0, next * BK);
            load_tile(to + TILE_BYTES, B, N, K, col0, next * BK);
        }
        asm volatile("cp.async.commit_group;");
        const uint32_t tile_a = base + t % STAGES * STAGE_BYTES, tile_b = tile_a + TILE_BYTES;
#pragma unroll
        for (int k = 0; k < BK / 16; ++k) {
            uint32_t a[2][4], b[2][4];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int row = warp_m + i * 16 + (lane & 15), col = warp_n + i * 16 + (lane & 7) + (lane >> 4) * 8;
                ldmatrix_x4(a[i], tile_a + place(row, k * 2 + (lane >> 4)));
                ldmatrix_x4(b[i], tile_b + place(col, k * 2 + (lane >> 3 & 1)));
            }
#pragma unroll
            for (int i = 0; i < 2; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    mma(c[i][j], a[i], b[j >> 1][(j & 1) * 2], b[j >> 1][(j & 1) * 2 + 1]);
        }
    }
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j)
            for (int v = 0; v < 4; ++v) {
                const int row = row0 + warp_m + i * 16 + (lane >> 2) + (v >> 1) * 8;
                const int col = col0 + warp_n + j * 8 + (lane & 3) * 2 + (v & 1);
                if (row < M && col < N)
                    C[(long long)row * N + col] = c[i][j][v];
            }
}
