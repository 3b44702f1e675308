"""A picture as PNG, by Pillow: an optional dependency that only this module uses.

Pillow brings a font, so the result does not depend on the machine's fonts.
"""

from __future__ import annotations

from functools import lru_cache
from io import BytesIO
from typing import Any

from cutegen.errors import OutsideError, RequestError
from cutegen.show.canvas.colors import BLACK, WHITE, ink
from cutegen.show.canvas.picture import Align, Box, Item, Outline, Picture, Text, label_lines, text_width

SCALE = 2  # dots per pixel: sharp on current screens
MAX_DOTS = 16_384  # per side
_ANCHORS: dict[Align, str] = {"start": "lm", "middle": "mm", "end": "rm"}


def to_png(picture: Picture, title: str) -> bytes:
    """Return one PNG file, two dots per pixel. Raises OutsideError without Pillow, RequestError beyond 8192 pixels."""
    try:
        from PIL import Image, ImageDraw, PngImagePlugin
    except ImportError as error:
        raise OutsideError(
            "PNG needs Pillow, which is not installed: pip install 'cutegen[png]'; SVG and LaTeX need nothing"
        ) from error
    width, height = round(picture.width * SCALE), round(picture.height * SCALE)
    if max(width, height) > MAX_DOTS:
        raise RequestError(
            f"PNG: found {width:,} x {height:,} dots; expected at most {MAX_DOTS:,} along a side; SVG has no limit"
        )
    image = Image.new("RGB", (width, height), WHITE)
    canvas = ImageDraw.Draw(image)
    for item in picture.items:
        _draw(canvas, item)
    described = PngImagePlugin.PngInfo()
    described.add_text("Title", title)
    file = BytesIO()
    image.save(file, "PNG", optimize=True, pnginfo=described)
    return file.getvalue()


def _draw(canvas: Any, item: Item) -> None:
    match item:
        case Box():
            canvas.rectangle(_corners(item), fill=item.fill, outline=WHITE, width=SCALE)
            for line in label_lines(item):
                _write(canvas, line, color=ink(item.fill))
        case Outline():
            canvas.rectangle(_corners(item), outline=BLACK, width=SCALE)
        case Text():
            _write(canvas, item)


def _write(canvas: Any, text: Text, *, color: str = BLACK) -> None:
    # The font is proportional: a line of wide letters is shrunk to its given width.
    room, needed = text_width(text.text, text.size_px) * SCALE, _font(text.size_px).getlength(text.text)
    font = _font(text.size_px if needed <= room else text.size_px * room / needed)
    stroke = 0.25 * SCALE if text.bold else 0  # there is no bold font
    place = text.x * SCALE, text.y * SCALE
    canvas.text(place, text.text, fill=color, font=font, anchor=_ANCHORS[text.align], stroke_width=stroke)


@lru_cache(maxsize=64)
def _font(size_px: float) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size_px * SCALE)


def _corners(item: Box | Outline) -> tuple[float, float, float, float]:
    """Return inclusive corners for Pillow; neighbors share their border."""
    return item.x * SCALE, item.y * SCALE, (item.x + item.width) * SCALE, (item.y + item.height) * SCALE
