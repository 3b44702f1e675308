"""Pairs of columns of B, a gate and an up, from whose two sums an epilogue computes one column of C."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Member = Literal["gate", "up"]
PAIR = "p"
"""The mode of a tensor that has one column for each pair: p = n / 2."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """The order of the columns of B: `width` of one member, as many of the other, and so on; the `first` begins.

    Without a `width` each member is one half of all columns. The columns of a member are in the order of C's. In a
    kernel that multiplies B by A they are rows of its A: `of` "m", instead of columns of its B.
    """

    first: Member
    width: int | None = None
    of: Literal["m", "n"] = "n"

    def __str__(self) -> str:
        members = " then ".join(self.members)
        if self.width is None:
            return f"halves of B's columns, {members}"
        return f"{self.width} of B's columns of each in turn, {members}"

    @property
    def members(self) -> tuple[Member, Member]:
        """Both members, in the order of their columns."""
        return ("gate", "up") if self.first == "gate" else ("up", "gate")

    @property
    def operand(self) -> str:
        """The operand that has both columns of each pair."""
        return "a" if self.of == "m" else "b"

    @property
    def modes_of_result(self) -> tuple[str, str]:
        """The modes of C: one of them has an element for each pair.

        >>> Pairs("gate").modes_of_result, Pairs("gate").exchanged().modes_of_result
        (('m', 'p'), ('p', 'n'))
        """
        return (PAIR, "n") if self.of == "m" else ("m", PAIR)

    def tile_of_result(self, tile: tuple[int, int]) -> tuple[int, int]:
        """Return the extents of C that a tile of sums becomes."""
        m, n = tile
        return (m // 2, n) if self.of == "m" else (m, n // 2)

    def exchanged(self) -> Pairs:
        """Return the pairs of the swapped product, whose rows are columns here."""
        return replace(self, of="n" if self.of == "m" else "m")

    @property
    def multiple(self) -> int:
        """The number that N is a multiple of."""
        return 2 * (self.width or 1)

    def modes(self, columns: int) -> tuple[tuple[int, int], ...]:
        """Return extent and stride of each mode of so many columns: those of a member's columns, then of the members.

        >>> Pairs("gate").modes(96), Pairs("up", 1).modes(96), Pairs("gate", 8).modes(96)
        (((48, 1), (2, 48)), ((48, 2), (2, 1)), ((8, 1), (6, 16), (2, 8)))
        """
        if self.width is None:
            return (columns // 2, 1), (2, columns // 2)
        if self.width == 1:
            return (columns // 2, 2), (2, 1)
        return (self.width, 1), (columns // (2 * self.width), 2 * self.width), (2, self.width)

    def column(self, pair: int, member: Member, columns: int) -> int:
        """Return the column of B that is the `member` of a pair, the number of C's column.

        >>> Pairs("up", 8).column(9, "gate", 96), Pairs("gate").column(9, "up", 96)
        (25, 57)
        """
        width = self.width or columns // 2
        return pair // width * 2 * width + pair % width + (0 if member == self.first else width)

    def pair(self, column: int, columns: int) -> tuple[int, Member]:
        """Return the pair of a column of B, and which member the column is: the inverse of `column`.

        >>> Pairs("up", 8).pair(25, 96), Pairs("gate").pair(57, 96)
        ((9, 'gate'), (9, 'up'))
        """
        block, within = divmod(column, self.width or columns // 2)
        return block // 2 * (self.width or 0) + within, self.members[block % 2]
