// C = A B^T with tcgen05 by hand: persistent, a warp for each role, of one CTA or of two that multiply together.
//
// Warp 4 loads, warp 5 multiplies (in a pair that of the even CTA, for both), warps 0 to 3 store their quarters of the
// lanes. Two stages of 128 bytes of K, two accumulators. A pair has 256 rows: each CTA loads its 128 rows of A and half
// of B's rows, and both loads signal the barrier of the even CTA. k is a multiple of 128 bytes; tiles of rows only.

#include <cuda.h>

#include <cstdint>

constexpr int kRows = 128, kRowBytes = 128, kStages = 2, kSums = 2, kStepBytes = 32;
constexpr int kLoader = 4, kMultiplier = 5, kThreads = 192;
enum Kind { kF16, kBf16, kTf32, kE4m3, kS8 };

__device__ uint32_t shared(const void* place) { return (uint32_t)__cvta_generic_to_shared(place); }

__device__ void init_barrier(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ void wait(uint32_t barrier, int parity) {
    asm volatile(
        "{\n"
        ".reg .pred P;\n"
        "AGAIN: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 P, [%0], %1;\n"
        "@!P bra AGAIN;\n"
        "}\n" ::"r"(barrier), "r"(parity) : "memory");
}

__device__ void expect(uint32_t barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ void arrive_at_even(uint32_t barrier) {
    asm volatile(
        "{\n"
        ".reg .b32 there, rank;\n"
        "mov.u32 rank, %%cluster_ctarank;\n"
        "and.b32 rank, rank, 14;\n"
        "mapa.shared::cluster.u32 there, %0, rank;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n"
        "}\n" ::"r"(barrier) : "memory");
}

__device__ void before_sync() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ void after_sync() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

#define LOAD(GROUP)                                                                                                    \
    asm volatile("cp.async.bulk.tensor.2d" GROUP ".shared::cluster.global.tile.mbarrier::complete_tx::bytes"           \
                 " [%0], [%1, {%3, %4}], [%2];" ::"r"(to), "l"(map), "r"(barrier), "r"(k), "r"(row) : "memory")
#define MULTIPLY(GROUP, KIND)                                                                                          \
    asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %4, 0;\n"                                                     \
                 "tcgen05.mma.cta_group::" GROUP ".kind::" KIND " [%0], %1, %2, %3, adds;\n}\n"                        \
                 ::"r"(d), "l"(a), "l"(b), "r"(idesc), "r"(adds) : "memory")

// The two CTAs of a pair, or one: instructions whose text names the group.
template <int kCtas>
struct Group {
    static __device__ void meet() {
        if constexpr (kCtas == 2) asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
        else __syncthreads();
    }
    static __device__ void load(const CUtensorMap* map, uint32_t to, uint32_t barrier, int k, int row) {
        if constexpr (kCtas == 2) LOAD(".cta_group::2");
        else LOAD("");
    }
    template <Kind kKind>
    static __device__ void multiply(uint32_t d, uint64_t a, uint64_t b, uint32_t idesc, int adds) {
        if constexpr (kCtas == 2) {
            if constexpr (kKind == kF16 || kKind == kBf16) MULTIPLY("2", "f16");
            if constexpr (kKind == kTf32) MULTIPLY("2", "tf32");
            if constexpr (kKind == kE4m3) MULTIPLY("2", "f8f6f4");
            if constexpr (kKind == kS8) MULTIPLY("2", "i8");
        } else {
            if constexpr (kKind == kF16 || kKind == kBf16) MULTIPLY("1", "f16");
            if constexpr (kKind == kTf32) MULTIPLY("1", "tf32");
            if constexpr (kKind == kE4m3) MULTIPLY("1", "f8f6f4");
            if constexpr (kKind == kS8) MULTIPLY("1", "i8");
        }
    }
    static __device__ void commit(uint32_t barrier) {
        if constexpr (kCtas == 2)
            asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;"
                         ::"r"(barrier), "h"((uint16_t)3) : "memory");
        else
            asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier) : "memory");
    }
    static __device__ void allocate(uint32_t place, int columns) {
        if constexpr (kCtas == 2)
            asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;\n"
                         "tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;" ::"r"(place), "r"(columns) : "memory");
        else
            asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;\n"
                         "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::"r"(place), "r"(columns) : "memory");
    }
    static __device__ void free(uint32_t address, int columns) {
        if constexpr (kCtas == 2) asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns));
        else asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns));
    }
};

// Rows of 128 bytes in the 128-byte swizzle, 8 rows every 1024 bytes, K-major.
__device__ uint64_t descriptor(uint32_t address) {
    return (uint64_t)(address >> 4 & 0x3FFF) | 1ull << 16 | 64ull << 32 | 1ull << 46 | 2ull << 61;
}

__device__ constexpr uint32_t instruction(Kind kind, int m, int n) {
    const uint32_t type = kind == kTf32 ? 2 : kind == kBf16 || kind == kS8 ? 1 : 0, sums = kind == kS8 ? 2 : 1;
    return sums << 4 | type << 7 | type << 10 | (uint32_t)(n >> 3) << 17 | (uint32_t)(m >> 4) << 24;
}

// The place of the even CTA's barrier: shared addresses have the rank from bit 24 on.
__device__ uint32_t even(uint32_t barrier) { return barrier & 0xFEFFFFFF; }

__device__ void load_sums(uint32_t (&d)[16], uint32_t address) {
    asm volatile(
        "tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, [%16];"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]), "=r"(d[4]), "=r"(d[5]), "=r"(d[6]), "=r"(d[7]), "=r"(d[8]),
          "=r"(d[9]), "=r"(d[10]), "=r"(d[11]), "=r"(d[12]), "=r"(d[13]), "=r"(d[14]), "=r"(d[15])
        : "r"(address));
}

template <Kind kKind, int kCtas, int kN>
__device__ void gemm(const CUtensorMap* a, const CUtensorMap* b, uint32_t* c, int tiles, int k_bytes) {
    using Group = Group<kCtas>;
    constexpr int kElementBytes = kKind == kTf32 ? 4 : kKind == kF16 || kKind == kBf16 ? 2 : 1;
    constexpr int kBytesA = kRows * kRowBytes, kBytesB = kN / kCtas * kRowBytes, kStageBytes = kBytesA + kBytesB;
    constexpr int kColumns = kSums * kN < 32 ? 32 : kSums * kN;
    constexpr uint32_t kInstruction = instruction(kKind, kRows * kCtas, kN);
    extern __shared__ __align__(1024) uint8_t memory[];
    __shared__ __align__(8) uint64_t barriers[2 * kStages + 2 * kSums];
    __shared__ uint32_t address;
    const uint32_t stages = shared(memory), full = shared(barriers), empty = full + 8 * kStages;
    const uint32_t sums_full = empty + 8 * kStages, sums_empty = sums_full + 8 * kSums;
    const int warp = threadIdx.x / 32, rank = kCtas == 2 ? blockIdx.x % 2 : 0, turns = k_bytes / kRowBytes;
    const int first = blockIdx.x / kCtas, step = gridDim.x / kCtas;

    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; ++i) init_barrier(full + 8 * i, 1), init_barrier(empty + 8 * i, 1);
        for (int i = 0; i < kSums; ++i) init_barrier(sums_full + 8 * i, 1), init_barrier(sums_empty + 8 * i, 128 * kCtas);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    Group::meet();
    if (warp == kMultiplier) Group::allocate(shared(&address), kColumns);
    before_sync();
    Group::meet();
    after_sync();
    const uint32_t columns = address;

    if (threadIdx.x == 32 * kLoader) {
        int turn = 0;
#pragma unroll 1
        for (int tile = first; tile < tiles; tile += step) {
#pragma unroll 1
            for (int k = 0; k < turns; ++k, ++turn) {
                const int stage = turn % kStages, lap = turn / kStages;
                const uint32_t to = stages + stage * kStageBytes, barrier = full + 8 * stage;
                wait(empty + 8 * stage, (lap & 1) ^ 1);
                if (rank == 0) expect(barrier, kCtas * kStageBytes);
                const int at = k * kRowBytes / kElementBytes;
                Group::load(a, to, even(barrier), at, (tile * kCtas + rank) * kRows);
                Group::load(b, to + kBytesA, even(barrier), at, rank * (kN / kCtas));
            }
        }
    } else if (threadIdx.x == 32 * kMultiplier && rank == 0) {
        int turn = 0, count = 0;
#pragma unroll 1
        for (int tile = first; tile < tiles; tile += step, ++count) {
            const int which = count % kSums;
            wait(sums_empty + 8 * which, (count / kSums & 1) ^ 1);
            after_sync();
#pragma unroll 1
            for (int k = 0; k < turns; ++k, ++turn) {
                const int stage = turn % kStages;
                const uint32_t from = stages + stage * kStageBytes;
                wait(full + 8 * stage, turn / kStages & 1);
                after_sync();
                for (int i = 0; i < kRowBytes / kStepBytes; ++i)
                    Group::template multiply<kKind>(columns + which * kN, descriptor(from + i * kStepBytes),
                                                    descriptor(from + kBytesA + i * kStepBytes), kInstruction, k + i);
                Group::commit(empty + 8 * stage);
            }
            Group::commit(sums_full + 8 * which);
        }
    } else if (warp < 4) {
        int count = 0;
#pragma unroll 1
        for (int tile = first; tile < tiles; tile += step, ++count) {
            const int which = count % kSums, row = (tile * kCtas + rank) * kRows + threadIdx.x;
            wait(sums_full + 8 * which, count / kSums & 1);
            after_sync();
#pragma unroll 1
            for (int n = 0; n < kN; n += 16) {
                uint32_t d[16];
                load_sums(d, columns + which * kN + n + (warp << 21));
                asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
                for (int i = 0; i < 16; ++i) c[row * kN + n + i] = d[i];
            }
            before_sync();
            arrive_at_even(sums_empty + 8 * which);
        }
    }
    __syncwarp();
    before_sync();
    Group::meet();
    after_sync();
    if (warp == kMultiplier) Group::free(columns, kColumns);
    if (kCtas == 2) Group::meet();
}

#define KERNEL(NAME, KIND, CTAS, N)                                                                                    \
    extern "C" __global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(kThreads)                                \
    NAME(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, uint32_t* c, int tiles,         \
         int k_bytes) {                                                                                                \
        gemm<KIND, CTAS, N>(&a, &b, c, tiles, k_bytes);                                                                \
    }

KERNEL(umma_f16, kF16, 1, 64)
KERNEL(umma_bf16_narrow, kBf16, 1, 16)
KERNEL(umma_tf32, kTf32, 1, 32)
KERNEL(umma_e4m3, kE4m3, 1, 128)
KERNEL(umma_s8, kS8, 1, 32)
KERNEL(umma_f16_pair, kF16, 2, 128)
KERNEL(umma_tf32_pair, kTf32, 2, 32)
KERNEL(umma_e4m3_pair, kE4m3, 2, 64)
KERNEL(umma_s8_pair, kS8, 2, 64)
