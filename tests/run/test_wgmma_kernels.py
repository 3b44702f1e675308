"""Kernels that multiply by wgmma, from the spec to the CPU executor, against float64.

Settings beside each other are `test_wgmma_pairs.py`; here is what lies beside them, and many tiles in any order.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from cutegen import api
from cutegen.analysis.sass import WGMMA, main_loop
from cutegen.build import Cache, disassemble
from cutegen.contract.launch import LaunchContract, LaunchGeometry
from cutegen.contract.problem import ProblemShape
from cutegen.errors import PtxFault
from cutegen.run import Kernel
from cutegen.verify import compare, expected_outcome, random_operands
from tests.gpu.cases import MISTAKES
from tests.gpu.prebuild import planted
from tests.run.against_float64 import check, made
from tests.run.wgmma import CASES

pytestmark = pytest.mark.dsl
QUICK = ("tn", "nt", "fused", "shares_of_ten_rows")
SLOW = (
    "two_atoms_a_warpgroup",
    "three_warpgroups",
    "k_tile_of_two_boxes",
    "parts_of_32_columns",
    "parts_of_8_columns",
    "swizzle_of_32_bytes_for_c",
    "cluster_of_two_boxes",
    "cluster_of_e4m3",
    "more_slices_than_k_tiles",
)
ALL = [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]


def run(kernel: Kernel, m: int, n: int, k: int, batch: int | None = None, **options: Any) -> None:
    """Executes the kernel, its result poisoned, and holds what it wrote against float64."""
    check(kernel, *made(kernel, m, n, k, batch), partial(kernel.execute, **options))


@pytest.mark.parametrize("name", ALL)
def test_edges_on_every_side(compiled: Any, name: str) -> None:
    """Two k-tiles and a cut one, in tiles that the matrix does not fill."""
    run(compiled(CASES[name]), 208, 80, 144)


def test_c_is_not_read_where_beta_is_0(compiled: Any) -> None:
    """As in BLAS: C may hold anything, also in tiles that the matrix fills."""
    kernel = compiled(CASES["blas"])
    m, n = 200, 64  # a whole tile and a partial one
    a, b, out = random_operands(kernel.contract, m, n, 80, seed=4)
    extras = {"c": np.full((m, n), np.nan, np.float16), "alpha": 0.5, "beta": 0.0}
    kernel.execute(a, b, out=out, **extras)
    assert np.isfinite(out).all()
    assert compare(out, expected_outcome(kernel.contract, a, b, extras).result, dtype="f16").ok


@pytest.mark.parametrize("name", ["sm90_hgemm_tn", "cutlass_hopper_cooperative"])
def test_little_stands_beside_the_multiplications_of_a_k_tile(name: str, kernels: Cache) -> None:
    """Descriptors come from no register of a thread, and each of the four k-blocks' is found in 32 bits."""
    artifact = api.compile(name, "sm_90", cache=kernels).artifact
    loop = main_loop(disassemble(artifact.cubin), artifact.manifest.entry, WGMMA)
    assert loop.multiplications(WGMMA) == 4
    assert loop.count("R2UR") == 0
    assert len(loop.instructions) <= 55  # 45 to 52 by the assemblers of CUDA 12 and 13, in 64 bits 57 to 64


@pytest.mark.parametrize("name", ["pingpong", "cluster_taking_turns", "split_k"])
@pytest.mark.parametrize("policy", ["reversed", "random:7"])
def test_many_tiles_in_any_order(compiled: Any, name: str, policy: str) -> None:
    """Stages go round through the tiles of a CTA, of which five k-tiles each leave no stage where it began."""
    run(compiled(CASES[name]), 384, 192, 320, policy=policy)


@pytest.mark.parametrize(
    ("policy", "k"),
    [
        *(("in-order", 8), ("in-order", 56), ("reversed", 48), ("random:7", 200)),
        pytest.param("in-order", 200, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", ["ends_in_turns", "cluster_ends_in_turns"])
def test_last_k_tiles_in_turns(compiled: Any, name: str, policy: str, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All k-tiles of a tile in turns, or the last ones, of three or four tiles that one CTA computes."""
    kernel, (m, n) = compiled(CASES[name]), (328, 264)
    assert "mbarrier_wait(turn + group" in kernel.artifact.source
    of_two_ctas = kernel.contract.geometry(ProblemShape(m, n, k), multiprocessors=2)
    assert (of_two_ctas.grid[0], kernel.contract.tiles(ProblemShape(m, n, k))) in ((2, 6), (2, 8))
    monkeypatch.setattr(LaunchContract, "geometry", lambda *_, **__: of_two_ctas)
    run(kernel, m, n, k, policy=policy)


@pytest.mark.parametrize("k", [1024, 1296, 2200])
def test_promoted_sums_take_two_sets_of_registers_in_turn(compiled: Any, k: int) -> None:
    """A whole turn of eight k-tiles, a turn with three left over, two turns with two: sums of both sets are added."""
    spec = CASES["e4m3"]
    assert "tCrQ" in compiled(spec).artifact.source
    run(compiled(spec), 72, 64, k)


@pytest.mark.parametrize("policy", ["in-order", "reversed"])
@pytest.mark.parametrize("k", [64, 128, 144, pytest.param(1296, marks=pytest.mark.slow)])
def test_a_second_warpgroup_that_promotes_begins_a_k_tile_behind(compiled: Any, k: int, policy: str) -> None:
    """One k-tile, behind which nobody can be, two and eleven, of a CTA's only tile and of several."""
    spec = CASES["e4m3_of_two_warpgroups"]
    behind = "mbarrier_wait(full + 1, 0)"
    assert behind in compiled(spec).artifact.source
    assert behind not in compiled(CASES["e4m3"]).artifact.source
    for m, n in ((120, 56), (300, 200)):
        run(compiled(spec), m, n, k, policy=policy)


@pytest.mark.parametrize("policy", ["in-order", "reversed"])
def test_sums_that_leave_at_once_wait_for_the_store_of_the_tile_before(
    compiled: Any, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warpgroup's part of a CTA's second and third tile goes where that of the one before it is stored from."""
    spec = CASES["e4m3_at_once"]
    kernel = compiled(spec)
    assert "PARTS, PARTS_N, PART_VALUES = 1, 1, 64" in kernel.artifact.source
    one_cta = LaunchGeometry((1, 1, 1), (kernel.contract.threads, 1, 1), kernel.contract.dynamic_smem_bytes)
    monkeypatch.setattr(LaunchContract, "geometry", lambda *_, **__: one_cta)
    run(kernel, 136, 264, 72, policy=policy)


@pytest.mark.parametrize("name", ["tn", "pingpong", "ends_in_turns", "split_k", "e4m3"])
def test_every_tile_is_computed_by_however_many_ctas(compiled: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer than tiles, as many, or more: of twice as many, which a launch of few tiles has, every second leaves."""
    kernel = compiled(CASES[name])
    contract = kernel.contract
    m, n, k = 2 * contract.cta_tile[0] + 8, 72, 136
    tiles = contract.tiles(ProblemShape(m, n, k))
    assert contract.spread
    assert contract.geometry(ProblemShape(m, n, k), multiprocessors=1000).grid[0] == 2 * tiles > 4
    for ctas in (1, 2, tiles - 1, tiles, tiles + 1, 2 * tiles - 1, 2 * tiles):
        grid = (ctas, contract.split.slices if contract.split else 1, 1)
        geometry = LaunchGeometry(grid, (contract.threads, 1, 1), contract.dynamic_smem_bytes)
        monkeypatch.setattr(LaunchContract, "geometry", lambda *_, now=geometry, **__: now)
        run(kernel, m, n, k)
    of_two = LaunchGeometry((2 * tiles, grid[1], 2), (contract.threads, 1, 1), contract.dynamic_smem_bytes)
    monkeypatch.setattr(LaunchContract, "geometry", lambda *_, **__: of_two)
    run(kernel, m, n, k, batch=2)


@pytest.mark.parametrize(("name", "policy"), [("fused", "in-order"), ("split_k", "random:1")])
def test_a_batch(compiled: Any, name: str, policy: str) -> None:
    """In random order slices of all of the batch are at work at a time, each counted with its own tile's."""
    run(compiled(CASES[name]), 72, 64, 200, batch=3, policy=policy)


@pytest.mark.parametrize("name", ["tn", "split_k", "slices_of_a_cluster"])
def test_without_a_k_the_result_is_zeros(compiled: Any, name: str) -> None:
    storage = np.ones((5, 16), np.float16)
    compiled(CASES[name])(np.zeros((5, 0), np.float16), np.zeros((0, 8), np.float16), out=storage[:, :8])
    assert not storage[:, :8].any()
    assert storage[:, 8:].all()


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_race_is_a_fault(kernels: Cache, name: str) -> None:
    """Those that racecheck of compute-sanitizer is shown too, which sees nothing of bulk copies and wgmma."""
    kernel = Kernel(planted(MISTAKES[name], kernels))
    a, b, out = random_operands(kernel.contract, 64, 136, 264, seed=1)
    for policy in ("in-order", "reversed"):
        with pytest.raises(PtxFault):
            kernel.execute(a, b, out=out, policy=policy)
