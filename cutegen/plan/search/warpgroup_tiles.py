"""The kernels that are compared where warpgroups multiply, and the constants of the model of time for them.

Out of 164 that were measured on 226 problems (`tests/gpu/h200_warpgroups.json`), those that were within 3 % of the
fastest on three of the problems to which the model is fitted, or fastest on one of the suite. As many stages go with
each as fit.
"""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.algebra import Extents
from cutegen.plan.rules.cluster import ALONE
from cutegen.plan.rules.consumers import COOPERATIVE, PINGPONG
from cutegen.plan.search.warpgroup_model import WarpgroupConstants
from cutegen.spec.values import Consumers

UNMEASURED = 1.0
"""The correction of what was not measured."""


@dataclass(frozen=True, slots=True)
class Row:
    """A tile with its warpgroups along M and N, how they share it out, and what goes with it.

    `cluster` are CTAs along M, N and K; those along K add the tile's `slices`, else a workspace holds them. With `swap`
    the tile is one of the exchanged product. `correction` is what a k-tile was measured to take of what the model says.
    """

    cta: Extents
    warpgroups: tuple[int, int]
    consumers: Consumers = COOPERATIVE
    cluster: Extents = ALONE
    swap: bool = False
    slices: int = 1
    correction: float = UNMEASURED


MEASURED = (
    Row((256, 128, 64), (2, 1), COOPERATIVE, ALONE, False, 1, 1),
    Row((256, 128, 64), (2, 1), COOPERATIVE, (1, 2, 1), False, 1, 1),
    Row((256, 128, 64), (2, 1), COOPERATIVE, ALONE, True, 1, 0.98),
    Row((128, 256, 64), (2, 1), COOPERATIVE, ALONE, False, 1, 1.02),
    Row((128, 256, 64), (2, 1), COOPERATIVE, (1, 2, 1), False, 1, 1.02),
    Row((128, 256, 64), (2, 1), COOPERATIVE, (2, 1, 1), False, 1, 1.02),
    Row((128, 256, 64), (2, 1), COOPERATIVE, ALONE, True, 1, 1.02),
    Row((128, 256, 64), (2, 1), COOPERATIVE, (2, 1, 1), True, 1, 1.02),
    Row((192, 128, 64), (3, 1), COOPERATIVE, (1, 2, 1), False, 1, 0.942),
    Row((128, 192, 64), (2, 1), COOPERATIVE, ALONE, False, 1, 0.98),
    Row((128, 192, 64), (2, 1), COOPERATIVE, (2, 1, 1), False, 1, 0.961),
    Row((128, 192, 64), (2, 1), COOPERATIVE, (2, 1, 1), True, 1, 0.961),
    Row((128, 192, 64), (1, 1), PINGPONG, ALONE, False, 1, 0.98),
    Row((128, 192, 64), (1, 1), PINGPONG, (1, 2, 1), False, 1, 0.98),
    Row((128, 192, 64), (1, 1), PINGPONG, (2, 1, 1), False, 1, 0.98),
    Row((128, 192, 64), (1, 1), PINGPONG, ALONE, True, 1, 0.961),
    Row((128, 192, 64), (1, 1), PINGPONG, (2, 1, 1), True, 1, 0.98),
    Row((128, 160, 64), (2, 1), COOPERATIVE, (2, 1, 1), False, 1, 1),
    Row((128, 160, 64), (1, 1), PINGPONG, ALONE, False, 1, 1),
    Row((128, 160, 64), (1, 1), PINGPONG, (2, 1, 1), False, 1, 1),
    Row((128, 128, 64), (2, 1), COOPERATIVE, ALONE, False, 1, 0.98),
    Row((128, 128, 64), (2, 1), COOPERATIVE, (2, 1, 1), False, 1, 1.02),
    Row((128, 128, 64), (1, 1), PINGPONG, ALONE, False, 1, 0.98),
    Row((128, 128, 64), (1, 1), PINGPONG, (1, 2, 1), False, 1, 1.02),
    Row((128, 128, 64), (1, 1), PINGPONG, (2, 1, 1), False, 1, 1.02),
    Row((128, 128, 64), (1, 1), PINGPONG, ALONE, True, 1, 0.98),
    Row((128, 128, 64), (1, 1), PINGPONG, (2, 1, 1), True, 1, 1.02),
    Row((64, 192, 64), (1, 1), PINGPONG, ALONE, False, 1, 0.942),
    Row((64, 192, 64), (1, 1), PINGPONG, (2, 1, 1), False, 1, 1),
    Row((64, 192, 64), (1, 1), PINGPONG, ALONE, True, 1, 0.98),
    Row((64, 192, 64), (1, 1), PINGPONG, (2, 1, 1), True, 1, 1.02),
    Row((128, 64, 64), (2, 1), COOPERATIVE, ALONE, False, 1, 1),
    Row((64, 128, 128), (1, 1), COOPERATIVE, ALONE, False, 1, 0.961),
    Row((64, 128, 64), (1, 1), COOPERATIVE, ALONE, False, 1, 0.98),
    Row((64, 128, 64), (1, 1), COOPERATIVE, (2, 1, 1), False, 1, 1.06),
    Row((64, 128, 64), (1, 1), COOPERATIVE, ALONE, True, 1, 1),
    Row((64, 128, 64), (1, 1), COOPERATIVE, (2, 1, 1), True, 1, 1.08),
    Row((64, 128, 64), (1, 1), PINGPONG, ALONE, False, 1, 0.942),
    Row((64, 128, 64), (1, 1), PINGPONG, (1, 2, 1), False, 1, 1.04),
    Row((64, 128, 64), (1, 1), PINGPONG, (2, 1, 1), False, 1, 1.02),
    Row((64, 128, 64), (1, 1), PINGPONG, ALONE, True, 1, 0.961),
    Row((64, 128, 64), (1, 1), PINGPONG, (2, 1, 1), True, 1, 1.06),
    Row((64, 96, 128), (1, 1), COOPERATIVE, ALONE, False, 1, 1.02),
    Row((64, 96, 128), (1, 1), COOPERATIVE, (2, 1, 1), False, 1, 1.08),
    Row((64, 96, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 1.02),
    Row((64, 96, 128), (1, 1), COOPERATIVE, (2, 1, 1), True, 1, 1.08),
    Row((128, 32, 128), (2, 1), COOPERATIVE, ALONE, True, 1, 0.923),
    Row((64, 64, 128), (1, 1), COOPERATIVE, ALONE, False, 1, 1),
    Row((64, 64, 128), (1, 1), COOPERATIVE, (1, 2, 1), False, 1, 1.08),
    Row((64, 64, 128), (1, 1), COOPERATIVE, (2, 1, 1), False, 1, 1.06),
    Row((64, 64, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 0.98),
    Row((64, 64, 128), (1, 1), COOPERATIVE, (2, 1, 1), True, 1, 1.06),
    Row((64, 64, 128), (1, 1), COOPERATIVE, (1, 1, 4), True, 4, 0.98),
    Row((64, 64, 128), (1, 1), COOPERATIVE, (1, 1, 8), True, 8, 1.02),
    Row((64, 64, 128), (1, 1), COOPERATIVE, ALONE, True, 8, 0.961),
    Row((64, 64, 64), (1, 1), COOPERATIVE, ALONE, False, 1, 1.02),
    Row((64, 64, 64), (1, 1), COOPERATIVE, (2, 1, 1), False, 1, 0.961),
    Row((64, 64, 64), (1, 1), COOPERATIVE, ALONE, True, 1, 1),
    Row((64, 48, 128), (1, 1), COOPERATIVE, ALONE, False, 1, 1.04),
    Row((64, 48, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 1.02),
    Row((64, 32, 128), (1, 1), COOPERATIVE, ALONE, False, 1, 1.04),
    Row((64, 32, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 1),
    Row((64, 32, 128), (1, 1), COOPERATIVE, (1, 1, 4), True, 4, 1.04),
    Row((64, 16, 256), (1, 1), COOPERATIVE, ALONE, False, 1, 0.98),
    Row((64, 16, 256), (1, 1), COOPERATIVE, ALONE, False, 4, 0.98),
    Row((64, 16, 256), (1, 1), COOPERATIVE, ALONE, True, 1, 0.942),
    Row((64, 16, 256), (1, 1), COOPERATIVE, ALONE, True, 4, 1),
    Row((64, 16, 256), (1, 1), COOPERATIVE, ALONE, True, 8, 1),
    Row((64, 16, 128), (1, 1), COOPERATIVE, ALONE, False, 1, 1.04),
    Row((64, 16, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 1),
    Row((64, 8, 256), (1, 1), COOPERATIVE, ALONE, False, 1, 1),
    Row((64, 8, 256), (1, 1), COOPERATIVE, ALONE, False, 4, 1),
    Row((64, 8, 256), (1, 1), COOPERATIVE, ALONE, True, 1, 0.98),
    Row((64, 8, 256), (1, 1), COOPERATIVE, ALONE, True, 4, 1),
)
"""Tile, warpgroups, consumers, cluster, exchanged or not, slices, correction."""

PROMOTED = (
    Row((192, 128, 64), (3, 1), COOPERATIVE, ALONE, False, 1, 0.92),
    Row((192, 128, 64), (3, 1), COOPERATIVE, ALONE, True, 1, 0.92),
)
"""Compared beside them where sums are promoted."""
PROMOTED_CORRECTION, PROMOTED_BY_THREE = 1.12, 0.97
"""Corrections of k-tiles with promoted sums, of two warpgroups or one and of three, whose additions overlap."""
WIDE_EXCHANGED = 0.9
"""Correction of exchanged products of s8 that take turns to store s32."""

H200 = WarpgroupConstants(
    latency=1850.0,
    turn=217.0,
    store_per_kib=38.2,
    exchanged_store=0.0358,
    fill_per_kib=10.0,
    warpgroup_start=290.0,
    cluster_start=296.0,
    fetched=191.0,
    l2=18600.0,
    summed=33.7,
    sum_us=0.712,
    cluster_summed=20.8,
    cluster_sum_us=0.681,
    half_line=2.08,
    quarter_line=2.24,
    eighth_line=3.54,
    launch_us=1.78,
    sm_us=0.00884,
    memory_share=0.881,
    torn_lines=0.243,
    clock_share=0.927,
    power=0.346,
    power_us=311.0,
    sharpness=3.39,
    joined=1.97,
)
"""Fitted to an H200 by `tests/gpu/fit_warpgroups.py`."""
