"""The part of a matrix that a tile has: which element of global memory each element of the tile is."""

from dataclasses import dataclass, replace

import numpy as np

from cutegen.contract.problem import Pairs
from cutegen.plan.geometry import Coordinates

TwoModes = tuple[Coordinates, Coordinates]


@dataclass(frozen=True, slots=True)
class Window:
    """A tile by its numbers along both modes, and the matrix's coordinates of its rows and columns.

    The followed element is at `within` of the tile. Coordinates may lie past the edges of the matrix.
    """

    tile: tuple[int, int]
    within: tuple[int, int]
    coordinates: TwoModes

    def exchanged(self) -> "Window":
        """Return the window with its modes exchanged."""
        return Window(self.tile[::-1], self.within[::-1], self.coordinates[::-1])

    def part(self, within: tuple[int, int], extents: tuple[int, int]) -> "Window":
        """Return the part of the tile of `extents` in which the element is at `within`."""
        firsts = (i - j for i, j in zip(self.within, within, strict=True))
        x, y = (all_[i : i + n] for all_, i, n in zip(self.coordinates, firsts, extents, strict=True))
        return replace(self, within=within, coordinates=(x, y))


def tiled(coordinate: tuple[int, int], tile: tuple[int, int]) -> Window:
    """Return the window of an element if tiles lie side by side.

    >>> found = tiled((5, 9), (4, 8))
    >>> found.tile, found.within, found.coordinates[0].tolist()
    ((1, 1), (1, 1), [4, 5, 6, 7])
    """
    (i, x), (j, y) = (divmod(at, extent) for at, extent in zip(coordinate, tile, strict=True))
    return Window((i, j), (x, y), (_run(i * tile[0], tile[0]), _run(j * tile[1], tile[1])))


def paired(coordinate: tuple[int, int], tile: tuple[int, int], pairs: Pairs, columns: int, of_result: int) -> Window:
    """Return the window of an element of B: C's tile has columns of one member, and as many of the other after them.

    `tile` is what a CTA has of these `of_result` columns of sums: all, or one of two in a row of CTAs that multiply
    together. Rows past the last of B's `columns` have the number of them.

    >>> from cutegen.contract.problem import Pairs
    >>> found = paired((17, 0), (8, 4), Pairs("gate"), 24, 8)
    >>> found.tile, found.within, found.coordinates[0].tolist()
    ((1, 0), (5, 0), [4, 5, 6, 7, 16, 17, 18, 19])
    >>> found = paired((17, 0), (4, 4), Pairs("gate"), 24, 8)
    >>> found.tile, found.within, found.coordinates[0].tolist()
    ((3, 0), (1, 0), [16, 17, 18, 19])
    """
    of_member = of_result // 2
    (pair, member), beside = pairs.pair(coordinate[0], columns), tiled((0, coordinate[1]), tile)
    number, within = divmod(pair, of_member)
    inside = range(number * of_member, (number + 1) * of_member)
    rows = [
        pairs.column(each, of, columns) if each < columns // 2 else columns for of in pairs.members for each in inside
    ]
    part, within = divmod(within + of_member * pairs.members.index(member), tile[0])
    of_part = np.array(rows[part * tile[0] : (part + 1) * tile[0]])
    number = number * (of_result // tile[0]) + part
    return Window((number, beside.tile[1]), (within, beside.within[1]), (of_part, beside.coordinates[1]))


def of_blocks(
    coordinate: tuple[int, int], tile: tuple[int, int], block: int, rows: int, steps: tuple[int, int]
) -> Window:
    """Return the window of a factor of `block` rows in the first tile of `rows` that needs it.

    A box of factors begins with the block of the first row and the k-tile's column, or sooner: at multiples of `steps`.

    >>> found = of_blocks((5, 7), (8, 4), 128, 64, (1, 4))
    >>> found.tile, found.within, found.coordinates[1].tolist()
    ((10, 7), (0, 3), [4, 5, 6, 7])
    """
    number = coordinate[0] * block // rows
    first, column = (x // step * step for x, step in zip((number * rows // block, coordinate[1]), steps, strict=True))
    begins = _run(first, tile[0]), _run(column, tile[1])
    return Window((number, coordinate[1]), (coordinate[0] - first, coordinate[1] - column), begins)


def of_blocks_of_members(
    coordinate: tuple[int, int], tile: tuple[int, int], block: int, rows: int, steps: tuple[int, int], columns: int
) -> Window:
    """Return the same with pairs of columns: one half of a tile has blocks of one member, the other those of the other.

    >>> found = of_blocks_of_members((20, 7), (8, 4), 128, 256, (1, 4), 4096)
    >>> found.tile, found.within, found.coordinates[0].tolist()
    ((4, 7), (4, 3), [4, 5, 6, 7, 20, 21, 22, 23])
    """
    blocks, half = columns // 2 // block, tile[0] // 2
    member, first = divmod(coordinate[0], blocks)
    return _of_both(of_blocks((first, coordinate[1]), (half, tile[1]), block, rows // 2, steps), member, blocks)


def _of_both(found: Window, member: int, apart: int) -> Window:
    """Return the window of one member of pairs with as many rows of the other: those of the second are `apart`."""
    rows = np.concatenate((found.coordinates[0], found.coordinates[0] + apart))
    within = found.within[0] + member * len(found.coordinates[0]), found.within[1]
    return Window(found.tile, within, (rows, found.coordinates[1]))


def of_words(coordinate: tuple[int, int], tile: tuple[int, int], block: int, number: int, rows: int) -> Window:
    """Return the window of a word of factors in the `number`-th tile of `rows`, which meets its `block` of rows.

    A tile of words begins at the block of its first row, and at a multiple of its own words along K.
    """
    first, k_tile = number * rows // block, coordinate[1] // tile[1]
    begins = _run(first, tile[0]), _run(k_tile * tile[1], tile[1])
    return Window((number, k_tile), (coordinate[0] - first, coordinate[1] % tile[1]), begins)


def of_words_of_members(coordinate: tuple[int, int], tile: tuple[int, int], atoms: int) -> Window:
    """Return the window of a word with pairs of columns, whose members each have `atoms` of rows, one after another.

    A tile has as many atoms of one member as of the other, which follow.

    >>> found = of_words_of_members((9, 130), (2, 128), 8)
    >>> found.tile, found.within, found.coordinates[0].tolist()
    ((1, 1), (1, 2), [1, 9])
    """
    (member, first), half = divmod(coordinate[0], atoms), tile[0] // 2
    return _of_both(tiled((first, coordinate[1]), (half, tile[1])), member, atoms)


def _run(first: int, count: int) -> Coordinates:
    return np.arange(first, first + count)
