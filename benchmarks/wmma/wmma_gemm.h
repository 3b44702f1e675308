// The hand-written kernel's host side.

#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

struct Problem {
    int m, n, k;
};

// What is asked of M, N and K; there is no code for edges.
constexpr int M_MULTIPLE = 256, N_MULTIPLE = 128, K_MULTIPLE = 32, K_LEAST = 64;

// C (M,N) = A (M,K) * B (N,K), all contiguous along the second mode and aligned to 16 bytes; sums are f16.
// Without C++'s name, so that other languages find it, too.
extern "C" cudaError_t wmma_gemm(Problem problem, const half *a, const half *b, half *c, cudaStream_t stream);
