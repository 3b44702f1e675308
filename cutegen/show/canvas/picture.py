"""A picture as a value: filled boxes with text, outlines, and lines of text, placed in pixels.

All text is monospaced, so its width can be computed, and boxes fit it before any font is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

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
