// Sums of four floats, and of two pairs of halves, by one atomic instruction.
#include <cuda_fp16.h>

extern "C" __global__ void add_rows(const float4 *rows, const int *targets, float4 *sums, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) atomicAdd(&sums[targets[i]], rows[i]);
}

extern "C" __global__ void add_pairs(const __half2 *pairs, __half2 *sums, __half2 *before, int count) {
    const int i = threadIdx.x;
    if (i >= count) return;
    __half2 a = pairs[2 * i], b = pairs[2 * i + 1], old_a, old_b;
    asm volatile("atom.global.add.noftz.v2.f16x2 {%0, %1}, [%2], {%3, %4};"
                 : "=r"(*(unsigned *)&old_a), "=r"(*(unsigned *)&old_b)
                 : "l"(sums), "r"(*(unsigned *)&a), "r"(*(unsigned *)&b)
                 : "memory");
    before[2 * i] = old_a;
    before[2 * i + 1] = old_b;
}
