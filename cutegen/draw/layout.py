"""Any layout expression as a grid of offsets, coloured by bank."""

from __future__ import annotations

from cutegen.algebra import LayoutExpr, format_layout, offsets_by_row
from cutegen.draw.banks import bank_legend, bank_tile
from cutegen.draw.picture import Picture, titled
from cutegen.hardware import DType
from cutegen.support.words import extents

MAX_EXTENT = 64


def layout(expression: LayoutExpr, dtype: DType) -> Picture:
    """The bank and offset of each element; mode 0 downwards, all others to the right."""
    table = offsets_by_row(expression)
    shown = table[:MAX_EXTENT, :MAX_EXTENT]
    facts = [
        f"{table.size:,} elements of {dtype.name}, offsets {table.min():,} to {table.max():,}; "
        f"shown: {extents(shown.shape)} of {extents(table.shape)}",
        "Each cell: its bank, and under it its offset in elements; mode 0 downwards, the others to the right",
    ]
    picture = bank_tile(shown, dtype.bytes, ("mode 0", "1"))
    return titled(format_layout(expression), facts, picture, bank_legend())
