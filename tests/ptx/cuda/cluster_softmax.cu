// Softmax of rows that a cluster shares: each CTA holds a part of a row in its shared memory, the CTAs tell each other
// their maxima and sums through distributed shared memory, and a counter on the first CTA's memory says how many finite
// values there were. Sums are added in the order of the ranks, so the result has the same bits every time.

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

constexpr int THREADS = 128, PART = 512;

__device__ float over_cta(float value, float *scratch, bool maximum)
{
    for (int offset = 16; offset > 0; offset >>= 1) {
        const float other = __shfl_xor_sync(0xffffffffu, value, offset);
        value = maximum ? fmaxf(value, other) : value + other;
    }
    if ((threadIdx.x & 31) == 0)
        scratch[threadIdx.x >> 5] = value;
    __syncthreads();
    value = scratch[0];
    for (int warp = 1; warp < THREADS / 32; ++warp)
        value = maximum ? fmaxf(value, scratch[warp]) : value + scratch[warp];
    __syncthreads();
    return value;
}

__device__ float over_cluster(cg::cluster_group cluster, float *mine, bool maximum)
{
    float value = *cluster.map_shared_rank(mine, 0);
    for (unsigned rank = 1; rank < cluster.num_blocks(); ++rank) {
        const float other = *cluster.map_shared_rank(mine, rank);
        value = maximum ? fmaxf(value, other) : value + other;
    }
    return value;
}

extern "C" __global__ void __cluster_dims__(4, 1, 1)
cluster_softmax(const float *x, float *y, int *finite, int length)
{
    __shared__ float part[PART], scratch[THREADS / 32], told[2];
    __shared__ int count;
    cg::cluster_group cluster = cg::this_cluster();
    const int row = blockIdx.x / cluster.num_blocks(), rank = cluster.block_rank();
    const float *source = x + (long long)row * length + rank * PART;
    const int size = max(0, min(PART, length - rank * PART));
    if (threadIdx.x == 0)
        count = 0;

    float largest = -INFINITY;
    int seen = 0;
    for (int i = threadIdx.x; i < size; i += THREADS) {
        part[i] = source[i];
        largest = fmaxf(largest, part[i]);
        seen += isfinite(part[i]) ? 1 : 0;
    }
    largest = over_cta(largest, scratch, true);
    if (threadIdx.x == 0)
        told[0] = largest;
    cluster.sync(); // from here on every CTA has begun, and its maximum and counter are there
    atomicAdd(cluster.map_shared_rank(&count, 0), seen);
    largest = over_cluster(cluster, &told[0], true);

    float sum = 0.0f;
    for (int i = threadIdx.x; i < size; i += THREADS) {
        part[i] = expf(part[i] - largest);
        sum += part[i];
    }
    sum = over_cta(sum, scratch, false);
    if (threadIdx.x == 0)
        told[1] = sum;
    cluster.sync();
    sum = over_cluster(cluster, &told[1], false);
    if (rank == 0 && threadIdx.x == 0)
        finite[row] = count;
    for (int i = threadIdx.x; i < size; i += THREADS)
        y[(long long)row * length + rank * PART + i] = part[i] / sum;
    cluster.sync(); // nobody exits whose memory others still read
}
