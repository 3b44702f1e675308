"""A plain Triton GEMM for comparison: blocks in bands that share operands in L2, autotuned over a few tiles.

It is a straightforward Triton kernel: pointer arithmetic, no tensor descriptors, no warp specialization.
Importing this module imports Triton.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

BAND = 8
CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_stages=stages, num_warps=warps)
    for m, n, k, stages, warps in (
        (128, 256, 64, 3, 8),
        (256, 128, 64, 3, 8),
        (128, 128, 64, 4, 4),
        (128, 128, 64, 4, 8),
        (128, 64, 64, 4, 4),
        (64, 128, 64, 4, 4),
        (64, 64, 64, 5, 4),
        (32, 64, 128, 4, 4),
        (16, 64, 128, 5, 4),
    )
]


def _bench(kernel: Any, quantiles: Any) -> Any:
    """Time a configuration with fewer launches than Triton's default: there are nine, for each problem."""
    return triton.testing.do_bench(kernel, warmup=5, rep=30, quantiles=quantiles)


@triton.autotune(CONFIGS, key=["m", "n", "k"], do_bench=_bench)
@triton.jit
def _gemm(
    a,
    b,
    c,
    m,
    n,
    k,
    a_m,
    a_k,
    b_k,
    b_n,
    c_m,
    c_n,
    BAND: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    # Programs walk down bands of BAND blocks along M, so that concurrent ones share rows of A and columns of B.
    blocks_m, blocks_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    program = tl.program_id(0)
    first_m = program // (BAND * blocks_n) * BAND
    band = min(blocks_m - first_m, BAND)
    block_m = first_m + program % (BAND * blocks_n) % band
    block_n = program % (BAND * blocks_n) // band

    # Rows and columns past the end read the first ones again; their results are not stored.
    rows, columns = block_m * BLOCK_M + tl.arange(0, BLOCK_M), block_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a_at = a + (rows % m)[:, None].to(tl.int64) * a_m + depth[None, :] * a_k
    b_at = b + depth[:, None] * b_k + (columns % n)[None, :].to(tl.int64) * b_n
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        inside = depth < k - start
        a_block = tl.load(a_at, mask=inside[None, :], other=0.0)
        b_block = tl.load(b_at, mask=inside[:, None], other=0.0)
        sums = tl.dot(a_block, b_block, sums)
        a_at += BLOCK_K * a_k
        b_at += BLOCK_K * b_k
    c_at = c + rows[:, None].to(tl.int64) * c_m + columns[None, :] * c_n
    tl.store(c_at, sums.to(c.dtype.element_ty), mask=(rows < m)[:, None] & (columns < n)[None, :])


def gemm(a: Any, b: Any, out: Any) -> None:
    """Compute out (M,N) = a (M,K) b (K,N), torch tensors with any strides; sums in float32."""
    (m, k), n = a.shape, b.shape[1]

    def grid(block: dict[str, int]) -> tuple[int]:
        return (triton.cdiv(m, block["BLOCK_M"]) * triton.cdiv(n, block["BLOCK_N"]),)

    _gemm[grid](a, b, out, m, n, k, *a.stride(), *b.stride(), *out.stride(), BAND=BAND)
