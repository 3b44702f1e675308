"""One access of a warp to shared memory, phase by phase: which lanes are served together, and their banks."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.hardware import wavefronts
from cutegen.hardware.units import BANK_BYTES, BANKS
from cutegen.plan.geometry import Coordinates
from cutegen.show.canvas.banks import Table, phase_charts, phase_lanes
from cutegen.show.canvas.picture import Picture
from cutegen.show.parts.tile import Tile
from cutegen.show.view import section
from cutegen.support.spans import span


@dataclass(frozen=True, slots=True, eq=False)
class WarpAccess:
    """`coords` [lane] is the coordinate in `tile` where the `access_bytes` of each lane begin."""

    tile: Tile
    coords: Coordinates
    access_bytes: int

    @property
    def byte_offsets(self) -> Table:
        """The start of each lane's bytes in shared memory, in the first stage."""
        placed: Table = self.tile.offsets[self.coords] * self.tile.dtype.bytes
        return placed

    @property
    def _modes(self) -> tuple[Table, Table]:
        """The coordinate of each lane along either mode."""
        return self.coords % self.tile.extents[0], self.coords // self.tile.extents[0]

    def lines(self, title: str) -> list[str]:
        """Write a line per phase, under a title: lanes, wavefronts, coordinates, first banks."""
        x, y = self.tile.modes
        header = ("lanes", "wavefronts", f"({x}, {y})", "first banks")
        phases = phase_lanes(len(self.coords), self.access_bytes)
        return section(title, [self._row(slice(lanes[0], lanes[-1] + 1)) for lanes in phases], header=header, right={1})

    def _row(self, lanes: slice) -> tuple[str, ...]:
        placed = self.byte_offsets[lanes]
        x, y = (span(along[lanes]) for along in self._modes)
        banks = span(placed // BANK_BYTES % BANKS)
        count = int(wavefronts(placed, self.access_bytes))
        return f"{lanes.start}..{lanes.stop - 1}", f"{count}", f"({x}, {y})", banks

    def picture(self) -> Picture:
        """Draw a chart per phase: a row per lane, a column per possible start bank."""
        x, y = self.tile.modes
        places = [f"{x} {i}, {y} {j}" for i, j in zip(*(along.tolist() for along in self._modes), strict=True)]
        return phase_charts(self.byte_offsets, self.access_bytes, places)
