// Shuffles of a part of a warp: some lanes read one that does not take part, and get an undefined value. It does no harm
// where nothing comes of it; in each `wrong_` kernel it reaches a store, an address or a branch.

constexpr unsigned EIGHT = 0xff, TWELVE = 0xfff;

// Lane 0 gets the sum of the members' numbers.
__device__ int sum_down(unsigned members, int value, int first_offset)
{
    for (int offset = first_offset; offset > 0; offset >>= 1)
        value += __shfl_down_sync(members, value, offset);
    return value;
}

extern "C" __global__ void sum_of_8(const int *x, int *y)
{
    const int t = threadIdx.x;
    if (t < 8) {
        const int sum = sum_down(EIGHT, x[t], 4);
        if (t == 0)
            y[0] = sum;
    }
}

extern "C" __global__ void wrong_sum_by_all(const int *x, int *y)
{
    const int t = threadIdx.x;
    if (t < 8)
        y[t] = sum_down(EIGHT, x[t], 4);
}

extern "C" __global__ void wrong_first_offset(const int *x, int *y)
{
    const int t = threadIdx.x;
    if (t < 8) {
        const int sum = sum_down(EIGHT, x[t], 8);
        if (t == 0)
            y[0] = sum;
    }
}

extern "C" __global__ void sums_of_halves(const int *x, int *y)
{
    const int t = threadIdx.x, lane = t & 31;
    const int sum = sum_down(0xffffu << (lane & 16), x[t], 8);
    if ((lane & 15) == 0)
        y[t >> 4] = sum;
}

// Differences of neighbors: the last lane has none.
template <int last> __device__ void differences(const int *x, int *y)
{
    const int t = threadIdx.x;
    if (t < 12) {
        const int value = x[t], next = __shfl_down_sync(TWELVE, value, 1);
        if (t < last)
            y[t] = next - value;
    }
}

extern "C" __global__ void differences_of_12(const int *x, int *y) { differences<11>(x, y); }
extern "C" __global__ void wrong_differences(const int *x, int *y) { differences<12>(x, y); }

// The same without a branch: the last lane stores 0.
template <int last> __device__ void selected_differences(const int *x, int *y)
{
    const int t = threadIdx.x;
    if (t < 12) {
        const int value = x[t], next = __shfl_down_sync(TWELVE, value, 1);
        y[t] = t < last ? next - value : 0;
    }
}

extern "C" __global__ void selected_differences_of_12(const int *x, int *y) { selected_differences<11>(x, y); }
extern "C" __global__ void wrong_selected_differences(const int *x, int *y) { selected_differences<12>(x, y); }

// Numbers with a mask: bits of a lane that is not there are cut off.
template <int last> __device__ void masked(const int *x, int *y)
{
    const int t = threadIdx.x;
    if (t < 12) {
        const int next = __shfl_down_sync(TWELVE, x[t], 1);
        int mask = 0;
        asm volatile("mov.b32 %0, %1;" : "=r"(mask) : "r"(t < last ? -1 : 0));
        y[t] = next & mask;
    }
}

extern "C" __global__ void masked_next(const int *x, int *y) { masked<11>(x, y); }
extern "C" __global__ void wrong_masked_next(const int *x, int *y) { masked<12>(x, y); }

// A lane looks up its neighbor's number in a table.
extern "C" __global__ void looked_up(const int *x, int *y)
{
    const int t = threadIdx.x;
    if (t < 12) {
        const int place = __shfl_down_sync(TWELVE, x[t] & 7, 1);
        y[t] = -1;
        if (t < 11)
            y[t] = x[place & 15];
    }
}

extern "C" __global__ void wrong_look_up(const int *x, int *y)
{
    const int t = threadIdx.x;
    if (t < 12) {
        const int place = __shfl_down_sync(TWELVE, x[t] & 7, 1);
        y[t] = x[place & 15];
    }
}

// A loop of as many turns as the neighbor says.
extern "C" __global__ void wrong_turns(const int *x, int *y)
{
    const int t = threadIdx.x;
    if (t < 12) {
        int value = 0;
#pragma unroll 1
        for (int turns = __shfl_down_sync(TWELVE, x[t] & 7, 1) & 7; turns > 0; --turns)
            value += turns;
        y[t] = value;
    }
}

extern "C" __global__ void wrong_atomic(const int *x, int *y)
{
    const int t = threadIdx.x;
    if (t < 12)
        atomicAdd(&y[0], __shfl_down_sync(TWELVE, x[t], 1));
}

// The undefined value is passed on by a second shuffle, to a lane that stores it.
extern "C" __global__ void wrong_second_shuffle(const int *x, int *y)
{
    const int t = threadIdx.x;
    if (t < 12) {
        const int next = __shfl_down_sync(TWELVE, x[t], 1);
        const int last = __shfl_sync(TWELVE, next, 11);
        if (t == 0)
            y[0] = last;
    }
}

// All lanes' sums where the last 16 threads have left; a mask of the whole warp names them as well.
template <bool checks> __device__ void after_exits(const int *x, int *y)
{
    const int t = threadIdx.x, lane = t & 31, here = t < 32 ? 32 : 16;
    if (t >= 48)
        return;
    int sum = x[t];
    for (int offset = 16; offset > 0; offset >>= 1) {
        const int other = __shfl_down_sync(0xffffffffu, sum, offset);
        if (!checks || lane + offset < here)
            sum += other;
    }
    if (lane == 0)
        y[t >> 5] = sum;
}

extern "C" __global__ void sums_after_exits(const int *x, int *y) { after_exits<true>(x, y); }
extern "C" __global__ void wrong_sums_after_exits(const int *x, int *y) { after_exits<false>(x, y); }
