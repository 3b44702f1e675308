"""Shared memory of a tile: its layout, the ranked alternatives, and the cost of accesses to it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from cutegen.algebra import LayoutExpr, Swizzle, inner_layout, make_layout, mode, with_inner


@dataclass(frozen=True, slots=True)
class Wavefronts:
    """Shared-memory wavefronts of one kind of access: the minimum for its bytes, and those that its addresses need."""

    ideal: int
    predicted: int

    @property
    def ways(self) -> float:
        """Wavefronts relative to the ideal: 1 is free of bank conflicts, 8 is an 8-way conflict on every access."""
        return self.predicted / self.ideal

    def times(self, count: int) -> Wavefronts:
        """Return the wavefronts of so many accesses."""
        return Wavefronts(count * self.ideal, count * self.predicted)

    def plus(self, accesses: int) -> Wavefronts:
        """Return these and so many accesses without bank conflicts."""
        return Wavefronts(self.ideal + accesses, self.predicted + accesses)


@dataclass(frozen=True, slots=True)
class Sectors:
    """32-byte sectors of global memory that one access to a whole tile touches, and the minimum for its bytes."""

    ideal: int
    predicted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SmemCandidate:
    """One row of the ranking of shared-memory layouts: wavefronts are for one tile, written once and read once.

    `write` counts bank conflicts. `lines` is the cost of writes by lines if copies bypass L1; None for other copies.
    """

    name: str
    atom: LayoutExpr
    swizzle: Swizzle | None
    pad_elems: int
    tile_bytes: int
    write: Wavefronts
    read: Wavefronts
    lines: Wavefronts | None = None

    @property
    def wavefronts(self) -> int:
        """Wavefronts that the ranking compares first: reads, and writes (by line if copies are counted by line)."""
        return (self.lines or self.write).predicted + self.read.predicted

    def to_json(self) -> dict[str, Any]:
        """Return its costs."""
        return {
            "write": asdict(self.write),
            "lines": None if self.lines is None else asdict(self.lines),
            "read": asdict(self.read),
            "wavefronts": self.wavefronts,
            "bytes": self.tile_bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SmemTile:
    """An operand's shared memory: `layout` maps (X, Y) or (X, Y, PIPE) coordinates to element offsets."""

    layout: LayoutExpr
    chosen: SmemCandidate
    bytes: int
    ranking: tuple[SmemCandidate, ...]

    @property
    def swizzle(self) -> Swizzle | None:
        """The swizzle, or None for a plain or padded layout."""
        return self.chosen.swizzle

    @property
    def pad_elems(self) -> int:
        """Elements added to each row or column of the contiguous mode."""
        return self.chosen.pad_elems

    @property
    def layout_of_one_stage(self) -> LayoutExpr:
        """The layout without its PIPE mode: (X, Y) -> element offset in the first stage."""
        inner = inner_layout(self.layout)
        return with_inner(self.layout, make_layout(mode(inner, 0), mode(inner, 1)))

    def ranking_table(self) -> list[dict[str, Any]]:
        """Return the ranking as plain tables, best first; `used` marks the layout in use, if it is ranked."""
        return [{"layout": row.name, "used": row == self.chosen, **row.to_json()} for row in self.ranking]
