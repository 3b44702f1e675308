// Calls: structures by value, recursion, functions by address, barriers and exits inside of functions, printf, assert.
#include <cassert>
#include <cstdio>

struct Pair {
    float half;
    double whole;
    int rest[3];
};

__device__ __noinline__ Pair make_pair(float a, int b) {
    Pair pair;
    pair.half = a / 2;
    pair.whole = b;
    for (int i = 0; i < 3; ++i) pair.rest[i] = b * i;
    return pair;
}

__device__ __noinline__ float total(const Pair &pair, int which) { return pair.half + float(pair.whole) + pair.rest[which]; }

extern "C" __global__ void structures(float *out, int n) {
    const int i = threadIdx.x;
    const Pair pair = make_pair(i, n);
    out[i] = total(pair, i % 3);
}

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

extern "C" __global__ void recursion(int *out) { out[threadIdx.x] = fibonacci(threadIdx.x % 9); }

// Sums a range of an array of the caller by halves: every level has locals of its own, whose addresses are passed on.
__device__ __noinline__ void add_halves(const int *numbers, int first, int last, int *sum) {
    if (last - first == 1) {
        *sum = numbers[first];
        return;
    }
    int halves[2];
    const int middle = (first + last) / 2;
    add_halves(numbers, first, middle, &halves[0]);
    add_halves(numbers, middle, last, &halves[1]);
    *sum = halves[0] + halves[1];
}

extern "C" __global__ void halves(const int *numbers, int *out, int n) {
    int sum;
    add_halves(numbers, 0, threadIdx.x % n + 1, &sum);
    out[threadIdx.x] = sum;
}

struct Shape {
    __device__ virtual int area(int x) const { return x; }
};
struct Square : Shape {
    __device__ int area(int x) const override { return x * x; }
};

typedef int (*Function)(int);
__device__ __noinline__ int twice(int x) { return 2 * x; }
__device__ __noinline__ int thrice(int x) { return 3 * x; }

extern "C" __global__ void by_address(int *out, int n) {
    const Shape shape;
    const Square square;
    const Shape *chosen = int(threadIdx.x) < n ? &square : &shape;
    const Function functions[2] = {twice, thrice};
    out[threadIdx.x] = chosen->area(threadIdx.x) + functions[threadIdx.x % 2](threadIdx.x);
}

__device__ __noinline__ int neighbors(int *shared, int value) {
    shared[threadIdx.x] = value;
    __syncthreads();
    return shared[threadIdx.x ^ 1];
}

extern "C" __global__ void synchronized(int *out) {
    __shared__ int shared[64];
    const int i = threadIdx.x;
    out[i] = neighbors(shared, 10 * i);
}

__device__ __noinline__ int positive(int value) {
    if (value < 0) asm volatile("exit;");
    return value + 1;
}

extern "C" __global__ void leave_early(const int *numbers, int *out) {
    const int i = threadIdx.x;
    out[i] = positive(numbers[i]);
}

extern "C" __global__ void report(const float *numbers, int n) {
    const int i = threadIdx.x;
    if (numbers[i] < 0) printf("%d of %d: %.2f is negative, %s (%c) 100%%\n", i, n, numbers[i], "like -1", 'x');
    if (i == 0) printf("%lld %5u|%-5d|%x %08.3e %p\n", 1ll << 40, 7u, -3, 255, 12345.678, (void *)16);
}

extern "C" __global__ void gather(const float *x, const int *places, float *y, int n) {
    const int i = threadIdx.x;
    if (i >= n) return;
    assert(places[i] < n);
    y[i] = x[places[i]];
}

extern "C" __global__ void allocate(int **out) { out[threadIdx.x] = static_cast<int *>(malloc(4)); }

__device__ __noinline__ int endless(const int *numbers, int n) {
    return numbers[n % 4] == -1 ? n : endless(numbers, n + 1) ^ 3 * endless(numbers, n + 2);
}

extern "C" __global__ void overflow(const int *numbers, int *out) { *out = endless(numbers, threadIdx.x); }
