"""Tiles whose N follows from the problem: wide enough for the tiles to fill the GPU once, or a few times.

A grid of tiles that fills the SMs slightly more than once takes as long as two waves, and an instruction can have any
multiple of 8 columns. If rows are unaligned and L2 is the limit, the widest tiles and clusters win; if a product of
middle size fills the GPU just once, clusters of 8 do.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from cutegen.algebra import Extents
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import Gpu, dtype
from cutegen.hardware.units import WARPGROUP
from cutegen.plan import swapped
from cutegen.plan.rules.consumers import COOPERATIVE
from cutegen.plan.rules.wgmma_sums import MOST_SUMS, sum_registers
from cutegen.plan.search.sized_tiles import is_sized, of_size
from cutegen.plan.search.warpgroup_model import PAIR, room_for
from cutegen.plan.search.warpgroup_tiles import Row

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
NARROWEST, NARROWEST_SIZED, WIDEST = 64, 40, {1: 256, 2: 256, 3: 200}
"""Most columns by warpgroups: with three, a thread has registers for the sums of at most this wide an instruction
(C7602).
"""
CORRECTIONS = {64: 1.2, 128: 1.03, 192: 1.03, 256: 1.03}
"""Correction of a k-tile's cycles, by the rows of a tile without a similar measured tile.

Of 36 random problems for which such tiles replaced fixed ones, 31 gained on an H200, by 8 % in the geometric mean;
tiles of 64 rows were slower than predicted.
"""


def fitted_rows(problem: ProblemShape, gpu: Gpu) -> Iterator[Row]:
    """Yield rows for `problem`, swapped and not, each once; none for a batch, whose results run one by one."""
    sized = (_sized_row(problem, gpu, *each) for each in product((False, True), WARPGROUPS_BY_ROWS, CLUSTERS_OF_SIZED))
    found = (_row(problem, gpu, *each) for each in product((False, True), WARPGROUPS_BY_ROWS, CLUSTERS, WAVES))
    if problem.batch == 1:
        # Of two rows for one kernel, keep the one with the corrections of its size.
        rows = {(row.cta, row.cluster, row.swap): row for row in (*found, *sized) if row is not None}
        yield from rows.values()


def _sized_row(problem: ProblemShape, gpu: Gpu, swap: bool, m: int, cluster: Extents) -> Row | None:
    """Return the row that fills the GPU once, as narrow as an instruction can be, with the corrections of its size."""
    n = _columns(problem, gpu, swap, m, cluster, 1, COLUMNS)
    if n is None or n < NARROWEST_SIZED or not is_sized((m, n), problem) or not _has_room((m, n)):
        return None
    return of_size(Row((m, n, K_TILE), (WARPGROUPS_BY_ROWS[m], 1), COOPERATIVE, cluster, swap))


def _row(problem: ProblemShape, gpu: Gpu, swap: bool, m: int, cluster: Extents, waves: int) -> Row | None:
    if cluster[0] * cluster[1] > PAIR and waves not in WAVES_OF_LARGE_CLUSTERS:
        return None
    step = max(COLUMNS if swap else COLUMNS_OF_SECTORS, COLUMNS * cluster[0])
    n = _columns(problem, gpu, swap, m, cluster, waves, step)
    if n is None or n < NARROWEST or not _has_room((m, n)):
        return None
    return Row((m, n, K_TILE), (WARPGROUPS_BY_ROWS[m], 1), COOPERATIVE, cluster, swap, 1, CORRECTIONS[m])


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
