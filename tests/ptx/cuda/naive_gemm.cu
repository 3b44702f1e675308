// C = alpha * A B + beta * C in float32, row-major, staged through 16x16 tiles of shared memory.
// Any M, N, K: what lies outside is read as zero and not written.

extern "C" __global__ void naive_gemm(const float *A, const float *B, float *C, int M, int N, int K, float alpha, float beta)
{
    __shared__ float tileA[16][16];
    __shared__ float tileB[16][17];
    const int row = blockIdx.y * 16 + threadIdx.y;
    const int col = blockIdx.x * 16 + threadIdx.x;
    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += 16) {
        const int ka = k0 + threadIdx.x, kb = k0 + threadIdx.y;
        tileA[threadIdx.y][threadIdx.x] = row < M && ka < K ? A[(long long)row * K + ka] : 0.0f;
        tileB[threadIdx.y][threadIdx.x] = kb < K && col < N ? B[(long long)kb * N + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < 16; ++k)
            sum = fmaf(tileA[threadIdx.y][k], tileB[k][threadIdx.x], sum);
        __syncthreads();
    }
    if (row < M && col < N) {
        float *c = C + (long long)row * N + col;
        *c = alpha * sum + beta * *c;
    }
}
