"""One part of a plan as people and programs see it, and compact tables for pages that draw it again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutegen.algebra import ComposedLayout, LayoutExpr, inner_layout, leaves, modes
from cutegen.support.words import aligned, text_width, wrapped

# One part of a plan as people and programs see it.


@dataclass(frozen=True, slots=True)
class View:
    """`blocks` of lines, separated by an empty line; `table` is the same content for JSON."""

    blocks: tuple[Sequence[str], ...]
    table: dict[str, Any]

    @property
    def lines(self) -> list[str]:
        """All lines."""
        return [line for i, block in enumerate(self.blocks) for line in (*([""] if i else []), *block)]


def section(title: str, rows: Sequence[Sequence[str]], **columns: Any) -> list[str]:
    """Write a title and rows in aligned columns."""
    return [*wrapped(title, rest="  "), *aligned(rows, **columns)]


def cell_table(
    cells: Sequence[Sequence[object]], rows: Sequence[int], columns: Sequence[int], corner: str
) -> list[str]:
    """Write a table of cells with its row and column numbers."""
    body = [(f"{row}", *(f"{cell}" for cell in line)) for row, line in zip(rows, cells, strict=True)]
    header = (corner, *map(str, columns))
    return aligned(body, header=header, right=range(len(header)), indent=1, gap=1)


def folded_table(
    cells: Sequence[Sequence[object]], rows: Sequence[int], columns: Sequence[int], corner: str
) -> list[str]:
    """Write a table that is too wide in pieces below each other, each with its own columns."""
    names = max(len(corner), *(len(f"{row}") for row in rows))
    widest = max(len(f"{value}") for value in (*columns, *(cell for line in cells for cell in line)))
    together = max(1, (text_width() - names - 1) // (widest + 1))
    lines: list[str] = []
    for first in range(0, len(columns), together):
        piece = slice(first, first + together)
        lines += [*([""] if first else []), *cell_table([line[piece] for line in cells], rows, columns[piece], corner)]
    return lines


# Compact tables and layouts for pages that draw them again.
#
# A table of which thread touches what is nearly always a sum: a start for each instruction, warp or lane, plus the same
# steps for each. Only the addends are stored; a table that is not a sum is stored as it is.


def packed(table: NDArray[np.int64]) -> Any:
    """Pack a table of any rank: a list for one axis, else `by` for its first axis and one shared `of`, or `each`.

    >>> packed(np.array([[0, 1, 2], [8, 9, 10]])), packed(np.array([[0, 1], [5, 3]]))
    ({'by': [0, 8], 'of': [0, 1, 2]}, {'each': [[0, 1], [5, 3]]})
    """
    if table.ndim == 1:
        return table.tolist()
    begins = table.reshape(len(table), -1)[:, 0]
    moved = begins - begins[0]
    if np.array_equal(table, table[:1] + moved.reshape(-1, *[1] * (table.ndim - 1))):
        return {"by": moved.tolist(), "of": packed(table[0])}
    return {"each": [packed(part) for part in table]}


def packed_layout(layout: LayoutExpr) -> dict[str, Any]:
    """Return a layout's modes as lists of (extent, stride), its swizzle as (bits, base, shift) and the offset after it.

    >>> from cutegen.algebra import Layout
    >>> packed_layout(Layout((8, (2, 4)), (8, (1, 64))))
    {'modes': [[[8, 8]], [[2, 1], [4, 64]]], 'swizzle': None, 'offset': 0}
    """
    swizzle, offset = (layout.outer, layout.offset) if isinstance(layout, ComposedLayout) else (None, 0)
    return {
        "modes": [
            [[int(n), int(d)] for n, d in leaves(part.shape, part.stride)] for part in modes(inner_layout(layout))
        ],
        "swizzle": [swizzle.bits, swizzle.base, swizzle.shift] if swizzle is not None else None,
        "offset": int(offset),
    }
