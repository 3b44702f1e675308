"""Compares tile orders by their reads from device memory, with a model of an LRU L2 cache.

CTAs run in waves, as many at a time as the GPU holds. The CTAs of a wave advance along K together, so a row of tiles of
A (or B) that several of them need is read from device memory once. The cache keeps the rows read last, up to its size,
for the next wave.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cutegen.contract.problem import ProblemShape
from cutegen.plan.kernel.scheduler import TileOrder, Tiles

GROUPS = (1, 2, 4, 8, 16, 32)
MOST_WAVES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TileGrid:
    """The tiles of a problem: their number along M and N, and the bytes of A and of B that one row of tiles needs."""

    tiles_m: int
    tiles_n: int
    bytes_a: int
    bytes_b: int

    @classmethod
    def of(cls, problem: ProblemShape, tile: tuple[int, int], bytes_a: int, bytes_b: int) -> TileGrid:
        """Return the tiles of a problem, of M x N elements each."""
        return cls(tiles_m=-(-problem.m // tile[0]), tiles_n=-(-problem.n // tile[1]), bytes_a=bytes_a, bytes_b=bytes_b)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Reads of an order from device memory: the rows of A and B of one wave of CTAs, and the total bytes."""

    rows_a: int
    rows_b: int
    bytes: int


def traffic(order: TileOrder, grid: TileGrid, passes: int, ctas_at_once: int, l2_bytes: int) -> Traffic:
    """Return the cost of the order if all tiles are visited `passes` times, each time for other parts of A and B.

    For long launches only the first waves are simulated, and the result is scaled.
    """
    waves = -(-grid.tiles_m * grid.tiles_n // ctas_at_once)
    first = np.arange(min(grid.tiles_m * grid.tiles_n, MOST_WAVES * ctas_at_once))
    tile_m, tile_n = order.tiles((grid.tiles_m, grid.tiles_n), first)
    first_b = int(tile_m.max()) + 1
    sizes = np.repeat([grid.bytes_a, grid.bytes_b], [first_b, int(tile_n.max()) + 1])  # rows of A, then rows of B
    cache = _Cache(l2_bytes, sizes)
    read, most_a, most_b = 0, 0, 0
    for wave in range(min(waves, MOST_WAVES)):
        part = slice(wave * ctas_at_once, (wave + 1) * ctas_at_once)
        rows_a, rows_b = set(tile_m[part].tolist()), set(tile_n[part].tolist())
        most_a, most_b = max(most_a, len(rows_a)), max(most_b, len(rows_b))
        read += cache.read(np.array([*rows_a, *(first_b + row for row in rows_b)]))
    return Traffic(rows_a=most_a, rows_b=most_b, bytes=passes * read * waves // min(waves, MOST_WAVES))


class _Cache:
    """An LRU cache of whole rows of tiles; after a wave larger than the cache it is empty.

    `sizes` are the bytes of each row. Each use of a row has a number: `_used` has the last one of each row that is
    held, and -1 for the others.
    """

    def __init__(self, size_bytes: int, sizes: Tiles) -> None:
        self._size_bytes, self._sizes = size_bytes, sizes
        self._used = np.full(len(sizes), -1)
        self._waves: deque[tuple[int, Tiles]] = deque()  # the number of the first use, and the rows
        self._uses, self._held_bytes = 0, 0

    def read(self, rows: Tiles) -> int:
        """Return the bytes that one wave's rows load."""
        sizes = self._sizes[rows]
        missing = int(sizes[self._used[rows] < 0].sum())
        if sizes.sum() > self._size_bytes:
            self._used[:], self._held_bytes = -1, 0
            self._waves.clear()
            return missing
        self._used[rows] = self._uses + np.arange(len(rows))
        self._waves.append((self._uses, rows))
        self._uses += len(rows)
        self._held_bytes += missing
        while self._held_bytes > self._size_bytes:
            self._forget(self._held_bytes - self._size_bytes)
        return missing

    def _forget(self, excess_bytes: int) -> None:
        """Evict the oldest wave's rows that were not used since, until so much is free."""
        first, rows = self._waves[0]
        held = rows[self._used[rows] == first + np.arange(len(rows))]
        freed = np.cumsum(self._sizes[held])
        count = int(np.searchsorted(freed, excess_bytes)) + 1
        if count >= len(held):
            self._waves.popleft()
        self._used[held[:count]] = -1
        self._held_bytes -= int(self._sizes[held[:count]].sum())


def orders(along: str | None, group: int | None, zigzag: bool | None, default: TileOrder) -> Iterator[TileOrder]:
    """Return the orders that agree with the given keys, the default first."""
    yield default
    for mode in (along,) if along else ("n", "m"):
        for width in (group,) if group else GROUPS:
            for back in (zigzag,) if zigzag is not None else (False, True):
                if (found := TileOrder(mode, width, back)) != default:
                    yield found
