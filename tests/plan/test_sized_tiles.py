"""Corrections by size: what they say of measured kernels, and what the choice on products of middle size is worth."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.plan.schedule.consumers import COOPERATIVE
from cutegen.plan.search.warpgroup_rows import LOWEST_OF_MANY, OF_ROWS, KernelConfig, as_nearest, is_sized, of_size
from tests.gpu.estimates import compared_us, row_of, work_of
from tests.gpu.measured import STORED_H100, Measured, geometric_mean, held_out, load
from tests.plan.pages import words_of

PAGE = words_of("lab/tile_model.md")
TILE = KernelConfig((64, 112, 64), (1, 1), COOPERATIVE, (4, 2, 1))


def of_middle_size(problem: tuple[int, int, int]) -> bool:
    """As docs/lab/tile_model.md says it, of those that an H200 measured."""
    if problem in held_out(STORED_H100):
        return False
    m, n, k = problem
    sides = min(m, n) >= 64 and k >= 512 and m * n <= 2**21.5
    return sides and 2**27.5 <= math.prod(problem) < 2**33.5 and max(m, n) <= 8192


@pytest.fixture(scope="module")
def measured() -> tuple[Measured, ...]:
    return tuple(each for each in load() if of_middle_size(each.problem))


def test_what_is_chosen_on_products_of_middle_size_is_as_fast_as_torch(measured: tuple[Measured, ...]) -> None:
    """The page's figures. Where the kernel that a plan takes was not measured, the next that was counts."""
    chosen = [min(each.us, key=lambda setting: compared_us(setting, each.problem)) for each in measured]
    times = [each.torch_us[0] / each.us[setting][0] for each, setting in zip(measured, chosen, strict=True)]
    best = geometric_mean([each.torch_us[0] / each.us[each.best][0] for each in measured])
    assert len(measured) == 257
    mean = geometric_mean(times)
    assert mean > 1.0
    assert f"{mean:.3f} times as fast as torch over all, and below 0.9 on {sum(time < 0.9 for time in times)}" in PAGE
    assert f"It takes {best / mean:.3f} times the best of all that was measured" in PAGE


def test_estimates_of_tiles_by_size_are_off_by_a_tenth_at_most_on_average(measured: tuple[Measured, ...]) -> None:
    """Of kernels that are near the best of a problem, and without `LOWEST_OF_MANY`, no part of the estimate."""
    errors: dict[int, list[float]] = {m: [] for m in OF_ROWS}
    for each in measured:
        for setting, (us, _) in each.us.items():
            row = row_of(setting)
            shares = setting.slices == 1 and setting.consumers == COOPERATIVE and row.warpgroups[1] == 1
            near = us < 1.25 * each.us[each.best][0]
            if near and shares and setting.cta[2] == 64 and is_sized(row.cta, ProblemShape(*each.problem)):
                errors[row.cta[0]].append(math.log(us * LOWEST_OF_MANY / _by_size_us(setting, row, each.problem)))
    for m, found in errors.items():
        assert len(found) > 300, m
        assert abs(statistics.mean(found)) < 0.05, m
        assert statistics.mean(map(abs, found)) < 0.1, m


def _by_size_us(setting: object, row: KernelConfig, problem: tuple[int, int, int]) -> float:
    from cutegen.hardware import GPUS
    from cutegen.plan.search.warpgroup_model import WarpgroupWork, estimate
    from cutegen.plan.search.warpgroup_rows import H200

    work, sized = work_of(setting), of_size(row)  # type: ignore[arg-type]
    assert isinstance(work, WarpgroupWork)
    m, n, k = problem
    multiplied = ProblemShape(n, m, k) if row.swap else ProblemShape(m, n, k)
    corrected = replace(work, correction=sized.correction, overall=sized.overall)
    return estimate(corrected, multiplied, GPUS["sm_90"], H200).us


def test_a_share_within_a_swizzles_period_costs_each_k_tile() -> None:
    for cluster, is_torn in (((4, 2, 1), True), ((2, 2, 1), False)):
        whole, narrower = (of_size(replace(TILE, cta=(64, n, 64), cluster=cluster)) for n in (128, 112))
        assert (narrower.correction > 1.1 * whole.correction) == is_torn


def test_parts_of_half_a_sector_cost_the_whole_but_where_operands_are_exchanged() -> None:
    straight, exchanged = (of_size(replace(TILE, cta=(64, 104, 64), swap=swap)) for swap in (False, True))
    assert straight.overall > 1.05 * exchanged.overall
    assert straight.correction == exchanged.correction


def test_a_measured_tile_keeps_its_own_corrections() -> None:
    measured = as_nearest(KernelConfig((64, 64, 64), (1, 1), COOPERATIVE, (4, 2, 1)))
    assert as_nearest(of_size(measured)) == measured
    assert as_nearest(of_size(TILE)) == of_size(TILE)
