"""Demands of a k-tile: those of swapped kernels are a call's, and slices of K have their own work around the loop."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import pytest

from cutegen.analysis.limits import KTileCost, k_tile_cost, limits
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import SM_RATES, Instruction
from cutegen.plan import GemmPlan, plan
from cutegen.spec import Mma, Tile, load_spec
from tests.gpu.cases import CASES
from tests.plan.specs import SHIPPED_GEMMS


def narrow(*, swap: bool) -> GemmPlan:
    """A kernel for sm_90 with a tile of 64 x 16, of the product or of the swapped one."""
    spec = load_spec("sm90_hgemm_tn")
    schedule = replace(spec.schedule, swap=swap)
    made = plan(replace(spec, tile=Tile((64, 16, 64)), mma=Mma(), schedule=schedule), "sm_90")
    assert isinstance(made, GemmPlan)
    return made


@pytest.mark.parametrize(("swap", "tile"), [(False, (64, 16)), (True, (16, 64))])
@pytest.mark.parametrize("problem", [ProblemShape(16, 4096, 4096), ProblemShape(4096, 16, 1000, 3)], ids=str)
def test_compulsory_bytes_are_spread_over_the_tiles_of_a_call(
    swap: bool, tile: tuple[int, int], problem: ProblemShape
) -> None:
    tiles = problem.batch * ceil(problem.m / tile[0]) * ceil(problem.n / tile[1])
    cost = k_tile_cost(narrow(swap=swap), problem, None)
    compulsory = problem.batch * 2 * (problem.m * problem.k + problem.n * problem.k + problem.m * problem.n)
    assert cost.hbm_bytes * tiles * ceil(problem.k / 64) == pytest.approx(compulsory)


def test_a_slice_has_the_work_around_its_own_loop() -> None:
    """A CTA of S slices costs as much per k-tile as one that computes an S-th of K alone."""
    spec = load_spec("sm80_split_k_tn")
    split = plan(spec, "sm_80")
    alone = plan(replace(spec, schedule=replace(spec.schedule, split_k=1)), "sm_80")
    assert split.split_k is not None
    assert alone.split_k is None
    slices, k = split.split_k.slices, split.cta_tile[2]
    for k_tiles in (1, 2, 7):
        problem = ProblemShape(256, 256, slices * k_tiles * k)
        once = k_tile_cost(alone, ProblemShape(256, 256, k_tiles * k), None)
        assert k_tile_cost(split, problem, None).wavefronts == once.wavefronts
        # With one k-tile more, the longest slice has one more.
        longer = k_tile_cost(alone, ProblemShape(256, 256, (k_tiles + 1) * k), None)
        assert k_tile_cost(split, replace(problem, k=problem.k + k), None).wavefronts == longer.wavefronts


@pytest.mark.parametrize(("k_tiles", "wavefronts"), [(1, 896.0), (10, 780.8)])
def test_a_k_tile_by_hand(k_tiles: int, wavefronts: float) -> None:
    """Tiles of 128 x 64 f16 have 128 rows of banks: written once, and read by both warps of a row or column of warps.

    2 x 128 are written; 2 x 256 are read, and before the loop a fourth of that, the first of four k-blocks.
    """
    made = plan(load_spec("sm80_hgemm_tn"), "sm_80")
    cost = k_tile_cost(made, ProblemShape(256, 256, k_tiles * 64), 621 / 8)
    assert cost.flops == 2 * 128 * 128 * 64
    assert cost.wavefronts == pytest.approx(wavefronts)
    assert cost.issued == 621 / 8 * 4, "four warps"
    assert cost.l2_bytes == 2 * 128 * 64 * 2


@pytest.mark.parametrize(
    ("case", "wavefronts"),
    [
        # Rows of 32 halfs are half a line: 2 x 128 lines are written, in 2 x 64 rows of banks. 8-way conflicts make
        # 2 x 512 of the reads, of which a CTA's 32 k-tiles have half a k-tile more.
        ("counters_bk32_plain", 2 * 128 + 2 * 512 * (32 + 1 / 2) / 32),
        # The atom (8,(8,8)):(8,(1,64)) without its swizzle: an H200 takes 32 wavefronts for each warp's cp.async.
        # 16 k-tiles, and one of four k-blocks of them read ahead.
        ("counters_bk64_unswizzled_atom", 512 * (16 + 1 / 4) / 16 + 32 * (2 * 128 * 64 * 2 // 16 // 32)),
    ],
)
def test_conflicts_and_writes_that_bypass_l1_are_in_the_cost(case: str, wavefronts: float) -> None:
    assert k_tile_cost(plan(CASES[case], "sm_90"), ProblemShape(1024, 1024, 1024), None).wavefronts == wavefronts


def test_the_tutorials_kernel_is_bounded_by_shared_memory_before_multiply_adds() -> None:
    """A k-tile: 2 x 128 x 128 x 8 operations at 256 a cycle; 2 x 32 wavefronts written and 2 x 512 read."""
    made = plan(load_spec("simt_sgemm_nt"), "sm_90")
    found = limits(k_tile_cost(made, ProblemShape(4096, 4096, 4096), None), SM_RATES["sm_90"])
    cycles = {limit.resource: limit.cycles for limit in found}
    assert (cycles["FMA units"], cycles["shared memory"]) == (1024, 1088)
    assert found[0].resource == "shared memory"


@pytest.mark.parametrize(("consumers", "warps"), [("cooperative", 8), ("pingpong", 4)])
def test_issued_are_the_instructions_of_the_warps_that_multiply_a_tile(consumers: str, warps: int) -> None:
    """A producer's warps and those of another tile, which the CTA has too, issue none of a k-tile's main loop."""
    made = plan(load_spec(f"cutlass_hopper_{consumers}"), "sm_90")
    assert made.launch.threads == 3 * 128
    assert k_tile_cost(made, ProblemShape(4096, 4096, 4096), 10.0).issued == 10 * warps


@pytest.mark.parametrize("name", SHIPPED_GEMMS)
def test_every_shipped_kernel_has_a_cost_at_least_that_of_its_copies(name: str) -> None:
    spec = load_spec(name)
    made = plan(spec, spec.needs)
    assert isinstance(made, GemmPlan)
    m, n, k = made.cta_tile
    cost = k_tile_cost(made, ProblemShape(2 * m, 2 * n, 4 * k), None)
    written = sum(made.predictions.wavefronts[f"g2s.{x.name}"].ideal for x in made.operands)
    assert cost.wavefronts >= written > 0
    assert cost.flops == 2 * m * n * k


def test_the_bottleneck_is_first_and_what_has_no_rate_last() -> None:
    """Of an A100: 2048 operations and a wavefront a cycle, four instructions issued."""
    cost = KTileCost(
        flops=2048 * 10, multiplier=Instruction.MMA_SYNC, wavefronts=30, issued=80, l2_bytes=1, hbm_bytes=1e9
    )
    rates = SM_RATES["sm_80"].having(Instruction.MMA_SYNC, 2048)
    found = limits(cost, rates)
    assert [x.resource for x in found] == ["shared memory", "issue slots", "tensor cores", "L2", "device memory"]
    assert [x.cycles for x in found[:3]] == [30, 20, 10]
    assert found[-1].cycles is None
    assert limits(cost, rates, 1e6)[0].resource == "device memory"
    assert "issue slots" not in [x.resource for x in limits(replace(cost, issued=None), rates)]
