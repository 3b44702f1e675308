"""A picture as PNG, by Pillow: an optional dependency that only this module uses.

Pillow brings a font, so the result does not depend on the machine's fonts. That font is proportional: each character
is drawn in a cell of fixed width, so that layouts and tables line up as they do in the terminal.
"""

from functools import lru_cache
from io import BytesIO
from typing import Any

from cutegen.errors import OutsideError, RequestError
from cutegen.show.canvas import drawing

SCALE = 2  # dots per pixel: sharp on current screens
MAX_DOTS = 16_384  # per side
_SHARES: dict[drawing.Align, float] = {
    "start": 0.0,
    "middle": 0.5,
    "end": 1.0,
}  # of the text's width, left of its place


def to_png(picture: drawing.Picture, title: str) -> bytes:
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
    image = Image.new("RGB", (width, height), drawing.WHITE)
    canvas = ImageDraw.Draw(image)
    for item in picture.items:
        _draw(canvas, item)
    described = PngImagePlugin.PngInfo()
    described.add_text("Title", title)
    file = BytesIO()
    image.save(file, "PNG", optimize=True, pnginfo=described)
    return file.getvalue()


def _draw(canvas: Any, item: drawing.Item) -> None:
    match item:
        case drawing.Box():
            canvas.rectangle(_corners(item), fill=item.fill, outline=drawing.WHITE, width=SCALE)
            for line in drawing.label_lines(item):
                _write(canvas, line, color=drawing.ink(item.fill))
        case drawing.Outline():
            canvas.rectangle(_corners(item), outline=drawing.BLACK, width=SCALE)
        case drawing.Text():
            _write(canvas, item)


def _write(canvas: Any, text: drawing.Text, *, color: str = drawing.BLACK) -> None:
    cell = drawing.text_width("0", text.size_px) * SCALE
    left = text.x * SCALE - _SHARES[text.align] * cell * len(text.text)
    for i, character in enumerate(text.text):
        glyph = _glyph(character, text.size_px, text.bold)
        place = round(left + (i + 0.5) * cell - glyph.width / 2), round(text.y * SCALE - glyph.height / 2)
        canvas.bitmap(place, glyph, fill=color)


@lru_cache(maxsize=1024)
def _glyph(character: str, size_px: float, bold: bool) -> Any:
    """Draw one character as a mask around its middle, squeezed to its cell if it is wider."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(size_px * SCALE)
    cell = round(drawing.text_width("0", size_px) * SCALE)
    stroke = 0.25 * SCALE if bold else 0  # there is no bold font
    natural, height = max(1, round(font.getlength(character) + 2 * stroke)), round(2 * size_px * SCALE)
    mask = Image.new("L", (natural, height), 0)
    ImageDraw.Draw(mask).text((stroke, height / 2), character, fill=255, font=font, anchor="lm", stroke_width=stroke)
    return mask if natural <= cell else mask.resize((cell, height), Image.Resampling.LANCZOS)


def _corners(item: drawing.Box | drawing.Outline) -> tuple[float, float, float, float]:
    """Return inclusive corners for Pillow; neighbors share their border."""
    return item.x * SCALE, item.y * SCALE, (item.x + item.width) * SCALE, (item.y + item.height) * SCALE
