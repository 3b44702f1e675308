// Blocks of 64 threads with several arrays in shared memory. In each `wrong_` kernel an index goes past one array into
// another, which has been written as well.

constexpr int THREADS = 64;

// t + 1 of the last thread is one too many, and lands in the other array.
template <bool wraps> __device__ void next(const int *x, int *y)
{
    __shared__ int a[THREADS], b[THREADS];
    const int t = threadIdx.x;
    a[t] = x[t];
    b[t] = -x[t];
    __syncthreads();
    const int place = wraps ? (t + 1) % THREADS : t + 1;
    y[t] = a[place] + b[(place + 1) % THREADS] + b[t ^ 3] - a[t ^ 3];
}

extern "C" __global__ void next_of_two(const int *x, int *y) { next<true>(x, y); }
extern "C" __global__ void wrong_next(const int *x, int *y) { next<false>(x, y); }

// The sum of a number and of the two before it; the first threads begin before their array.
template <bool checks> __device__ void window(const int *x, int *y)
{
    __shared__ int a[THREADS], b[THREADS];
    const int t = threadIdx.x;
    a[t] = x[t];
    b[t] = x[t];
    __syncthreads();
    int sum = 0;
#pragma unroll 1
    for (int i = -2; i <= 0; ++i)
        if (!checks || t + i >= 0)
            sum += b[t + i];
    y[t] = sum + a[t ^ 1];
}

extern "C" __global__ void window_of_3(const int *x, int *y) { window<true>(x, y); }
extern "C" __global__ void wrong_window(const int *x, int *y) { window<false>(x, y); }

// A row of a padded tile that is one row too long.
template <int rows> __device__ void tile(const int *x, int *y)
{
    __shared__ int tile[8][9], last[72];
    const int t = threadIdx.x;
    last[t] = 0;
    if (t < 8)
        last[64 + t] = 0;
    __syncthreads();
    tile[t / 8][t % 8] = x[t];
    __syncthreads();
    int sum = last[t];
#pragma unroll 1
    for (int row = 0; row < rows; ++row)
        sum += tile[row][t % 8];
    y[t] = sum;
}

extern "C" __global__ void rows_of_8(const int *x, int *y) { tile<8>(x, y); }
extern "C" __global__ void wrong_rows(const int *x, int *y) { tile<9>(x, y); }

// A histogram whose last bin is outside.
template <int mask> __device__ void histogram(const int *x, int *y)
{
    __shared__ int bins[15], total[49];
    const int t = threadIdx.x;
    if (t < 15)
        bins[t] = 0;
    if (t < 49)
        total[t] = 0;
    __syncthreads();
    atomicAdd(&bins[(x[t] & mask) % 16], 1);
    atomicAdd(&total[0], 1);
    __syncthreads();
    y[t] = t < 15 ? bins[t] : total[0];
}

extern "C" __global__ void bins_of_15(const int *x, int *y) { histogram<7>(x, y); }
extern "C" __global__ void wrong_bins(const int *x, int *y) { histogram<15>(x, y); }

// Double buffers in one array of dynamic memory, beside a static one; the pointer moves from half to half.
extern __shared__ int buffers[];

template <int stride> __device__ void halves(const int *x, int *y)
{
    __shared__ int sums[THREADS];
    const int t = threadIdx.x;
    sums[t] = 0;
    int *half = buffers;
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
        half[t] = x[t] + i;
        __syncthreads();
        sums[t] += half[t ^ 1];
        half = half == buffers ? buffers + stride : buffers;
    }
    y[t] = sums[t];
}

extern "C" __global__ void two_halves(const int *x, int *y) { halves<THREADS>(x, y); }
extern "C" __global__ void wrong_half_before(const int *x, int *y) { halves<-THREADS>(x, y); }

// The array is selected at run time: nothing tells which one an address is meant for.
extern "C" __global__ void one_of_two(const int *x, int *y)
{
    __shared__ int a[THREADS], b[THREADS];
    const int t = threadIdx.x;
    a[t] = x[t];
    b[t] = -x[t];
    __syncthreads();
    const int *chosen = x[t] & 1 ? a : b;
    y[t] = chosen[t ^ 1];
}

// A structure of arrays is one variable.
extern "C" __global__ void structure(const int *x, int *y)
{
    struct Both {
        int a[THREADS], b[THREADS];
    };
    __shared__ Both both;
    __shared__ int other[THREADS];
    const int t = threadIdx.x;
    both.a[t] = x[t];
    both.b[t] = -x[t];
    other[t] = 1;
    __syncthreads();
    const int *all = both.a;
    y[t] = all[(x[t] & 1 ? THREADS : 0) + (t ^ 1)] * other[t ^ 1];
}

// Wide loads of a row that ends in the middle of one.
template <int width> __device__ void wide(const int *x, int *y)
{
    __shared__ __align__(16) int a[width];
    __shared__ __align__(16) int b[THREADS];
    const int t = threadIdx.x;
    if (t < width)
        a[t] = x[t];
    b[t] = 0;
    __syncthreads();
    if (t < 16) {
        const int4 four = *reinterpret_cast<const int4 *>(&a[4 * t]);
        y[t] = four.x + four.y + four.z + four.w + b[t];
    }
}

extern "C" __global__ void wide_rows(const int *x, int *y) { wide<64>(x, y); }
extern "C" __global__ void wrong_wide_rows(const int *x, int *y) { wide<56>(x, y); }
