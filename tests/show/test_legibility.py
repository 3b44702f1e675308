"""Every picture can be read: nothing overlaps, labels fit into their boxes, and all lies within the picture."""

from __future__ import annotations

import pytest

from cutegen.algebra import parse_layout
from cutegen.hardware import dtype
from cutegen.plan.kernel.accumulator import Home
from cutegen.show.canvas import Box, Picture, Text, framed
from cutegen.show.canvas.drawing import CONFLICT, MARK, bank_color, contrast, hue, ink, label_lines
from cutegen.show.parts import PICTURES, Part, layout
from tests.show.cases import SPECS, plan_of
from tests.show.geometry import boxes, inside, overlapping, rectangle, text_rectangle, texts

LAYOUTS = (
    "7",
    "(8,32):(40,1)",
    "Sw<3,3,3> o (8,(8,8)):(8,(1,64))",
    "(1000,1000):(1000,1)",
    "((2,2),(4,8)):((1,8),(2,16))",
    "(4,3,2)",
    "(8,64):(-64000,1)",
)


def assert_legible(picture: Picture) -> None:
    page = (0.0, 0.0, picture.width, picture.height)
    drawn = boxes(picture)
    assert overlapping(map(rectangle, drawn)) == []
    lines = list(texts(picture))
    assert overlapping(map(text_rectangle, lines)) == []
    for box in drawn:
        assert inside(rectangle(box), page)
        assert all(inside(text_rectangle(line), rectangle(box)) for line in label_lines(box)), box
    for line in lines:
        assert inside(text_rectangle(line), page), line
        assert line.size_px >= 10
        assert line.text.isascii()
    written_on = [rectangle(box) for box in drawn]
    free = [item for item in picture.items if isinstance(item, Text)]
    crossing = overlapping([*map(text_rectangle, free), *written_on])
    assert [pair for pair in crossing if (pair[0] < len(free)) != (pair[1] < len(free))] == []


@pytest.mark.parametrize("part", PICTURES)
@pytest.mark.parametrize("name", SPECS)
def test_pictures_of_plans(name: str, part: Part) -> None:
    plan = plan_of(name)
    picture = framed(PICTURES[part](plan, plan.tiled_mma.threads - 1))  # the thread with the longest name
    assert_legible(picture)
    is_said = part == "tmem" and plan.mma.accumulator.home is not Home.TENSOR_MEMORY  # in one sentence
    assert 400 < picture.width < 4000
    assert (50 if is_said else 200) < picture.height < 4000


@pytest.mark.parametrize("expression", LAYOUTS)
@pytest.mark.parametrize("element", ["f16", "f32"])
def test_pictures_of_layouts(expression: str, element: str) -> None:
    assert_legible(framed(layout.picture(parse_layout(expression), dtype(element))))


def test_what_is_illegible_is_noticed() -> None:
    box = Box(x=0, y=0, width=40, height=20, fill="#ffffff", lines=("abc",))
    for other in (
        Box(x=39, y=0, width=40, height=20, fill="#ffffff"),
        Box(x=41, y=0, width=10, height=20, fill="#ffffff", lines=("long",)),
        Box(x=90, y=0, width=40, height=20, fill="#ffffff"),
    ):
        with pytest.raises(AssertionError):
            assert_legible(Picture(100, 20, (box, other)))
    assert_legible(Picture(100, 20, (box,)))


def test_banks_are_told_apart_and_text_on_every_color_can_be_read() -> None:
    colors = [bank_color(bank) for bank in range(32)]
    assert len(set(colors)) == 32
    for color in [MARK, CONFLICT, *colors, *(hue(i, shade, 4) for i in range(8) for shade in range(4))]:
        assert contrast(color, ink(color)) >= 7  # WCAG 2, level AAA
