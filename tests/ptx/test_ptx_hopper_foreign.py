"""PTX for Hopper that is not cutegen's: wgmma, bulk copies to a cluster and stmatrix, by hand in CUDA C++."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernels import cuda_program

from cutegen.ptx import ALL_KINDS, LaunchReport, Program, TensorMap, ViolationKind

Array = np.ndarray[Any, Any]
POLICIES = ("in-order", "reversed", "random:1", "random:2")
TILE_M, TILE_N, TILE_K = 128, 64, 64
SMEM_BYTES = 3 * (TILE_M + TILE_N) * TILE_K * 2 + TILE_M * TILE_N * 2


def tensor_map(array: Array, box: tuple[int, int]) -> TensorMap:
    """The map of a row-major f16 matrix, 128-byte swizzle."""
    rows, columns = array.shape
    return TensorMap(array=array, extents=(columns, rows), strides_bytes=(2 * columns,), box=box, swizzle_bytes=128)


def run(program: Program, size: tuple[int, int, int], policy: str) -> tuple[Array, Array, LaunchReport]:
    """(C, the product in float64, the report)."""
    m, n, k = size
    rng = np.random.default_rng([m, n, k])
    a, b = (rng.standard_normal((rows, k)).astype(np.float16) for rows in (m, n))
    c = np.full((m, n), np.nan, np.float16)
    maps = [tensor_map(a, (TILE_K, TILE_M)), tensor_map(b, (TILE_K, TILE_N // 2)), tensor_map(c, (TILE_N, 64))]
    report = program.launch(
        "hopper_gemm",
        grid=(2 * -(-m // (2 * TILE_M)), -(-n // TILE_N)),
        block=384,
        args=[*maps, k],
        dynamic_smem_bytes=SMEM_BYTES,
        policy=policy,
        raise_on=ALL_KINDS - {ViolationKind.CONVENTION},
        max_steps=300_000,
    )
    return c, a.astype(np.float64) @ b.astype(np.float64).T, report


def is_right(found: Array, product: Array) -> bool:
    """True where every element is the product, but for a sum in f32 and one rounding to f16."""
    return bool((np.abs(found - product) <= 2.0**-11 * np.abs(product) + 1e-3).all())


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("size", [(256, 64, 64), (256, 128, 320), (300, 72, 256), (8, 8, 192)])
def test_a_gemm_by_hand(size: tuple[int, int, int], policy: str) -> None:
    found, product, report = run(cuda_program("hopper_gemm"), size, policy)
    assert is_right(found, product)
    ctas, turns = report.grid[0] * report.grid[1], size[2] // TILE_K
    assert report.executed("wgmma.mma_async") == ctas * 2 * 4 * turns * 4
    assert report.executed("stmatrix") == ctas * 2 * 4 * 4
    assert report.conflicts("stmatrix") == 0


TEXT = cuda_program("hopper_gemm").text
SIZE = (256, 64, 320)
# (what is changed, into what, how many places there are, what is found; None: a wrong product)
MUTANTS = [
    ("wgmma.fence.sync.aligned;", "", ViolationKind.ASYNC_MMA),
    ("wgmma.commit_group.sync.aligned;", "", ViolationKind.ASYNC_MMA),
    ("wgmma.wait_group.sync.aligned 1;", "", ViolationKind.ASYNC_MMA),
    ("wgmma.wait_group.sync.aligned 1;", "wgmma.wait_group.sync.aligned 2;", ViolationKind.ASYNC_MMA),
    ("wgmma.wait_group.sync.aligned 0;", "", ViolationKind.ASYNC_MMA),
    ("wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;", ViolationKind.ASYNC_MMA),
    ("fence.proxy.async.shared::cta;", "", ViolationKind.RACE),
]
