"""Groups of uneven sizes, as a performance model sees them: the work of the busiest CTA over that of even groups.

Routers spread rows unevenly, and a group's last tile costs a whole one. So kernels of packed groups are chosen by the
mean of their times over the named distributions, which is also the time that their plans predict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from cutegen.contract.distributions import Distribution
from cutegen.contract.groups import Groups
from cutegen.contract.problem import ProblemShape
from cutegen.plan.values.predicted_time import TimesOfSizes

Block = tuple[int, int, int]
"""Rows and columns of C that the CTAs of a cluster compute together, and K of a k-tile."""

WIDEST_ROWS, WIDER = 192, 1.15
"""Factor on the time of a tile of warpgroups with more rows of packed groups than that (docs/grouped.md).

On an H200 three products of 8 to 128 experts took 0.91 to 1.15 times as long as predicted with 256 rows, and 0.80 to
1.03 with 112 to 192.
"""
SHORT_PARTS, SHORT, IN_TURN = 8, 0.87, 0.95
"""Factors on the time of parts of K of at most that many k-tiles on average, and of ping-pong for parts of any length.

The model counts whole k-tiles; kernels skip the k-blocks past a part's end. In ping-pong one warpgroup stores while the
other multiplies. On an H200 22 kernels, with four k-tiles and with sixteen, took 0.84 to 1.01 times as long as
predicted with these, those of the lowest predictions 0.96 to 1.01 (docs/grouped.md).
"""


def factor_of_groups(groups: Groups, block: Block, mean: ProblemShape, *, in_turn: bool) -> float:
    """Return the factor on the predicted time of warpgroups for even groups, each like `mean`.

    >>> factor_of_groups(Groups("m"), (256, 128, 64), ProblemShape(256, 1536, 2048, 128), in_turn=False)
    1.15
    >>> factor_of_groups(Groups("k"), (128, 192, 64), ProblemShape(1536, 2048, 1024, 8), in_turn=True)
    0.95
    """
    if groups.of == "k":
        return (IN_TURN if in_turn else 1.0) * (SHORT if mean.k <= SHORT_PARTS * block[2] else 1.0)
    return WIDER if block["mn".index(groups.of)] > WIDEST_ROWS else 1.0


@dataclass(frozen=True, slots=True)
class WorkOfSizes:
    """The work of the busiest CTA for sizes of packed groups, over that for even groups: a batch like `mean`.

    `clusters` of CTAs run at once, each of which computes a `block`.
    """

    groups: Groups
    block: Block
    mean: ProblemShape
    clusters: int

    def of(self, sizes: Sequence[int]) -> float:
        """Return the k-tiles of the busiest CTA for these sizes, over those for even groups.

        >>> of_rows = WorkOfSizes(Groups("m"), (64, 64, 32), ProblemShape(64, 64, 32, 2), 1)
        >>> of_rows.of((64, 64)), of_rows.of((65, 63))
        (1.0, 1.5)
        """
        number, each = self.mean.batch, self.mean.extents[self.groups.of]
        packed = replace(self.mean, batch=1, groups=number, **{self.groups.of: each * number})
        busiest = partial(busiest_k_tiles, self.groups, self.block, packed, clusters=self.clusters)
        return busiest(sizes) / busiest((each,) * number)

    def named(self) -> Mapping[Distribution, float]:
        """Return those of the distributions of the same rows."""
        number, each = self.mean.batch, self.mean.extents[self.groups.of]
        return {name: self.of(_sizes(name, each * number, number)) for name in Distribution}


def times_of_sizes(work: WorkOfSizes, us_of_work: Callable[[float], float]) -> TimesOfSizes:
    """Return the times of a kernel over sizes, from its time for so many times the work for even groups."""
    named = tuple((name, us_of_work(factor)) for name, factor in work.named().items())
    return TimesOfSizes(named, partial(_us_of_sizes, work, us_of_work))


def _us_of_sizes(work: WorkOfSizes, us_of_work: Callable[[float], float], sizes: Sequence[int]) -> float:
    return us_of_work(work.of(sizes))


@lru_cache(maxsize=64)
def _sizes(distribution: Distribution, extent: int, groups: int) -> tuple[int, ...]:
    return distribution.sizes(extent, groups)


def busiest_k_tiles(groups: Groups, block: Block, problem: ProblemShape, sizes: Sequence[int], clusters: int) -> int:
    """Return the k-tiles of the CTA that has most: each of the `clusters` has every so many-th block of all groups.

    A block without K is one k-tile of zeros.

    >>> busiest_k_tiles(Groups("m"), (64, 64, 32), ProblemShape(130, 128, 96, groups=2), (65, 65), 3)
    9
    """
    places, (rows, columns, k_of_tile) = max(1, clusters), block
    extents = {mode: np.full(len(sizes), extent, np.int64) for mode, extent in problem.extents.items()}
    extents[groups.of] = np.asarray(sizes, np.int64)
    tiles = -(-extents["m"] // rows) * -(-extents["n"] // columns)
    k_tiles = np.maximum(1, -(-extents["k"] // k_of_tile))
    # Each group's tiles go round from the place after the last one's: all places have whole rounds, some one more.
    whole, rest = np.divmod(tiles, places)
    begin = (np.cumsum(tiles) - tiles) % places
    end = begin + rest
    steps = np.zeros(places + 1, np.int64)
    for first, last in ((begin, np.minimum(end, places)), (np.zeros_like(begin), np.maximum(end - places, 0))):
        np.add.at(steps, first, k_tiles)
        np.add.at(steps, last, -k_tiles)
    return int((whole * k_tiles).sum() + np.cumsum(steps)[:places].max())
