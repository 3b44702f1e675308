"""Groups of uneven sizes, as a performance model sees them: the work of the busiest CTA over that of even groups.

Routers spread rows unevenly, and a group's last tile costs a whole one. So kernels of packed groups are chosen by the
mean of their times over the named distributions, which is also the time that their plans predict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from cutegen.contract.distributions import Distribution
from cutegen.contract.groups import Groups
from cutegen.contract.problem import ProblemShape

Block = tuple[int, int, int]
"""Rows and columns of C that the CTAs of a cluster compute together, and K of a k-tile."""


def work_of_sizes(groups: Groups, block: Block, mean: ProblemShape, clusters: int) -> Mapping[Distribution, float]:
    """Return the k-tiles of the busiest CTA for each distribution, over those for even groups: a batch like `mean`.

    `clusters` of CTAs run at once. Nothing for padded groups, which have no rows to share out.
    """
    if groups.layout == "padded":
        return {}
    number, each = mean.batch, mean.extents[groups.of]
    packed = replace(mean, batch=1, groups=number, **{groups.of: each * number})
    even = busiest_k_tiles(groups, block, packed, (each,) * number, clusters)
    return {
        name: busiest_k_tiles(groups, block, packed, _sizes(name, each * number, number), clusters) / even
        for name in Distribution
    }


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
