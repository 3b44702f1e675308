"""Grids of labeled cells with row and column numbers, and legends: the elements of every picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cutegen.show.canvas.picture import CELL_PX, LINE_EM, Box, Item, Outline, Picture, Text, beside, text_width

PADDING_PX = 3
LEAST_CELL_PX = 22
TOWER, LEAST_ROWS = 2.5, 16  # a grid is folded beyond this ratio of height to width and this number of rows


@dataclass(frozen=True, slots=True)
class Cell:
    """Content of one cell of a grid."""

    lines: tuple[str, ...]
    fill: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Draw a grid's cells in outlined blocks of `rows` x `columns`."""

    rows: int
    columns: int


def grid(
    cells: Sequence[Sequence[Cell | None]],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    corner: str,
    blocks: Blocks | None = None,
    size: tuple[float, float] | None = None,
) -> Picture:
    """Draw cells of one size, by default that of the longest label; None leaves a cell empty; headers are outside.

    `corner` names rows and columns. Column headers are thinned out to fit: every one, or every second, fourth, ...
    """
    width, height = size or cell_size([cell.lines for line in cells for cell in line if cell])
    left = max(text_width(text, CELL_PX) for text in (*rows, corner)) + 2 * PADDING_PX
    top = CELL_PX * LINE_EM + 2 * PADDING_PX
    items: list[Item] = [
        Box(x=left + j * width, y=top + i * height, width=width, height=height, fill=cell.fill, lines=cell.lines)
        for i, line in enumerate(cells)
        for j, cell in enumerate(line)
        if cell
    ]
    items += _headers(rows, columns, corner, left, top, width, height)
    if blocks:
        items += _outlines(blocks, left, top, (width, height), (len(rows), len(columns)))
    overhang = max(0.0, max(text_width(text, CELL_PX) for text in columns) - width) / 2
    return Picture(left + len(columns) * width + overhang, top + len(rows) * height, tuple(items))


def cell_size(labels: Sequence[tuple[str, ...]]) -> tuple[float, float]:
    """Return the (width, height) of a cell that fits each of the labels."""
    longest = max((text_width(line, CELL_PX) for lines in labels for line in lines), default=0)
    most = max((len(lines) for lines in labels), default=1)
    return max(LEAST_CELL_PX, longest + 2 * PADDING_PX), most * CELL_PX * LINE_EM + 2 * PADDING_PX


def legend(entries: Sequence[Cell], explanation: str) -> Picture:
    """Draw a row of filled boxes, followed by the meaning of their colors."""
    width, height = cell_size([entry.lines for entry in entries])
    items: list[Item] = [
        Box(x=i * width, y=0, width=width, height=height, fill=entry.fill, lines=entry.lines)
        for i, entry in enumerate(entries)
    ]
    end = len(entries) * width + 8
    items.append(Text(x=end, y=height / 2, text=explanation, size_px=CELL_PX))
    return Picture(end + text_width(explanation, CELL_PX), height, tuple(items))


def _headers(
    rows: Sequence[str], columns: Sequence[str], corner: str, left: float, top: float, width: float, height: float
) -> list[Item]:
    step = 1
    while max(text_width(text, CELL_PX) for text in columns) + PADDING_PX > step * width:
        step *= 2
    beyond = left - PADDING_PX
    return [
        Text(x=beyond, y=top / 2, text=corner, align="end", size_px=CELL_PX, bold=True),
        *(
            Text(x=beyond, y=top + (i + 0.5) * height, text=text, align="end", size_px=CELL_PX)
            for i, text in enumerate(rows)
        ),
        *(
            Text(x=left + (j + 0.5) * width, y=top / 2, text=columns[j], align="middle", size_px=CELL_PX)
            for j in range(0, len(columns), step)
        ),
    ]


def _outlines(blocks: Blocks, left: float, top: float, cell: tuple[float, float], count: tuple[int, int]) -> list[Item]:
    width, height = blocks.columns * cell[0], blocks.rows * cell[1]
    return [
        Outline(x=left + j * width, y=top + i * height, width=width, height=height)
        for i in range(count[0] // blocks.rows)
        for j in range(count[1] // blocks.columns)
    ]


def sparse_grid(cells: Mapping[tuple[int, int], Cell], corner: str) -> Picture:
    """Draw a grid of only the rows and columns that have cells, given by their coordinates.

    A tall grid is folded: its rows continue next to it.
    """
    rows, columns = (sorted({place[i] for place in cells}) for i in (0, 1))
    size = cell_size([cell.lines for cell in cells.values()])
    names = [str(column) for column in columns]

    def piece(chosen: Sequence[int]) -> Picture:
        table = [[cells.get((row, column)) for column in columns] for row in chosen]
        return grid(table, rows=[str(row) for row in chosen], columns=names, corner=corner, size=size)

    whole = piece(rows)
    if whole.height <= TOWER * whole.width or len(rows) <= LEAST_ROWS:
        return whole
    each = -(-len(rows) // math.ceil(math.sqrt(whole.height / (2 * whole.width))))
    return beside(*(piece(rows[first : first + each]) for first in range(0, len(rows), each)), gap=24)
