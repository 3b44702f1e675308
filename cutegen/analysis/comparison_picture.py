"""A comparison as a picture: differing decisions in words, and countable quantities as bars."""

from __future__ import annotations

from collections.abc import Sequence

from cutegen.analysis.comparison import Comparison, Row, Section
from cutegen.analysis.comparison_text import broken
from cutegen.show.canvas.colors import HUES, PALE
from cutegen.show.canvas.grid import Cell, cell_size, grid, legend
from cutegen.show.canvas.picture import CELL_PX, LINE_EM, Box, Item, Picture, Text, above, captioned, text_width, titled

BAR_PX, BAR_HEIGHT_PX = 260, 16
CELL_CHARACTERS = 34
DRAWN = (Section.PLAN, Section.DECISIONS, Section.SHARED)


def picture(comparison: Comparison) -> Picture:
    """Draw only the differences: a table of words, and bars for figures where less, or more, is better."""
    names = [x.name for x in comparison.specs]
    differing = [row for row in comparison.rows if not row.equal]
    words = [row for row in differing if row.section in DRAWN]
    figures = [row for row in differing if row.fewer is not None and _known(row) > 1]
    parts = []
    if words:
        parts.append(captioned(["Different decisions"], _table(words, names)))
    if figures:
        parts.append(captioned(["Costs: shorter is better unless marked"], _bars(figures)))
    colors = legend([Cell((name,), _color(i)) for i, name in enumerate(names)], "")
    facts = [f"bounds for {comparison.problem}", *([] if parts else ["nothing differs"])]
    return titled(" and ".join(names), facts, colors, *parts)


def _color(index: int) -> str:
    return HUES[index % len(HUES)]


def _table(rows: Sequence[Row], names: Sequence[str]) -> Picture:
    """Draw a row of cells per difference, as high as its longest cell."""
    cells = [[_lines(cell) for cell in row.cells] for row in rows]
    width, _ = cell_size([lines for line in cells for lines in line])
    label = max(len(row.name) for row in rows)
    drawn = [
        grid(
            [[Cell(lines, _light(i)) for i, lines in enumerate(line)]],
            rows=[row.name.rjust(label)],
            columns=["" for _ in names],
            corner="",
            size=(width, cell_size(line)[1]),
        )
        for row, line in zip(rows, cells, strict=True)
    ]
    return above(*(_without_header(each) for each in drawn), gap=0)


def _without_header(picture: Picture) -> Picture:
    """Return a grid of one row moved up over its empty header."""
    top = min(item.y for item in picture.items if isinstance(item, Box))
    kept = tuple(item for item in picture.items if not (isinstance(item, Text) and not item.text))
    return Picture(picture.width, picture.height - top, Picture(0, 0, kept).moved(0, -top))


def _light(index: int) -> str:
    return PALE if index % 2 else "#e3e6ea"


def _lines(cell: str) -> tuple[str, ...]:
    return tuple(broken(cell, CELL_CHARACTERS))


def _bars(rows: Sequence[Row]) -> Picture:
    """Draw for each figure one bar per spec, the longest at full width, followed by the figure."""
    left = max(text_width(_label(row), CELL_PX) for row in rows) + 8
    items: list[Item] = []
    y, right = 0.0, 0.0
    for row in rows:
        known = [float(value) for value in row.values if isinstance(value, int | float)]
        most = max(known, default=0.0) or 1.0
        items.append(Text(x=left - 8, y=y + BAR_HEIGHT_PX / 2, text=_label(row), align="end", size_px=CELL_PX))
        for i, (value, cell) in enumerate(zip(row.values, row.cells, strict=True)):
            length = BAR_PX * float(value) / most if isinstance(value, int | float) else 0.0
            if length:
                items.append(Box(x=left, y=y, width=length, height=BAR_HEIGHT_PX, fill=_color(i), lines=()))
            items.append(Text(x=left + length + 6, y=y + BAR_HEIGHT_PX / 2, text=cell, size_px=CELL_PX))
            right = max(right, left + length + 6 + text_width(cell, CELL_PX))
            y += BAR_HEIGHT_PX + 2
        y += CELL_PX * LINE_EM / 2
    return Picture(right, y, tuple(items))


def _known(row: Row) -> int:
    return sum(value is not None for value in row.values)


def _label(row: Row) -> str:
    return row.name if row.fewer else f"{row.name} (longer is better)"
