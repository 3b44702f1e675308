"""PTX that nvcc made from CUDA C++.

Right results under every order, bit for bit where only scalar arithmetic is used.
"""

from __future__ import annotations

import numpy as np
import pytest
from kernels import cuda_program

from cutegen.ptx import ExecutionFault, Program

POLICIES = ("in-order", "reversed", "random:1", "random:2")


def fused(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Fused multiply-add in float32, through extended precision: exact products, and sums with room to spare."""
    wide = a.astype(np.longdouble) * b.astype(np.longdouble) + c.astype(np.longdouble)
    return wide.astype(np.float32)


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no extended precision on this machine")
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("size", [(50, 37, 45), (16, 16, 16), (33, 64, 7)])
def test_naive_gemm_bit_for_bit(size: tuple[int, int, int], policy: str) -> None:
    m, n, k = size
    rng = np.random.default_rng(m)
    a, b, c = (rng.standard_normal(shape, np.float32) for shape in ((m, k), (k, n), (m, n)))
    expected = np.zeros((m, n), np.float32)
    for i in range(k):
        expected = fused(*np.broadcast_arrays(a[:, i : i + 1], b[i : i + 1], expected))
    expected = fused(np.float32(1.5) * np.ones_like(c), expected, np.float32(-0.25) * c)
    out = c.copy()
    args = [a, b, out, m, n, k, 1.5, -0.25]
    cuda_program("naive_gemm").launch(
        "naive_gemm", grid=(-(-n // 16), -(-m // 16)), block=(16, 16), args=args, policy=policy
    )
    assert (out.view(np.uint32) == expected.view(np.uint32)).all()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("size", [(128, 128, 160), (72, 99, 136), (1, 1, 8), (65, 130, 0)])
def test_pipelined_gemm(size: tuple[int, int, int], policy: str) -> None:
    m, n, k = size
    rng = np.random.default_rng(n)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (n, k)))
    out = np.full((m, n), np.nan, np.float32)
    report = cuda_program("pipelined_gemm").launch(
        "pipelined_gemm",
        grid=(-(-n // 64), -(-m // 64)),
        block=128,
        args=[a, b, out, m, n, k],
        dynamic_smem_bytes=24576,
        policy=policy,
    )
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    scale = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64).T
    assert (np.abs(out - exact) <= 2.0**-20 * scale).all()
    warps = report.grid[0] * report.grid[1] * 4
    tiles = -(-k // 32)
    assert report.executed("mma.sync") == warps * tiles * 2 * 8
    assert report.executed("ldmatrix") == warps * tiles * 2 * 4
    assert report.conflicts("ldmatrix") == report.conflicts("cp.async") == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_shuffle_reduction_bit_for_bit(policy: str) -> None:
    length, ctas, threads = 1001, 3, 96
    x = (np.random.default_rng(3).standard_normal((ctas, length)) * 1.5).astype(np.float32)
    sums, negatives, histogram = np.zeros(ctas, np.float32), np.zeros(ctas, np.int32), np.zeros(9, np.uint32)
    cuda_program("shuffle_reduction").launch(
        "shuffle_reduction", grid=ctas, block=threads, args=[x, sums, negatives, histogram, length], policy=policy
    )
    assert (negatives == (x < 0).sum(axis=1)).all()
    assert (histogram[:8] == np.bincount((-x[x < -1]).astype(int) & 7, minlength=8)).all()
    for cta in range(ctas):
        assert sums[cta] == _reduced(x[cta], threads)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("length", [2048, 1300, 3])
def test_softmax_of_rows_that_a_cluster_shares(length: int, policy: str) -> None:
    """`cooperative_groups::cluster_group`: generic addresses of `map_shared_rank`, atomics there, `cluster.sync`."""
    rows = 2
    x = (np.random.default_rng(length).standard_normal((rows, length)) * 3).astype(np.float32)
    x[1, 1] = -np.inf
    y, finite = np.full((rows, length), np.nan, np.float32), np.full(rows, -1, np.int32)
    args = [x, y, finite, length]
    program = cuda_program("cluster_softmax")
    report = program.launch("cluster_softmax", grid=4 * rows, block=128, args=args, policy=policy)
    exact = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    exact /= exact.sum(axis=1, keepdims=True)
    assert np.allclose(y, exact, rtol=2e-6, atol=1e-30)
    assert finite.tolist() == [length, length - 1]
    assert report.executed("barrier.cluster.arrive") == 3 * 4 * 4 * rows
    assert report.conventions == ()


def test_without_its_last_barrier_a_cta_may_exit_too_early() -> None:
    text = cuda_program("cluster_softmax").text
    head, _, tail = text.rpartition("barrier.cluster.arrive")
    unsynced = head + tail.partition("barrier.cluster.wait")[0].partition(";")[2] + tail.partition("wait")[2][1:]
    x = np.ones((1, 1300), np.float32)
    for policy in POLICIES:
        args = [x, np.zeros_like(x), np.zeros(1, np.int32), 1300]
        with pytest.raises(ExecutionFault, match="exited"):
            Program.parse(unsynced).launch("cluster_softmax", grid=4, block=128, args=args, policy=policy)


def _reduced(x: np.ndarray, threads: int) -> np.float32:
    """The kernel's sum in its own order of float32 operations."""
    lane_sums = np.zeros(threads, np.float32)
    for start in range(0, len(x), threads):
        part = x[start : start + threads]
        odd = np.arange(len(part)) % 32 % 2 == 1
        half, square = (
            fused(part, np.full_like(part, 0.5), lane_sums[: len(part)]),
            fused(part, part, lane_sums[: len(part)]),
        )
        plain = lane_sums[: len(part)] + part
        lane_sums[: len(part)] = np.where(part < 0, half, np.where(odd, square, plain))
    warps = lane_sums.reshape(-1, 32)
    for offset in (16, 8, 4, 2, 1):
        shifted = np.concatenate([warps[:, offset:], warps[:, 32 - offset :]], axis=1)
        warps = warps + shifted
    total = np.zeros(32, np.float32)
    total[: len(warps)] = warps[:, 0]
    for offset in (1, 2, 4, 8, 16):
        total = total + total[np.arange(32) ^ offset]
    return np.float32(total[0])
