// Blocks of 64 threads that pass data by mbarriers. In each `wrong_` kernel the mbarrier counts on fewer arrivals than
// there are: a forgotten election, a count of warps where threads arrive, a thread that arrives again without a wait.

#include <cstdint>

constexpr int THREADS = 64, ROUNDS = 4;

__device__ uint32_t address(const void *place) { return (uint32_t)__cvta_generic_to_shared(place); }

__device__ void init(uint64_t *barrier, int count)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address(barrier)), "r"(count) : "memory");
}

__device__ void arrive(uint64_t *barrier, int count = 1)
{
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0], %1; }" ::"r"(address(barrier)), "r"(count)
                 : "memory");
}

__device__ void drop(uint64_t *barrier)
{
    asm volatile("{ .reg .b64 state; mbarrier.arrive_drop.shared.b64 state, [%0]; }" ::"r"(address(barrier)) : "memory");
}

__device__ void wait(uint64_t *barrier, int parity)
{
    asm volatile("{ .reg .pred done; again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1; @!done bra again; }" ::"r"(
                     address(barrier)),
                 "r"(parity)
                 : "memory");
}

// All threads meet, as at __syncthreads(); `who` arrives: everybody (0), a lane of each warp (1), thread 0 for all (2).
template <int count, int who> __device__ void meet(const float *x, float *y)
{
    __shared__ float data[THREADS];
    __shared__ uint64_t barrier;
    const int t = threadIdx.x;
    if (t == 0)
        init(&barrier, count);
    __syncthreads();
    float value = x[t];
    #pragma unroll 1
    for (int round = 0; round < ROUNDS; ++round) {
        data[t] = value;
        if (who == 1)
            __syncwarp();
        if (who == 2)
            __syncthreads();
        if (who == 0 || (who == 1 && (t & 31) == 0) || (who == 2 && t == 0))
            arrive(&barrier, who == 2 ? THREADS : 1);
        wait(&barrier, round & 1);
        value += data[t ^ 1 ^ 32];
        __syncthreads();
    }
    y[t] = value;
}

extern "C" __global__ void everybody(const float *x, float *y) { meet<THREADS, 0>(x, y); }
extern "C" __global__ void a_lane_of_each_warp(const float *x, float *y) { meet<2, 1>(x, y); }
extern "C" __global__ void one_for_all(const float *x, float *y) { meet<THREADS, 2>(x, y); }
extern "C" __global__ void wrong_count_of_warps(const float *x, float *y) { meet<2, 0>(x, y); }
extern "C" __global__ void wrong_count_of_a_warp(const float *x, float *y) { meet<32, 0>(x, y); }
extern "C" __global__ void wrong_count_of_one(const float *x, float *y) { meet<1, 0>(x, y); }
extern "C" __global__ void wrong_one_lane_too_many(const float *x, float *y) { meet<THREADS - 1, 0>(x, y); }

// Warp 0 fills a ring of two slots, warp 1 empties it. `fills` and `frees`: all lanes arrive, or one.
template <int full_count, int empty_count, bool one_fills, bool one_frees>
__device__ void ring(const float *x, float *y)
{
    __shared__ float slots[2][32];
    __shared__ uint64_t full[2], empty[2];
    const int lane = threadIdx.x & 31;
    if (threadIdx.x == 0)
        for (int slot = 0; slot < 2; ++slot) {
            init(&full[slot], full_count);
            init(&empty[slot], empty_count);
        }
    __syncthreads();
    #pragma unroll 1
    for (int i = 0; i < 2 * ROUNDS; ++i) {
        const int slot = i & 1, parity = i >> 1 & 1;
        if (threadIdx.x < 32) {
            wait(&empty[slot], parity ^ 1);
            slots[slot][lane] = x[lane] * i;
            __syncwarp();
            if (!one_fills || lane == 0)
                arrive(&full[slot]);
        } else {
            wait(&full[slot], parity);
            y[32 * i + lane] = slots[slot][lane ^ 1];
            __syncwarp();
            if (!one_frees || lane == 0)
                arrive(&empty[slot]);
        }
    }
}

extern "C" __global__ void ring_of_lanes(const float *x, float *y) { ring<32, 32, false, false>(x, y); }
extern "C" __global__ void ring_of_elected(const float *x, float *y) { ring<1, 1, true, true>(x, y); }
extern "C" __global__ void wrong_everybody_frees(const float *x, float *y) { ring<1, 1, true, false>(x, y); }
extern "C" __global__ void wrong_everybody_fills(const float *x, float *y) { ring<1, 32, false, false>(x, y); }

// The same ring filled by cp.async, whose landing is the arrival: nothing else tells warp 1 that the slot was empty.
template <int empty_count, bool one_frees> __device__ void copies(const float *x, float *y)
{
    __shared__ float slots[2][32];
    __shared__ uint64_t full[2], empty[2];
    const int lane = threadIdx.x & 31;
    if (threadIdx.x == 0)
        for (int slot = 0; slot < 2; ++slot) {
            init(&full[slot], 32);
            init(&empty[slot], empty_count);
        }
    __syncthreads();
    #pragma unroll 1
    for (int i = 0; i < 2 * ROUNDS; ++i) {
        const int slot = i & 1, parity = i >> 1 & 1;
        if (threadIdx.x < 32) {
            wait(&empty[slot], parity ^ 1);
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address(&slots[slot][lane])), "l"(x + lane)
                         : "memory");
            asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(address(&full[slot])) : "memory");
        } else {
            wait(&full[slot], parity);
            y[32 * i + lane] = i * slots[slot][lane ^ 1];
            __syncwarp();
            if (!one_frees || lane == 0)
                arrive(&empty[slot]);
        }
    }
}

extern "C" __global__ void copies_of_lanes(const float *x, float *y) { copies<32, false>(x, y); }
extern "C" __global__ void copies_of_elected(const float *x, float *y) { copies<1, true>(x, y); }
extern "C" __global__ void wrong_everybody_frees_copies(const float *x, float *y) { copies<1, false>(x, y); }

// Warp 1 takes part in the first phase, and in no later one.
extern "C" __global__ void dropped(const float *x, float *y)
{
    __shared__ float sum;
    __shared__ uint64_t barrier;
    const int t = threadIdx.x;
    if (t == 0) {
        init(&barrier, THREADS);
        sum = 0;
    }
    __syncthreads();
    atomicAdd(&sum, x[t]);
    if (t >= 32) {
        drop(&barrier);
        return;
    }
    for (int phase = 0; phase < 2; ++phase) {
        arrive(&barrier);
        wait(&barrier, phase);
    }
    y[t] = sum;
}

// Lanes that arrive on two sides of a branch, for a count of all of them, and for half of them.
template <int count> __device__ void two_sides(const float *x, float *y)
{
    __shared__ float data[THREADS];
    __shared__ uint64_t barrier;
    const int t = threadIdx.x;
    if (t == 0)
        init(&barrier, count);
    __syncthreads();
    if (t & 1) {
        data[t] = x[t];
        arrive(&barrier);
    } else {
        data[t] = -x[t];
        arrive(&barrier);
    }
    wait(&barrier, 0);
    y[t] = data[t ^ 1];
}

extern "C" __global__ void both_sides(const float *x, float *y) { two_sides<THREADS>(x, y); }
extern "C" __global__ void wrong_one_side(const float *x, float *y) { two_sides<THREADS / 2>(x, y); }
