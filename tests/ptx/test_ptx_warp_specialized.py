"""A GEMM from the CuTe DSL that is fed by bulk tensor copies: right under every policy, and its mutants are not."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from cutegen.ptx import ExecutionFault, LaunchReport, Program, TensorMap

TEXT = (Path(__file__).parent / "dsl" / "tma_gemm.ptx").read_text()
POLICIES = ("in-order", "reversed", "random:1", "random:2")
TILE, TILE_K, SMEM_BYTES = 128, 64, 131120
LOADS, STORES = "cp.async.bulk.tensor.2d.shared::cta", "cp.async.bulk.tensor.2d.global"


@cache
def right_program() -> Program:
    return Program.parse(TEXT)


def half_map(array: np.ndarray) -> TensorMap:
    """A row-major matrix of f16, in boxes of 128 rows of 128 bytes."""
    rows, columns = array.shape
    box = TILE_K, TILE
    return TensorMap(array=array, extents=(columns, rows), strides_bytes=(2 * columns,), box=box, swizzle_bytes=128)


def gemm(
    program: Program, size: tuple[int, int, int], *, seed: int, ctas: int | None = None, **options: object
) -> tuple[float, LaunchReport]:
    """(largest error of C in units of what rounding allows, the report)."""
    m, n, k = size
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (n, k)))
    c = np.full((m, n), np.nan, np.float16)
    args = [half_map(a), b"", half_map(b), b"", half_map(c), b"", m, n, k]
    grid = ctas or -(-m // TILE) * -(-n // TILE)
    report = program.launch("tma_gemm", grid=grid, block=256, args=args, dynamic_smem_bytes=SMEM_BYTES, **options)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    scale = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64).T
    allowed = 2.0**-11 * np.abs(exact) + 2.0**-20 * scale
    with np.errstate(invalid="ignore"):
        ratio = np.abs(c - exact) / allowed
    return float(np.nan_to_num(ratio, nan=np.inf).max()), report


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("size", "ctas"),
    [((128, 128, 64), None), ((256, 128, 192), None), ((200, 136, 72), None), ((8, 8, 8), None), ((136, 264, 72), 2)],
)
def test_it_computes_the_product(size: tuple[int, int, int], ctas: int | None, policy: str) -> None:
    error, report = gemm(right_program(), size, seed=sum(size), ctas=ctas, policy=policy)
    assert error <= 1
    m, n, k = size
    tiles, k_tiles = -(-m // TILE) * -(-n // TILE), -(-k // TILE_K)
    assert report.boxes(LOADS) == 2 * tiles * k_tiles
    assert report.shared_bytes(LOADS) == 2 * tiles * k_tiles * TILE * TILE_K * 2
    assert report.global_bytes(LOADS) == 2 * k * (m * -(-n // TILE) + n * -(-m // TILE))
    # The DSL lets all 32 lanes of a warp store the same two boxes.
    assert report.boxes(STORES) == 32 * 2 * tiles
    assert report.global_bytes(STORES) == 32 * 2 * m * n
    assert report.conflicts("ldmatrix") == report.conflicts("stmatrix") == 0


@pytest.mark.slow
def test_several_processes_give_the_same() -> None:
    error, report = gemm(right_program(), (256, 256, 64), seed=3, jobs=2)
    assert error <= 1
    assert report.boxes(LOADS) == 8


def without(pattern: str, *, which: int = 0, by: str = "") -> str:
    """The text with one instruction, the `which`-th whose text matches `pattern`, taken out or replaced."""
    found = list(re.finditer(rf"^\t(?:@\S+ )?{pattern}[^;]*;", TEXT, re.MULTILINE))
    start, end = found[which].span()
    return TEXT[:start] + by + TEXT[end:]


def with_change(before: str, after: str, *, which: int = 0) -> str:
    """The text with the `which`-th `before` replaced."""
    start = [match.start() for match in re.finditer(re.escape(before), TEXT)][which]
    return TEXT[:start] + after + TEXT[start + len(before) :]


def inverted(which: int) -> str:
    """The text with the parity of the `which`-th wait inverted."""
    wait = list(re.finditer(r"^\tmbarrier.try_wait.parity.*?, (%\w+), \d+;", TEXT, re.MULTILINE))[which]
    wrong = f"\t.reg .b32 Q; xor.b32 Q, {wait[1]}, 1;\n" + wait[0].replace(f"{wait[1]},", "Q,")
    return TEXT[: wait.start()] + wrong + TEXT[wait.end() :]


SPIN = "@P1 bra.uni DONE;"
DEADLOCK, NOT_WAITED = "waits for the mbarrier at", "bulk copy"
MUTANTS = {
    "the fence after mbarrier.init dropped": (without("fence.mbarrier_init"), "no fence.mbarrier_init"),
    "the barrier after mbarrier.init dropped": (without("bar.sync"), "mbarrier.init"),
    "the fence before the store dropped": (without("fence.proxy.async"), "no fence.proxy.async"),
    "the barrier before stmatrix dropped": (without(r"bar.sync \t1"), "bulk copy of thread|after the read"),
    "the barrier before the store dropped": (without(r"bar.sync \t1", which=1), "after the write|never written"),
    "the wait for the store's reads dropped": (without("cp.async.bulk.wait_group"), "may still be reading"),
    "the last wait for the store's reads dropped": (without("cp.async.bulk.wait_group", which=1), "exits before"),
    "commit_group dropped": (without("cp.async.bulk.commit_group"), "exits before|may still be reading"),
    "expect_tx dropped": (without("mbarrier.arrive.expect_tx"), DEADLOCK),
    "arrive on empty dropped": (without("mbarrier.arrive.shared"), DEADLOCK),
    "the load of A dropped": (without("cp.async.bulk.tensor.2d.shared"), DEADLOCK),
    "the load of B dropped": (without("cp.async.bulk.tensor.2d.shared", which=1), DEADLOCK),
    "fewer bytes expected": (with_change("32768", "16384"), NOT_WAITED),
    "more bytes expected": (with_change("32768", "32784"), DEADLOCK),
    "fewer arrivals on empty": (with_change("mov.b32 \t%r244, 4", "mov.b32 \t%r244, 3"), "not seen the phase"),
    "more arrivals on empty": (with_change("mov.b32 \t%r244, 4", "mov.b32 \t%r244, 5"), DEADLOCK),
    "more arrivals on full": (with_change("mov.b32 \t%r243, 1", "mov.b32 \t%r243, 2"), DEADLOCK),
    "the load signals the next stage": (with_change("[%r14]", "[%r14+8]"), DEADLOCK),
    "the producer does not wait": (
        with_change(SPIN, "bra.uni DONE;"),
        "without a wait|not seen the phase|1 of 1 arrivals have come",
    ),
    "the consumer does not wait": (with_change(SPIN, "bra.uni DONE;", which=1), "bulk copy|never"),
    "wrong parity in the producer": (inverted(0), f"{DEADLOCK}|without a wait"),
    "wrong parity in the consumer": (inverted(1), "bulk copy|never written"),
}


@pytest.mark.parametrize("policy", ["in-order", pytest.param("reversed", marks=pytest.mark.slow), "random:1"])
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str, policy: str) -> None:
    text, message = MUTANTS[name]
    with pytest.raises(ExecutionFault, match=message):
        gemm(Program.parse(text), (256, 128, 192), seed=5, ctas=1, policy=policy, max_steps=200_000)


@pytest.mark.parametrize("which", [0, 1])
def test_a_store_that_is_dropped_leaves_its_place_unwritten(which: int) -> None:
    text = without("cp.async.bulk.tensor.2d.global", which=which)
    assert gemm(Program.parse(text), (128, 128, 64), seed=6)[0] == np.inf


def test_the_docs_count_the_mutants() -> None:
    docs = (Path(__file__).parents[2] / "docs" / "ptx.md").read_text()
    assert f"{len(MUTANTS) + 2} mutants were written by hand" in docs
    assert f"All are caught, {len(MUTANTS)} by a fault" in docs
