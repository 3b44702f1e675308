"""Requests of warps to global memory: the 32-byte sectors that each touches, and the lanes that need them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cutegen.hardware.units import SECTOR_BYTES
from cutegen.plan.geometry import Coordinates, by_warp, vectors
from cutegen.plan.values.copies import VectorCopy
from cutegen.show.canvas.banks import Table
from cutegen.show.canvas.colors import CONFLICT, hue
from cutegen.show.canvas.grid import Cell, legend, sparse_grid
from cutegen.show.canvas.picture import Picture, above
from cutegen.show.parts.tile import Tile
from cutegen.show.view import section
from cutegen.support.spans import span
from cutegen.support.words import plural

LANES_PER_HUE = 8


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """Every request of a copy of a tile: `coords` int64[request, lane, element], in column-major coordinates.

    Each of the `warps` issues the same number, step by step, one warp after another. Rows of the tile are assumed to
    begin at a sector and to be far apart.
    """

    tile: Tile
    coords: Coordinates
    warps: int

    @classmethod
    def of(cls, copy: VectorCopy, tile: Tile) -> Requests:
        """Return the requests of a copy by threads, step by step, warp after warp."""
        table = by_warp(vectors(copy.threads, copy.values, tile.extents))
        return cls(tile, table.reshape(-1, *table.shape[2:]), table.shape[1])

    @property
    def _places(self) -> tuple[Table, Table]:
        """(row, sector within the row) of each element, [request, lane, element]."""
        x, y = self.coords % self.tile.extents[0], self.coords // self.tile.extents[0]
        across, along = (x, y) if self.tile.major_mode == 1 else (y, x)
        return across, along * self.tile.dtype.bytes // SECTOR_BYTES

    @property
    def sectors(self) -> list[int]:
        """The sectors that each request touches."""
        across, sector = self._places
        key = across * (int(sector.max()) + 1) + sector
        return [len(np.unique(each)) for each in key]

    @property
    def ideal(self) -> int:
        """The fewest sectors that hold the data of a request."""
        return -(-int(self.coords[0].size) * self.tile.dtype.bytes // SECTOR_BYTES)

    @property
    def summary(self) -> str:
        """Say how many requests there are, and what they touch."""
        found = sorted(set(self.sectors))
        each = f"{found[0]}" if len(found) == 1 else f"{found[0]} to {found[-1]}"
        return f"{len(self.coords) // self.warps:,} per warp, {each} sectors each, at least {self.ideal}"

    def lines(self, title: str, request: int) -> list[str]:
        """Write a line per matrix row that a request touches: its sectors and the lanes that need them."""
        across, sector = (each[request] for each in self._places)
        rows = [
            (f"{row}", span(np.unique(sector[across == row])), span(np.flatnonzero((across == row).any(axis=1))))
            for row in np.unique(across)
        ]
        minor = self.tile.modes[1 - self.tile.major_mode]
        return section(title, rows, header=(minor, "sectors of the row", "lanes"))

    def picture(self, request: int) -> Picture:
        """Draw the sectors that a request touches, each with its lanes and the part of it that is needed."""
        across, sector = (each[request] for each in self._places)
        cells = {}
        for row, column in sorted(set(zip(across.ravel().tolist(), sector.ravel().tolist(), strict=True))):
            hits = (across == row) & (sector == column)
            lanes = np.flatnonzero(hits.any(axis=1)).tolist()
            wanted = int(hits.sum()) * self.tile.dtype.bytes
            fill = hue(lanes[0] // LANES_PER_HUE) if wanted >= SECTOR_BYTES else CONFLICT
            cells[row, column] = Cell((f"L{span(lanes)}", f"{wanted} B"), fill)
        minor = self.tile.modes[1 - self.tile.major_mode]
        note = legend(
            [Cell(("L", "B"), CONFLICT)], "lanes, and bytes of the 32 that they need; dark red: partial sector"
        )
        return above(sparse_grid(cells, f"{minor}\\sector"), note, gap=8)

    def caption(self, request: int, warp: int) -> str:
        """Say what a request touches."""
        return f"First request of warp {warp} to global memory: {plural(self.sectors[request], 'sector')} of 32 bytes"
