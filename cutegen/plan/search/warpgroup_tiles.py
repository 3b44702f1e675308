"""The kernels that are compared where warpgroups multiply, and the constants of the model of time for them.

Out of 187 that were measured on 226 problems (`tests/gpu/h200_warpgroups.json`), as few as have one within 1 % of the
fastest on nearly each of the problems to which the model is fitted. As many stages go with each as fit.
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
    Row((128, 256, 64), (2, 1), COOPERATIVE, ALONE, True, 1, 0.915),
    Row((128, 256, 64), (2, 1), COOPERATIVE, (2, 1, 1), False, 1, 1.033),
    Row((128, 256, 64), (2, 1), COOPERATIVE, ALONE, False, 1, 1.015),
    Row((192, 192, 64), (1, 2), COOPERATIVE, ALONE, False, 1, 1.005),
    Row((256, 128, 64), (2, 1), COOPERATIVE, (1, 2, 1), False, 1, 1.024),
    Row((192, 192, 64), (1, 2), COOPERATIVE, (2, 1, 1), False, 1, 1.007),
    Row((128, 128, 64), (2, 1), COOPERATIVE, ALONE, False, 1, 0.98),
    Row((128, 128, 64), (2, 1), COOPERATIVE, ALONE, False, 3, 1.064),
    Row((128, 128, 64), (2, 1), COOPERATIVE, (2, 2, 1), False, 1, 0.952),
    Row((128, 160, 64), (2, 1), COOPERATIVE, (2, 1, 1), False, 1, 0.991),
    Row((128, 192, 64), (2, 1), COOPERATIVE, (2, 1, 1), False, 1, 0.989),
    Row((128, 128, 64), (2, 1), COOPERATIVE, (2, 1, 1), False, 2, 0.977),
    Row((128, 128, 64), (1, 1), PINGPONG, (2, 2, 1), False, 1, 0.969),
    Row((128, 128, 64), (1, 1), PINGPONG, ALONE, False, 1, 0.931),
    Row((128, 128, 64), (1, 1), PINGPONG, ALONE, True, 1, 0.93),
    Row((128, 160, 64), (1, 1), PINGPONG, ALONE, False, 1, 0.978),
    Row((128, 192, 64), (1, 1), PINGPONG, ALONE, True, 1, 0.939),
    Row((128, 192, 64), (1, 1), PINGPONG, (2, 1, 1), True, 1, 0.993),
    Row((128, 192, 64), (1, 1), PINGPONG, (2, 1, 1), False, 1, 1.017),
    Row((128, 96, 64), (2, 1), COOPERATIVE, ALONE, False, 1, 0.89),
    Row((64, 192, 64), (1, 1), PINGPONG, ALONE, True, 1, 0.904),
    Row((64, 192, 64), (1, 1), PINGPONG, (2, 1, 1), False, 1, 0.947),
    Row((64, 192, 64), (1, 1), PINGPONG, (2, 2, 1), False, 1, 0.88),
    Row((128, 96, 64), (2, 1), COOPERATIVE, (2, 4, 1), False, 1, 0.88),
    Row((128, 64, 64), (2, 1), COOPERATIVE, ALONE, True, 1, 0.968),
    Row((128, 64, 64), (2, 1), COOPERATIVE, ALONE, False, 16, 0.88),
    Row((64, 128, 64), (1, 1), PINGPONG, ALONE, False, 1, 0.925),
    Row((64, 128, 64), (1, 1), PINGPONG, (2, 1, 1), False, 1, 1.064),
    Row((64, 128, 64), (1, 1), PINGPONG, (2, 2, 1), False, 1, 0.923),
    Row((64, 128, 64), (1, 1), COOPERATIVE, (1, 2, 1), False, 1, 1.066),
    Row((64, 128, 64), (1, 1), COOPERATIVE, ALONE, True, 1, 0.934),
    Row((64, 128, 64), (1, 1), COOPERATIVE, (4, 2, 1), True, 1, 0.88),
    Row((64, 128, 64), (1, 1), COOPERATIVE, (2, 4, 1), True, 1, 0.88),
    Row((64, 96, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 0.977),
    Row((64, 128, 128), (1, 1), COOPERATIVE, ALONE, False, 1, 0.976),
    Row((64, 96, 64), (1, 1), COOPERATIVE, (2, 2, 1), False, 1, 1.12),
    Row((64, 96, 64), (1, 1), COOPERATIVE, (4, 2, 1), False, 1, 0.942),
    Row((64, 96, 64), (1, 1), COOPERATIVE, (2, 4, 1), True, 1, 0.997),
    Row((64, 80, 64), (1, 1), COOPERATIVE, ALONE, False, 1, 1.12),
    Row((64, 64, 64), (1, 1), COOPERATIVE, ALONE, True, 1, 1.12),
    Row((64, 80, 64), (1, 1), COOPERATIVE, (2, 4, 1), True, 1, 1.097),
    Row((64, 64, 64), (1, 1), COOPERATIVE, (2, 1, 1), False, 1, 1.014),
    Row((64, 64, 64), (1, 1), COOPERATIVE, (2, 2, 1), True, 1, 0.88),
    Row((64, 64, 64), (1, 1), COOPERATIVE, (4, 2, 1), True, 1, 0.88),
    Row((64, 64, 64), (1, 1), COOPERATIVE, (2, 4, 1), False, 1, 0.88),
    Row((64, 64, 64), (1, 1), COOPERATIVE, (4, 1, 1), False, 1, 0.88),
    Row((64, 64, 64), (1, 1), COOPERATIVE, (4, 1, 1), True, 1, 0.88),
    Row((64, 64, 64), (1, 1), COOPERATIVE, (4, 2, 1), False, 1, 0.894),
    Row((64, 64, 64), (1, 1), COOPERATIVE, (2, 4, 1), True, 1, 0.94),
    Row((64, 64, 64), (1, 1), COOPERATIVE, ALONE, False, 4, 1.12),
    Row((64, 64, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 0.88),
    Row((64, 64, 128), (1, 1), COOPERATIVE, ALONE, False, 1, 1.04),
    Row((64, 64, 128), (1, 1), COOPERATIVE, (1, 1, 4), True, 4, 0.881),
    Row((64, 64, 128), (1, 1), COOPERATIVE, ALONE, True, 8, 1.12),
    Row((64, 64, 128), (1, 1), COOPERATIVE, (1, 1, 2), True, 2, 1.006),
    Row((64, 32, 64), (1, 1), COOPERATIVE, ALONE, True, 1, 1.12),
    Row((64, 32, 64), (1, 1), COOPERATIVE, ALONE, False, 1, 1.12),
    Row((64, 48, 64), (1, 1), COOPERATIVE, (2, 4, 1), False, 1, 1.12),
    Row((64, 48, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 0.927),
    Row((64, 32, 64), (1, 1), COOPERATIVE, (4, 1, 1), False, 1, 1.12),
    Row((64, 32, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 1.015),
    Row((128, 32, 128), (2, 1), COOPERATIVE, ALONE, True, 1, 0.88),
    Row((64, 32, 128), (1, 1), COOPERATIVE, ALONE, False, 1, 1.002),
    Row((64, 32, 128), (1, 1), COOPERATIVE, (1, 1, 4), True, 4, 1.12),
    Row((64, 16, 64), (1, 1), COOPERATIVE, ALONE, True, 1, 1.102),
    Row((64, 16, 64), (1, 1), COOPERATIVE, ALONE, False, 1, 1.12),
    Row((64, 16, 64), (1, 1), COOPERATIVE, (1, 4, 1), False, 1, 1.12),
    Row((64, 16, 256), (1, 1), COOPERATIVE, ALONE, False, 1, 0.88),
    Row((64, 16, 256), (1, 1), COOPERATIVE, ALONE, False, 4, 0.88),
    Row((64, 16, 256), (1, 1), COOPERATIVE, ALONE, True, 1, 0.88),
    Row((64, 16, 128), (1, 1), COOPERATIVE, ALONE, False, 1, 1.07),
    Row((64, 16, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 1.1),
    Row((64, 16, 256), (1, 1), COOPERATIVE, ALONE, True, 4, 1.12),
    Row((64, 8, 256), (1, 1), COOPERATIVE, ALONE, False, 1, 0.965),
    Row((64, 8, 256), (1, 1), COOPERATIVE, ALONE, False, 4, 0.964),
    Row((64, 8, 256), (1, 1), COOPERATIVE, ALONE, True, 1, 0.88),
    Row((64, 8, 256), (1, 1), COOPERATIVE, ALONE, True, 4, 0.947),
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
    latency=2240.0,
    turn=197.0,
    store_per_kib=55.5,
    exchanged_store=0.0879,
    fill_per_kib=2.11,
    warpgroup_start=456.0,
    cluster_start=166.0,
    crowd=7.16,
    peers=0.0933,
    arrived=83.1,
    fetched=151.0,
    l2=13400.0,
    summed=30.0,
    sum_us=0.993,
    cluster_summed=30.8,
    cluster_sum_us=1.06,
    half_line=2.14,
    quarter_line=2.23,
    eighth_line=3.27,
    launch_us=1.66,
    sm_us=0.00352,
    memory_share=1.04,
    torn_lines=0.163,
    clock_share=1.0,
    power=0.189,
    power_us=1350.0,
    sharpness=3.29,
    joined=1.73,
)
"""Fitted to an H200 by `tests/gpu/fit_warpgroups.py`."""
