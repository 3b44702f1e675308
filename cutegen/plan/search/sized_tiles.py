"""Corrections for a tile that fills the GPU once and was not measured itself: by its rows, columns and cluster.

A measured tile has two corrections of its own. These are common to all tiles with the same rows, with an error of 7 to
8 % on average. They are fitted to 13,500 times on an H200: 247 products of 2^27.5 to 2^33.5 multiply-adds, up to 2^21.5
results and K of 512 or more, each with kernels whose N filled the GPU once or twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from cutegen.contract.problem import ProblemShape
from cutegen.hardware.units import SWIZZLE_ROWS
from cutegen.plan.search.warpgroup_tiles import Row

LEAST_K, TOO_LARGE = 512, 2**33
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
TORN_PARTS = 1.063
"""Factor on the whole time if parts of C are rows of half a sector."""
TORN_SHARES = 0.126
"""Added to the log of a k-tile's if a CTA's share of B does not begin at a period of the swizzle."""
CLUSTERED, ALONG_M, ALONG_N = 0.149, -0.096, -0.034
"""The same for a cluster, and per doubling of its CTAs."""
LOWEST_OF_MANY = 1.06
"""Factor on the whole time: the lowest of many estimates is more likely too low."""


def is_sized(cta: tuple[int, ...], problem: ProblemShape) -> bool:
    """Return whether the corrections are fitted to such tiles and problems."""
    of_rows = OF_ROWS.get(cta[0])
    within = problem.k >= LEAST_K and problem.m * problem.n * problem.k < TOO_LARGE
    return within and of_rows is not None and cta[1] <= of_rows.widest


def of_size(row: Row) -> Row:
    """Return the row with the corrections of tiles of its size."""
    (m, n, _), (ctas_m, ctas_n, _) = row.cta, row.cluster
    of_rows = OF_ROWS[m]
    k_tile = sum(factor * (n / 128) ** power for power, factor in enumerate(of_rows.k_tile))
    if n % (SWIZZLE_ROWS * ctas_m):
        k_tile += TORN_SHARES
    if ctas_m * ctas_n > 1:
        k_tile += CLUSTERED + ALONG_M * math.log2(ctas_m) + ALONG_N * math.log2(ctas_n)
    torn = TORN_PARTS if n % SECTOR_COLUMNS and not row.swap else 1.0
    return replace(row, correction=math.exp(k_tile), overall=of_rows.whole * torn * LOWEST_OF_MANY)
