"""Slices of K whose number follows the problem: as many as let a few tiles fill the GPU.

A dozen tiles leave multiprocessors idle, and tiles so small that they do not bring in many bytes for each multiply-add.
Slices of larger tiles cost the sums that CTAs leave in a workspace and add together, which K soon pays for.
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
"""K of a slice at least: of 66 problems that were measured with less none was fastest so."""
DOUBTED = 1.03
"""Of the whole. Of 47 problems drawn for it on an H100 those where a number of slices is ahead by no more take up to
1.15 times as long so, those where it is further ahead 0.62 to 1.07 times."""
COLUMNS: Mapping[int, tuple[int, ...]] = {
    64: (8, 16, 32, 48, 64, 80, 96, 112, 128, 160, 192),
    128: (32, 48, 64, 80, 96, 112, 128, 160, 192),
    192: (80, 96, 112, 128, 160),
}
"""Of tiles of so many rows, as they were measured in slices."""
NARROW, NARROW_K_TILE = 16, 256
"""So few columns have long k-tiles, and are for problems that have few themselves and fill a tile's rows: on others an
H100 took 1.07 to 1.15 times as long by them as by wider tiles."""


def fitted_slices(problem: ProblemShape, gpu: Gpu) -> Iterator[Row]:
    """Tiles of which two or more slices fit the GPU at once, in as many as do and in three quarters of that.

    They have the corrections of the tile with K whole: what slices cost the model counts.
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
    """The tile in `slices` through a workspace, with the corrections that it or the nearest has with K whole."""
    row = as_nearest(whole)
    return replace(row, slices=slices, overall=row.overall * DOUBTED)
