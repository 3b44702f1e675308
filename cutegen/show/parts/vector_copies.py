"""Pictures of copies that threads make: who moves which vector, and which banks a warp meets."""

from __future__ import annotations

from cutegen.algebra import LayoutExpr, offsets
from cutegen.hardware.units import WARP
from cutegen.plan import GemmPlan
from cutegen.plan.geometry.access import by_warp, vectors
from cutegen.plan.values.copies import VectorCopy
from cutegen.show.canvas.banks import Table, phase_charts
from cutegen.show.canvas.grid import sparse_grid
from cutegen.show.canvas.picture import Picture
from cutegen.show.canvas.threads import holder, value_span, warp_legend

Tile = tuple[int, int]
Modes = tuple[str, str]


def copy_grid(copy: VectorCopy, tile: Tile, major_mode: int, modes: Modes, thread: int) -> Picture:
    """The thread that moves each vector in the copy's first step; the contiguous mode lies to the right."""
    first = vectors(copy.threads, copy.values, tile)[0]
    values = value_span(0, first.shape[1])
    cells = {
        place(coord, tile, major_mode): holder(t, values, t // 8, marked=t == thread)
        for t, coord in enumerate(first[:, 0].tolist())
    }
    return sparse_grid(cells, corner(modes, major_mode))


def copy_legend(plan: GemmPlan, thread: int) -> Picture:
    """What the colours of `copy_grid` mean."""
    return warp_legend(
        range(plan.tiled_mma.threads // WARP), thread, "T thread, V its values; four shades: 8 lanes each"
    )


def copy_phases(
    layout: LayoutExpr, copy: VectorCopy, tile: Tile, element_bytes: int, modes: Modes, warp: int
) -> Picture:
    """The banks that a warp's first vectors meet in shared memory."""
    first = by_warp(vectors(copy.threads, copy.values, tile)[..., 0])[0, warp]
    return phase_charts(offsets(layout)[first] * element_bytes, copy.bits // 8, places(first, tile, modes))


def corner(modes: Modes, major_mode: int) -> str:
    return f"{modes[1 - major_mode]}\\{modes[major_mode]}"


def place(coord: int, tile: Tile, major_mode: int) -> tuple[int, int]:
    """(row, column) of a column-major tile coordinate, the contiguous mode to the right."""
    x, y = coord % tile[0], coord // tile[0]
    return (x, y) if major_mode == 1 else (y, x)


def places(coords: Table, tile: Tile, modes: Modes) -> list[str]:
    return [f"{modes[0]} {coord % tile[0]}, {modes[1]} {coord // tile[0]}" for coord in coords.tolist()]
