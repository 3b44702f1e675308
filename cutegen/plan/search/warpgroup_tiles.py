"""The warpgroup kernels to compare, and the constants of the performance model for them.

A small subset of the kernels measured on an H200 (`tests/gpu/h200_kernels.json`) that has one near the fastest for
almost every problem of the fit. Their corrections also use an H100 (`tests/gpu/h100_kernels.json`). Each has as many
stages as fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from cutegen.algebra import Extents
from cutegen.plan.rules.cluster import ALONE
from cutegen.plan.rules.consumers import COOPERATIVE, PINGPONG
from cutegen.plan.search.warpgroup_model import WarpgroupConstants
from cutegen.spec.values import Consumers

UNMEASURED = 1.0
"""Correction for kernels that were not measured."""


@dataclass(frozen=True, slots=True)
class Row:
    """A tile with its warpgroups along M and N, their schedule, and related keys.

    `cluster` are CTAs along M, N and K; those along K add the tile's `slices`, else a workspace holds them. With `swap`
    the tile is one of the swapped product. `correction` is the measured factor on the model's time of a k-tile,
    `overall` that on the whole time.
    """

    cta: Extents
    warpgroups: tuple[int, int]
    consumers: Consumers = COOPERATIVE
    cluster: Extents = ALONE
    swap: bool = False
    slices: int = 1
    correction: float = UNMEASURED
    overall: float = UNMEASURED

    @property
    def kernel(self) -> tuple[object, ...]:
        """The row without its corrections."""
        return self.cta, self.warpgroups, self.consumers, self.cluster, self.swap, self.slices


def each_kernel_once(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the first row of each kernel."""
    found: dict[tuple[object, ...], Row] = {}
    for row in rows:
        found.setdefault(row.kernel, row)
    yield from found.values()


MEASURED = (
    Row((256, 176, 64), (2, 1), COOPERATIVE, (1, 2, 1), True, 1, 1.1, 0.949),
    Row((192, 192, 64), (1, 2), COOPERATIVE, (1, 2, 1), False, 1, 1.08, 0.936),
    Row((192, 192, 64), (1, 2), COOPERATIVE, (2, 1, 1), False, 1, 1.07, 0.944),
    Row((192, 192, 64), (1, 2), COOPERATIVE, (2, 1, 1), True, 1, 1.07, 0.907),
    Row((256, 128, 64), (2, 1), COOPERATIVE, (1, 2, 1), True, 1, 1.07, 0.902),
    Row((128, 256, 64), (2, 1), COOPERATIVE, ALONE, True, 1, 0.999, 0.924),
    Row((128, 256, 64), (2, 1), COOPERATIVE, (2, 1, 1), True, 1, 1.01, 0.969),
    Row((192, 160, 64), (3, 1), COOPERATIVE, (1, 2, 1), True, 1, 1.14, 0.812),
    Row((128, 224, 64), (2, 1), COOPERATIVE, (2, 1, 1), False, 1, 0.926, 0.965),
    Row((128, 192, 64), (2, 1), COOPERATIVE, (1, 1, 4), False, 4, 0.841, 1.08),
    Row((128, 192, 64), (1, 1), PINGPONG, (2, 1, 1), False, 1, 0.941, 0.897),
    Row((128, 192, 64), (1, 1), PINGPONG, (2, 1, 1), True, 1, 0.896, 0.948),
    Row((128, 176, 64), (1, 1), PINGPONG, (2, 1, 1), False, 1, 0.811, 1.16),
    Row((128, 176, 64), (1, 1), PINGPONG, (2, 1, 1), True, 1, 0.872, 1.08),
    Row((192, 112, 64), (3, 1), COOPERATIVE, (1, 2, 1), True, 1, 1.05, 0.866),
    Row((128, 160, 64), (2, 1), COOPERATIVE, (1, 1, 4), False, 4, 1.01, 1.08),
    Row((128, 160, 64), (2, 1), COOPERATIVE, (1, 2, 1), False, 1, 1.01, 0.918),
    Row((128, 160, 64), (2, 1), COOPERATIVE, (2, 1, 1), True, 1, 0.964, 0.935),
    Row((128, 160, 64), (1, 1), PINGPONG, ALONE, False, 1, 0.868, 0.984),
    Row((128, 160, 64), (1, 1), PINGPONG, ALONE, True, 1, 0.879, 0.975),
    Row((192, 96, 64), (3, 1), COOPERATIVE, (1, 1, 4), False, 4, 1.09, 0.884),
    Row((192, 96, 64), (3, 1), COOPERATIVE, (1, 2, 1), True, 1, 1.02, 0.826),
    Row((128, 144, 64), (1, 1), PINGPONG, ALONE, False, 1, 0.832, 1.12),
    Row((128, 144, 64), (1, 1), PINGPONG, ALONE, True, 1, 0.774, 1.17),
    Row((128, 144, 64), (1, 1), PINGPONG, (2, 1, 1), True, 1, 0.942, 1.03),
    Row((128, 128, 64), (2, 1), COOPERATIVE, ALONE, False, 1, 1.01, 0.894),
    Row((128, 128, 64), (1, 1), PINGPONG, ALONE, True, 1, 0.958, 0.934),
    Row((64, 256, 64), (1, 1), COOPERATIVE, (2, 1, 1), False, 1, 0.777, 1.1),
    Row((128, 112, 64), (2, 1), COOPERATIVE, (1, 2, 1), False, 1, 0.94, 1.02),
    Row((128, 112, 64), (1, 1), PINGPONG, ALONE, False, 1, 0.873, 1.07),
    Row((128, 112, 64), (1, 1), PINGPONG, (2, 4, 1), True, 1, 0.929, 0.973),
    Row((128, 96, 64), (2, 1), COOPERATIVE, ALONE, False, 1, 0.965, 0.891),
    Row((128, 96, 64), (2, 1), COOPERATIVE, (1, 1, 4), False, 4, 1.21, 0.986),
    Row((128, 96, 64), (2, 1), COOPERATIVE, (2, 4, 1), False, 1, 0.969, 0.872),
    Row((128, 96, 64), (2, 1), COOPERATIVE, (1, 1, 4), True, 4, 1.1, 1.03),
    Row((128, 96, 64), (1, 1), PINGPONG, (1, 2, 1), True, 1, 0.986, 0.94),
    Row((64, 192, 64), (1, 1), PINGPONG, (2, 2, 1), False, 1, 0.941, 0.87),
    Row((64, 192, 64), (1, 1), PINGPONG, ALONE, True, 1, 0.827, 0.946),
    Row((64, 192, 64), (1, 1), PINGPONG, (2, 1, 1), True, 1, 1.01, 0.866),
    Row((128, 80, 64), (2, 1), COOPERATIVE, (2, 2, 1), False, 1, 0.973, 0.982),
    Row((64, 160, 64), (1, 1), COOPERATIVE, (1, 1, 2), False, 2, 1.05, 1.03),
    Row((64, 160, 64), (1, 1), COOPERATIVE, (1, 1, 4), False, 4, 1.04, 1.05),
    Row((64, 160, 64), (1, 1), COOPERATIVE, (4, 1, 1), False, 1, 0.688, 1.07),
    Row((64, 128, 64), (1, 1), COOPERATIVE, (1, 1, 4), False, 4, 1.05, 1.01),
    Row((64, 128, 64), (1, 1), COOPERATIVE, (1, 1, 8), False, 8, 0.882, 1.14),
    Row((64, 128, 64), (1, 1), COOPERATIVE, (4, 1, 1), False, 1, 0.835, 0.967),
    Row((64, 128, 64), (1, 1), COOPERATIVE, (4, 1, 2), False, 2, 0.79, 1.05),
    Row((64, 128, 64), (1, 1), COOPERATIVE, ALONE, True, 1, 0.894, 0.982),
    Row((64, 128, 64), (1, 1), COOPERATIVE, (1, 1, 4), True, 4, 0.999, 1.04),
    Row((64, 128, 64), (1, 1), COOPERATIVE, (2, 4, 1), True, 1, 0.863, 0.958),
    Row((64, 128, 64), (1, 1), COOPERATIVE, (4, 2, 1), True, 1, 0.953, 0.902),
    Row((64, 128, 64), (1, 1), PINGPONG, ALONE, False, 1, 0.971, 0.867),
    Row((64, 128, 64), (1, 1), PINGPONG, (2, 2, 1), False, 1, 1.15, 0.785),
    Row((64, 128, 128), (1, 1), COOPERATIVE, (1, 1, 2), True, 2, 1.03, 0.949),
    Row((64, 96, 64), (1, 1), COOPERATIVE, (1, 1, 4), False, 4, 1.01, 1.1),
    Row((64, 96, 64), (1, 1), COOPERATIVE, (2, 2, 1), False, 1, 1.02, 1.0),
    Row((64, 96, 64), (1, 1), COOPERATIVE, (2, 4, 1), False, 1, 0.964, 0.97),
    Row((64, 96, 64), (1, 1), COOPERATIVE, (4, 2, 1), False, 1, 0.989, 0.972),
    Row((64, 96, 64), (1, 1), COOPERATIVE, (1, 1, 4), True, 4, 1.17, 1.0),
    Row((64, 96, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 0.865, 0.99),
    Row((64, 80, 64), (1, 1), COOPERATIVE, ALONE, True, 1, 1.0, 1.01),
    Row((64, 80, 64), (1, 1), COOPERATIVE, (1, 4, 1), True, 1, 1.07, 1.01),
    Row((64, 80, 64), (1, 1), COOPERATIVE, (2, 4, 1), True, 1, 1.02, 0.973),
    Row((128, 32, 128), (2, 1), COOPERATIVE, ALONE, True, 1, 1.0, 0.842),
    Row((64, 64, 64), (1, 1), COOPERATIVE, (2, 1, 1), False, 1, 1.18, 0.948),
    Row((64, 64, 64), (1, 1), COOPERATIVE, (2, 4, 1), False, 1, 0.989, 0.936),
    Row((64, 64, 64), (1, 1), COOPERATIVE, (4, 1, 1), False, 1, 1.1, 0.891),
    Row((64, 64, 64), (1, 1), COOPERATIVE, (4, 2, 1), False, 1, 0.928, 1.0),
    Row((64, 64, 64), (1, 1), COOPERATIVE, (8, 1, 1), False, 1, 1.01, 0.921),
    Row((64, 64, 64), (1, 1), COOPERATIVE, (2, 4, 1), True, 1, 0.924, 0.998),
    Row((64, 64, 64), (1, 1), COOPERATIVE, (4, 1, 1), True, 1, 1.08, 0.896),
    Row((64, 64, 128), (1, 1), COOPERATIVE, (1, 1, 4), False, 4, 1.19, 0.953),
    Row((64, 64, 128), (1, 1), COOPERATIVE, (4, 2, 1), False, 1, 0.886, 0.923),
    Row((64, 64, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 0.913, 0.955),
    Row((64, 64, 128), (1, 1), COOPERATIVE, (2, 4, 1), True, 1, 0.89, 0.904),
    Row((64, 48, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 0.945, 0.954),
    Row((64, 32, 64), (1, 1), COOPERATIVE, ALONE, True, 1, 1.49, 0.906),
    Row((64, 32, 64), (1, 1), COOPERATIVE, (1, 1, 4), True, 4, 1.61, 0.938),
    Row((64, 32, 128), (1, 1), COOPERATIVE, ALONE, False, 1, 1.1, 0.926),
    Row((64, 32, 128), (1, 1), COOPERATIVE, (1, 1, 4), True, 4, 1.39, 0.947),
    Row((64, 16, 64), (1, 1), COOPERATIVE, ALONE, False, 1, 1.62, 0.884),
    Row((64, 16, 64), (1, 1), COOPERATIVE, ALONE, True, 1, 1.67, 0.854),
    Row((64, 16, 128), (1, 1), COOPERATIVE, ALONE, False, 1, 1.38, 0.897),
    Row((64, 16, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 1.31, 0.923),
    Row((64, 16, 256), (1, 1), COOPERATIVE, ALONE, False, 1, 0.919, 0.932),
    Row((64, 16, 256), (1, 1), COOPERATIVE, ALONE, True, 1, 0.952, 0.897),
    Row((64, 8, 256), (1, 1), COOPERATIVE, ALONE, True, 1, 1.05, 0.9),
)
"""Tile, warpgroups, consumers, cluster, swapped or not, slices, corrections of a k-tile and of the whole."""

BORROWED = 1.05
"""Factor on the whole time for a tile that borrows the corrections of a measured one."""


def as_nearest(row: Row) -> Row:
    """Return a row with the corrections of the nearest measured tile that is otherwise alike.

    If the tile itself was measured, that is its row. A row with a correction of the whole time, by its size, is
    unchanged. A row without a similar tile keeps its correction of a k-tile, by its rows, with `BORROWED`.
    """
    alike = [
        each
        for each in MEASURED
        if (each.cta[0], each.cta[2], each.warpgroups, each.consumers, each.cluster, each.swap, each.slices)
        == (row.cta[0], row.cta[2], row.warpgroups, row.consumers, row.cluster, row.swap, row.slices)
    ]
    nearest = min(alike, key=lambda each: abs(each.cta[1] - row.cta[1]), default=None)
    if nearest is not None and nearest.cta == row.cta:
        return nearest
    if row.overall != UNMEASURED:
        return row
    if nearest is None:
        return replace(row, overall=BORROWED)
    return replace(row, correction=nearest.correction, overall=nearest.overall * BORROWED)


PROMOTED = (
    Row((192, 128, 64), (3, 1), COOPERATIVE, ALONE, False, 1, 0.92),
    Row((192, 128, 64), (3, 1), COOPERATIVE, ALONE, True, 1, 0.92),
)
"""Additional rows for promoted sums."""
PROMOTED_CORRECTIONS: Mapping[tuple[Consumers, int, int], float] = {
    (COOPERATIVE, 1, 1): 1.38,
    (COOPERATIVE, 1, 2): 1.1,
    (COOPERATIVE, 2, 1): 1.09,
    (COOPERATIVE, 2, 2): 1.0,
    (COOPERATIVE, 3, 1): 0.865,
    (PINGPONG, 1, 1): 1.3,
    (PINGPONG, 1, 2): 1.06,
}
"""Corrections of k-tiles with promoted sums, by the warpgroups of a tile and the sets of registers for its sums.

Each k-tile is waited for, so tensor cores are idle unless multiplications of another warpgroup, or of the warpgroup's
other set, are in flight. Measured on an H100: 432 times on 15 problems.
"""
WIDE_EXCHANGED = 0.9
"""Correction for swapped s8 products with ping-pong and s32 results, measured on an H200 from 2048^3 to 8192^3."""

H200 = WarpgroupConstants(
    latency_cycles=3110.0,
    turn_cycles=464.0,
    store_cycles_per_kib=55.4,
    exchanged_store_share=0.00786,
    fill_cycles_per_kib=0.248,
    warpgroup_start_cycles=732.0,
    cluster_start_cycles=105.0,
    crowd_cycles=5.06,
    peers_share=0.0162,
    arrived_bytes_per_cycle=654.0,
    fetched_bytes_per_cycle=271.0,
    l2_bytes_per_cycle=16300.0,
    summed_bytes_per_cycle=25.0,
    sum_us=0.6,
    cluster_summed_bytes_per_cycle=24.6,
    cluster_sum_us=0.471,
    half_line_factor=2.23,
    quarter_line_factor=2.33,
    eighth_line_factor=4.02,
    launch_us=1.55,
    sm_us=0.00467,
    memory_share=0.823,
    torn_lines=0.00255,
    write_share=0.573,
    torn_writes=0.0717,
    clock_share=0.911,
    power_share=0.358,
    power_us=4930.0,
    sharpness=2.97,
    joined_sharpness=2.42,
)
"""Fitted to an H200 by `tests/gpu/fit_kernels.py`; `sum_us` and `summed_bytes_per_cycle` to an H100
(`tests/gpu/h100_slices.json`)."""
