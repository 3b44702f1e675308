"""A picture as SVG: plain rectangles and texts, without style sheet or font, so that every viewer shows it."""

from collections.abc import Iterable, Iterator
from xml.sax.saxutils import escape

from cutegen.show.canvas.drawing import BLACK, CELL_PX, WHITE, Align, Box, Outline, Picture, Text, ink, label_lines

FONTS = "DejaVu Sans Mono, Menlo, Consolas, Liberation Mono, monospace"
_MIDDLE_EM = 0.35  # from the middle of a digit down to its baseline


def to_svg(picture: Picture, title: str) -> str:
    """Return one SVG document, W3C SVG 1.1; `title` is for screen readers."""
    width, height, items = _number(picture.width), _number(picture.height), picture.items
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="{WHITE}"/>',
        *_group(f'stroke="{WHITE}"', (f'<rect {_placed(x)} fill="{x.fill}"/>' for x in items if isinstance(x, Box))),
        *_group(
            f'fill="none" stroke="{BLACK}" stroke-width="1.5"',
            (f"<rect {_placed(x)}/>" for x in items if isinstance(x, Outline)),
        ),
        *_group(f'font-family="{FONTS}" font-size="{CELL_PX}" text-anchor="middle"', _texts(picture)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _group(attributes: str, elements: Iterable[str]) -> list[str]:
    return [f"<g {attributes}>", *elements, "</g>"]


def _texts(picture: Picture) -> Iterator[str]:
    for item in picture.items:
        if isinstance(item, Box):
            yield from (_text(line, color=ink(item.fill)) for line in label_lines(item))
        elif isinstance(item, Text):
            yield _text(item)


def _text(text: Text, *, color: str = BLACK) -> str:
    alignments: dict[Align, str] = {"start": ' text-anchor="start"', "middle": "", "end": ' text-anchor="end"'}
    attributes = [
        f'x="{_number(text.x)}" y="{_number(text.y + _MIDDLE_EM * text.size_px)}"',
        alignments[text.align],
        "" if text.size_px == CELL_PX else f' font-size="{_number(text.size_px)}"',
        ' font-weight="bold"' if text.bold else "",
        "" if color == BLACK else f' fill="{color}"',
    ]
    return f"<text {''.join(attributes)}>{escape(text.text)}</text>"


def _placed(item: Box | Outline) -> str:
    names = ("x", "y", "width", "height")
    return " ".join(f'{name}="{_number(getattr(item, name))}"' for name in names)


def _number(value: float) -> str:
    """Format with at most two decimals.

    >>> _number(12.0), _number(30.504)
    ('12', '30.5')
    """
    return f"{value:.2f}".rstrip("0").rstrip(".")
