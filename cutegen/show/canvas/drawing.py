"""A picture as a value: boxes and lines of text in pixels; its elements: grids, legends, threads, colors."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from cutegen.hardware.units import WARP

# Colors of banks, warps and pipeline actions, all light enough for black text.


BLACK, WHITE, GRAY, PALE = "#000000", "#ffffff", "#d5d8dc", "#eef0f2"
MARK = "#22313f"  # a marked cell: dark, with white text
CONFLICT = "#9b1c1c"  # waits for a bank: dark, with white text

HUES = ("#56a3d9", "#f2a154", "#6cc08b", "#ec8a92", "#b397dc", "#e6c74c", "#e79cce", "#5fc4c4")
BANKS_PER_HUE = 4


def hue(index: int, shade: int = 0, shades: int = 1) -> str:
    """Return one of eight hues, in the `shade`-th of `shades` steps towards white."""
    return _lighter(HUES[index % len(HUES)], 0.7 * shade / shades)


def bank_color(bank: int) -> str:
    """Return the color of one of the 32 banks: a hue for the four banks of 16 bytes, and a shade for each.

    >>> bank_color(0), len({bank_color(bank) for bank in range(32)})
    ('#56a3d9', 32)
    """
    return hue(bank // BANKS_PER_HUE, bank % BANKS_PER_HUE, BANKS_PER_HUE)


def ink(fill: str) -> str:
    """Return black or white, whichever reads better on `fill` (WCAG 2, relative luminance).

    >>> ink("#56a3d9"), ink(MARK)
    ('#000000', '#ffffff')
    """
    return BLACK if contrast(fill, BLACK) >= contrast(fill, WHITE) else WHITE


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio, 1 to 21 (WCAG 2).

    >>> contrast("#ffffff", "#000000")
    21.0
    """
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def channels(color: str) -> tuple[int, int, int]:
    """Return red, green and blue, 0 to 255.

    >>> channels("#56a3d9")
    (86, 163, 217)
    """
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def _lighter(color: str, share: float) -> str:
    """Mix a color with so much white."""
    return "#" + "".join(f"{round(x + (255 - x) * share):02x}" for x in channels(color))


def _luminance(color: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (x / 255 for x in channels(color))]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


# A picture as a value: filled boxes with text, outlines, and lines of text, placed in pixels.
#
# All text is monospaced, so its width can be computed, and boxes fit it before any font is known.


CHARACTER_EM = 0.61  # DejaVu Sans Mono, Menlo and Liberation Mono have 0.60, Consolas 0.55
LINE_EM = 1.2
CELL_PX, TEXT_PX, TITLE_PX = 10, 12, 16
MARGIN_PX = 16

Align = Literal["start", "middle", "end"]


def text_width(text: str, size_px: float) -> float:
    """Return an upper bound on the width of `text`.

    >>> round(text_width("T31V7", 10), 2)
    30.5
    """
    return len(text) * CHARACTER_EM * size_px


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A filled rectangle, (x, y) its upper left corner, with `lines` of text stacked in its middle."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    lines: tuple[str, ...] = ()
    size_px: float = CELL_PX


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A rectangle drawn around boxes, (x, y) its upper left corner."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """One line of text; (x, y) is at half its height, at its start, middle or end."""

    x: float
    y: float
    text: str
    align: Align = "start"
    size_px: float = TEXT_PX
    bold: bool = False


Item = Box | Outline | Text


def label_lines(box: Box) -> Iterator[Text]:
    """Place each line of text in a box."""
    step = box.size_px * LINE_EM
    first = box.y + (box.height - (len(box.lines) - 1) * step) / 2
    for i, line in enumerate(box.lines):
        yield Text(x=box.x + box.width / 2, y=first + i * step, text=line, align="middle", size_px=box.size_px)


@dataclass(frozen=True, slots=True)
class Picture:
    """Items within (0, 0) to (`width`, `height`), y downwards."""

    width: float
    height: float
    items: tuple[Item, ...]

    def moved(self, x: float, y: float) -> tuple[Item, ...]:
        """Return the items moved right and down."""
        return tuple(replace(item, x=item.x + x, y=item.y + y) for item in self.items)


def above(*pictures: Picture, gap: float = 24) -> Picture:
    """Stack pictures vertically, aligned left."""
    items: list[Item] = []
    y = 0.0
    for picture in pictures:
        items += picture.moved(0, y)
        y += picture.height + gap
    return Picture(max(picture.width for picture in pictures), y - gap, tuple(items))


def beside(*pictures: Picture, gap: float = 40) -> Picture:
    """Place pictures side by side, aligned at the top."""
    items: list[Item] = []
    x = 0.0
    for picture in pictures:
        items += picture.moved(x, 0)
        x += picture.width + gap
    return Picture(x - gap, max(picture.height for picture in pictures), tuple(items))


def arranged(*pictures: Picture) -> Picture:
    """Stack pictures, or place them side by side if the stack would be too tall."""
    tower = above(*pictures)
    return beside(*pictures) if tower.height > 2 * tower.width else tower


def paragraph(lines: Sequence[str], *, size_px: float = TEXT_PX, bold: bool = False) -> Picture:
    """Draw lines of text at their full length."""
    step = size_px * LINE_EM * 1.1
    texts = tuple(Text(x=0, y=(i + 0.5) * step, text=line, size_px=size_px, bold=bold) for i, line in enumerate(lines))
    return Picture(max(text_width(line, size_px) for line in lines), len(lines) * step, texts)


def titled(title: str, facts: Sequence[str], *pictures: Picture) -> Picture:
    """Stack pictures under a title and lines of facts."""
    head = paragraph([title], size_px=TITLE_PX, bold=True)
    return above(above(head, paragraph(facts), gap=4) if facts else head, *pictures, gap=16)


def captioned(caption: Sequence[str], picture: Picture) -> Picture:
    """Draw a picture, or a part of one, under its caption; the caption's first line is bold."""
    head = paragraph(caption[:1], bold=True)
    return above(above(head, paragraph(caption[1:]), gap=0) if caption[1:] else head, picture, gap=6)


def framed(picture: Picture) -> Picture:
    """Return the picture with an empty margin, ready for output."""
    return Picture(picture.width + 2 * MARGIN_PX, picture.height + 2 * MARGIN_PX, picture.moved(MARGIN_PX, MARGIN_PX))


# Grids of labeled cells with row and column numbers, and legends: the elements of every picture.


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


# Cells that name a thread and its values, colored by warp, one thread marked.


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
