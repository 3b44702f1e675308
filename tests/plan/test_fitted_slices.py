"""Slices of K that follow the problem: they fill the GPU once, and are chosen where they must gain a lot."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS, target
from cutegen.plan import GemmPlan, plan
from cutegen.plan.search.fitted_slices import DOUBTED, SHORTEST, fitted_slices
from cutegen.plan.search.fitted_tiles import fitted_rows
from cutegen.plan.search.warpgroup_model import estimate
from cutegen.plan.search.warpgroup_tiles import H200 as CONSTANTS
from cutegen.plan.search.warpgroup_tiles import MEASURED, Row, as_nearest
from cutegen.plan.search.warpgroups import candidate_of, work_of
from cutegen.plan.swapped import shape_multiplied
from tests.gpu.estimates import row_of
from tests.gpu.measured import STORED, load
from tests.plan.specs import gemm

H200, DEVICE = GPUS["sm_90"], target("sm_90")
OPEN = replace(gemm(), family="sm90")
DEEP, MEASURED_DEEP = 16384, 7
"""K from which on such slices are chosen, and problems that were measured with them."""


def tiles(problem: ProblemShape, row: Row) -> int:
    m, n = (problem.n, problem.m) if row.swap else (problem.m, problem.n)
    return -(-m // row.cta[0]) * -(-n // row.cta[1])


def made(problem: tuple[int, int, int], precision: str = "f16") -> GemmPlan:
    operand = replace(gemm().problem.a, dtype=precision)
    spec = replace(OPEN, problem=replace(OPEN.problem, a=operand, b=operand))
    found = plan(spec, "sm_90", problem)
    assert isinstance(found, GemmPlan)
    return found


def test_slices_fill_the_gpu_once_and_are_long() -> None:
    seen = set()
    for _ in range(300):
        m, n = (8 * round(2 ** random.uniform(1, 8)) for _ in "mn")
        problem = ProblemShape(m, n, 8 * round(2 ** random.uniform(6, 14)))
        for row in fitted_slices(problem, H200):
            assert row.slices > 1
            assert tiles(problem, row) * row.slices <= H200.sms, (problem, row)
            assert problem.k // row.slices >= SHORTEST, (problem, row)
            whole = next(each for each in MEASURED if replace(each, slices=row.slices, overall=row.overall) == row)
            assert (whole.slices, row.overall) == (1, pytest.approx(DOUBTED * whole.overall))
            seen.add((row.cta, row.slices))
    assert len({slices for _, slices in seen}) > 8


def test_a_batch_has_none() -> None:
    assert not list(fitted_slices(ProblemShape(512, 512, 16384, 2), H200))


@pytest.mark.parametrize(
    "problem", [(512, 512, 16384), (1024, 256, 16384), (96, 2048, 32768), (128, 128, 65536)], ids=str
)
def test_few_tiles_of_deep_k_are_one_wave(problem: tuple[int, int, int]) -> None:
    """Measured rows of 8 slices would be up to four waves of CTAs, or leave half of the multiprocessors idle."""
    found = made(problem)
    assert found.split_k is not None
    extents = problem[::-1][1:] if found.swapped else problem[:2]
    grid = -(-extents[0] // found.cta_tile[0]) * -(-extents[1] // found.cta_tile[1]) * found.split_k.slices
    assert 0.9 * H200.sms < grid <= H200.sms


def predicted_us(row: Row, problem: ProblemShape) -> float:
    work = work_of(OPEN, DEVICE, candidate_of(OPEN, DEVICE, row), row)
    return estimate(work, shape_multiplied(problem) if row.swap else problem, H200, CONSTANTS).us


def ahead(problem: ProblemShape) -> list[Row]:
    """Those that the model has ahead of all that were measured with the slices that they have."""
    compared = (*MEASURED, *map(as_nearest, fitted_rows(problem, H200)))
    least_us = min(predicted_us(row, problem) for row in compared)
    return [row for row in fitted_slices(problem, H200) if predicted_us(row, problem) <= least_us]


def test_none_is_ahead_but_where_k_is_deep() -> None:
    """`DOUBTED` says so: below, such slices were seldom the fastest."""
    shallow = [measured.problem for measured in load(STORED) if measured.problem[2] < DEEP]
    for drawn in random.sample(shallow, 400):
        problem = ProblemShape(*drawn)
        assert not ahead(problem), problem


def test_where_k_is_deep_the_choice_is_near_what_was_fastest_on_an_h200() -> None:
    seen = 0
    for measured in load(STORED):
        problem = ProblemShape(*measured.problem)
        if problem.k >= DEEP and (rows := ahead(problem)):
            chosen = min(rows, key=lambda row: predicted_us(row, problem))
            times = {row_of(setting): us for setting, (us, _) in measured.us.items() if setting.family == "sm90"}
            assert times[chosen] <= 1.01 * min(times.values()), problem
            seen += 1
    assert seen == MEASURED_DEEP


def test_other_elements_have_those_that_were_measured() -> None:
    rows = {row.slices for row in MEASURED}
    found = made((512, 512, 16384), "e4m3")
    assert found.split_k is None or found.split_k.slices in rows
