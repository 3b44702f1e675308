// A persistent kernel for sm_100 that takes over the tiles of clusters that have not started (cluster launch control).
#include <stdint.h>

__device__ __forceinline__ uint32_t shared_address(const void *place) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(place));
}

// out[tile] = 3 tile + 1, tile by tile; counts[0] counts the tiles.
extern "C" __global__ void tiles(int *out, int *counts) {
    __shared__ alignas(16) uint4 response;
    __shared__ uint64_t ready;
    const bool leads = threadIdx.x == 0;
    if (leads) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(&ready)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    int x = blockIdx.x, y = blockIdx.y, parity = 0;
    while (true) {
        if (leads) {
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 16;" ::"r"(shared_address(&ready)) : "memory");
            asm volatile(
                "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];"
                ::"r"(shared_address(&response)), "r"(shared_address(&ready)) : "memory");
        }
        const int tile = y * gridDim.x + x;
        if (threadIdx.x < 4) out[4 * tile + threadIdx.x] = 3 * tile + threadIdx.x;
        if (leads) atomicAdd(counts, 1);
        asm volatile(
            "{\n .reg .pred done;\n"
            "again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n @!done bra again;\n}"
            ::"r"(shared_address(&ready)), "r"(parity) : "memory");
        parity ^= 1;
        int is_canceled, z;  // the grid has no z
        asm volatile(
            "{\n .reg .b128 handle;\n .reg .pred canceled;\n"
            "ld.shared.b128 handle, [%4];\n"
            "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 canceled, handle;\n"
            "selp.u32 %0, 1, 0, canceled;\n"
            "@canceled clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%1, %2, %3, _}, handle;\n}"
            : "=r"(is_canceled), "=r"(x), "=r"(y), "=r"(z) : "r"(shared_address(&response)) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        if (!is_canceled) break;
    }
}
