// Groups of lanes within a warp, each with its own member mask: tiles of 4, 8 and 16 lanes, lanes with equal keys, lanes
// that came down one path. In each `wrong_` kernel a mask, a barrier or a distance does not fit the group.

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

template <int size> __device__ unsigned tile_mask(int t)
{
    return ((size == 32 ? 0u : 1u << size) - 1) << (t & 31 & -size);
}

extern "C" __global__ void butterfly_of_16(const int *x, int *y)
{
    const int t = threadIdx.x;
    int sum = x[t];
    for (int offset = 8; offset > 0; offset >>= 1)
        sum += __shfl_xor_sync(tile_mask<16>(t), sum, offset, 16);
    y[t] = sum;
}

extern "C" __global__ void scan_of_8(const int *x, int *y)
{
    const int t = threadIdx.x;
    int sum = x[t];
    for (int offset = 1; offset < 8; offset <<= 1) {
        const int before = __shfl_up_sync(tile_mask<8>(t), sum, offset, 8);
        if ((t & 7) >= offset)
            sum += before;
    }
    y[t] = sum;
}

extern "C" __global__ void votes_of_4(const int *x, int *y)
{
    const int t = threadIdx.x;
    const unsigned members = tile_mask<4>(t);
    const unsigned positive = __ballot_sync(members, x[t] > 0);
    y[t] = positive >> (t & 28) | __any_sync(members, x[t] > 6) << 4 | __all_sync(members, x[t] > -6) << 5;
}

extern "C" __global__ void sums_of_equal_keys(const int *x, int *y)
{
    const int t = threadIdx.x, key = x[t] & 3;
    const unsigned same = __match_any_sync(0xffffffffu, key);
    y[t] = __reduce_add_sync(same, x[t]);
}

extern "C" __global__ void places_of_positive(const int *x, int *y)
{
    __shared__ int count;
    const int t = threadIdx.x, lane = t & 31;
    if (t == 0)
        count = 0;
    __syncthreads();
    y[t] = -1;
    if (x[t] > 0) {
        const unsigned here = __activemask();
        const int leader = __ffs(here) - 1;
        int first = 0;
        if (lane == leader)
            first = atomicAdd(&count, __popc(here));
        first = __shfl_sync(here, first, leader);
        y[t] = first + __popc(here & ((1u << lane) - 1));
    }
}

extern "C" __global__ void cooperative_tiles(const int *x, int *y)
{
    const cg::thread_block_tile<16> tile = cg::tiled_partition<16>(cg::this_thread_block());
    __shared__ int data[64];
    data[threadIdx.x] = x[threadIdx.x];
    tile.sync();
    const int neighbor = data[threadIdx.x ^ 15];
    y[threadIdx.x] = cg::reduce(tile, neighbor, cg::plus<int>()) + tile.shfl(neighbor, 3);
}

// Each tile makes as many turns as its first lane's number says.
extern "C" __global__ void loops_of_8(const int *x, int *y)
{
    const int t = threadIdx.x;
    const unsigned members = tile_mask<8>(t);
    int value = x[t];
#pragma unroll 1
    for (int turns = __shfl_sync(members, value & 7, 0, 8); turns > 0; --turns)
        value += __shfl_xor_sync(members, value, 1, 8);
    y[t] = value;
}

// A tile passes its numbers on through shared memory, `barrier` between the stores and the loads of lane t ^ distance.
template <int size, int distance, bool barrier> __device__ void exchange(const int *x, int *y)
{
    __shared__ int data[64];
    const int t = threadIdx.x;
    data[t] = x[t];
    if (barrier)
        __syncwarp(tile_mask<size>(t));
    y[t] = data[t ^ distance];
}

extern "C" __global__ void exchange_of_16(const int *x, int *y) { exchange<16, 15, true>(x, y); }
extern "C" __global__ void wrong_exchange_without_a_barrier(const int *x, int *y) { exchange<16, 15, false>(x, y); }
extern "C" __global__ void wrong_exchange_of_another_tile(const int *x, int *y) { exchange<16, 16, true>(x, y); }

// All lanes of a tile read the number that its first lane then replaces.
template <bool barrier> __device__ void take_turns(const int *x, int *y)
{
    __shared__ int totals[8];
    const int t = threadIdx.x;
    const unsigned members = tile_mask<8>(t);
    if ((t & 7) == 0)
        totals[t >> 3] = x[t];
    __syncwarp(members);
    int sum = 0;
#pragma unroll 1
    for (int turn = 1; turn < 4; ++turn) {
        sum += totals[t >> 3];
        if (barrier)
            __syncwarp(members);
        if ((t & 7) == turn)
            totals[t >> 3] = x[t];
        __syncwarp(members);
    }
    y[t] = sum;
}

extern "C" __global__ void turns_of_8(const int *x, int *y) { take_turns<true>(x, y); }
extern "C" __global__ void wrong_turns_of_8(const int *x, int *y) { take_turns<false>(x, y); }

extern "C" __global__ void wrong_masks_that_overlap(const int *x, int *y)
{
    const int t = threadIdx.x;
    y[t] = __shfl_xor_sync(t & 16 ? 0xffffffffu : 0xffffu, x[t], 1);
}

extern "C" __global__ void wrong_mask_of_the_other_half(const int *x, int *y)
{
    const int t = threadIdx.x;
    y[t] = __shfl_xor_sync(tile_mask<16>(t ^ 16), x[t], 1);
}

extern "C" __global__ void wrong_distance(const int *x, int *y)
{
    const int t = threadIdx.x;
    int sum = x[t];
    for (int offset = 16; offset > 0; offset >>= 1)
        sum += __shfl_xor_sync(tile_mask<16>(t), sum, offset);
    y[t] = sum;
}

extern "C" __global__ void wrong_whole_mask_on_one_path(const int *x, int *y)
{
    const int t = threadIdx.x;
    int sum = x[t];
    if (t & 4)
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    y[t] = sum;
}

extern "C" __global__ void wrong_key_of_one_lane(const int *x, int *y)
{
    const int t = threadIdx.x, key = x[t] & 3;
    unsigned same = __match_any_sync(0xffffffffu, key);
    if ((t & 31) == __ffs(same) - 1)
        same &= same - 1;
    y[t] = __reduce_add_sync(same, x[t]);
}
