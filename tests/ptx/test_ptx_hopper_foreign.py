"""PTX for Hopper that is not cutegen's: a GEMM by hand in CUDA C++, and the same with one mistake each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernels import cuda_program

from cutegen.ptx import ALL_KINDS, ExecutionFault, LaunchReport, Program, TensorMap, ViolationKind
from cutegen.verify.reference import Reference, compare, float64_reference

Array = np.ndarray[Any, Any]
POLICIES = ("in-order", "reversed", "random:1", "random:2")
TILE_M, TILE_N, TILE_K = 128, 64, 64
SMEM_BYTES = 3 * (TILE_M + TILE_N) * TILE_K * 2 + TILE_M * TILE_N * 2


def tensor_map(array: Array, box: tuple[int, int]) -> TensorMap:
    """The map of a row-major f16 matrix, 128-byte swizzle."""
    rows, columns = array.shape
    return TensorMap(array=array, extents=(columns, rows), strides_bytes=(2 * columns,), box=box, swizzle_bytes=128)


def run(program: Program, size: tuple[int, int, int], policy: str) -> tuple[Array, Reference, LaunchReport]:
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
    return c, float64_reference(a, b.T), report


def is_right(found: Array, product: Reference) -> bool:
    """True where every element is the product, but for a sum in f32 and one rounding to f16."""
    return compare(found, product, dtype="f16").ok


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
K = ViolationKind
SYNC = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n\t// end inline asm\n"
DESCRIPTOR = (1 << 16 | 64 << 32 | 1 << 62) & ~0xFFFF
# (name, what is changed, into what, what is found: kinds of violations, or nothing for a wrong product)
MUTANTS = [
    ("no wgmma.fence", "wgmma.fence.sync.aligned;", "", {K.ASYNC_MMA}),
    ("no commit", "wgmma.commit_group.sync.aligned;", "", {K.ASYNC_MMA}),
    ("no wait in the loop", "wgmma.wait_group.sync.aligned 1;", "", {K.ASYNC_MMA}),
    ("a wait for one group too few", "wait_group.sync.aligned 1;", "wait_group.sync.aligned 2;", {K.ASYNC_MMA}),
    ("no last wait", "wgmma.wait_group.sync.aligned 0;", "", {K.ASYNC_MMA}),
    ("a last wait for too few", "wait_group.sync.aligned 0;", "wait_group.sync.aligned 1;", {K.ASYNC_MMA}),
    ("no proxy fence before the store", "fence.proxy.async.shared::cta;", "", {K.RACE}),
    ("no fence after mbarrier.init", "fence.mbarrier_init.release.cluster;", "", {K.RACE}),
    ("no barrier before the store", "bar.sync %r", "// bar.sync %r", {K.RACE, K.UNINITIALIZED}),
    ("an exit before the store is done", "cp.async.bulk.wait_group 0;", "", {K.ASYNC_COPY}),
    ("no cluster barrier at the start", SYNC + "\tsetp", "\tsetp", {K.RACE, K.BARRIER}),
    ("no cluster barrier at the end", SYNC + "\tret", "\tret", {K.RACE}),
    ("arrivals at one CTA only", "there, %r59, %r44;", "there, %r59, 0;", {K.ASYNC_COPY, K.BARRIER, K.RACE}),
    ("a multicast to one CTA", "mov.u16 \t%rs1, 3;", "mov.u16 \t%rs1, 1;", {K.BARRIER, K.ASYNC_COPY}),
    ("too few expected bytes", "mov.u32 \t%r163, 24576;", "mov.u32 \t%r163, 24448;", {K.BARRIER, K.ASYNC_COPY}),
    ("a stage filled before it is given back", "%r159;\n@!P bra", "%r159;\n// bra", {K.ASYNC_MMA, K.BARRIER}),
    ("a stage read before it is filled", "%r38;\n@!P bra", "%r38;\n// bra", {K.ASYNC_COPY, K.UNINITIALIZED}),
    ("a wrong parity", "and.b32  \t%r38, %r45, 1;", "and.b32  \t%r38, %r45, 2;", {K.ASYNC_COPY, K.BARRIER}),
    ("8 rows in the wrong place", str(DESCRIPTOR), str(DESCRIPTOR - (1 << 32)), set()),
    ("the swizzle of 64 bytes", str(DESCRIPTOR), str(DESCRIPTOR ^ 3 << 62), set()),
    ("k in the wrong place", "add.s64 \t%rd9, %rd7, 2;", "add.s64 \t%rd9, %rd7, 4;", set()),
    ("accumulators that begin with the second k", "adds, %r40, 0;", "adds, %r178, 0;", set()),
]  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant[0])
def test_every_mistake_in_it_is_caught(mutant: tuple[str, str, str, set[ViolationKind]]) -> None:
    _, before, after, kinds = mutant
    assert TEXT.count(before) in (1, 2), TEXT.count(before)
    program = Program.parse(TEXT.replace(before, after))
    for policy in ("in-order", "random:1"):
        if not kinds:
            found, product, _ = run(program, SIZE, policy)
            assert not is_right(found, product)
            continue
        with pytest.raises(ExecutionFault) as caught:
            run(program, SIZE, policy)
        assert caught.value.violation.kind in kinds, str(caught.value)
