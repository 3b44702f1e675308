"""Tables of the tile elements that each thread of each instruction accesses, and the accumulators it holds."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from cutegen.algebra import Layout, LayoutExpr, OperandName, TiledMma, inner_layout, modes, offsets, offsets_2d, size
from cutegen.hardware.units import SECTOR_BYTES, WARP
from cutegen.support.words import round_up

# Tables of the tile elements that each thread of each instruction accesses: for rankings, predictions and proofs.


Coordinates = NDArray[np.int64]
MOST_ACCESS_BITS = 128


def over_tile(within: Coordinates, tiler: tuple[int, int], tile: tuple[int, int]) -> Coordinates:
    """Return column-major coordinates of a (thread, value) table for every repetition of `tiler` in `tile`.

    int64[thread, value] with coordinates in `tiler` becomes int64[instruction, thread, value] in `tile`.
    """
    first = within % tiler[0] + within // tiler[0] * tile[0]  # in the tile, for the first repetition
    starts = np.arange(0, tile[1], tiler[1])[:, None] * tile[0] + np.arange(0, tile[0], tiler[0])
    return starts.reshape(-1, 1, 1) + first


def vectors(threads: LayoutExpr, values: LayoutExpr, tile: tuple[int, int]) -> Coordinates:
    """Return the elements of a vector copy, int64[instruction, thread, element of the vector].

    `threads` maps a position in the thread grid to a thread and `values` has the vector along one mode, as in CuTe's
    make_tiled_copy.
    """
    grid, vector = offsets_2d(threads), offsets_2d(values)
    tiler = (grid.shape[0] * vector.shape[0], grid.shape[1] * vector.shape[1])
    within = np.empty((grid.size, vector.size), np.int64)
    gx, gy, vx, vy = np.ix_(*map(np.arange, (*grid.shape, *vector.shape)))
    coordinate = (gx * vector.shape[0] + vx) + (gy * vector.shape[1] + vy) * tiler[0]
    within[grid[:, :, None, None], vector] = coordinate
    return over_tile(within, tiler, tile)


def joined(
    threads: LayoutExpr, values: LayoutExpr, layout: LayoutExpr, tile: tuple[int, int], element_bits: int
) -> tuple[Coordinates, tuple[int, ...]]:
    """Return a thread's accesses to shared memory if adjacent vectors of a copy are merged.

    int64[access, thread], the coordinate of the first element of each, and the elements of each access. Two, four or
    more vectors, up to 16 bytes, are merged if they are contiguous and aligned to their total size. They must be the
    same vectors in the same order for every thread, since one instruction names their registers.
    """
    table = vectors(threads, values, tile)
    return joined_of(table[..., 0], table.shape[2], layout, element_bits)


def joined_of(
    coordinates: Coordinates, vector: int, layout: LayoutExpr, element_bits: int
) -> tuple[Coordinates, tuple[int, ...]]:
    """Return the same for any vectors of `vector` elements that begin at `coordinates` [instruction, thread]."""
    found = joined_vectors(coordinates, vector, layout, element_bits)
    return coordinates[[each[0] for each in found]], tuple(len(each) * vector for each in found)


def joined_vectors(
    coordinates: Coordinates, vector: int, layout: LayoutExpr, element_bits: int
) -> tuple[tuple[int, ...], ...]:
    """Return for each access the vectors that it moves: numbers of a thread's vectors, in the order of their places."""
    placed = offsets(layout)[coordinates]
    in_order = np.argsort(placed[:, 0])
    first = placed[in_order].T  # [thread, vector], ascending for the first thread
    joins = _joins(first, vector, MOST_ACCESS_BITS // element_bits)
    found: list[tuple[int, ...]] = []
    at = 0
    while at < first.shape[1]:
        count = next((length for length, begins in joins if at in begins), vector) // vector
        found.append(tuple(in_order[at : at + count].tolist()))
        at += count
    return tuple(found)


def _joins(first: Coordinates, vector: int, most: int) -> list[tuple[int, set[int]]]:
    """Return, for each length above a vector, the longest first, the accesses at which one of that length can begin.

    `first` [thread, access] holds the beginnings of accesses: those of each thread are contiguous and aligned.
    """
    follows = (np.diff(first, axis=1) == vector).all(axis=0)  # [access]: the next one follows it
    found = []
    length = most
    while length > vector:
        parts = length // vector
        count = max(0, first.shape[1] - parts + 1)
        begins = (first[:, :count] % length == 0).all(axis=0)
        for step in range(parts - 1):
            begins = begins & follows[step : step + count]
        found.append((length, set(np.flatnonzero(begins).tolist())))
        length //= 2
    return found


def fragment_loads(
    tiled_mma: TiledMma, operand: OperandName, tile: tuple[int, int], vector_elems: int, along_mode: int = 1
) -> Coordinates:
    """Return the elements of plain fragment loads, int64[instruction, thread, element], in the MMA's order.

    If the MMA's values are fewer than a vector, it continues along K, or along mode 0 for threads with neighbors
    there.
    """
    table = over_tile(offsets_2d(tiled_mma.tv_layout(operand)), tiled_mma.tile_of(operand), tile)
    if along_mode == 0:  # table [instruction, thread, 1], the next row first
        return table.reshape(-1, vector_elems, table.shape[1]).transpose(0, 2, 1)
    if table.shape[2] < vector_elems:
        columns = table.reshape(tile[1] // vector_elems, vector_elems, -1, table.shape[1])
        return columns.transpose(0, 2, 3, 1).reshape(-1, table.shape[1], vector_elems)
    split = table.reshape(table.shape[0], table.shape[1], -1, vector_elems)
    return split.transpose(0, 2, 1, 3).reshape(-1, table.shape[1], vector_elems)


def by_warp(table: Coordinates) -> Coordinates:
    """int64[instruction, thread, ...] as int64[instruction, warp, lane, ...]."""
    return table.reshape(table.shape[0], -1, WARP, *table.shape[2:])


def touched_sectors(table: Coordinates, tile: tuple[int, int], major_mode: int, element_bytes: int) -> int:
    """Return the sum of distinct sectors per warp request; rows of the tile are far apart in global memory.

    `table` holds int64[instruction, thread, element], column-major coordinates in the tile.
    """
    major, other = along_and_across(table, tile, major_mode)
    per_row = round_up(tile[major_mode] * element_bytes, SECTOR_BYTES) // SECTOR_BYTES
    sector = other * per_row + major * element_bytes // SECTOR_BYTES
    requests = np.sort(by_warp(sector).reshape(-1, WARP * sector.shape[-1]), axis=1)
    return len(requests) + int((requests[:, 1:] != requests[:, :-1]).sum())


def along_and_across(table: Coordinates, tile: tuple[int, int], major_mode: int) -> tuple[Coordinates, Coordinates]:
    """Return coordinates along the contiguous mode of a tile, and along the other."""
    x, y = table % tile[0], table // tile[0]
    return (y, x) if major_mode == 1 else (x, y)


def contiguity(layout: LayoutExpr, tile: tuple[int, int], major_mode: int) -> int:
    """Return the longest vector (16, 8, 4, 2 or 1 elements) that is contiguous and aligned along the major mode.

    >>> from cutegen.algebra import Layout
    >>> contiguity(Layout((8, 64), (68, 1)), (8, 64), 1)
    4
    """
    table = offsets(layout).reshape(tile[1], tile[0])
    rows = table.T if major_mode == 1 else table
    for elems in (16, 8, 4, 2):
        if rows.shape[1] % elems == 0:
            runs = rows.reshape(-1, elems)
            if (runs[:, 0] % elems == 0).all() and (runs == runs[:, :1] + np.arange(elems)).all():
                return elems
    return 1


# The accumulators: the elements of C that each thread holds, and how many of them are contiguous in memory.


PAIR_ELEMS = 2
Place = tuple[int, int, int]
"""The coordinate of a thread's value in (MMA, MMA_X, MMA_Y), or these extents."""


def held_together(tiled_mma: TiledMma, major_mode: int) -> int:
    """Return how many adjacent elements along C's contiguous mode a thread holds: two along N for mma.sync."""
    held = offsets_2d(tiled_mma.tv_layout("C"))[0]
    pairs = len(held) > 1 and held[1] - held[0] == tiled_mma.tile_mnk[0]
    return PAIR_ELEMS if major_mode == 1 and pairs else 1


def accumulators(tiled_mma: TiledMma, tile: tuple[int, int], vector_elems: int) -> Coordinates:
    """Return C's elements by thread, int64[instruction, thread, vector], in vectors of adjacent elements along N."""
    m, n, _ = tiled_mma.tile_mnk
    held = over_tile(offsets_2d(tiled_mma.tv_layout("C")), (m, n), tile)
    split = held.reshape(*held.shape[:2], -1, vector_elems)
    return split.transpose(0, 2, 1, 3).reshape(-1, held.shape[1], vector_elems)


def adjacent(sums: Coordinates, rows: int, most: int) -> int:
    """Return how many values that follow each other are adjacent along N for all threads: a power of two up to `most`.

    `sums` are those of each thread, coordinates in a tile of so many rows, int64[thread, value].

    >>> adjacent(np.array([[0, 64, 8, 72], [128, 192, 136, 200]]), 64, 8)
    2
    """
    elems = 1
    while 2 * elems <= most and sums.shape[1] % (2 * elems) == 0:
        vectors = in_vectors(sums, 2 * elems)
        if not (vectors == vectors[..., :1] + rows * np.arange(2 * elems)).all():
            break
        elems *= 2
    return elems


def in_vectors(sums: Coordinates, elems: int) -> Coordinates:
    """Return each thread's sums in vectors of values that follow each other, int64[instruction, thread, element]."""
    return sums.reshape(len(sums), -1, elems).transpose(1, 0, 2)


def sums_of_tile(tiled_mma: TiledMma, tile: tuple[int, int]) -> Coordinates:
    """Return the coordinates in C's tile of each thread's sums, int64[thread, value], in the order of tCrC."""
    return shares_of_threads(tiled_mma, "C", tile)[0]


def shares_of_threads(tiled_mma: TiledMma, operand: OperandName, tile: tuple[int, int]) -> tuple[Coordinates, Place]:
    """Return what each thread holds of a tile, column-major coordinates int64[thread, value], and (MMA, MMA_X, MMA_Y).

    Source: CUTLASS `cute/atom/mma_atom.hpp`, ThrMMA::partition_A and its like.
    """
    share = tiled_mma.partition(operand, Layout(tile), 0)
    first, rows = offsets_2d(tiled_mma.tv_layout(operand))[:, 0], tiled_mma.tile_of(operand)[0]
    # The tile is affine, so every thread's share is thread 0's, moved to its first value.
    starts = first % rows + first // rows * tile[0]
    values, along_x, along_y = (int(size(part)) for part in modes(inner_layout(share.layout)))
    return starts[:, None] + share.offsets(), (values, along_x, along_y)


def place_of_value(extents: Place, value: int) -> Place:
    """Return the coordinate of a value in `extents` (MMA, MMA_X, MMA_Y), first mode fastest."""
    rest, v = divmod(value, extents[0])
    y, x = divmod(rest, extents[1])
    return v, x, y


def written_together(
    held: Callable[[int], Coordinates], pair: int, layout: LayoutExpr, element_bits: int
) -> tuple[Coordinates, int]:
    """Return each thread's writes of its accumulators to C's tile in shared memory, as merged by the compiler.

    `held` are the accumulators in vectors of `pair` adjacent elements along N, or of any other number. The result is
    the first elements, int64[write, thread], and the elements per write, or per vector if writes differ.
    """
    alone = held(pair)[..., 0]
    first, lengths = joined_of(alone, pair, layout, element_bits)
    return (first, lengths[0]) if len(set(lengths)) == 1 else (alone, pair)
