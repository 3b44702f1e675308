"""The tile scheduler: which tile of C, and which part of its K, a CTA computes next.

A kernel takes its tiles from it, a launch is as large as it says, and an element's tile is looked up in it. It has four
parts: the order of the tiles, where a CTA's next tile comes from, the products whose tiles they are (one, a batch, or
groups whose sizes only the device knows), and the slices of K. `TileScheduler.work` is the reference of what generated
kernels compute: proofs, counts and views use it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from cutegen.algebra import Extents
from cutegen.contract.problem import Groups, ProblemShape, Product, from_vector
from cutegen.hardware import DType

Tiles = npt.NDArray[np.int64]
Grid = tuple[int, int]
"""Numbers of tiles along M and N."""

SUM_BYTES = 4
"""Bytes of a sum of a slice of K: f32, or s32 for integers."""
SUM_VECTOR_ELEMS = 4
"""Sums that a thread stores to the workspace, or loads from it, at once."""


@dataclass(frozen=True, slots=True)
class TileOrder:
    """The order of the tiles of one product: bands of `group` tiles `along` one mode, each swept over the other mode.

    With `zigzag` every second band is swept backwards.

        along = "n", group = 2       n 0 1 2
                                   m 0 0 1 4
                                     1 2 3 5
    """

    along: str
    group: int
    zigzag: bool

    def tile(self, number: int, grid: Grid) -> tuple[int, int]:
        """Return (tile_m, tile_n) of the tile with this number.

        >>> [TileOrder("n", 2, True).tile(number, (2, 3)) for number in range(6)]
        [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (0, 2)]
        """
        tile_m, tile_n = self.tiles(grid, np.array([number]))
        return int(tile_m[0]), int(tile_n[0])

    def tiles(self, grid: Grid, numbers: Tiles | None = None) -> tuple[Tiles, Tiles]:
        """Return (tile_m, tile_n) of the tiles with these numbers, of all by default, as generated kernels compute it.

        >>> tile_m, tile_n = TileOrder("m", 1, False).tiles((2, 3))
        >>> tile_m.tolist(), tile_n.tolist()
        ([0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2])
        """
        swept, across = grid if self.along == "n" else grid[::-1]
        numbers = np.arange(swept * across) if numbers is None else numbers
        band, within = numbers // (self.group * swept), numbers % (self.group * swept)
        width = np.minimum(across - band * self.group, self.group)
        sweep, step = within // width, band * self.group + within % width
        if self.zigzag:
            sweep = np.where(band % 2 == 1, swept - 1 - sweep, sweep)
        return (sweep, step) if self.along == "n" else (step, sweep)

    def number(self, tile: tuple[int, int], grid: Grid) -> int:
        """Return the number of a tile: the inverse of `tile`.

        >>> TileOrder("n", 2, True).number((0, 2), (2, 3))
        5
        """
        (sweep, step), (swept, across) = (tile, grid) if self.along == "n" else (tile[::-1], grid[::-1])
        band, within = divmod(step, self.group)
        if self.zigzag and band % 2:
            sweep = swept - 1 - sweep
        return band * self.group * swept + sweep * min(across - band * self.group, self.group) + within


@dataclass(frozen=True, slots=True)
class TileSource:
    """The origin of a CTA's next tile.

    If it `loops`, a CTA computes one tile after another, and a launch has as many CTAs as the GPU holds at once;
    otherwise a CTA's place in the grid is its only tile. If it also `takes_over`, a launch has a CTA for each tile, and
    those that run cancel others that have not started, and compute their tiles. `template` has the device functions and
    the host's grid, and `opcodes` are the planned kinds of instructions among them, such as loads of sizes, as often as
    the text has them. If tiles are `searched`, no role knows its first tile before it has loaded sizes.
    """

    loops: bool
    template: str
    opcodes: tuple[tuple[str, int], ...] = ()
    searched: bool = False
    takes_over: bool = False

    @property
    def fills_gpu(self) -> bool:
        """True if a launch has as many CTAs as the GPU holds at once."""
        return self.loops and not self.takes_over


GRID = TileSource(loops=False, template="schedulers/grid.py.j2")
"""One CTA per tile: blockIdx.x is its number."""
GROUPED = TileSource(loops=True, template="schedulers/groups.py.j2", opcodes=(("ld.global.b32", 1),))
"""Persistent CTAs: each computes every so many-th tile of all groups, whose ends or sizes it loads."""
SEARCHED = TileSource(
    loops=True, template="schedulers/groups_of_roles.py.j2", opcodes=(("ld.global.b32", 3),), searched=True
)
"""The same if a warp copies and others multiply: each finds its tiles, its first one and later the next."""
TAKEN_OVER = TileSource(loops=True, template="schedulers/taken_over.py.j2", takes_over=True)
"""A CTA for each tile; those that run take over the tiles of those that have not started (cluster launch control)."""
STATIC = TileSource(loops=True, template="schedulers/static.py.j2")
"""Persistent CTAs: each computes every so many-th tile, from its own number on."""


@dataclass(frozen=True, slots=True)
class SplitK:
    """K in `slices`, one per CTA, whose sums are added in a workspace, stored as `dtype`.

    The last of a tile's CTAs adds them, or if `shared`, every CTA that can wait for the others adds a part. `in_flight`
    of the slices are loaded before the first of them is added. With `atomics` there is no workspace: each CTA adds its
    sums to C. If the CTAs of a cluster have `clustered` slices of a tile, each first adds its share of them in shared
    memory, and the workspace holds the sums of `partials` clusters, share by share.
    """

    slices: int
    dtype: DType
    in_flight: int
    atomics: bool = False
    clustered: int = 1
    shared: bool = False

    @property
    def partials(self) -> int:
        """Number of sums of a share of a tile, or of a whole tile, in the workspace; 1 if a cluster has all."""
        return self.slices // self.clustered

    @property
    def leaves_sums(self) -> bool:
        """True if the workspace is used."""
        return not self.atomics and self.partials > 1

    def sums_bytes(self, cta_tile: Extents) -> int:
        """Return the sums of a whole tile, even at an edge of C."""
        return cta_tile[0] * cta_tile[1] * self.dtype.bytes

    def slice_bytes(self, cta_tile: Extents) -> int:
        """Return the bytes that a slice's CTA writes to the workspace: of the tile, or of its share if clusters add."""
        return self.sums_bytes(cta_tile) // self.clustered if self.leaves_sums else 0

    def far_bytes(self, cta_tile: Extents) -> int:
        """Return the bytes that a CTA reads from its cluster's other CTAs: its share of their sums."""
        return self.sums_bytes(cta_tile) // self.clustered * (self.clustered - 1)


def k_tiles_of(index: int, slices: int, k_tiles: int) -> range:
    """Return the k-tiles of a slice of K: all slices have the same number, or the first ones have one more.

    >>> [k_tiles_of(index, 2, 5) for index in range(2)]
    [range(0, 3), range(3, 5)]
    """
    each, left_over = divmod(k_tiles, slices)
    first = index * each + min(index, left_over)
    return range(first, first + each + (index < left_over))


def slice_of(k_tile: int, slices: int, k_tiles: int) -> int:
    """Return the slice of K that has a k-tile.

    >>> [slice_of(k_tile, 2, 5) for k_tile in range(5)]
    [0, 0, 0, 1, 1]
    """
    return next(index for index in range(slices) if k_tile in k_tiles_of(index, slices, k_tiles))


@dataclass(frozen=True, slots=True)
class WorkTile:
    """A CTA's next work: a tile of C by its numbers along M and N, of one product, and a slice of its K."""

    m: int
    n: int
    product: int = 0
    slice: int = 0


class Tiled(Protocol):
    """The MMA as a scheduler sees it: its CTAs compute a tile each, and its clusters several."""

    @property
    def cta_tile(self) -> Extents:
        """M, N and K of a k-tile."""

    @property
    def cluster(self) -> Extents:
        """CTAs that compute as many tiles along M and N together, and slices along K."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TileScheduler:
    """Gives CTAs their tiles: the tiles of a product in `order`, product after product, each in slices of K.

    How large they are, and how many CTAs take them together, is told by the MMA that computes them. Without `groups`, a
    batch's products are along `grid.z`. With `spread`, a launch for at most half of the GPU has twice as many CTAs, of
    which every second one has no tile. An SM has `resident` persistent CTAs. The tiles of a group of rows, or columns,
    begin at a multiple of `vector` elements: what the first one has before the group is not stored.
    """

    order: TileOrder
    source: TileSource
    split_k: SplitK | None = None
    spread: bool = False
    groups: Groups | None = None
    resident: int = 1
    vector: int = 1

    @property
    def cuts_k(self) -> bool:
        """True if groups have parts of K: their last k-tiles may hold more than they have."""
        return self.groups is not None and self.groups.of == "k"

    @property
    def slices(self) -> int:
        """CTAs that compute a tile, each for its own part of K: 1 without split-K."""
        return self.split_k.slices if self.split_k else 1

    @property
    def ctas_per_multiprocessor(self) -> int | None:
        """Persistent CTAs of an SM; None if a CTA computes a single tile."""
        return self.resident if self.source.fills_gpu else None

    def grid(self, mma: Tiled, rows: int, columns: int) -> Grid:
        """Return the numbers of tiles of a product along M and N, or of blocks of a cluster's tiles."""
        (tile_m, tile_n, _), (m, n, _) = mma.cta_tile, mma.cluster
        return -(-rows // (tile_m * m)), -(-columns // (tile_n * n))

    def products(self, problem: ProblemShape, given: Sequence[int] = ()) -> tuple[Product, ...]:
        """Return the products whose tiles are numbered together; `given` are the ends or sizes of groups.

        A group is returned with what its first tile has before it.
        """
        if (groups := self.groups) is not None:
            parts, of = groups.products(given, problem), groups.of
            return tuple(replace(part, **{of: from_vector(getattr(part, of), self.vector)}) for part in parts)
        return (Product(m=range(problem.m), n=range(problem.n), k=range(problem.k)),)

    def work(
        self,
        mma: Tiled,
        cta: tuple[int, int, int],
        grid: tuple[int, int, int],
        problem: ProblemShape,
        given: Sequence[int] = (),
    ) -> Iterator[WorkTile]:
        """Yield the tiles of one CTA of a launch's grid, in its order, as generated kernels compute them.

        `given` are the ends or sizes of groups. Clusters are complete, so tiles may lie past the edges of C. A tile
        that another CTA may take over is yielded for its own CTA.
        """
        (m, n, _), (x, y, batch) = mma.cluster, cta
        rank_m, rank_n = x % m, 0 if self.split_k else y % n
        first, step = x // m, grid[0] // m
        grids = [self.grid(mma, len(product.m), len(product.n)) for product in self.products(problem, given)]
        counts = [tiles_m * tiles_n for tiles_m, tiles_n in grids]
        total = sum(counts)
        if self.spread and step > total:  # of two CTAs on one TPC the second exits
            if first % 2:
                return
            first, step = first // 2, -(-step // 2)
        for number in range(first, total, step) if self.source.fills_gpu else range(first, total)[:1]:
            product, within = _located(number, counts)
            tile_m, tile_n = self.order.tile(within, grids[product])
            where = product if self.groups else batch
            yield WorkTile(tile_m * m + rank_m, tile_n * n + rank_n, where, y if self.split_k else 0)


def _located(number: int, counts: Sequence[int]) -> tuple[int, int]:
    """Return (product, number within it) of a tile that is numbered over all products."""
    for product, count in enumerate(counts):
        if number < count:
            return product, number
        number -= count
    raise IndexError("no such tile")
