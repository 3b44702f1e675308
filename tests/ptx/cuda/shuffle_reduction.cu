// Sums of segments of float32 and counts of their negative values: warp shuffles, votes, divergence inside warps,
// shared memory between warps, one integer atomic for the whole grid. A segment is one CTA's share of the input.

extern "C" __global__ void shuffle_reduction(const float *x, float *sums, int *negatives, unsigned *histogram, int length)
{
    __shared__ float partial[32];
    __shared__ int bins[8];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
    if (threadIdx.x < 8)
        bins[threadIdx.x] = 0;
    __syncthreads();

    float sum = 0.0f;
    int negative = 0;
    for (int i = threadIdx.x; i < length; i += blockDim.x) {
        const float value = x[(long long)blockIdx.x * length + i];
        if (value < 0.0f) { // lanes part here
            ++negative;
            sum += 0.5f * value;
            if (value < -1.0f)
                atomicAdd(&bins[(int)(-value) & 7], 1);
        } else if (lane & 1) {
            sum += value * value;
        } else {
            sum += value;
        }
    }
    for (int offset = 16; offset > 0; offset >>= 1)
        sum += __shfl_down_sync(0xffffffffu, sum, offset);
    negative = __reduce_add_sync(0xffffffffu, negative);
    const unsigned odd = __ballot_sync(0xffffffffu, negative & 1);
    if (lane == 0) {
        partial[warp] = sum;
        atomicAdd(&negatives[blockIdx.x], negative);
        if (odd)
            atomicXor(&histogram[8], 1u << warp);
    }
    __syncthreads();
    if (warp == 0) {
        float total = lane < warps ? partial[lane] : 0.0f;
        for (int offset = 1; offset < 32; offset <<= 1)
            total += __shfl_xor_sync(0xffffffffu, total, offset);
        if (lane == 0)
            sums[blockIdx.x] = total;
    } else if (warp == 1 && lane < 8) {
        atomicAdd(&histogram[lane], (unsigned)bins[lane]);
    }
}
