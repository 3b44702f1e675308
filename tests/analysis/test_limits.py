"""Demands of a k-tile: those of swapped kernels are a call's, and slices of K have their own work around the loop."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import pytest

from cutegen.analysis.limits import k_tile_cost
from cutegen.contract.problem import ProblemShape
from cutegen.plan import GemmPlan, plan
from cutegen.spec import Mma, Tile, load_spec


def narrow(*, swap: bool) -> GemmPlan:
    """A kernel for sm_90 with a tile of 64 x 16, of the product or of the swapped one."""
    spec = load_spec("sm90_hgemm_tn")
    schedule = replace(spec.schedule, swap=swap)
    made = plan(replace(spec, tile=Tile((64, 16, 64)), mma=Mma(), schedule=schedule), "sm_90")
    assert isinstance(made, GemmPlan)
    return made


@pytest.mark.parametrize(("swap", "tile"), [(False, (64, 16)), (True, (16, 64))])
@pytest.mark.parametrize("problem", [ProblemShape(16, 4096, 4096), ProblemShape(4096, 16, 1024, 3)], ids=str)
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
