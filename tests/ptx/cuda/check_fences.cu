// Blocks that pass data to each other with __threadfence() and a flag, in the ways that kernels do. In each `wrong_`
// kernel one fence, barrier or scope is missing. The fences are fence.sc: their total order counts.

constexpr int THREADS = 64;

enum Fences { NOBODY, EVERYBODY, FIRST_THREAD, HALF, BLOCK_ONLY, ACQ_REL };

template <int by> __device__ void fences(int t)
{
    if (by == EVERYBODY || (by == FIRST_THREAD && t == 0) || (by == HALF && t < THREADS / 2))
        __threadfence();
    if (by == BLOCK_ONLY)
        __threadfence_block();
    if (by == ACQ_REL)
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

// The last block adds the parts of all blocks. Each side's fences come before or after its barrier.
template <int before_barrier, int after_barrier, int before_last, int after_last>
__device__ void last_block(const float *x, float *parts, int *counter, float *y)
{
    __shared__ bool last;
    const int t = threadIdx.x, mine = blockIdx.x * THREADS + t;
    parts[mine] = x[mine];
    fences<before_barrier>(t);
    __syncthreads();
    if (t == 0) {
        fences<after_barrier>(t);
        last = atomicAdd(counter, 1) == gridDim.x - 1;
        fences<before_last>(t);
    }
    __syncthreads();
    if (!last)
        return;
    fences<after_last>(t);
    float sum = 0;
    for (int block = 0; block < gridDim.x; ++block)
        sum += parts[block * THREADS + (t ^ 1)];
    y[t] = sum;
}

#define LAST_BLOCK(name, ...)                                                                                          \
    extern "C" __global__ void name(const float *x, float *parts, int *counter, float *y)                              \
    {                                                                                                                  \
        last_block<__VA_ARGS__>(x, parts, counter, y);                                                                 \
    }

LAST_BLOCK(last_all_all, EVERYBODY, NOBODY, NOBODY, EVERYBODY)
LAST_BLOCK(last_all_first, EVERYBODY, NOBODY, FIRST_THREAD, NOBODY)
LAST_BLOCK(last_first_all, NOBODY, FIRST_THREAD, NOBODY, EVERYBODY)
LAST_BLOCK(last_first_first, NOBODY, FIRST_THREAD, FIRST_THREAD, NOBODY)
LAST_BLOCK(wrong_no_fence_of_writers, NOBODY, NOBODY, NOBODY, EVERYBODY)
LAST_BLOCK(wrong_no_fence_of_readers, EVERYBODY, NOBODY, NOBODY, NOBODY)
LAST_BLOCK(wrong_half_of_the_writers, HALF, NOBODY, NOBODY, EVERYBODY)
LAST_BLOCK(wrong_one_of_the_readers, EVERYBODY, NOBODY, NOBODY, FIRST_THREAD)
LAST_BLOCK(wrong_scope_of_writers, BLOCK_ONLY, NOBODY, NOBODY, EVERYBODY)
LAST_BLOCK(wrong_scope_of_readers, EVERYBODY, NOBODY, NOBODY, BLOCK_ONLY)
LAST_BLOCK(wrong_acq_rel, ACQ_REL, NOBODY, NOBODY, ACQ_REL)

// A barrier of the grid, twice: each block reads what its neighbor wrote, then overwrites what its neighbor has read.
template <bool arrives_in_order> __device__ void meet(volatile int *counter, int goal)
{
    __threadfence();
    if (arrives_in_order)
        __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd((int *)counter, 1);
        while (*counter < goal)
            ;
    }
    __syncthreads();
    __threadfence();
}

template <bool arrives_in_order> __device__ void rounds(const float *x, float *parts, int *counter, float *y)
{
    const int t = threadIdx.x, mine = blockIdx.x * THREADS + t, other = (mine + THREADS) % (gridDim.x * THREADS);
    float value = x[mine];
    for (int round = 0; round < 2; ++round) {
        parts[mine] = value;
        meet<arrives_in_order>(counter, (2 * round + 1) * gridDim.x);
        value += parts[other ^ 1];
        meet<arrives_in_order>(counter, (2 * round + 2) * gridDim.x);
    }
    y[mine] = value;
}

extern "C" __global__ void grid_barrier(const float *x, float *parts, int *counter, float *y)
{
    rounds<true>(x, parts, counter, y);
}

extern "C" __global__ void wrong_grid_barrier(const float *x, float *parts, int *counter, float *y)
{
    rounds<false>(x, parts, counter, y);
}

// Blocks take turns to add to one buffer, as a split-K epilogue does; thread 0 waits for the turn and passes it on.
template <int before_passing, int after_waiting>
__device__ void in_turns(const float *x, float *sums, int *turn, float *y)
{
    const int t = threadIdx.x;
    if (t == 0)
        while (atomicAdd(turn, 0) != blockIdx.x)
            ;
    __syncthreads();
    fences<after_waiting>(t);
    const int place = (t + blockIdx.x) % THREADS; // another thread's from block to block
    sums[place] += x[blockIdx.x * THREADS + place];
    fences<before_passing>(t);
    __syncthreads();
    if (t == 0)
        atomicExch(turn, blockIdx.x + 1);
    if (blockIdx.x == gridDim.x - 1)
        y[t] = sums[t];
}

extern "C" __global__ void turns(const float *x, float *sums, int *turn, float *y)
{
    in_turns<EVERYBODY, EVERYBODY>(x, sums, turn, y);
}

extern "C" __global__ void wrong_turns(const float *x, float *sums, int *turn, float *y)
{
    in_turns<EVERYBODY, NOBODY>(x, sums, turn, y);
}

// Look-back: a block's warp adds the sums of all blocks before it. One lane polls a flag, the whole warp fences.
template <int before_flag, int after_flag, bool looks>
__device__ void look_back(const float *x, float *sums, volatile int *flags, float *y)
{
    const int t = threadIdx.x, block = blockIdx.x;
    float sum = x[block * THREADS + t] + x[block * THREADS + 32 + t];
    for (int offset = 16; offset > 0; offset >>= 1)
        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (t == 31)
        sums[block] = sum;
    fences<before_flag>(t);
    __syncwarp();
    if (t == 0) {
        flags[block] = 1;
        for (int before = 0; looks && before < block; ++before)
            while (flags[before] == 0)
                ;
    }
    __syncwarp();
    fences<after_flag>(t);
    float all = t < block ? sums[t] : 0;
    for (int offset = 16; offset > 0; offset >>= 1)
        all += __shfl_xor_sync(0xffffffffu, all, offset);
    if (t == 0)
        y[block] = all;
}

extern "C" __global__ void look_back_sums(const float *x, float *sums, volatile int *flags, float *y)
{
    look_back<EVERYBODY, EVERYBODY, true>(x, sums, flags, y);
}

extern "C" __global__ void wrong_look_back_without_a_fence(const float *x, float *sums, volatile int *flags, float *y)
{
    look_back<FIRST_THREAD, EVERYBODY, true>(x, sums, flags, y); // thread 31 has stored the sum
}

extern "C" __global__ void wrong_look_back_without_a_look(const float *x, float *sums, volatile int *flags, float *y)
{
    look_back<EVERYBODY, EVERYBODY, false>(x, sums, flags, y);
}

// Two warps of a block: a flag in shared memory, fences of the block's scope.
template <int before_flag, int after_flag> __device__ void two_warps(const float *x, float *y)
{
    __shared__ float data[32];
    __shared__ volatile int flag;
    const int t = threadIdx.x, lane = t & 31;
    if (t == 0)
        flag = 0;
    __syncthreads();
    if (t < 32) {
        data[lane] = x[lane];
        fences<before_flag>(lane);
        __syncwarp();
        if (lane == 0)
            flag = 1;
    } else {
        if (lane == 0)
            while (flag == 0)
                ;
        __syncwarp();
        fences<after_flag>(lane);
        y[lane] = data[lane ^ 1];
    }
}

extern "C" __global__ void block_scope(const float *x, float *unused, int *unused_too, float *y)
{
    two_warps<BLOCK_ONLY, BLOCK_ONLY>(x, y);
}

extern "C" __global__ void mixed_scopes(const float *x, float *unused, int *unused_too, float *y)
{
    two_warps<EVERYBODY, BLOCK_ONLY>(x, y);
}

extern "C" __global__ void wrong_block_scope(const float *x, float *unused, int *unused_too, float *y)
{
    two_warps<BLOCK_ONLY, FIRST_THREAD>(x, y);
}
