"""One part of a plan as people and programs see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cutegen.support.columns import aligned, text_width, wrapped


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
