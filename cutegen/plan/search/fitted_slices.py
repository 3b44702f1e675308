"""Slices of K whose number follows from the problem: as many as let a few tiles fill the GPU.

A dozen tiles leave SMs idle, and tiles small enough to avoid that load many bytes per multiply-add. Slices of larger
tiles add the cost of sums in a workspace, which a long K repays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import Gpu
from cutegen.plan import swapped
from cutegen.plan.rules.cluster import ALONE
from cutegen.plan.rules.consumers import COOPERATIVE
from cutegen.plan.search.fitted_tiles import K_TILE, WARPGROUPS_BY_ROWS
from cutegen.plan.search.warpgroup_tiles import Row, as_nearest
from cutegen.spec.values import MOST_SLICES

SHORTEST = 256
"""Least K of a slice: for none of 66 problems measured with less was that the fastest."""
SLICES_HANDICAP = 1.03
"""Factor on the whole time. Of 47 problems drawn for it on an H100, those for which slices are predicted to win by no
more than this take up to 1.15 times as long with slices, the others 0.62 to 1.07 times.
"""
COLUMNS: Mapping[int, tuple[int, ...]] = {
    64: (8, 16, 32, 48, 64, 80, 96, 112, 128, 160, 192),
    128: (32, 48, 64, 80, 96, 112, 128, 160, 192),
    192: (80, 96, 112, 128, 160),
}
"""Columns by the rows of a tile, as measured with slices."""
NARROW, NARROW_K_TILE = 16, 256
"""Tiles with this few columns have long k-tiles, and are for problems with few columns that fill a tile's rows: on
other problems an H100 took 1.07 to 1.15 times as long as with wider tiles.
"""


def fitted_slices(problem: ProblemShape, gpu: Gpu) -> Iterator[Row]:
    """Yield tiles of which two or more slices fit the GPU at once: in as many slices as fit, and in 3/4 of that.

    They have the corrections of the tile with an unsplit K: the model counts the cost of slices.
    """
    for swap, m in product((False, True), COLUMNS):
        multiplied = swapped.shape_multiplied(problem) if swap else problem
        for n in COLUMNS[m]:
            if n <= NARROW and (multiplied.m < m or multiplied.n > 2 * NARROW):
                continue
            tiles = -(-multiplied.m // m) * -(-multiplied.n // n) * problem.batch
            most = min(gpu.sms // tiles, problem.k // SHORTEST, MOST_SLICES)
            for slices in sorted({most, most * 3 // 4}):
                if slices > 1:
                    cta = m, n, NARROW_K_TILE if n <= NARROW else K_TILE
                    yield in_slices(Row(cta, (WARPGROUPS_BY_ROWS[m], 1), COOPERATIVE, ALONE, swap), slices)


def in_slices(whole: Row, slices: int) -> Row:
    """Return the tile in `slices` through a workspace; corrections are those of the nearest tile with an unsplit K."""
    row = as_nearest(whole)
    return replace(row, slices=slices, overall=row.overall * SLICES_HANDICAP)
