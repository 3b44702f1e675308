"""Products of one launch whose sizes only the device has, and what a host knows of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from cutegen.contract.problem import ProblemShape

Mode = Literal["m", "n", "k"]
GROUP = "g"
"""The mode of a tensor that has one matrix, one vector or one number per group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One of the products whose tiles a scheduler gives out, by its part of each mode."""

    m: range
    n: range
    k: range


@dataclass(frozen=True, slots=True)
class Groups:
    """One mode of the operands belongs to groups: rows of A and C (`of` "m"), columns ("n"), or parts of K ("k").

    "packed" groups follow one another, and the device has their ends; "padded" ones each have room for the whole
    extent, and the device has their sizes. A kernel makes any int32 safe: it clamps each to the room there is, and ends
    also to the previous end, so that groups are in order and none reaches outside.
    """

    of: Mode
    layout: Literal["packed", "padded"] = "packed"

    def __str__(self) -> str:
        return f"{self.layout} groups of {self.of}"

    def products(self, given: Sequence[int], problem: ProblemShape) -> Iterator[Product]:
        """Yield the groups for the ends or sizes that the device has; `problem` has the whole extent of the mode.

        >>> [each.m for each in Groups("m").products((3, 2, 9), ProblemShape(8, 16, 4))]
        [range(0, 3), range(3, 3), range(3, 8)]
        """
        every = Product(m=range(problem.m), n=range(problem.n), k=range(problem.k))
        begin, room = 0, problem.extents[self.of]
        for number in given:
            end = min(max(number, begin), room)
            yield replace(every, **{self.of: range(begin, end)})
            begin = end if self.layout == "packed" else 0

    def packs(self, modes: tuple[str, ...]) -> bool:
        """Return whether a tensor of these modes has the groups one after another, instead of a matrix for each.

        >>> Groups("m").packs(("m", "k")), Groups("m").packs(("n", "k")), Groups("m", "padded").packs(("m", "k"))
        (True, False, False)
        """
        return self.layout == "packed" and self.of in modes

    @property
    def leaves_elements(self) -> bool:
        """True if C has elements that no group has: rows or columns past an end."""
        return self.of != "k"

    def blocks(self, products: Iterable[Product], rows: int) -> Iterator[range]:
        """Yield the blocks of `rows` that each product has, if the groups are packed and each begins a block.

        >>> groups, problem = Groups("m"), ProblemShape(300, 8, 4)
        >>> list(groups.blocks(groups.products((3, 3, 200), problem), 128))
        [range(0, 1), range(1, 1), range(1, 3)]
        """
        begin = 0
        for product in products:
            end = begin + -(-len(getattr(product, self.of)) // rows)
            yield range(begin, end)
            begin = end

    def exchanged(self) -> Groups:
        """Return the groups of the swapped product, whose rows are columns here."""
        modes: dict[Mode, Mode] = {"m": "n", "n": "m", "k": "k"}
        return replace(self, of=modes[self.of])

    def most_tiles(self, extent: int, groups: int, tile: int) -> int:
        """Return the most tiles along the mode, over all groups, that any sizes have: a host's upper bound.

        >>> Groups("m").most_tiles(100, 4, 64), Groups("m", "padded").most_tiles(100, 4, 64)
        (5, 8)
        """
        return (extent + groups * (tile - 1)) // tile if self.layout == "packed" else groups * -(-extent // tile)
