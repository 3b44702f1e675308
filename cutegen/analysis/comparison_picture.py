"""A comparison as a picture: differing decisions in words, and countable quantities as bars."""

from collections.abc import Sequence

from cutegen.analysis.comparison import Comparison, Row, Section
from cutegen.analysis.comparison_text import broken
from cutegen.show.canvas import drawing

BAR_PX, BAR_HEIGHT_PX = 260, 16
CELL_CHARACTERS = 34
DRAWN = (Section.PLAN, Section.DECISIONS, Section.SHARED)


def picture(comparison: Comparison) -> drawing.Picture:
    """Draw only the differences: a table of words, and bars for figures where less, or more, is better."""
    names = [x.name for x in comparison.specs]
    differing = [row for row in comparison.rows if not row.equal]
    words = [row for row in differing if row.section in DRAWN]
    figures = [row for row in differing if row.fewer is not None and _known(row) > 1]
    parts = []
    if words:
        parts.append(drawing.captioned(["Different decisions"], _table(words, names)))
    if figures:
        parts.append(drawing.captioned(["Costs: shorter is better unless marked"], _bars(figures)))
    colors = drawing.legend([drawing.Cell((name,), _color(i)) for i, name in enumerate(names)], "")
    facts = [f"bounds for {comparison.problem}", *([] if parts else ["nothing differs"])]
    return drawing.titled(" and ".join(names), facts, colors, *parts)


def _color(index: int) -> str:
    return drawing.HUES[index % len(drawing.HUES)]


def _table(rows: Sequence[Row], names: Sequence[str]) -> drawing.Picture:
    """Draw a row of cells per difference, as high as its longest cell."""
    cells = [[_lines(cell) for cell in row.cells] for row in rows]
    width, _ = drawing.cell_size([lines for line in cells for lines in line])
    label = max(len(row.name) for row in rows)
    drawn = [
        drawing.grid(
            [[drawing.Cell(lines, _light(i)) for i, lines in enumerate(line)]],
            rows=[row.name.rjust(label)],
            columns=["" for _ in names],
            corner="",
            size=(width, drawing.cell_size(line)[1]),
        )
        for row, line in zip(rows, cells, strict=True)
    ]
    return drawing.above(*(_without_header(each) for each in drawn), gap=0)


def _without_header(picture: drawing.Picture) -> drawing.Picture:
    """Return a grid of one row moved up over its empty header."""
    top = min(item.y for item in picture.items if isinstance(item, drawing.Box))
    kept = tuple(item for item in picture.items if not (isinstance(item, drawing.Text) and not item.text))
    return drawing.Picture(picture.width, picture.height - top, drawing.Picture(0, 0, kept).moved(0, -top))


def _light(index: int) -> str:
    return drawing.PALE if index % 2 else "#e3e6ea"


def _lines(cell: str) -> tuple[str, ...]:
    return tuple(broken(cell, CELL_CHARACTERS))


def _bars(rows: Sequence[Row]) -> drawing.Picture:
    """Draw for each figure one bar per spec, the longest at full width, followed by the figure."""
    left = max(drawing.text_width(_label(row), drawing.CELL_PX) for row in rows) + 8
    items: list[drawing.Item] = []
    y, right = 0.0, 0.0
    for row in rows:
        known = [float(value) for value in row.values if isinstance(value, int | float)]
        most = max(known, default=0.0) or 1.0
        items.append(
            drawing.Text(x=left - 8, y=y + BAR_HEIGHT_PX / 2, text=_label(row), align="end", size_px=drawing.CELL_PX)
        )
        for i, (value, cell) in enumerate(zip(row.values, row.cells, strict=True)):
            length = BAR_PX * float(value) / most if isinstance(value, int | float) else 0.0
            if length:
                items.append(drawing.Box(x=left, y=y, width=length, height=BAR_HEIGHT_PX, fill=_color(i), lines=()))
            items.append(drawing.Text(x=left + length + 6, y=y + BAR_HEIGHT_PX / 2, text=cell, size_px=drawing.CELL_PX))
            right = max(right, left + length + 6 + drawing.text_width(cell, drawing.CELL_PX))
            y += BAR_HEIGHT_PX + 2
        y += drawing.CELL_PX * drawing.LINE_EM / 2
    return drawing.Picture(right, y, tuple(items))


def _known(row: Row) -> int:
    return sum(value is not None for value in row.values)


def _label(row: Row) -> str:
    return row.name if row.fewer else f"{row.name} (longer is better)"
