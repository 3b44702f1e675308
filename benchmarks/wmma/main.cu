// wmma_gemm M N K [ROUNDS]: checks every element of the hand-written kernel's result, then prints its median time.
//
// Measures like one launch of `cutegen bench` (docs/benchmarking.md): normal random data, a cold and clean L2, events around the
// launch, three rounds of warm-up.
// Exit codes: 0 correct, 1 wrong, 2 bad arguments, 3 CUDA failed.

#include "wmma_gemm.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr size_t FLUSH_BYTES = size_t(256) << 20;
constexpr int WARM_UP_ROUNDS = 3, DEFAULT_ROUNDS = 20;

void check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    std::exit(3);
}

template <class T> T *allocate(size_t elems)
{
    T *memory = nullptr;
    check(cudaMalloc(&memory, elems * sizeof(T)), "cudaMalloc");
    return memory;
}

// splitmix64: 64 random bits per counter.
__device__ uint64_t random_bits(uint64_t counter)
{
    uint64_t x = (counter + 1) * 0x9E3779B97F4A7C15;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
    x = (x ^ x >> 27) * 0x94D049BB133111EB;
    return x ^ x >> 31;
}

// Standard normal numbers by the Box-Muller transform.
__global__ void fill_normal(half *to, size_t elems, uint64_t seed)
{
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < elems; i += size_t(gridDim.x) * blockDim.x) {
        const uint64_t bits = random_bits((seed << 40) + i);
        const float radius = (static_cast<uint32_t>(bits >> 40) + 0.5f) * 0x1p-24f; // in (0, 1)
        const float angle = static_cast<uint32_t>(bits & 0xFFFFFF) * 0x1p-23f;      // in units of pi
        to[i] = __float2half(sqrtf(-2.0f * logf(radius)) * cospif(angle));
    }
}

// Counts the elements of C that differ from A B summed in f64, one thread per element. The tolerance is twice the last rounding
// plus twice K roundings of sums of about sqrt(K): the bound of cutegen/verify/reference.py for normal operands.
__global__ void count_wrong(Problem problem, const half *a, const half *b, const half *c, unsigned long long *wrong)
{
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= problem.m || column >= problem.n)
        return;
    a += static_cast<int64_t>(row) * problem.k;
    b += static_cast<int64_t>(column) * problem.k;
    double sum = 0;
    for (int i = 0; i < problem.k; ++i)
        sum += static_cast<double>(__half2float(a[i])) * static_cast<double>(__half2float(b[i]));
    const double found = __half2float(c[static_cast<int64_t>(row) * problem.n + column]);
    if (!(fabs(found - sum) <= 0x1p-10 * (fabs(sum) + problem.k))) // also counts a NaN
        atomicAdd(wrong, 1ULL);
}

unsigned long long wrong_elements(Problem problem, const half *a, const half *b, const half *c)
{
    auto *wrong = allocate<unsigned long long>(1);
    check(cudaMemset(wrong, 0, sizeof(*wrong)), "cudaMemset");
    const dim3 block(16, 16), grid((problem.n + 15) / 16, (problem.m + 15) / 16);
    count_wrong<<<grid, block>>>(problem, a, b, c, wrong);
    check(cudaGetLastError(), "count_wrong");
    unsigned long long count = 0;
    check(cudaMemcpy(&count, wrong, sizeof(count), cudaMemcpyDeviceToHost), "count_wrong");
    check(cudaFree(wrong), "cudaFree");
    return count;
}

// Reads a buffer larger than L2, so that nothing else is in the cache and no line of it is dirty. It stores in one of 2^32 cases,
// so that the compiler keeps the loads.
__global__ void read_all(const int4 *from, size_t vectors, int *found)
{
    int digest = 0;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < vectors; i += size_t(gridDim.x) * blockDim.x) {
        const int4 x = from[i];
        digest ^= x.x ^ x.y ^ x.z ^ x.w;
    }
    if (digest == 0x5EED5EED)
        *found = digest;
}

// Returns the microseconds of each counted round, in ascending order.
std::vector<float> times_us(Problem problem, const half *a, const half *b, half *c, int rounds)
{
    constexpr size_t vectors = FLUSH_BYTES / sizeof(int4);
    auto *flush = allocate<int4>(vectors);
    auto *found = allocate<int>(1);
    check(cudaMemset(flush, 0, FLUSH_BYTES), "cudaMemset");
    cudaEvent_t start, end;
    check(cudaEventCreate(&start), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
    std::vector<float> samples;
    for (int round = 0; round < WARM_UP_ROUNDS + rounds; ++round) {
        read_all<<<1024, 256>>>(flush, vectors, found);
        check(cudaGetLastError(), "read_all");
        check(cudaEventRecord(start), "cudaEventRecord");
        check(wmma_gemm(problem, a, b, c, nullptr), "wmma_gemm");
        check(cudaEventRecord(end), "cudaEventRecord");
        check(cudaEventSynchronize(end), "wmma_gemm");
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, start, end), "cudaEventElapsedTime");
        if (round >= WARM_UP_ROUNDS)
            samples.push_back(1e3f * milliseconds);
    }
    std::sort(samples.begin(), samples.end());
    return samples;
}

// Returns a decimal integer of at least 1, or 0 on error.
int positive(const char *text)
{
    char *end = nullptr;
    const long value = std::strtol(text, &end, 10);
    return *end == '\0' && value > 0 && value <= 1 << 24 ? static_cast<int>(value) : 0;
}

} // namespace

int main(int argc, char **argv)
{
    const int rounds = argc == 5 ? positive(argv[4]) : DEFAULT_ROUNDS;
    Problem problem{};
    if (argc == 4 || argc == 5)
        problem = {positive(argv[1]), positive(argv[2]), positive(argv[3])};
    if (rounds == 0 || problem.m == 0 || problem.m % M_MULTIPLE || problem.n == 0 || problem.n % N_MULTIPLE ||
        problem.k < K_LEAST || problem.k % K_MULTIPLE) {
        std::fprintf(stderr, "usage: wmma_gemm M N K [ROUNDS], multiples of %d, %d and %d, K at least %d\n", M_MULTIPLE,
                     N_MULTIPLE, K_MULTIPLE, K_LEAST);
        return 2;
    }
    const size_t m = problem.m, n = problem.n, k = problem.k;
    half *a = allocate<half>(m * k), *b = allocate<half>(n * k), *c = allocate<half>(m * n);
    fill_normal<<<1024, 256>>>(a, m * k, 1);
    fill_normal<<<1024, 256>>>(b, n * k, 2);
    check(cudaGetLastError(), "fill_normal");
    check(cudaMemset(c, 0xFF, m * n * sizeof(half)), "cudaMemset"); // NaN exposes elements that are not written
    check(wmma_gemm(problem, a, b, c, nullptr), "wmma_gemm");
    if (const auto wrong = wrong_elements(problem, a, b, c)) {
        std::printf("%zu x %zu x %zu: %llu elements of %zu are wrong\n", m, n, k, wrong, m * n);
        return 1;
    }
    const auto samples = times_us(problem, a, b, c, rounds);
    const float median = (samples[(rounds - 1) / 2] + samples[rounds / 2]) / 2;
    std::printf("%zu x %zu x %zu: right; %.1f TFLOP/s, median %.1f us of %d rounds, least %.1f, most %.1f\n", m, n, k,
                2e-6 * m * n * k / median, median, rounds, samples.front(), samples.back());
    return 0;
}
