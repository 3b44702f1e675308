// CTAs of a cluster that pass data and free slots by arrivals at each other's mbarriers. Data take scope cluster on both
// sides; in each `wrong_` kernel one side has scope cta, which is the default. Freeing a slot at scope cta is common.

#include <cstdint>

constexpr int THREADS = 64;

__device__ uint32_t address(const void *place) { return (uint32_t)__cvta_generic_to_shared(place); }

__device__ uint32_t rank()
{
    uint32_t result;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(result));
    return result;
}

__device__ uint32_t peer(const void *place, uint32_t rank)
{
    uint32_t result;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(result) : "r"(address(place)), "r"(rank));
    return result;
}

__device__ void meet()
{
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ void init(uint64_t *barrier, int count)
{
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address(barrier)), "r"(count) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
}

enum Scope { CLUSTER, CTA, NONE };

template <int scope> __device__ void arrive(uint32_t barrier)
{
    if (scope == CLUSTER)
        asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
    if (scope == CTA)
        asm volatile("mbarrier.arrive.release.cta.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
    if (scope == NONE)
        asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

template <int scope> __device__ void wait(uint64_t *barrier, int parity)
{
#define WAIT(acquire)                                                                                                  \
    asm volatile("{ .reg .pred done; again: mbarrier.try_wait.parity" acquire                                          \
                 ".shared::cta.b64 done, [%0], %1; @!done bra again; }" ::"r"(address(barrier)),                       \
                 "r"(parity)                                                                                           \
                 : "memory")
    if (scope == CLUSTER)
        WAIT(".acquire.cluster");
    if (scope == CTA)
        WAIT(".acquire.cta");
    if (scope == NONE)
        WAIT("");
}

__device__ float load(uint32_t place)
{
    float value;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(place) : "memory");
    return value;
}

__device__ void store(uint32_t place, float value)
{
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(place), "f"(value) : "memory");
}

#define KERNEL(name, ctas, ...)                                                                                        \
    extern "C" __global__ void __cluster_dims__(ctas, 1, 1) name(const float *x, float *y, float *work)                \
    {                                                                                                                  \
        __VA_ARGS__(x, y, work);                                                                                       \
    }

// Each CTA fills its tile and tells its peer, which reads the tile there. All threads arrive, or one lane per warp.
template <int release, int acquire, bool elected> __device__ void pull(const float *x, float *y, float *)
{
    __shared__ float tile[THREADS];
    __shared__ uint64_t full;
    const int t = threadIdx.x, other = rank() ^ 1;
    init(&full, elected ? THREADS / 32 : THREADS);
    meet();
    tile[t] = x[blockIdx.x * THREADS + t];
    if (elected)
        __syncwarp();
    if (!elected || (t & 31) == 0)
        arrive<release>(peer(&full, other));
    wait<acquire>(&full, 0);
    y[blockIdx.x * THREADS + t] = load(peer(tile, other) + 4 * (THREADS - 1 - t));
    meet();
}

KERNEL(pulled, 2, pull<CLUSTER, CLUSTER, false>)
KERNEL(pulled_elected, 2, pull<CLUSTER, CLUSTER, true>)
KERNEL(wrong_pulled, 2, pull<CTA, CTA, false>)
KERNEL(wrong_pulled_release, 2, pull<CTA, CLUSTER, false>)
KERNEL(wrong_pulled_acquire, 2, pull<CLUSTER, CTA, false>)
KERNEL(wrong_pulled_default, 2, pull<NONE, NONE, false>)
KERNEL(wrong_pulled_elected, 2, pull<NONE, NONE, true>)

// CTA 0 stores numbers into a slot of CTA 1, four times. CTA 1 frees the slot after it has read it.
template <int fills, int frees> __device__ void push(const float *x, float *y, float *)
{
    __shared__ float slot[THREADS];
    __shared__ uint64_t full, empty;
    const int t = threadIdx.x;
    init(&full, THREADS);
    init(&empty, THREADS);
    meet();
#pragma unroll 1
    for (int i = 0; i < 4; ++i)
        if (rank() == 0) {
            wait<frees>(&empty, i & 1 ^ 1);
            store(peer(slot, 1) + 4 * t, x[i * THREADS + t]);
            arrive<fills>(peer(&full, 1));
        } else {
            wait<fills>(&full, i & 1);
            y[i * THREADS + t] = slot[t ^ 1];
            arrive<frees>(peer(&empty, 0));
        }
    meet();
}

KERNEL(pushed, 2, push<CLUSTER, CLUSTER>)
KERNEL(pushed_freed_by_default, 2, push<CLUSTER, NONE>)
KERNEL(wrong_pushed, 2, push<CTA, CLUSTER>)

// The same by st.async, which the mbarrier itself orders; only the freeing has a scope.
template <int frees> __device__ void send(const float *x, float *y, float *)
{
    __shared__ float slot[THREADS];
    __shared__ uint64_t full, empty;
    const int t = threadIdx.x;
    init(&full, 1);
    init(&empty, THREADS);
    meet();
#pragma unroll 1
    for (int i = 0; i < 4; ++i)
        if (rank() == 0) {
            wait<frees>(&empty, i & 1 ^ 1);
            asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(
                             peer(slot, 1) + 4 * t),
                         "f"(x[i * THREADS + t]), "r"(peer(&full, 1))
                         : "memory");
        } else {
            if (t == 0)
                asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(address(&full)), "r"(4 * THREADS)
                             : "memory");
            wait<NONE>(&full, i & 1);
            y[i * THREADS + t] = slot[t ^ 1];
            arrive<frees>(peer(&empty, 0));
        }
    meet();
}

KERNEL(sent, 2, send<CLUSTER>)
KERNEL(sent_freed_by_default, 2, send<NONE>)

// Partial sums are published by the cluster's barrier; the arrivals say that they have been read and may be replaced.
template <int frees> __device__ void reduce(const float *x, float *y, float *)
{
    __shared__ float parts[THREADS];
    __shared__ uint64_t read;
    const int t = threadIdx.x, other = rank() ^ 1;
    init(&read, THREADS);
    parts[t] = x[blockIdx.x * THREADS + t];
    meet();
    const float sum = parts[t] + load(peer(parts, other) + 4 * t);
    arrive<frees>(peer(&read, other));
    wait<frees>(&read, 0);
    parts[t] = sum;
    __syncthreads();
    y[blockIdx.x * THREADS + t] = parts[t ^ 1];
    meet();
}

KERNEL(reduced, 2, reduce<CLUSTER>)
KERNEL(reduced_freed_by_default, 2, reduce<NONE>)

// Numbers in global memory, told of by an arrival.
template <int release, int acquire> __device__ void through_global(const float *x, float *y, float *work)
{
    __shared__ uint64_t full;
    const int t = threadIdx.x, other = rank() ^ 1;
    init(&full, THREADS);
    meet();
    work[blockIdx.x * THREADS + t] = x[blockIdx.x * THREADS + t];
    arrive<release>(peer(&full, other));
    wait<acquire>(&full, 0);
    y[blockIdx.x * THREADS + t] = work[(blockIdx.x ^ 1) * THREADS + THREADS - 1 - t];
    meet();
}

KERNEL(global, 2, through_global<CLUSTER, CLUSTER>)
KERNEL(wrong_global, 2, through_global<CTA, CLUSTER>)

// CTA 0 tells 1, and 1 tells the others what 0 wrote.
template <int first, int second> __device__ void pass_on(const float *x, float *y, float *)
{
    __shared__ float tile[THREADS];
    __shared__ uint64_t full;
    const int t = threadIdx.x, mine = rank();
    init(&full, THREADS);
    tile[t] = 0;
    meet();
    if (mine == 0) {
        tile[t] = x[t];
        arrive<first>(peer(&full, 1));
    } else {
        if (mine == 1)
            wait<first>(&full, 0);
        else
            wait<second>(&full, 0);
        if (mine < 3)
            arrive<second>(peer(&full, mine + 1));
    }
    y[mine * THREADS + t] = load(peer(tile, 0) + 4 * t);
    meet();
}

KERNEL(passed_on, 4, pass_on<CLUSTER, CLUSTER>)
KERNEL(wrong_passed_on_first, 4, pass_on<CTA, CLUSTER>)
KERNEL(wrong_passed_on_second, 4, pass_on<CLUSTER, CTA>)

// Atomics of one CTA on a sum of the other, whose own threads arrive at scope cta, the visitors at `scope`.
template <int scope> __device__ void count(const float *x, float *y, float *)
{
    __shared__ float sum;
    __shared__ uint64_t full;
    const int t = threadIdx.x;
    init(&full, 2 * THREADS);
    if (t == 0)
        sum = 0;
    meet();
    if (rank() == 0) {
        asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(address(&full)) : "memory");
        wait<scope>(&full, 0);
        y[t] = sum;
    } else {
        asm volatile("red.relaxed.cluster.shared::cluster.add.f32 [%0], %1;" ::"r"(peer(&sum, 0)), "f"(x[t])
                     : "memory");
        arrive<scope>(peer(&full, 0));
    }
    meet();
}

KERNEL(counted, 2, count<CLUSTER>)
KERNEL(wrong_counted, 2, count<CTA>)
