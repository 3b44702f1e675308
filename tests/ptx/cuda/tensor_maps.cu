// Tensor maps that a kernel makes itself: for each of several matrices it changes a copy of one map in shared memory,
// publishes it in global memory, and loads a box with it, as grouped matrix products do.
#include <stdint.h>

__device__ __forceinline__ uint32_t shared_address(const void *place) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(place));
}

struct Matrix {
    long long first;
    int rows;
    int pitch_bytes;
};

struct alignas(64) Map {
    unsigned char octets[128];
};

constexpr int COLUMNS = 32, ROWS = 8, BYTES = COLUMNS * ROWS * 4;

// out[g] is the first box of matrix g, which begins at values[first]: 8 rows of 32; rows past its end are zeros.
extern "C" __global__ void first_boxes(const __grid_constant__ Map original, const float *values,
                                       const Matrix *matrices, Map *made, float *out, int count) {
    __shared__ alignas(128) float box[ROWS * COLUMNS];
    __shared__ alignas(128) unsigned int map[32];
    __shared__ uint64_t full;
    const int lane = threadIdx.x;
    map[lane] = reinterpret_cast<const unsigned int *>(&original)[lane];
    if (lane == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(&full)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
    for (int g = 0; g < count; ++g) {
        const Matrix matrix = matrices[g];
        const uint32_t at = shared_address(map);
        if (lane == 0) {
            asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(at), "l"(values + matrix.first) : "memory");
            asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(at), "r"(matrix.rows) : "memory");
            asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], 0, %1;" ::"r"(at), "l"((uint64_t)matrix.pitch_bytes) : "memory");
        }
        __syncwarp();
        asm volatile(
            "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;"
            ::"l"(made), "r"(at) : "memory");
        asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(made) : "memory");
        if (lane == 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(&full)), "r"(BYTES) : "memory");
            asm volatile(
                "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2}], [%3];"
                ::"r"(shared_address(box)), "l"(made), "r"(0), "r"(shared_address(&full)) : "memory");
        }
        asm volatile(
            "{\n .reg .pred done;\n"
            "again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n @!done bra again;\n}"
            ::"r"(shared_address(&full)), "r"(g & 1) : "memory");
        for (int row = 0; row < ROWS; ++row) out[(g * ROWS + row) * COLUMNS + lane] = box[row * COLUMNS + lane];
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
    }
}
