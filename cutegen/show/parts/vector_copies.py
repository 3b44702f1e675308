"""Copies by threads: the thread of each vector, and a warp's first access."""

from __future__ import annotations

from typing import Any

import numpy as np

from cutegen.algebra import TiledCopy, format_layout, spec_notation
from cutegen.hardware.units import WARP
from cutegen.plan import GemmPlan
from cutegen.plan.geometry import by_warp, vectors
from cutegen.plan.values.copies import BulkTensorCopy, TileCopy, VectorCopy
from cutegen.show.canvas.banks import Table
from cutegen.show.canvas.grid import sparse_grid
from cutegen.show.canvas.picture import Picture
from cutegen.show.canvas.threads import holder, value_span, warp_legend
from cutegen.show.packed import packed
from cutegen.show.parts.tile import Tile
from cutegen.show.parts.warp_access import WarpAccess


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


def copy_grid(copy: VectorCopy, tile: Tile, thread: int) -> Picture:
    """Draw the thread that moves each vector in the copy's first step."""
    first = vectors(copy.threads, copy.values, tile.extents)[0]
    values = value_span(first.shape[1])
    cells = {
        tile.place(coord): holder(t, values, t // 8, marked=t == thread) for t, coord in enumerate(first[:, 0].tolist())
    }
    return sparse_grid(cells, tile.corner)


def copy_legend(plan: GemmPlan, thread: int) -> Picture:
    """Explain the colors of `copy_grid`."""
    return warp_legend(
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
