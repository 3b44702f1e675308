// Kernels whose blocks wait for each other: by a cooperative group, or by the time of the launch.
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

extern "C" __global__ void rotate(int *numbers, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int block = blockDim.x;
    numbers[i] = 3 * i;
    cg::this_grid().sync();
    numbers[count + i] = numbers[(i + block) % count];
    cg::this_grid().sync();
    numbers[i] = numbers[count + (i + block) % count];
}

// A waiter that gives up after a while says so.
extern "C" __global__ void wait_for_flag(volatile int *flag, int *seen, long long patience) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (*flag == 0 && now - start < patience);
    *seen = *flag != 0 ? 1 : -1;
}
