// Bulk stores of 64 numbers to global memory, which the block then uses again. `.read` waits until shared memory may be
// written, not until global memory has the numbers: after it alone the `wrong_` kernels read, change or copy them.

#include <cstdint>

constexpr int THREADS = 64, BYTES = 4 * THREADS;

__device__ uint32_t address(const void *place) { return (uint32_t)__cvta_generic_to_shared(place); }

__device__ void store(int *to, const int *from)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(address(from)), "n"(BYTES)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

template <bool whole, int newest = 0> __device__ void wait()
{
    if (whole)
        asm volatile("cp.async.bulk.wait_group %0;" ::"n"(newest) : "memory");
    else
        asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(newest) : "memory");
}

enum Use { OWN_THREAD, OTHER_THREAD, ATOMIC, OVERWRITE, BULK_LOAD, VOLATILE };

template <bool whole, int use> __device__ void again(const int *x, int *work, int *y)
{
    __shared__ __align__(128) int numbers[THREADS], back[THREADS];
    __shared__ uint64_t full;
    const int t = threadIdx.x;
    numbers[t] = x[t] + 1;
    if (use == BULK_LOAD && t == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(address(&full)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (t == 0) {
        store(work, numbers);
        wait<whole>();
        if (use == OWN_THREAD)
            y[0] = work[9];
        if (use == VOLATILE)
            y[0] = *(volatile int *)&work[9];
        if (use == ATOMIC)
            y[0] = atomicAdd(&work[9], 1);
        if (use == OVERWRITE) {
            work[9] = 5;
            y[0] = 5;
        }
        if (use == BULK_LOAD) {
            asm volatile("{ .reg .b64 s; mbarrier.arrive.expect_tx.shared.b64 s, [%0], %1; }" ::"r"(address(&full)),
                         "n"(BYTES)
                         : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                             address(back)),
                         "l"(work), "n"(BYTES), "r"(address(&full))
                         : "memory");
            asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra again; }" ::"r"(
                             address(&full))
                         : "memory");
            y[0] = back[9];
        }
    }
    if (use == OTHER_THREAD) {
        __syncthreads();
        if (t == 33)
            y[0] = work[9];
    }
}

#define KERNEL(name, ...)                                                                                              \
    extern "C" __global__ void name(const int *x, int *work, int *y) { again<__VA_ARGS__>(x, work, y); }

KERNEL(own_thread, true, OWN_THREAD)
KERNEL(other_thread, true, OTHER_THREAD)
KERNEL(volatile_read, true, VOLATILE)
KERNEL(atomic, true, ATOMIC)
KERNEL(overwrite, true, OVERWRITE)
KERNEL(bulk_load, true, BULK_LOAD)
KERNEL(wrong_own_thread, false, OWN_THREAD)
KERNEL(wrong_other_thread, false, OTHER_THREAD)
KERNEL(wrong_volatile_read, false, VOLATILE)
KERNEL(wrong_atomic, false, ATOMIC)
KERNEL(wrong_overwrite, false, OVERWRITE)
KERNEL(wrong_bulk_load, false, BULK_LOAD)

// Two stores; the thread reads what the first has stored, and waits for all but the newest.
template <bool whole, int read> __device__ void two(const int *x, int *work, int *y)
{
    __shared__ __align__(128) int numbers[2][THREADS];
    const int t = threadIdx.x;
    numbers[0][t] = x[t] + 1;
    numbers[1][t] = x[t] + 2;
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (t == 0) {
        store(work, numbers[0]);
        store(work + THREADS, numbers[1]);
        wait<whole, 1>();
        y[0] = work[read * THREADS + 9];
        wait<true>();
    }
}

extern "C" __global__ void first_of_two(const int *x, int *work, int *y) { two<true, 0>(x, work, y); }
extern "C" __global__ void wrong_first_of_two(const int *x, int *work, int *y) { two<false, 0>(x, work, y); }
extern "C" __global__ void wrong_second_of_two(const int *x, int *work, int *y) { two<true, 1>(x, work, y); }
