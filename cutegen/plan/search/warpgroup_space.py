"""Candidates for tuning of warpgroup kernels: those that plans choose from, and many without a fitted time.

The performance model ranks all of them; those outside its fit are assumed to be slightly slower than predicted.
"""

from __future__ import annotations

from collections.abc import Iterator

from cutegen.algebra import Extents
from cutegen.hardware import dtype
from cutegen.hardware.units import WARPGROUP
from cutegen.plan.rules.cluster import ALONE
from cutegen.plan.rules.consumers import COOPERATIVE, PINGPONG
from cutegen.plan.rules.wgmma_sums import MOST_SUMS, sum_registers
from cutegen.plan.search.fitted_tiles import WARPGROUPS_BY_ROWS
from cutegen.plan.search.warpgroup_tiles import MEASURED, Row, each_kernel_once
from cutegen.spec.values import Consumers

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


def every_row() -> Iterator[Row]:
    """Yield those of the model first, then all other possible ones, each once."""
    yield from each_kernel_once((*MEASURED, *_unmeasured()))


def splits_of_given(row: Row) -> Iterator[Row]:
    """Yield the spec's own tile, with every number of slices, in a cluster and through a workspace."""
    yield row
    if row.cluster == ALONE and row.consumers == COOPERATIVE:
        yield from _split(row)


def _unmeasured() -> Iterator[Row]:
    for m, n in SIDES:
        for k in _depths(m, n):
            for consumers in (COOPERATIVE, PINGPONG):
                yield from _of_tile((m, n, k), consumers)


def _depths(m: int, n: int) -> tuple[int, ...]:
    """Return K of a tile: rows of shared memory are a line or more, and small tiles need fewer, longer k-tiles."""
    if n <= 16:
        return 128, 256
    return (64, 128) if m * n <= 128 * 64 else (64,)


def _of_tile(cta: Extents, consumers: Consumers) -> Iterator[Row]:
    warpgroups = (1, 1) if consumers == PINGPONG else (WARPGROUPS_BY_ROWS[cta[0]], 1)
    threads = WARPGROUP * warpgroups[0] * warpgroups[1]
    if sum_registers(cta[:2], dtype("f32"), threads) > MOST_SUMS or (consumers == PINGPONG and cta[0] * cta[1] < 4096):
        return
    for swap in (False, True):
        for cluster in SHARING:
            yield Row(cta, warpgroups, consumers, cluster, swap, 1, NEVER_MEASURED)
        if consumers == COOPERATIVE:
            yield from _split(Row(cta, warpgroups, consumers, ALONE, swap, 1, NEVER_MEASURED))


def _split(row: Row) -> Iterator[Row]:
    if row.cta[0] * row.cta[1] > LARGEST_SPLIT:
        return
    for slices in SPLITS:
        yield Row(row.cta, row.warpgroups, row.consumers, ALONE, row.swap, slices, row.correction)
    for slices in CLUSTERED_SPLITS:
        yield Row(row.cta, row.warpgroups, row.consumers, (1, 1, slices), row.swap, slices, row.correction)
