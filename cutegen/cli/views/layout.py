"""`show --layout EXPR`: the offset and the bank of each element of any layout."""

from __future__ import annotations

from cutegen.algebra import LayoutExpr, format_layout, offsets_by_row
from cutegen.cli.views.view import Table, View, grid, titled
from cutegen.hardware import DType
from cutegen.hardware.units import BANK_BYTES, BANKS
from cutegen.support.columns import text_width
from cutegen.support.words import extents

SHOWN_ROWS = 16


def layout(expression: LayoutExpr, dtype: DType) -> View:
    """Mode 0 downwards, all others to the right, as many columns as a line has room for."""
    table = offsets_by_row(expression)
    banks = table * dtype.bytes // BANK_BYTES % BANKS
    facts = [
        ("elements", f"{table.size:,} of {dtype.name}: {extents(table.shape)}, mode 0 downwards"),
        ("offsets", f"{table.min():,} to {table.max():,}, {len(set(table.ravel().tolist())):,} different ones"),
    ]
    blocks = (
        titled(format_layout(expression), facts),
        ["Element offsets", *_corner(table)],
        ["Banks", *_corner(banks)],
    )
    content = {
        "layout": format_layout(expression),
        "dtype": dtype.name,
        "shape": list(table.shape),
        "offsets": table.tolist(),
        "banks": banks.tolist(),
    }
    return View(blocks, content)


def _corner(table: Table) -> list[str]:
    widest = max(len(f"{value}") for value in (*table[:SHOWN_ROWS, : text_width()].ravel().tolist(), table.shape[1]))
    columns = min(table.shape[1], (text_width() - 1 - len("0\\1")) // (widest + 1))
    rows = min(table.shape[0], SHOWN_ROWS)
    lines = grid(table[:rows, :columns].tolist(), range(rows), range(columns), "0\\1")
    left_out = table.shape != (rows, columns)
    return [*lines, f" ... {extents((rows, columns))} of {extents(table.shape)}"] if left_out else lines
