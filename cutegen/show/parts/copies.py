"""Copies of a tile and a warp's accesses: the thread of each vector, boxes, sectors, shared memory by phase."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from cutegen.algebra import TiledCopy, format_layout, spec_notation
from cutegen.hardware import wavefronts
from cutegen.hardware.units import BANK_BYTES, BANKS, SECTOR_BYTES, WARP
from cutegen.plan import GemmPlan
from cutegen.plan.geometry import Coordinates, by_warp, vectors
from cutegen.plan.values.copies import BulkTensorCopy, TileCopy, VectorCopy
from cutegen.plan.values.operand import SmemTile
from cutegen.show.canvas import drawing
from cutegen.show.canvas.banks import Table, phase_charts, phase_lanes
from cutegen.show.parts.tile import Tile
from cutegen.show.view import packed, section
from cutegen.support.words import extents, plural, span

# Describes tiles that bulk tensor copies move.


def bulk_facts(copy: BulkTensorCopy, shared: SmemTile, modes: tuple[str, str]) -> list[tuple[str, str]]:
    """Return instruction, boxes and swizzle; `modes` are the contiguous mode and the other."""
    count = "one box" if copy.boxes == 1 else f"{copy.boxes} boxes side by side along {modes[0]}"
    swizzle = f"{copy.swizzle_bytes} bytes, {shared.chosen.name}" if copy.swizzle_bits else "none"
    return [
        ("atom", f"{copy.atom.name}, issued by one thread"),
        ("boxes", f"{count}, {extents(copy.box)} along {modes[0]} and {modes[1]}"),
        ("swizzle", swizzle),
    ]


# One access of a warp to shared memory, phase by phase: which lanes are served together, and their banks.


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

    def picture(self) -> drawing.Picture:
        """Draw a chart per phase: a row per lane, a column per possible start bank."""
        x, y = self.tile.modes
        places = [f"{x} {i}, {y} {j}" for i, j in zip(*(along.tolist() for along in self._modes), strict=True)]
        return phase_charts(self.byte_offsets, self.access_bytes, places)


# Copies by threads: the thread of each vector, and a warp's first access.


def tv_layouts(copy: TiledCopy) -> dict[str, str]:
    """Return the thread-value layouts of a tiled copy's source and destination, by CuTe's names."""
    return {
        "get_layoutS_TV()": format_layout(copy.layout_src_tv),
        "get_layoutD_TV()": format_layout(copy.layout_dst_tv),
    }


def steps_of(copy: VectorCopy, tile: Tile) -> int:
    """Return the vectors that each thread moves."""
    return len(vectors(copy.threads, copy.values, tile.extents))


def copier(copy: VectorCopy, tile: Tile) -> Table:
    """Return the thread that moves each coordinate of the tile."""
    coords = vectors(copy.threads, copy.values, tile.extents)
    found: Table = np.empty(coords.size, np.int64)
    found[coords] = np.arange(coords.shape[1])[None, :, None]
    return found


def first_access(copy: VectorCopy, tile: Tile, warp: int, together: tuple[int, ...] = (0,)) -> WarpAccess:
    """Return a warp's first access to shared memory, which moves the vectors `together` of each lane."""
    first = by_warp(vectors(copy.threads, copy.values, tile.extents)[..., 0])[together[0], warp]
    return WarpAccess(tile, first, len(together) * copy.bits // 8)


def copy_grid(copy: VectorCopy, tile: Tile, thread: int) -> drawing.Picture:
    """Draw the thread that moves each vector in the copy's first step."""
    first = vectors(copy.threads, copy.values, tile.extents)[0]
    values = drawing.value_span(first.shape[1])
    cells = {
        tile.place(coord): drawing.holder(t, values, t // 8, marked=t == thread)
        for t, coord in enumerate(first[:, 0].tolist())
    }
    return drawing.sparse_grid(cells, tile.corner)


def copy_legend(plan: GemmPlan, thread: int) -> drawing.Picture:
    """Explain the colors of `copy_grid`."""
    return drawing.warp_legend(
        range(plan.tiled_mma.threads // WARP), thread, "T thread, V its values; four shades: 8 lanes each"
    )


def copy_page(copy: TileCopy, tile: Tile) -> dict[str, Any]:
    """Return page data: coordinates of each thread's vectors, [step, thread, element]; or the boxes."""

    def of_threads(copy: VectorCopy) -> dict[str, Any]:
        return {
            "kind": "vectors",
            "op": copy.atom.spec_name,
            "bits": copy.bits,
            "threads": spec_notation(copy.threads),
            "vectors": packed(vectors(copy.threads, copy.values, tile.extents)),
        }

    def of_boxes(copy: BulkTensorCopy) -> dict[str, Any]:
        return {"kind": "boxes", "shares": copy.shares, **copy.to_json()}

    return copy.by_kind(vectors=of_threads, boxes=of_boxes)


# Requests of warps to global memory: the 32-byte sectors that each touches, and the lanes that need them.


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
    def of(cls, copy: VectorCopy, tile: Tile) -> Self:
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

    def picture(self, request: int) -> drawing.Picture:
        """Draw the sectors that a request touches, each with its lanes and the part of it that is needed."""
        across, sector = (each[request] for each in self._places)
        cells = {}
        for row, column in sorted(set(zip(across.ravel().tolist(), sector.ravel().tolist(), strict=True))):
            hits = (across == row) & (sector == column)
            lanes = np.flatnonzero(hits.any(axis=1)).tolist()
            wanted = int(hits.sum()) * self.tile.dtype.bytes
            fill = drawing.hue(lanes[0] // LANES_PER_HUE) if wanted >= SECTOR_BYTES else drawing.CONFLICT
            cells[row, column] = drawing.Cell((f"L{span(lanes)}", f"{wanted} B"), fill)
        minor = self.tile.modes[1 - self.tile.major_mode]
        note = drawing.legend(
            [drawing.Cell(("L", "B"), drawing.CONFLICT)],
            "lanes, and bytes of the 32 that they need; dark red: partial sector",
        )
        return drawing.above(drawing.sparse_grid(cells, f"{minor}\\sector"), note, gap=8)

    def caption(self, request: int, warp: int) -> str:
        """Say what a request touches."""
        return f"First request of warp {warp} to global memory: {plural(self.sectors[request], 'sector')} of 32 bytes"
