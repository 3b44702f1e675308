"""The warpgroup kernels to compare for a problem, with their corrections of the performance model.

| rows | for | from |
|---|---|---|
| `MEASURED` | any problem | fitted one by one |
| `fitted_rows` | an N that fills the GPU once, or a few times | corrections of the nearest tile, or by size |
| `fitted_slices` | few tiles, a long K | the tile's with an unsplit K |
| `SMALL`, `EIGHT_WIDE` | 2 to 8 us | fitted one by one |
| `every_row` | tuning | assumed slightly slower than predicted |
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

from cutegen.algebra import Extents
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import Gpu, dtype
from cutegen.hardware.units import SWIZZLE_ROWS, WARPGROUP
from cutegen.plan import swapped
from cutegen.plan.mma.wgmma import MOST_SUMS, sum_registers
from cutegen.plan.schedule.cluster import ALONE
from cutegen.plan.schedule.consumers import COOPERATIVE, PINGPONG
from cutegen.plan.search.tile_model import is_k_major
from cutegen.plan.search.warpgroup_model import PAIR, WarpgroupConstants, room_for
from cutegen.spec import GemmSpec
from cutegen.spec.values import MOST_SLICES, Consumers

# The warpgroup kernels to compare, and the constants of the performance model for them.
#
# A small subset of the kernels measured on an H200 (`tests/gpu/h200_kernels.json`) that has one near the fastest for
# almost every problem of the fit. Their corrections also use an H100 (`tests/gpu/h100_kernels.json`). Each has as many
# stages as fit.


UNMEASURED = 1.0
"""Correction for kernels that were not measured."""


@dataclass(frozen=True, slots=True)
class KernelConfig:
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


def each_kernel_once(rows: Iterable[KernelConfig]) -> Iterator[KernelConfig]:
    """Yield the first row of each kernel."""
    found: dict[tuple[object, ...], KernelConfig] = {}
    for row in rows:
        found.setdefault(row.kernel, row)
    yield from found.values()


MEASURED = (
    KernelConfig((256, 176, 64), (2, 1), COOPERATIVE, (1, 2, 1), True, 1, 1.1, 0.949),
    KernelConfig((192, 192, 64), (1, 2), COOPERATIVE, (1, 2, 1), False, 1, 1.08, 0.936),
    KernelConfig((192, 192, 64), (1, 2), COOPERATIVE, (2, 1, 1), False, 1, 1.07, 0.944),
    KernelConfig((192, 192, 64), (1, 2), COOPERATIVE, (2, 1, 1), True, 1, 1.07, 0.907),
    KernelConfig((256, 128, 64), (2, 1), COOPERATIVE, (1, 2, 1), True, 1, 1.07, 0.902),
    KernelConfig((128, 256, 64), (2, 1), COOPERATIVE, ALONE, True, 1, 0.999, 0.924),
    KernelConfig((128, 256, 64), (2, 1), COOPERATIVE, (2, 1, 1), True, 1, 1.01, 0.969),
    KernelConfig((192, 160, 64), (3, 1), COOPERATIVE, (1, 2, 1), True, 1, 1.14, 0.812),
    KernelConfig((128, 224, 64), (2, 1), COOPERATIVE, (2, 1, 1), False, 1, 0.926, 0.965),
    KernelConfig((128, 192, 64), (2, 1), COOPERATIVE, (1, 1, 4), False, 4, 0.841, 1.08),
    KernelConfig((128, 192, 64), (1, 1), PINGPONG, (2, 1, 1), False, 1, 0.941, 0.897),
    KernelConfig((128, 192, 64), (1, 1), PINGPONG, (2, 1, 1), True, 1, 0.896, 0.948),
    KernelConfig((128, 176, 64), (1, 1), PINGPONG, (2, 1, 1), False, 1, 0.811, 1.16),
    KernelConfig((128, 176, 64), (1, 1), PINGPONG, (2, 1, 1), True, 1, 0.872, 1.08),
    KernelConfig((192, 112, 64), (3, 1), COOPERATIVE, (1, 2, 1), True, 1, 1.05, 0.866),
    KernelConfig((128, 160, 64), (2, 1), COOPERATIVE, (1, 1, 4), False, 4, 1.01, 1.08),
    KernelConfig((128, 160, 64), (2, 1), COOPERATIVE, (1, 2, 1), False, 1, 1.01, 0.918),
    KernelConfig((128, 160, 64), (2, 1), COOPERATIVE, (2, 1, 1), True, 1, 0.964, 0.935),
    KernelConfig((128, 160, 64), (1, 1), PINGPONG, ALONE, False, 1, 0.868, 0.984),
    KernelConfig((128, 160, 64), (1, 1), PINGPONG, ALONE, True, 1, 0.879, 0.975),
    KernelConfig((192, 96, 64), (3, 1), COOPERATIVE, (1, 1, 4), False, 4, 1.09, 0.884),
    KernelConfig((192, 96, 64), (3, 1), COOPERATIVE, (1, 2, 1), True, 1, 1.02, 0.826),
    KernelConfig((128, 144, 64), (1, 1), PINGPONG, ALONE, False, 1, 0.832, 1.12),
    KernelConfig((128, 144, 64), (1, 1), PINGPONG, ALONE, True, 1, 0.774, 1.17),
    KernelConfig((128, 144, 64), (1, 1), PINGPONG, (2, 1, 1), True, 1, 0.942, 1.03),
    KernelConfig((128, 128, 64), (2, 1), COOPERATIVE, ALONE, False, 1, 1.01, 0.894),
    KernelConfig((128, 128, 64), (1, 1), PINGPONG, ALONE, True, 1, 0.958, 0.934),
    KernelConfig((64, 256, 64), (1, 1), COOPERATIVE, (2, 1, 1), False, 1, 0.777, 1.1),
    KernelConfig((128, 112, 64), (2, 1), COOPERATIVE, (1, 2, 1), False, 1, 0.94, 1.02),
    KernelConfig((128, 112, 64), (1, 1), PINGPONG, ALONE, False, 1, 0.873, 1.07),
    KernelConfig((128, 112, 64), (1, 1), PINGPONG, (2, 4, 1), True, 1, 0.929, 0.973),
    KernelConfig((128, 96, 64), (2, 1), COOPERATIVE, ALONE, False, 1, 0.965, 0.891),
    KernelConfig((128, 96, 64), (2, 1), COOPERATIVE, (1, 1, 4), False, 4, 1.21, 0.986),
    KernelConfig((128, 96, 64), (2, 1), COOPERATIVE, (2, 4, 1), False, 1, 0.969, 0.872),
    KernelConfig((128, 96, 64), (2, 1), COOPERATIVE, (1, 1, 4), True, 4, 1.1, 1.03),
    KernelConfig((128, 96, 64), (1, 1), PINGPONG, (1, 2, 1), True, 1, 0.986, 0.94),
    KernelConfig((64, 192, 64), (1, 1), PINGPONG, (2, 2, 1), False, 1, 0.941, 0.87),
    KernelConfig((64, 192, 64), (1, 1), PINGPONG, ALONE, True, 1, 0.827, 0.946),
    KernelConfig((64, 192, 64), (1, 1), PINGPONG, (2, 1, 1), True, 1, 1.01, 0.866),
    KernelConfig((128, 80, 64), (2, 1), COOPERATIVE, (2, 2, 1), False, 1, 0.973, 0.982),
    KernelConfig((64, 160, 64), (1, 1), COOPERATIVE, (1, 1, 2), False, 2, 1.05, 1.03),
    KernelConfig((64, 160, 64), (1, 1), COOPERATIVE, (1, 1, 4), False, 4, 1.04, 1.05),
    KernelConfig((64, 160, 64), (1, 1), COOPERATIVE, (4, 1, 1), False, 1, 0.688, 1.07),
    KernelConfig((64, 128, 64), (1, 1), COOPERATIVE, (1, 1, 4), False, 4, 1.05, 1.01),
    KernelConfig((64, 128, 64), (1, 1), COOPERATIVE, (1, 1, 8), False, 8, 0.882, 1.14),
    KernelConfig((64, 128, 64), (1, 1), COOPERATIVE, (4, 1, 1), False, 1, 0.835, 0.967),
    KernelConfig((64, 128, 64), (1, 1), COOPERATIVE, (4, 1, 2), False, 2, 0.79, 1.05),
    KernelConfig((64, 128, 64), (1, 1), COOPERATIVE, ALONE, True, 1, 0.894, 0.982),
    KernelConfig((64, 128, 64), (1, 1), COOPERATIVE, (1, 1, 4), True, 4, 0.999, 1.04),
    KernelConfig((64, 128, 64), (1, 1), COOPERATIVE, (2, 4, 1), True, 1, 0.863, 0.958),
    KernelConfig((64, 128, 64), (1, 1), COOPERATIVE, (4, 2, 1), True, 1, 0.953, 0.902),
    KernelConfig((64, 128, 64), (1, 1), PINGPONG, ALONE, False, 1, 0.971, 0.867),
    KernelConfig((64, 128, 64), (1, 1), PINGPONG, (2, 2, 1), False, 1, 1.15, 0.785),
    KernelConfig((64, 128, 128), (1, 1), COOPERATIVE, (1, 1, 2), True, 2, 1.03, 0.949),
    KernelConfig((64, 96, 64), (1, 1), COOPERATIVE, (1, 1, 4), False, 4, 1.01, 1.1),
    KernelConfig((64, 96, 64), (1, 1), COOPERATIVE, (2, 2, 1), False, 1, 1.02, 1.0),
    KernelConfig((64, 96, 64), (1, 1), COOPERATIVE, (2, 4, 1), False, 1, 0.964, 0.97),
    KernelConfig((64, 96, 64), (1, 1), COOPERATIVE, (4, 2, 1), False, 1, 0.989, 0.972),
    KernelConfig((64, 96, 64), (1, 1), COOPERATIVE, (1, 1, 4), True, 4, 1.17, 1.0),
    KernelConfig((64, 96, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 0.865, 0.99),
    KernelConfig((64, 80, 64), (1, 1), COOPERATIVE, ALONE, True, 1, 1.0, 1.01),
    KernelConfig((64, 80, 64), (1, 1), COOPERATIVE, (1, 4, 1), True, 1, 1.07, 1.01),
    KernelConfig((64, 80, 64), (1, 1), COOPERATIVE, (2, 4, 1), True, 1, 1.02, 0.973),
    KernelConfig((128, 32, 128), (2, 1), COOPERATIVE, ALONE, True, 1, 1.0, 0.842),
    KernelConfig((64, 64, 64), (1, 1), COOPERATIVE, (2, 1, 1), False, 1, 1.18, 0.948),
    KernelConfig((64, 64, 64), (1, 1), COOPERATIVE, (2, 4, 1), False, 1, 0.989, 0.936),
    KernelConfig((64, 64, 64), (1, 1), COOPERATIVE, (4, 1, 1), False, 1, 1.1, 0.891),
    KernelConfig((64, 64, 64), (1, 1), COOPERATIVE, (4, 2, 1), False, 1, 0.928, 1.0),
    KernelConfig((64, 64, 64), (1, 1), COOPERATIVE, (8, 1, 1), False, 1, 1.01, 0.921),
    KernelConfig((64, 64, 64), (1, 1), COOPERATIVE, (2, 4, 1), True, 1, 0.924, 0.998),
    KernelConfig((64, 64, 64), (1, 1), COOPERATIVE, (4, 1, 1), True, 1, 1.08, 0.896),
    KernelConfig((64, 64, 128), (1, 1), COOPERATIVE, (1, 1, 4), False, 4, 1.19, 0.953),
    KernelConfig((64, 64, 128), (1, 1), COOPERATIVE, (4, 2, 1), False, 1, 0.886, 0.923),
    KernelConfig((64, 64, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 0.913, 0.955),
    KernelConfig((64, 64, 128), (1, 1), COOPERATIVE, (2, 4, 1), True, 1, 0.89, 0.904),
    KernelConfig((64, 48, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 0.945, 0.954),
    KernelConfig((64, 32, 64), (1, 1), COOPERATIVE, ALONE, True, 1, 1.49, 0.906),
    KernelConfig((64, 32, 64), (1, 1), COOPERATIVE, (1, 1, 4), True, 4, 1.61, 0.938),
    KernelConfig((64, 32, 128), (1, 1), COOPERATIVE, ALONE, False, 1, 1.1, 0.926),
    KernelConfig((64, 32, 128), (1, 1), COOPERATIVE, (1, 1, 4), True, 4, 1.39, 0.947),
    KernelConfig((64, 16, 64), (1, 1), COOPERATIVE, ALONE, False, 1, 1.62, 0.884),
    KernelConfig((64, 16, 64), (1, 1), COOPERATIVE, ALONE, True, 1, 1.67, 0.854),
    KernelConfig((64, 16, 128), (1, 1), COOPERATIVE, ALONE, False, 1, 1.38, 0.897),
    KernelConfig((64, 16, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 1.31, 0.923),
    KernelConfig((64, 16, 256), (1, 1), COOPERATIVE, ALONE, False, 1, 0.919, 0.932),
    KernelConfig((64, 16, 256), (1, 1), COOPERATIVE, ALONE, True, 1, 0.952, 0.897),
    KernelConfig((64, 8, 256), (1, 1), COOPERATIVE, ALONE, True, 1, 1.05, 0.9),
)
"""Tile, warpgroups, consumers, cluster, swapped or not, slices, corrections of a k-tile and of the whole."""

BORROWED = 1.05
"""Factor on the whole time for a tile that borrows the corrections of a measured one."""


def as_nearest(row: KernelConfig) -> KernelConfig:
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
    KernelConfig((192, 128, 64), (3, 1), COOPERATIVE, ALONE, False, 1, 0.92),
    KernelConfig((192, 128, 64), (3, 1), COOPERATIVE, ALONE, True, 1, 0.92),
)
"""Additional rows for promoted sums."""
OF_GROUPS = (KernelConfig((128, 112, 64), (1, 1), PINGPONG, ALONE, True, 1, 0.873, 1.07),)
"""Additional rows for groups of rows, with the corrections of the same tile without `swap`.

On an H200 (2026-11-29) 16 groups of 179 to 322 rows, 16384 x 5120, took 1,242 us with it, 1,403 with the next of 22.
"""
QUANTIZED_PAIRS = tuple(
    KernelConfig((128, 256, 64), (2, 1), COOPERATIVE, cluster, False, 1, correction, overall)
    for cluster, correction, overall in ((ALONE, 0.999, 0.97), ((2, 1, 1), 1.01, 1.02))
)
"""Additional rows for a quantized C of pairs, whose blocks need 256 columns of sums: not measured, so with the
corrections of the swapped tile and a handicap.
"""
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
SCALED_EXCHANGED = 1.3
SCALED_BY_COLUMNS: Mapping[int, float] = {128: 0.83, 160: 0.93, 192: 0.91}
SCALED_NARROW = 1.05
"""Further corrections for sums that are scaled by factors of blocks. With A and B swapped a thread reads a factor for
each of its columns, which costs time where no operand is streamed. The others are for tiles of two warpgroups, by their
columns.

On an H200 (2026-11-28, `tune`'s candidates in CUDA graphs), 44 kernels of 4096 x 4096 x 7168 and of 32 groups of 256
rows: measured times over predicted ones were 1.13 to 1.66, 0.80 to 1.02, and 1.0 to 1.2.
"""
SCALED_SHORT = 1.2
"""A further correction of other tiles than `SCALED` for a K of less than a turn of k-tiles."""
SCALED = tuple(
    KernelConfig((m, n, 64), (groups, 1), COOPERATIVE, cluster, False, 1, correction)
    for m, n, groups, cluster, correction in (
        (256, 128, 2, ALONE, 0.72),
        (256, 128, 2, (1, 2, 1), 0.71),
        (192, 128, 3, ALONE, 0.79),
        (192, 128, 3, (1, 2, 1), 0.74),
        (128, 128, 2, ALONE, 0.74),
        (128, 128, 2, (1, 2, 1), 0.735),
    )
)
"""Rows for sums that are scaled by factors of blocks, with their whole corrections.

On an H200 (2026-11-29, bursts of four launches and more in CUDA graphs, medians of 20 or 25) such corrections gave the
measured times of seven problems within 9 %, and for K = 512 all times were 0.7 of the predicted ones. Tiles of
256 x 128 are multiplied in waves of rows; those and the ones of 192 x 128 are here in clusters of 1 x 2. Times, us:

| M x N x K       | 256 x 128 | 192 x 128 | 128 x 128 |
|-----------------|-----------|-----------|-----------|
| 4096x7168x16384 | 651       | 689       | 692       |
| 4096x4096x7168  | 165       | 178       | 168       |
| 8192x4096x7168  | 329       | 330       | 335       |
| 4096x7168x2048  | 91        | 92        | 93        |
| 2048x7168x4096  | 99        | 92        | 90        |
| 4096x24576x1536 | 236       | 225       | 234       |
| 4096x32768x512  | 136       | 124       | 137       |
| 4096x2112x7168  | 121       | 92        | 107       |
"""
SCALED_CORRECTIONS: Mapping[tuple[object, ...], float] = {
    (row.cta[:2], row.warpgroups, row.cluster): row.correction for row in SCALED
}
"""Those corrections, by tile of C, warpgroups and cluster."""
LONG_PAIRS = 16
SCALED_PAIRS: Mapping[tuple[object, ...], tuple[float, float]] = {
    ((192, 128), (3, 1)): (0.75, 0.95),
    ((128, 128), (2, 1)): (0.8, 0.97),
    ((128, 256), (2, 1)): (1.25, 1.0),
}
"""The same for pairs of columns, whose members a warpgroup multiplies one after the other, by tile of C and warpgroups:
for a K of less than `LONG_PAIRS` k-tiles, and of more.

On an H200 (2026-11-29, calls with SwiGLU, in bursts) 4096 x 7168 x 16384 and 4096 x 4096 x 7168 took 894 and 203 us
with 128 x 128, and 801 and 185 with 128 x 256 and a quantized C; 4096 x 24576 x 1536 took 273 with 192 x 128, and 341
with 128 x 256 and a quantized C.
"""
SCALED_GROUPS_CLUSTERED = 0.85
"""A further correction of clusters for groups of rows: the model takes them for a batch, where clusters are slower.

On an H200 (2026-11-29, in bursts) 8 groups of 4096 x 7168 x 2048, 8 of 1024 x 4096 x 7168 and 32 of 256 rows took 705,
369 and 490 us with 192 x 128 in clusters of 1 x 2, and 713, 373 and 509 without them.
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


# Corrections for a tile that fills the GPU once and was not measured itself: by its rows, columns and cluster.
#
# A measured tile has two corrections of its own. These are common to all tiles with the same rows, with an error of 7
# to 8 % on average. They are fitted to 13,500 times on an H200: 247 products of 2^27.5 to 2^33.5 multiply-adds, up to
# 2^21.5 results and K of 512 or more, each with kernels whose N filled the GPU once or twice.


SIZED_LEAST_K, TOO_LARGE = 512, 2**33
"""K and multiply-adds of the products of the fit: below them the store dominates, above them power."""
SECTOR_COLUMNS = 16
"""Columns of C in a sector, for 2-byte elements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfRows:
    """Corrections by a tile's rows, up to `widest` columns: of the whole time, and the log of a k-tile's by N / 128."""

    whole: float
    k_tile: tuple[float, ...]
    widest: int


OF_ROWS: Mapping[int, OfRows] = {
    64: OfRows(whole=1.147, k_tile=(-0.099, -0.454, 0.119), widest=208),
    128: OfRows(whole=1.043, k_tile=(-0.314, -0.036), widest=208),
    192: OfRows(whole=0.917, k_tile=(-0.279, 0.005), widest=152),
}
HALF_SECTORS = 1.063
"""Factor on the whole time if parts of C are rows of half a sector."""
UNALIGNED_SHARES = 0.126
"""Added to the log of a k-tile's if a CTA's share of B does not begin at a period of the swizzle."""
SIZED_CLUSTERED, ALONG_M, ALONG_N = 0.149, -0.096, -0.034
"""The same for a cluster, and per doubling of its CTAs."""
LOWEST_OF_MANY = 1.06
"""Factor on the whole time: the lowest of many estimates is more likely too low."""


def is_sized(cta: tuple[int, ...], problem: ProblemShape) -> bool:
    """Return whether the corrections are fitted to such tiles and problems."""
    of_rows = OF_ROWS.get(cta[0])
    within = problem.k >= SIZED_LEAST_K and problem.m * problem.n * problem.k < TOO_LARGE
    return within and of_rows is not None and cta[1] <= of_rows.widest


def of_size(row: KernelConfig) -> KernelConfig:
    """Return the row with the corrections of tiles of its size."""
    (m, n, _), (ctas_m, ctas_n, _) = row.cta, row.cluster
    of_rows = OF_ROWS[m]
    k_tile = sum(factor * (n / 128) ** power for power, factor in enumerate(of_rows.k_tile))
    if n % (SWIZZLE_ROWS * ctas_m):
        k_tile += UNALIGNED_SHARES
    if ctas_m * ctas_n > 1:
        k_tile += SIZED_CLUSTERED + ALONG_M * math.log2(ctas_m) + ALONG_N * math.log2(ctas_n)
    torn = HALF_SECTORS if n % SECTOR_COLUMNS and not row.swap else 1.0
    return replace(row, correction=math.exp(k_tile), overall=of_rows.whole * torn * LOWEST_OF_MANY)


# Tiles whose N follows from the problem: wide enough for the tiles to fill the GPU once, or a few times.
#
# A grid of tiles that fills the SMs slightly more than once takes as long as two waves, and an instruction can have any
# multiple of 8 columns. If rows are unaligned and L2 is the limit, the widest tiles and clusters win; if a product of
# middle size fills the GPU just once, clusters of 8 do.


WARPGROUPS_BY_ROWS = {64: 1, 128: 2, 192: 3, 256: 2}
"""Warpgroups by the rows of a tile."""
CLUSTERS: tuple[Extents, ...] = ((1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 2, 1), (4, 1, 1), (1, 4, 1))
CLUSTERS_OF_SIZED: tuple[Extents, ...] = (*CLUSTERS, (2, 4, 1), (4, 2, 1))
WAVES, WAVES_OF_LARGE_CLUSTERS = (1, 2, 3, 4), (1, 2)
K_TILE = 64
COLUMNS = 8
"""Step of the columns of an instruction, and of a CTA's share of B."""
COLUMNS_OF_SECTORS = 16
"""Step of the columns of a tile whose rows are C's: its parts are rows of whole sectors."""
NARROWEST, NARROWEST_SIZED = 64, 40
"""Fewest columns of a tile, and of one whose width follows N."""
WIDEST = {1: 256, 2: 256, 3: 200}
"""Most columns of a tile, by its warpgroups: three have registers for the sums of at most this wide an instruction
(ptxas C7602).
"""
CORRECTIONS = {64: 1.2, 128: 1.03, 192: 1.03, 256: 1.03}
"""Correction of a k-tile's cycles, by the rows of a tile without a similar measured tile.

Of 36 random problems for which such tiles replaced fixed ones, 31 gained on an H200, by 8 % in the geometric mean;
tiles of 64 rows were slower than predicted.
"""


def fitted_rows(problem: ProblemShape, gpu: Gpu) -> Iterator[KernelConfig]:
    """Yield rows for `problem`, swapped and not, each once; none for a batch, whose results run one by one."""
    sized = (_sized_row(problem, gpu, *each) for each in product((False, True), WARPGROUPS_BY_ROWS, CLUSTERS_OF_SIZED))
    found = (_row(problem, gpu, *each) for each in product((False, True), WARPGROUPS_BY_ROWS, CLUSTERS, WAVES))
    if problem.batch == 1:
        # Of two rows for one kernel, keep the one with the corrections of its size.
        rows = {(row.cta, row.cluster, row.swap): row for row in (*found, *sized) if row is not None}
        yield from rows.values()


def _sized_row(problem: ProblemShape, gpu: Gpu, swap: bool, m: int, cluster: Extents) -> KernelConfig | None:
    """Return the row that fills the GPU once, as narrow as an instruction can be, with the corrections of its size."""
    n = _columns(problem, gpu, swap, m, cluster, 1, COLUMNS)
    if n is None or n < NARROWEST_SIZED or not is_sized((m, n), problem) or not _has_room((m, n)):
        return None
    return of_size(KernelConfig((m, n, K_TILE), (WARPGROUPS_BY_ROWS[m], 1), COOPERATIVE, cluster, swap))


def _row(problem: ProblemShape, gpu: Gpu, swap: bool, m: int, cluster: Extents, waves: int) -> KernelConfig | None:
    if cluster[0] * cluster[1] > PAIR and waves not in WAVES_OF_LARGE_CLUSTERS:
        return None
    step = max(COLUMNS if swap else COLUMNS_OF_SECTORS, COLUMNS * cluster[0])
    n = _columns(problem, gpu, swap, m, cluster, waves, step)
    if n is None or n < NARROWEST or not _has_room((m, n)):
        return None
    return KernelConfig((m, n, K_TILE), (WARPGROUPS_BY_ROWS[m], 1), COOPERATIVE, cluster, swap, 1, CORRECTIONS[m])


def _columns(
    problem: ProblemShape, gpu: Gpu, swap: bool, m: int, cluster: Extents, waves: int, step: int
) -> int | None:
    """Return the least multiple of `step` whose tiles are `waves` of CTAs; None if the rows alone are more."""
    multiplied = swapped.shape_multiplied(problem) if swap else problem
    ctas_m, ctas_n, _ = cluster
    along_m = -(-multiplied.m // (m * ctas_m)) * ctas_m
    along_n = room_for(cluster, gpu) * waves // along_m // ctas_n * ctas_n
    return -(-multiplied.n // (along_n * step)) * step if along_n else None


def _has_room(tile: tuple[int, int]) -> bool:
    warpgroups = WARPGROUPS_BY_ROWS[tile[0]]
    return tile[1] <= WIDEST[warpgroups] and sum_registers(tile, dtype("f32"), warpgroups * WARPGROUP) <= MOST_SUMS


# Slices of K whose number follows from the problem: as many as let a few tiles fill the GPU.
#
# A dozen tiles leave SMs idle, and tiles small enough to avoid that load many bytes per multiply-add. Slices of larger
# tiles add the cost of sums in a workspace, which a long K repays.


SHORTEST_SLICE = 256
"""Least K of a slice: for none of 66 problems measured with less was that the fastest."""
SLICES_HANDICAP = 1.03
"""Factor on the whole time. Of 47 problems drawn for it on an H100, those for which slices are predicted to win by no
more than this take up to 1.15 times as long with slices, the others 0.62 to 1.07 times.
"""
COLUMNS_OF_SLICED: Mapping[int, tuple[int, ...]] = {
    64: (8, 16, 32, 48, 64, 80, 96, 112, 128, 160, 192),
    128: (32, 48, 64, 80, 96, 112, 128, 160, 192),
    192: (80, 96, 112, 128, 160),
}
"""Columns by the rows of a tile, as measured with slices."""
NARROW_SLICED, NARROW_SLICED_K_TILE = 16, 256
"""Tiles with this few columns have long k-tiles, and are for problems with few columns that fill a tile's rows: on
other problems an H100 took 1.07 to 1.15 times as long as with wider tiles.
"""


def fitted_slices(problem: ProblemShape, gpu: Gpu) -> Iterator[KernelConfig]:
    """Yield tiles of which two or more slices fit the GPU at once: in as many slices as fit, and in 3/4 of that.

    They have the corrections of the tile with an unsplit K: the model counts the cost of slices.
    """
    for swap, m in product((False, True), COLUMNS_OF_SLICED):
        multiplied = swapped.shape_multiplied(problem) if swap else problem
        for n in COLUMNS_OF_SLICED[m]:
            if n <= NARROW_SLICED and (multiplied.m < m or multiplied.n > 2 * NARROW_SLICED):
                continue
            tiles = -(-multiplied.m // m) * -(-multiplied.n // n) * problem.batch
            most = min(gpu.sms // tiles, problem.k // SHORTEST_SLICE, MOST_SLICES)
            for slices in sorted({most, most * 3 // 4}):
                if slices > 1:
                    cta = m, n, NARROW_SLICED_K_TILE if n <= NARROW_SLICED else K_TILE
                    yield in_slices(KernelConfig(cta, (WARPGROUPS_BY_ROWS[m], 1), COOPERATIVE, ALONE, swap), slices)


def in_slices(whole: KernelConfig, slices: int) -> KernelConfig:
    """Return the tile in `slices` through a workspace; corrections are those of the nearest tile with an unsplit K."""
    row = as_nearest(whole)
    return replace(row, slices=slices, overall=row.overall * SLICES_HANDICAP)


# Warpgroup kernels to compare for a small product, and how much longer kernels of `sm80` take there than predicted.
#
# Such a product takes 2 to 8 us, and much of that is the launch, the first copies and the store. Its few CTAs wait for
# copies: narrow tiles win, and clusters of four that share the copies of the operand with more rows. `MEASURED` has few
# of either. With kernels of `sm80`, these rows have one within 0.3 % of the fastest of 431 kernels, on average over 339
# f16 products with K-major operands on an H100 (`tests/gpu/h100_small.json`), to which their corrections are fitted.
# Other majors and 8-bit elements have the same rows.


SMALL_MOST = 2**27.5
"""Multiply-adds of the measured products: fewer than this."""
SMALL_MOST_RESULTS, SMALL_FEW, SMALL_LEAST_K = 200 * 64 * 64, 16, 96
"""Limits of the same products: elements of C, rows and columns, and K. With fewer rows or columns, some have
`EIGHT_WIDE` too.
"""
SMALL_LEAST_K_OF_OTHERS = 192
"""Least K if A or B is not K-major: with a shorter one these rows gained 1 % in a graph and lost 1 % launched alone."""
SMALL_NARROW, LONG_K = 32, 2048
"""Products with fewer rows or columns and a longer K are not included: slices of K through a workspace win there, which
these rows lack. On such products drawn later they took up to 1.53 times as long as the previous selection.
"""
WIDEST_ELEMENT_BYTES = 2
"""Bytes of the widest elements of A and B: `wgmma` multiplies these and narrower ones here."""
OF_MMA_SYNC = 1.06
"""Factor on the whole time of kernels of `sm80`."""


def is_small(spec: GemmSpec, problem: ProblemShape) -> bool:
    """Return whether these rows and factors are for such problems. K counts in elements of two bytes."""
    results, few = problem.batch * problem.m * problem.n, min(problem.m, problem.n)
    element_bytes = dtype(spec.problem.a.dtype).bytes
    k = problem.k * element_bytes / WIDEST_ELEMENT_BYTES
    least_k = SMALL_LEAST_K if is_k_major(spec) else SMALL_LEAST_K_OF_OTHERS
    has_sides = (few >= SMALL_FEW or is_k_major(spec)) and k >= least_k and (few >= SMALL_NARROW or k <= LONG_K)
    return (
        element_bytes <= WIDEST_ELEMENT_BYTES
        and has_sides
        and results <= SMALL_MOST_RESULTS
        and results * k < SMALL_MOST
    )


def rows_of(problem: ProblemShape) -> tuple[KernelConfig, ...]:
    """Return the rows to compare for a small product."""
    return (*SMALL, *EIGHT_WIDE) if min(problem.m, problem.n) < SMALL_FEW else SMALL


SMALL = (
    KernelConfig((64, 128, 64), (1, 1), COOPERATIVE, (1, 4, 1), True, 1, 0.998, 0.947),
    KernelConfig((64, 96, 64), (1, 1), COOPERATIVE, (2, 2, 1), False, 1, 0.959, 0.966),
    KernelConfig((64, 80, 64), (1, 1), COOPERATIVE, (2, 4, 1), True, 1, 1.13, 0.901),
    KernelConfig((64, 64, 64), (1, 1), COOPERATIVE, (4, 1, 1), True, 1, 0.801, 0.974),
    KernelConfig((64, 64, 128), (1, 1), COOPERATIVE, ALONE, False, 1, 0.91, 0.903),
    KernelConfig((64, 64, 128), (1, 1), COOPERATIVE, (1, 4, 1), False, 1, 0.83, 0.903),
    KernelConfig((64, 64, 128), (1, 1), COOPERATIVE, (1, 1, 8), True, 8, 1.05, 0.959),
    KernelConfig((64, 64, 128), (1, 1), COOPERATIVE, (1, 4, 1), True, 1, 0.879, 0.888),
    KernelConfig((64, 48, 128), (1, 1), COOPERATIVE, (2, 2, 1), True, 1, 0.965, 0.894),
    KernelConfig((64, 48, 128), (1, 1), COOPERATIVE, (2, 4, 1), True, 1, 0.972, 0.857),
    KernelConfig((64, 40, 128), (1, 1), COOPERATIVE, (1, 4, 1), True, 1, 1.03, 0.847),
    KernelConfig((64, 32, 64), (1, 1), COOPERATIVE, ALONE, True, 1, 1.34, 0.839),
    KernelConfig((64, 32, 128), (1, 1), COOPERATIVE, ALONE, False, 1, 1.15, 0.856),
    KernelConfig((64, 32, 128), (1, 1), COOPERATIVE, (4, 1, 1), False, 1, 0.942, 0.924),
    KernelConfig((64, 32, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 1.16, 0.853),
    KernelConfig((64, 32, 128), (1, 1), COOPERATIVE, (1, 1, 4), True, 4, 1, 1.04),
    KernelConfig((64, 32, 128), (1, 1), COOPERATIVE, (1, 4, 1), True, 1, 0.963, 0.874),
    KernelConfig((64, 32, 128), (1, 1), COOPERATIVE, (4, 1, 1), True, 1, 0.91, 0.932),
    KernelConfig((64, 24, 128), (1, 1), COOPERATIVE, (1, 4, 1), True, 1, 0.949, 0.895),
    KernelConfig((64, 16, 64), (1, 1), COOPERATIVE, ALONE, True, 1, 1.28, 0.827),
    KernelConfig((64, 16, 128), (1, 1), COOPERATIVE, ALONE, False, 1, 1.29, 0.831),
    KernelConfig((64, 16, 128), (1, 1), COOPERATIVE, (1, 4, 1), False, 1, 0.938, 0.926),
    KernelConfig((64, 16, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 1.32, 0.821),
    KernelConfig((64, 16, 256), (1, 1), COOPERATIVE, (1, 4, 1), False, 1, 0.964, 0.824),
    KernelConfig((64, 16, 256), (1, 1), COOPERATIVE, (1, 4, 1), True, 1, 1.02, 0.805),
    KernelConfig((64, 8, 256), (1, 1), COOPERATIVE, (1, 4, 1), False, 1, 1.1, 0.809),
    KernelConfig((64, 8, 256), (1, 1), COOPERATIVE, (1, 4, 1), True, 1, 1.16, 0.793),
)
"""Tile, warpgroups, consumers, cluster, swapped or not, slices, corrections of a k-tile and of the whole: fitted by
`tests/gpu/fit_small.py`.
"""

EIGHT_WIDE = tuple(
    KernelConfig((64, 8, k), (1, 1), COOPERATIVE, ALONE, swap, 1, 1.0, 0.9)
    for k in (128, 256)
    for swap in (False, True)
)
"""Compared besides if C has fewer than 16 rows or columns. The corrections are set by hand, by the cost of selections
on 41 such products on an H100.
"""


# Candidates for tuning of warpgroup kernels: those that plans choose from, and many without a fitted time.
#
# The performance model ranks all of them; those outside its fit are assumed to be slightly slower than predicted.


NEVER_MEASURED = 1.03
"""Correction for kernels that were never measured."""
SIDES: tuple[tuple[int, int], ...] = (
    *((256, 128), (128, 256), (256, 192), (192, 192), (192, 128), (128, 192), (128, 160), (128, 128), (64, 256)),
    *((64, 192), (128, 96), (64, 128), (128, 64), (64, 96), (64, 64), (128, 32), (64, 48), (64, 32), (128, 16)),
    *((64, 16), (64, 8), (128, 8)),
)
"""M and N of tiles, for 2-byte elements."""
SHARING = (ALONE, (2, 1, 1), (1, 2, 1))
SPLITS = (2, 3, 4, 6, 8, 16)
CLUSTERED_SPLITS = (2, 4, 8)
LARGEST_SPLIT = 128 * 128
"""Most elements of a tile for which splitting K pays off."""
SCALED_FEW = (
    KernelConfig((64, 64, 64), (1, 1), COOPERATIVE, (1, 2, 1), False, 1, UNMEASURED, 0.92),
    *(
        KernelConfig((64, n, 64), (1, 1), COOPERATIVE, cluster, False, 1, NEVER_MEASURED)
        for n in (96, 192)
        for cluster in (ALONE, (1, 2, 1))
    ),
    *(
        KernelConfig((m, n, 64), (m // 64, 1), COOPERATIVE, (1, 1, 2), swap, 2, NEVER_MEASURED)
        for m, n in ((64, 32), (64, 64), (128, 32), (128, 64))
        for swap in (False, True)
    ),
)
"""Rows for few rows of A with factors of blocks, which stream B: narrow shares of it, or slices of K, and a tile whose
time at 64 x 7168 x 2048 was 0.93 of what was predicted beside the others (H200, 2026-11-29, `tune`).

On an H200 (2026-11-28, `tune`'s candidates in CUDA graphs) 64 x 24576 x 1536 takes 14.3 us with 64x192, predicted
14.0, and 16.7 with the fastest of the other rows.
"""


def every_row() -> Iterator[KernelConfig]:
    """Yield those of the model first, then all other possible ones, each once."""
    yield from each_kernel_once((*MEASURED, *_unmeasured()))


def splits_of_given(row: KernelConfig) -> Iterator[KernelConfig]:
    """Yield the spec's own tile, with every number of slices, in a cluster and through a workspace."""
    yield row
    if row.cluster == ALONE and row.consumers == COOPERATIVE:
        yield from _split(row)


def _unmeasured() -> Iterator[KernelConfig]:
    for m, n in SIDES:
        for k in _depths(m, n):
            for consumers in (COOPERATIVE, PINGPONG):
                yield from _of_tile((m, n, k), consumers)


def _depths(m: int, n: int) -> tuple[int, ...]:
    """Return K of a tile: rows of shared memory are a line or more, and small tiles need fewer, longer k-tiles."""
    if n <= 16:
        return 128, 256
    return (64, 128) if m * n <= 128 * 64 else (64,)


def _of_tile(cta: Extents, consumers: Consumers) -> Iterator[KernelConfig]:
    warpgroups = (1, 1) if consumers == PINGPONG else (WARPGROUPS_BY_ROWS[cta[0]], 1)
    threads = WARPGROUP * warpgroups[0] * warpgroups[1]
    if sum_registers(cta[:2], dtype("f32"), threads) > MOST_SUMS or (consumers == PINGPONG and cta[0] * cta[1] < 4096):
        return
    for swap in (False, True):
        for cluster in SHARING:
            yield KernelConfig(cta, warpgroups, consumers, cluster, swap, 1, NEVER_MEASURED)
        if consumers == COOPERATIVE:
            yield from _split(KernelConfig(cta, warpgroups, consumers, ALONE, swap, 1, NEVER_MEASURED))


def _split(row: KernelConfig) -> Iterator[KernelConfig]:
    if row.cta[0] * row.cta[1] > LARGEST_SPLIT:
        return
    for slices in SPLITS:
        yield KernelConfig(row.cta, row.warpgroups, row.consumers, ALONE, row.swap, slices, row.correction)
    for slices in CLUSTERED_SPLITS:
        yield KernelConfig(row.cta, row.warpgroups, row.consumers, (1, 1, slices), row.swap, slices, row.correction)
