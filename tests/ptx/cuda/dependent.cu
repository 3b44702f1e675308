// Kernels that begin while the one before still runs, and wait for it before they use what it writes.
#include <stdint.h>

// Weights are constant; inputs come from the kernel before.
extern "C" __global__ void scale(const float *inputs, const float *weights, float *out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float weight = weights[i];
    asm volatile("griddepcontrol.wait;" ::: "memory");
    out[i] = weight * inputs[i];
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// One thread waits for all; the others are ordered after it by the barrier.
extern "C" __global__ void scale_after_barrier(const float *inputs, const float *weights, float *out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float weight = weights[i];
    if (threadIdx.x == 0) asm volatile("griddepcontrol.wait;" ::: "memory");
    __syncthreads();
    out[i] = weight * inputs[i];
}
