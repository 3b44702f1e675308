"""One picture, three files: the same boxes and texts in each."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cutegen.algebra import parse_layout
from cutegen.algebra.coordinates import parse_coordinates
from cutegen.errors import OutsideError, RequestError
from cutegen.hardware import dtype
from cutegen.show.canvas import Box, Outline, Picture, Text, framed, to_latex, to_png, to_svg
from cutegen.show.canvas.drawing import text_width
from cutegen.show.canvas.png import SCALE
from cutegen.show.parts import layout
from tests.show.geometry import boxes, texts

GOLDEN = Path(__file__).parent / "golden" / "layout.svg"
NAMESPACE = "{http://www.w3.org/2000/svg}"
SMALL = Picture(
    120,
    60,
    (
        Box(x=10, y=10, width=50, height=40, fill="#56a3d9", lines=("T0", "V<1>")),
        Box(x=60, y=10, width=50, height=40, fill="#22313f", lines=("dark",)),
        Outline(x=10, y=10, width=100, height=40),
        Text(x=5, y=55, text=r"50% of a_1 & {\b} #~^$", bold=True),
    ),
)


def small_layout() -> Picture:
    return framed(layout.picture(parse_layout("Sw<1,1,1> o (2,4):(4,1)"), dtype("f32")))


def test_a_small_picture_is_as_it_was(request: pytest.FixtureRequest) -> None:
    svg = to_svg(small_layout(), "golden")
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(svg)
    assert svg == GOLDEN.read_text()


@pytest.mark.parametrize("picture", [SMALL, small_layout()], ids=["small", "layout"])
def test_svg_has_every_box_and_text(picture: Picture) -> None:
    root = ElementTree.fromstring(to_svg(picture, "a <title> & more"))
    assert root.find(f"{NAMESPACE}title").text == "a <title> & more"  # type: ignore[union-attr]
    assert (root.get("width"), root.get("height")) == (f"{picture.width:g}", f"{picture.height:g}")
    filled = [rect for rect in root.iter(f"{NAMESPACE}rect") if rect.get("x") and rect.get("fill")]
    assert [(float(r.get("x", "")), r.get("fill")) for r in filled] == [
        (pytest.approx(box.x, abs=0.01), box.fill) for box in boxes(picture)
    ]
    assert [text.text for text in root.iter(f"{NAMESPACE}text")] == [text.text for text in texts(picture)]


def test_a_layout_of_coordinates_has_the_coordinate_of_each_element_in_its_cells() -> None:
    found = parse_coordinates("zipped_divide((8,6):(E<0>,E<1>), (2,3))")
    drawn = [(box.lines, box.fill) for box in boxes(layout.coordinates_picture(found))]
    assert [lines for lines, _ in drawn] == [(f"({i},{j})",) for i, j in found.by_row().ravel().tolist()]
    columns = {lines[0].strip("()").partition(",")[2]: fill for lines, fill in drawn}
    assert all(fill == columns[lines[0].strip("()").partition(",")[2]] for lines, fill in drawn)
    assert len(set(columns.values())) == len(columns) == 6


def test_text_on_a_dark_box_is_white() -> None:
    lines = [line for line in to_svg(SMALL, "").splitlines() if "<text" in line]
    assert [line for line in lines if 'fill="#ffffff"' in line] == [line for line in lines if ">dark<" in line]


def test_latex_has_every_box_and_text_and_no_open_command() -> None:
    latex = to_latex(SMALL, "small")
    assert latex.count(r"\filldraw") == 2
    assert latex.count(r"\draw[") == 1
    assert latex.count(r"\node") == 4
    assert r"\definecolor{c56a3d9}{RGB}{86,163,217}" in latex
    assert latex.count("{") == latex.count("}")
    for begin, end in ((r"\begin{document}", r"\end{document}"), (r"\begin{tikzpicture}", r"\end{tikzpicture}")):
        assert latex.index(begin) < latex.index(end)
    # What stands in the last node, once characters are put back, is the text.
    last = latex.splitlines()[-3].split("{", 1)[1].rsplit("};", 1)[0]
    body = last[last.index(") {") + 3 :]
    assert re.sub(r"\{\\char(\d+)\}", lambda match: chr(int(match[1])), body) == SMALL.items[-1].text  # type: ignore[union-attr]
    assert "%" not in body


def test_png_is_drawn_at_the_right_places() -> None:
    from PIL import Image

    image = Image.open(io.BytesIO(to_png(SMALL, "small")))
    assert image.size == (120 * SCALE, 60 * SCALE)
    assert image.info["Title"] == "small"
    assert image.getpixel((15 * SCALE, 15 * SCALE)) == (0x56, 0xA3, 0xD9)
    assert image.getpixel((65 * SCALE, 15 * SCALE)) == (0x22, 0x31, 0x3F)
    assert image.getpixel((2, 2)) == (255, 255, 255)
    label = image.crop((60 * SCALE + 3, 20 * SCALE, 110 * SCALE - 3, 40 * SCALE))
    assert (255, 255, 255) in {color for _, color in label.getcolors(1 << 20) or []}


def test_characters_of_a_png_have_one_width() -> None:
    """A bar behind narrow letters is where a bar behind wide ones is."""
    from PIL import Image

    def bar_columns(text: str) -> set[int]:
        picture = Picture(120, 20, (Text(x=5, y=10, text=text),))
        image = Image.open(io.BytesIO(to_png(picture, ""))).convert("L")
        last = round((5 + text_width(text[:-1], Text(x=0, y=0, text="").size_px)) * SCALE)
        return {x for x in range(last, image.width) for y in range(image.height) if image.getpixel((x, y)) < 128}

    assert bar_columns("iiii|") == bar_columns("WWWW|") != set()


def test_png_without_pillow_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(OutsideError, match=r"pip install 'cutegen\[png\]'; SVG and LaTeX need nothing"):
        to_png(SMALL, "")


def test_a_picture_too_large_for_png_is_refused() -> None:
    with pytest.raises(RequestError, match="found 20,000 x 20 dots; expected at most 16,384"):
        to_png(Picture(10_000, 10, ()), "")
