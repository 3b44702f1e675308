"""The accumulators: the elements of C that each thread holds, and how many of them are contiguous in memory."""

from __future__ import annotations

from collections.abc import Callable

from cutegen.algebra import Layout, LayoutExpr, OperandName, TiledMma, inner_layout, modes, offsets_2d, size
from cutegen.plan.geometry.access import Coordinates, joined_of, over_tile

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


def sums_of_tile(tiled_mma: TiledMma, tile: tuple[int, int]) -> Coordinates:
    """Return the coordinates in C's tile of each thread's sums, int64[thread, value], in the order of tCrC."""
    return shares_of_threads(tiled_mma, "C", tile)[0]


def place_of_sum(tiled_mma: TiledMma, tile: tuple[int, int], value: int) -> tuple[int, int, int]:
    """Return (MMA, MMA_M, MMA_N) of a value of tCrC."""
    return place_of_value(shares_of_threads(tiled_mma, "C", tile)[1], value)


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
