// Host interface of the hand-written kernel.

#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

struct Problem {
    int m, n, k;
};

// Requirements on M, N and K; there is no code for partial tiles.
constexpr int M_MULTIPLE = 256, N_MULTIPLE = 128, K_MULTIPLE = 32, K_LEAST = 64;

// C (M,N) = A (M,K) * B (N,K), all contiguous along the second mode and aligned to 16 bytes; sums are f16.
// The name is not mangled, so that other languages can call it.
extern "C" cudaError_t wmma_gemm(Problem problem, const half *a, const half *b, half *c, cudaStream_t stream);
