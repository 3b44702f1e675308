"""Corrections by size: what they say of measured kernels, and of tiles that were not measured."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS
from cutegen.plan.schedule.consumers import COOPERATIVE
from cutegen.plan.search.warpgroup_model import WarpgroupWork, estimate
from cutegen.plan.search.warpgroup_rows import (
    H200,
    LOWEST_OF_MANY,
    OF_ROWS,
    KernelConfig,
    as_nearest,
    is_sized,
    of_size,
)
from tests.gpu.estimates import row_of, work_of
from tests.plan.regrets import of_middle_size

TILE = KernelConfig((64, 112, 64), (1, 1), COOPERATIVE, (4, 2, 1))


def test_estimates_of_tiles_by_size_are_off_by_a_tenth_at_most_on_average() -> None:
    """Of kernels that are near the best of a problem, and without `LOWEST_OF_MANY`, no part of the estimate."""
    errors: dict[int, list[float]] = {m: [] for m in OF_ROWS}
    for each in of_middle_size():
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
