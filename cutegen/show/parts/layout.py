"""Any layout expression: the offset and the bank of each element, or its coordinate."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutegen.algebra import LayoutExpr, format_layout, offsets_by_row
from cutegen.algebra.coordinates import Coordinate, CoordinateLayout
from cutegen.hardware import DType
from cutegen.hardware.units import BANK_BYTES, BANKS
from cutegen.show.canvas.banks import Table, bank_legend, bank_tile
from cutegen.show.canvas.drawing import HUES, Cell, Picture, grid, hue, titled
from cutegen.show.view import View, cell_table, folded_table, packed_layout, section
from cutegen.support.words import extents, text_width

SHOWN_ROWS = 16
MAX_EXTENT = 64  # of a picture


def view(expression: LayoutExpr, dtype: DType, *, everything: bool = False) -> View:
    """Show mode 0 downwards, all others to the right, with as many columns as a line can hold."""
    table = offsets_by_row(expression)
    banks = table * dtype.bytes // BANK_BYTES % BANKS
    facts = [
        ("elements", f"{table.size:,} of {dtype.name}: {extents(table.shape)}, mode 0 downwards"),
        ("offsets", f"{table.min():,} to {table.max():,}, {len(set(table.ravel().tolist())):,} different ones"),
    ]
    blocks = (
        section(format_layout(expression), facts),
        ["Element offsets", *_corner(table, everything=everything)],
        ["Banks", *_corner(banks, everything=everything)],
    )
    content = {
        "layout": format_layout(expression),
        "dtype": dtype.name,
        "shape": list(table.shape),
        "offsets": table.tolist(),
        "banks": banks.tolist(),
    }
    return View(blocks, content)


def coordinates_view(layout: CoordinateLayout, *, everything: bool = False) -> View:
    """Show the coordinate of each element, mode 0 downwards and all others to the right."""
    table = layout.by_row()
    different = len(set(table.ravel().tolist()))
    facts = [
        ("elements", f"{table.size:,}: {extents(table.shape)}, mode 0 downwards"),
        ("coordinates", f"{_compact(table.flat[0])} to {_compact(table.flat[-1])}, {different:,} different ones"),
    ]
    cells = np.array([[_compact(value) for value in row] for row in table], np.object_)
    blocks = (section(str(layout), facts), ["Element coordinates", *_corner(cells, everything=everything)])
    return View(blocks, {"layout": str(layout), "shape": list(table.shape), "coordinates": table.tolist()})


def coordinates_picture(layout: CoordinateLayout) -> Picture:
    """Draw the coordinate of each element, in the color of its last mode; mode 0 downwards, all others to the right."""
    table = layout.by_row()
    shown = table[:MAX_EXTENT, :MAX_EXTENT]
    cells = [[Cell((_compact(value),), hue(_last(value) % len(HUES))) for value in row] for row in shown]
    rows, columns = (list(map(str, range(count))) for count in shown.shape)
    facts = [
        f"{table.size:,} elements; shown: {extents(shown.shape)} of {extents(table.shape)}",
        "Each cell: its coordinate, in the color of the last mode; mode 0 downwards, the others to the right",
    ]
    return titled(str(layout), facts, grid(cells, rows=rows, columns=columns, corner="mode 0\\1"))


def _last(coordinate: Coordinate) -> int:
    return _last(coordinate[-1]) if isinstance(coordinate, tuple) else coordinate


def _compact(coordinate: object) -> str:
    return str(coordinate).replace(" ", "").replace(",)", ")")


def _corner(table: Table | NDArray[np.object_], *, everything: bool) -> list[str]:
    """Return the part of the table that fits, and its size; all of it with `everything`."""
    widest = max(len(f"{value}") for value in (*table[:SHOWN_ROWS, : text_width()].ravel().tolist(), table.shape[1]))
    columns = min(table.shape[1], (text_width() - 1 - len("0\\1")) // (widest + 1))
    rows = min(table.shape[0], SHOWN_ROWS)
    if everything:
        return folded_table(table.tolist(), range(table.shape[0]), range(table.shape[1]), "0\\1")
    lines = cell_table(table[:rows, :columns].tolist(), range(rows), range(columns), "0\\1")
    cut = f" ... {extents((rows, columns))} of {extents(table.shape)} (see --all)"
    return [*lines, cut] if table.shape != (rows, columns) else lines


def picture(expression: LayoutExpr, dtype: DType) -> Picture:
    """Draw the bank and offset of each element; mode 0 downwards, all others to the right."""
    table = offsets_by_row(expression)
    shown = table[:MAX_EXTENT, :MAX_EXTENT]
    facts = [
        f"{table.size:,} elements of {dtype.name}, offsets {table.min():,} to {table.max():,}; "
        f"shown: {extents(shown.shape)} of {extents(table.shape)}",
        "Each cell: bank, below it the offset in elements; mode 0 downwards, the others to the right",
    ]
    cells = bank_tile(shown, dtype.bytes, ("mode 0", "1"))
    return titled(format_layout(expression), facts, cells, bank_legend())


def page(expression: LayoutExpr, dtype: DType) -> dict[str, Any]:
    """Return page data: the layout, which the page evaluates itself, and its counts."""
    table = offsets_by_row(expression)
    return {
        "text": format_layout(expression),
        "dtype": dtype.name,
        "bits": dtype.bits,
        "shape": list(table.shape),
        "least": int(table.min()),
        "most": int(table.max()),
        "different": len(set(table.ravel().tolist())),
        **packed_layout(expression),
    }
