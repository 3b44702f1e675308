"""The kernels that are compared where warpgroups multiply, and the constants of the model of time for them.

Out of those that were measured (`tests/gpu/h200_kernels.json`), as few as have one near the
fastest on nearly each of the problems to which the model is fitted. As many stages go with each as fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    the tile is one of the exchanged product. `correction` is what a k-tile was measured to take of what the model says,
    `overall` what the whole kernel was.
    """

    cta: Extents
    warpgroups: tuple[int, int]
    consumers: Consumers = COOPERATIVE
    cluster: Extents = ALONE
    swap: bool = False
    slices: int = 1
    correction: float = UNMEASURED
    overall: float = UNMEASURED


MEASURED = (
    Row((256, 176, 64), (2, 1), COOPERATIVE, (1, 2, 1), True, 1, 1.06, 0.996),
    Row((192, 192, 64), (1, 2), COOPERATIVE, (1, 2, 1), False, 1, 1.07, 0.944),
    Row((192, 192, 64), (1, 2), COOPERATIVE, (2, 1, 1), False, 1, 1.02, 0.919),
    Row((256, 128, 64), (2, 1), COOPERATIVE, (1, 2, 1), True, 1, 1.05, 0.922),
    Row((128, 256, 64), (2, 1), COOPERATIVE, ALONE, True, 1, 0.879, 1.0),
    Row((192, 160, 64), (3, 1), COOPERATIVE, (1, 2, 1), True, 1, 1.04, 0.887),
    Row((128, 224, 64), (2, 1), COOPERATIVE, (2, 1, 1), False, 1, 0.912, 0.969),
    Row((128, 192, 64), (1, 1), PINGPONG, (2, 1, 1), False, 1, 0.895, 0.917),
    Row((128, 192, 64), (1, 1), PINGPONG, (2, 1, 1), True, 1, 0.889, 0.92),
    Row((128, 176, 64), (1, 1), PINGPONG, (2, 1, 1), False, 1, 0.836, 1.08),
    Row((128, 176, 64), (1, 1), PINGPONG, (2, 1, 1), True, 1, 0.875, 1.07),
    Row((192, 112, 64), (3, 1), COOPERATIVE, (1, 2, 1), True, 1, 1.0, 0.893),
    Row((128, 160, 64), (2, 1), COOPERATIVE, (1, 1, 4), False, 4, 0.978, 1.04),
    Row((128, 160, 64), (2, 1), COOPERATIVE, (1, 2, 1), False, 1, 1.0, 0.906),
    Row((128, 160, 64), (2, 1), COOPERATIVE, (2, 1, 1), True, 1, 0.98, 0.933),
    Row((128, 160, 64), (1, 1), PINGPONG, ALONE, False, 1, 0.867, 0.958),
    Row((192, 96, 64), (3, 1), COOPERATIVE, (1, 2, 1), True, 1, 1.01, 0.83),
    Row((128, 144, 64), (1, 1), PINGPONG, ALONE, False, 1, 0.757, 1.14),
    Row((128, 144, 64), (1, 1), PINGPONG, (2, 1, 1), True, 1, 0.902, 1.03),
    Row((128, 128, 64), (2, 1), COOPERATIVE, ALONE, False, 1, 1.07, 0.874),
    Row((128, 128, 64), (1, 1), PINGPONG, ALONE, True, 1, 0.972, 0.935),
    Row((64, 256, 64), (1, 1), COOPERATIVE, (2, 1, 1), False, 1, 0.736, 1.08),
    Row((128, 112, 64), (2, 1), COOPERATIVE, (1, 2, 1), False, 1, 0.918, 1.02),
    Row((128, 112, 64), (1, 1), PINGPONG, (2, 4, 1), True, 1, 0.904, 0.997),
    Row((128, 96, 64), (2, 1), COOPERATIVE, ALONE, False, 1, 0.941, 0.892),
    Row((128, 96, 64), (2, 1), COOPERATIVE, (2, 4, 1), False, 1, 0.944, 0.895),
    Row((128, 96, 64), (1, 1), PINGPONG, (1, 2, 1), True, 1, 0.976, 0.946),
    Row((64, 192, 64), (1, 1), PINGPONG, (2, 2, 1), False, 1, 0.931, 0.877),
    Row((64, 192, 64), (1, 1), PINGPONG, ALONE, True, 1, 0.838, 0.938),
    Row((64, 192, 64), (1, 1), PINGPONG, (2, 1, 1), True, 1, 0.997, 0.86),
    Row((128, 80, 64), (2, 1), COOPERATIVE, (2, 2, 1), False, 1, 0.962, 0.967),
    Row((64, 160, 64), (1, 1), COOPERATIVE, (4, 1, 1), False, 1, 0.719, 1.0),
    Row((64, 128, 64), (1, 1), COOPERATIVE, (1, 1, 4), False, 4, 1.02, 0.975),
    Row((64, 128, 64), (1, 1), COOPERATIVE, (1, 1, 8), False, 8, 0.886, 1.09),
    Row((64, 128, 64), (1, 1), COOPERATIVE, (4, 1, 1), False, 1, 0.788, 0.953),
    Row((64, 128, 64), (1, 1), COOPERATIVE, (4, 1, 2), False, 2, 0.883, 0.975),
    Row((64, 128, 64), (1, 1), COOPERATIVE, ALONE, True, 1, 0.844, 0.97),
    Row((64, 128, 64), (1, 1), COOPERATIVE, (1, 1, 4), True, 4, 0.97, 1.0),
    Row((64, 128, 64), (1, 1), COOPERATIVE, (4, 2, 1), True, 1, 1.0, 0.867),
    Row((64, 128, 64), (1, 1), PINGPONG, ALONE, False, 1, 0.908, 0.887),
    Row((64, 128, 64), (1, 1), PINGPONG, (2, 2, 1), False, 1, 1.13, 0.787),
    Row((64, 96, 64), (1, 1), COOPERATIVE, (2, 2, 1), False, 1, 1.01, 0.989),
    Row((64, 96, 64), (1, 1), COOPERATIVE, (2, 4, 1), False, 1, 0.94, 0.961),
    Row((64, 96, 64), (1, 1), COOPERATIVE, (4, 2, 1), False, 1, 0.955, 0.959),
    Row((64, 96, 64), (1, 1), COOPERATIVE, (1, 1, 4), True, 4, 1.01, 1.01),
    Row((64, 96, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 0.796, 0.996),
    Row((64, 80, 64), (1, 1), COOPERATIVE, ALONE, True, 1, 1.08, 1.01),
    Row((128, 32, 128), (2, 1), COOPERATIVE, ALONE, True, 1, 0.9, 0.847),
    Row((64, 64, 64), (1, 1), COOPERATIVE, (2, 1, 1), False, 1, 1.19, 0.937),
    Row((64, 64, 64), (1, 1), COOPERATIVE, (2, 4, 1), False, 1, 0.966, 0.933),
    Row((64, 64, 64), (1, 1), COOPERATIVE, (4, 1, 1), False, 1, 1.08, 0.87),
    Row((64, 64, 64), (1, 1), COOPERATIVE, (8, 1, 1), False, 1, 0.92, 0.927),
    Row((64, 64, 64), (1, 1), COOPERATIVE, (4, 1, 1), True, 1, 1.08, 0.87),
    Row((64, 64, 128), (1, 1), COOPERATIVE, (1, 1, 4), False, 4, 1.21, 0.886),
    Row((64, 64, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 0.85, 0.95),
    Row((64, 64, 128), (1, 1), COOPERATIVE, ALONE, True, 8, 0.979, 0.984),
    Row((64, 48, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 0.868, 0.959),
    Row((64, 32, 64), (1, 1), COOPERATIVE, ALONE, True, 1, 1.42, 0.896),
    Row((64, 32, 64), (1, 1), COOPERATIVE, (1, 1, 4), True, 4, 1.52, 0.891),
    Row((64, 32, 128), (1, 1), COOPERATIVE, ALONE, False, 1, 1.02, 0.926),
    Row((64, 32, 128), (1, 1), COOPERATIVE, (1, 1, 4), True, 4, 1.34, 0.917),
    Row((64, 16, 64), (1, 1), COOPERATIVE, ALONE, False, 1, 1.43, 0.885),
    Row((64, 16, 64), (1, 1), COOPERATIVE, ALONE, True, 1, 1.57, 0.835),
    Row((64, 16, 128), (1, 1), COOPERATIVE, ALONE, False, 1, 1.3, 0.885),
    Row((64, 16, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 1.21, 0.925),
    Row((64, 16, 256), (1, 1), COOPERATIVE, ALONE, False, 1, 0.875, 0.912),
    Row((64, 16, 256), (1, 1), COOPERATIVE, ALONE, False, 4, 1.06, 0.944),
    Row((64, 16, 256), (1, 1), COOPERATIVE, ALONE, True, 1, 0.893, 0.883),
    Row((64, 8, 256), (1, 1), COOPERATIVE, ALONE, False, 8, 1.09, 1.01),
    Row((64, 8, 256), (1, 1), COOPERATIVE, ALONE, True, 1, 1.04, 0.864),
    Row((64, 8, 256), (1, 1), COOPERATIVE, ALONE, True, 4, 1.02, 1.02),
)
"""Tile, warpgroups, consumers, cluster, exchanged or not, slices, corrections of a k-tile and of the whole."""

DOUBTED = 1.05
"""Of the whole, for a tile that stands for one that was measured."""


def as_nearest(row: Row) -> Row:
    """A row that was not measured, with the corrections of the nearest tile that is otherwise alike, if there is one.

    A row that was measured is that one, and one with a correction of its own stays; one that nothing is like is
    doubted alone.
    """
    if row.overall != UNMEASURED:
        return row
    alike = [
        each
        for each in MEASURED
        if (each.cta[0], each.cta[2], each.warpgroups, each.consumers, each.cluster, each.swap, each.slices)
        == (row.cta[0], row.cta[2], row.warpgroups, row.consumers, row.cluster, row.swap, row.slices)
    ]
    if not alike:
        return replace(row, overall=DOUBTED)
    nearest = min(alike, key=lambda each: abs(each.cta[1] - row.cta[1]))
    doubt = 1.0 if nearest.cta == row.cta else DOUBTED
    return replace(row, correction=nearest.correction, overall=nearest.overall * doubt)


PROMOTED = (
    Row((192, 128, 64), (3, 1), COOPERATIVE, ALONE, False, 1, 0.92),
    Row((192, 128, 64), (3, 1), COOPERATIVE, ALONE, True, 1, 0.92),
)
"""Compared beside them where sums are promoted."""
PROMOTED_CORRECTION, PROMOTED_BY_THREE = 1.0, 0.91
"""Corrections of k-tiles with promoted sums, of two warpgroups or one and of three, whose additions overlap."""
WIDE_EXCHANGED = 0.9
"""Correction of exchanged products of s8 that take turns to store s32."""

H200 = WarpgroupConstants(
    latency=3500.0,
    turn=525.0,
    store_per_kib=63.5,
    exchanged_store=0.00789,
    fill_per_kib=0.248,
    warpgroup_start=662.0,
    cluster_start=107.0,
    crowd=5.25,
    peers=0.0159,
    arrived=653.0,
    fetched=250.0,
    l2=13400.0,
    summed=25.6,
    sum_us=0.322,
    cluster_summed=21.6,
    cluster_sum_us=0.55,
    half_line=2.26,
    quarter_line=2.56,
    eighth_line=3.8,
    launch_us=1.66,
    sm_us=0.00459,
    memory_share=0.899,
    torn_lines=0.00255,
    write_share=0.648,
    torn_writes=0.0711,
    clock_share=1.02,
    power=0.362,
    power_us=4910.0,
    sharpness=2.96,
    joined=2.48,
)
"""Fitted to an H200 by `tests/gpu/fit_kernels.py`."""
