"""Cells that name a thread and its values, colored by warp, one thread marked."""

from __future__ import annotations

from collections.abc import Iterable

from cutegen.hardware.units import WARP
from cutegen.show.canvas.colors import MARK, hue
from cutegen.show.canvas.grid import Cell, legend
from cutegen.show.canvas.picture import Picture

SHADES = 4


def holder(thread: int, values: str, shade: int, *, marked: bool) -> Cell:
    """Return the cell for `values` of `thread`; a warp has one hue, its lanes four shades of it."""
    return Cell((f"T{thread}", f"V{values}"), MARK if marked else warp_color(thread // WARP, shade))


def warp_color(warp: int, shade: int = 0) -> str:
    """Return the color of a warp."""
    return hue(warp, shade % SHADES, SHADES)


def warp_legend(warps: Iterable[int], marked: int, explanation: str) -> Picture:
    """Explain the colors of `warps` and of the marked thread."""
    entries = [Cell((f"warp {warp}",), warp_color(warp)) for warp in warps]
    return legend([*entries, Cell((f"thread {marked}",), MARK)], explanation)


def value_span(count: int) -> str:
    """Format the numbers of `count` values in few characters.

    >>> value_span(8), value_span(1)
    ('0-7', '0')
    """
    return f"0-{count - 1}" if count > 1 else "0"
