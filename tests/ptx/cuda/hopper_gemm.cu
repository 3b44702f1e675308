// C = A B^T with wgmma, bulk tensor copies and clusters, by hand: f16 in, f32 sums, f16 out, A and B K-major.
//
// CTAs of three warpgroups: one thread of the first asks for the copies, the two others multiply 64 x 64 each. Two CTAs
// of a cluster share the columns: each loads half of B's tile for both. A stage is given back by one arrival of each
// warpgroup at both CTAs' barriers. The tiles of C leave through shared memory, one bulk store for each warpgroup.
// k is a multiple of 64; the tensor maps see to the edges of m and n.

#include <cuda.h>
#include <cuda_fp16.h>

#include <cstdint>

constexpr int kTileM = 128, kTileN = 64, kTileK = 64, kStages = 3, kCtas = 2, kWarpgroups = 2;
constexpr int kBytesA = kTileM * kTileK * 2, kBytesB = kTileN * kTileK * 2, kStageBytes = kBytesA + kBytesB;
constexpr int kBytesC = kTileM * kTileN * 2;

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

__device__ void arrive_at(uint32_t barrier, int rank) {
    asm volatile(
        "{\n"
        ".reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n"
        "}\n" ::"r"(barrier), "r"(rank) : "memory");
}

__device__ void load(const CUtensorMap* map, uint32_t to, uint32_t barrier, int k, int row) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
        ::"r"(to), "l"(map), "r"(barrier), "r"(k), "r"(row) : "memory");
}

__device__ void load_for_all(const CUtensorMap* map, uint32_t to, uint32_t barrier, int k, int row) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%3, %4}], [%2], %5;"
        ::"r"(to), "l"(map), "r"(barrier), "r"(k), "r"(row), "h"((uint16_t)((1 << kCtas) - 1)) : "memory");
}

// Rows of 64 f16 in the 128-byte swizzle, 8 rows every 1024 bytes.
__device__ uint64_t descriptor(uint32_t address) {
    return (uint64_t)(address >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

__device__ void multiply(float (&d)[32], uint64_t a, uint64_t b, int adds) {
    asm volatile(
        "{\n"
        ".reg .pred adds;\n"
        "setp.ne.b32 adds, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, adds, 1, 1, 0, 0;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
          "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b), "r"(adds));
}

__device__ void store_matrices(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(address), "r"(r0), "r"(r1), "r"(r2), "r"(r3) : "memory");
}

__device__ uint32_t pack(float low, float high) {
    __half2 both = __floats2half2_rn(low, high);
    return reinterpret_cast<uint32_t&>(both);
}

extern "C" __global__ void __cluster_dims__(kCtas, 1, 1) __launch_bounds__(128 * (1 + kWarpgroups))
hopper_gemm(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
            const __grid_constant__ CUtensorMap c, int k) {
    extern __shared__ __align__(1024) uint8_t memory[];
    __shared__ __align__(8) uint64_t barriers[2 * kStages];
    const uint32_t stages = (uint32_t)__cvta_generic_to_shared(memory);
    const uint32_t filled = (uint32_t)__cvta_generic_to_shared(barriers), empty = filled + 8 * kStages;
    const int warpgroup = threadIdx.x / 128, thread = threadIdx.x % 128, rank = blockIdx.x % kCtas;
    const int row = blockIdx.x * kTileM, column = blockIdx.y * kTileN, turns = k / kTileK;

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < kStages; ++stage) {
            init_barrier(filled + 8 * stage, 1);
            init_barrier(empty + 8 * stage, kCtas * kWarpgroups);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");

    if (warpgroup == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (thread == 0) {
#pragma unroll 1
            for (int turn = 0; turn < turns; ++turn) {
                const int stage = turn % kStages, lap = turn / kStages;
                const uint32_t to = stages + stage * kStageBytes, barrier = filled + 8 * stage;
                if (lap > 0) wait(empty + 8 * stage, (lap - 1) & 1);
                expect(barrier, kStageBytes);
                load(&a, to, barrier, turn * kTileK, row);
                load_for_all(&b, to + kBytesA + rank * (kBytesB / kCtas), barrier, turn * kTileK,
                             column + rank * (kTileN / kCtas));
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int half = warpgroup - 1;
        float d[32];
        for (int i = 0; i < 32; ++i) d[i] = 0.0f;
#pragma unroll 1
        for (int turn = 0; turn < turns; ++turn) {
            const int stage = turn % kStages;
            const uint32_t from = stages + stage * kStageBytes;
            wait(filled + 8 * stage, turn / kStages & 1);
            const uint64_t of_a = descriptor(from + half * 64 * kTileK * 2), of_b = descriptor(from + kBytesA);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            for (int step = 0; step < kTileK / 16; ++step) multiply(d, of_a + 2 * step, of_b + 2 * step, turn + step);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            if (turn > 0 && thread < kCtas) arrive_at(empty + 8 * ((turn - 1) % kStages), thread);
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");

        // 64 columns of f16 are a row of 128 bytes, whose chunks of 16 bytes the swizzle exchanges.
        const uint32_t tile = stages + kStages * kStageBytes + half * (kBytesC / kWarpgroups);
        const int line = thread / 32 * 16 + thread % 16, right = thread % 32 / 16;
        for (int chunk = 0; chunk < 8; chunk += 2) {
            const uint32_t place = tile + line * 128 + (((chunk + right) ^ line % 8) << 4);
            const float* v = d + 4 * chunk;
            store_matrices(place, pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7]));
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("bar.sync %0, 128;" ::"r"(warpgroup) : "memory");
        if (thread == 0) {
            asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];"
                         ::"l"(&c), "r"(tile), "r"(column), "r"(row + half * 64) : "memory");
            asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
        }
    }
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
