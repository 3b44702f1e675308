"""Layouts of coordinates are read and printed as CuTe does, and map coordinates as the DSL's do."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from cutegen.algebra.coordinates import OF_COORDINATES, Basis, CoordinateLayout, parse_coordinates
from cutegen.algebra.layout import compact
from tests.algebra.test_expressions_by_the_dsl import printed_by_the_dsl, random_tiler, written

LAYOUTS = 40


def test_an_identity_gives_each_coordinate_back() -> None:
    found = parse_coordinates("((4,2),3):((1@0@0,1@1@0),1@1)").by_row()
    assert found.shape == (8, 3)
    for i, j, k in np.ndindex(4, 2, 3):
        assert found[i + 4 * j, k] == ((i, j), k)


def test_strides_add_up_and_modes_without_one_are_0() -> None:
    found = parse_coordinates("((2,2),3):((1@1,4@1),2@3)").by_row()
    assert found[3, 2] == (0, 5, 0, 4)


@pytest.mark.parametrize(
    "text",
    ["(_4,_3):(_1@0,_1@1)", "((_4,_2),_3):((_1@0@0,_1@1@0),_1@1)", "(_4,(_3,_2)):(_1@0,(_1@0@1,_3@1@1))", "_8:_0"],
)
def test_printing_inverts_reading(text: str) -> None:
    assert str(parse_coordinates(text)) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(4,3):(E<0>,E<1>)", "(_4,_3):(_1@0,_1@1)"),
        ("(4,3):(E<1,0>,E<0>)", "(_4,_3):(_1@0@1,_1@0)"),
        ("(4, 3) : (1@0, 0)", "(_4,_3):(_1@0,_0)"),
    ],
)
def test_spellings(text: str, said: str) -> None:
    assert str(parse_coordinates(text)) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(4,3):(1@0,2)", "position 11: expected 0, or a stride in a mode below 16, such as 1@0 or E<0>"),
        ("(4,3):(1@0,1@16)", "position 11: expected 0, or a stride in a mode below 16"),
        ("(4,3):(1@0,1@1@0)", "found _1@0 and _1@1@0; expected a mode to be a number or a tuple, not both"),
        ("(4,3):(1@0)", "position 6: the stride is not nested like the shape"),
        ("(4,3):(1@,1@1)", "position 9: expected an integer, found ','"),
        ("(4,0):(1@0,1@1)", "every extent of a shape is at least 1"),
        ("(4,3):(1@0,1@1) o", "expected the end, found 'o'"),
    ],
)
def test_refusals(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"^layout") as refused:
        parse_coordinates(text)
    assert said in str(refused.value)


PATHS = ((0,), (1, 0), (1, 1), (2,))


def drawn(rng: random.Random, depth: int = 0) -> tuple[Any, Any]:
    """Return a shape of at most 729 elements and strides at random, nested alike."""
    if depth == 0 or (depth == 1 and rng.random() < 0.4):
        parts = [drawn(rng, depth + 1) for _ in range(2 if depth else rng.randint(2, 3))]
        shape, stride = (tuple(each[i] for each in parts) for i in (0, 1))
        return shape, stride
    return rng.choice((2, 3)), Basis(rng.choice((1, 2, 5)), rng.choice(PATHS))


def as_json(stride: Any) -> Any:
    return [*map(as_json, stride)] if isinstance(stride, tuple) else {"scale": stride.scale, "path": stride.path}


def trees(shape: Any) -> Any:
    return [*map(trees, shape)] if isinstance(shape, tuple) else shape


@pytest.mark.slow
@pytest.mark.dsl
def test_layouts_at_random_are_printed_as_the_dsl_prints_them() -> None:
    rng = random.Random(random.getrandbits(64))
    layouts = [CoordinateLayout(*drawn(rng)) for _ in range(LAYOUTS)]
    asked = [["layout", trees(layout.shape), as_json(layout.stride)] for layout in layouts]
    assert [str(layout).replace("_", "") for layout in layouts] == printed_by_the_dsl(asked)


def test_an_operation_divides_the_coordinates_as_it_does_offsets() -> None:
    found = parse_coordinates("zipped_divide((8,(3,2)):(E<0>,(E<1,0>,E<1,1>)), (2,<3:1>))").by_row()
    assert found.shape == (6, 8)
    for i, j, rest_i, rest_j in np.ndindex(2, 3, 4, 2):
        assert found[i + 2 * j, rest_i + 4 * rest_j] == (i + 2 * rest_i, (j, rest_j))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("blocked_product((4,8):(E<0>,E<1>), (2,2))", "blocked_product: found a layout of coordinates; expected"),
        ("composition((4,2):(1,4), 2:E<0>)", "composition: found strides of coordinates in a tiler"),
        ("composition((4,8):(E<0>,E<1>), (<2:E<0>>))", "composition: found strides of coordinates in a tiler"),
        ("Sw<3,3,3> o (4,8):(E<0>,E<1>)", "found a swizzle; expected none: a swizzle is of offsets"),
        ("composition((4,8):(E<0>,E<1>), 8:3)", "shape 4 and stride 3 are not divisible"),
    ],
)
def test_operations_that_need_offsets_are_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"^layout") as refused:
        parse_coordinates(text)
    assert said in str(refused.value)


@pytest.mark.slow
@pytest.mark.dsl
def test_operations_at_random_are_printed_as_the_dsl_prints_them() -> None:
    rng = random.Random(random.getrandbits(64))
    asked, ours, refused = list[Any](), list[tuple[str, str]](), list[str]()
    while len(asked) < LAYOUTS:
        layout, name = CoordinateLayout(*drawn(rng)), rng.choice(OF_COORDINATES)
        others = [] if name == "coalesce" else [random_tiler(rng, compact(layout.shape))]
        text = f"{name}({', '.join((str(layout), *map(written, others)))})"
        try:
            ours.append((text, str(parse_coordinates(text)).replace("_", "")))
        except ValueError as error:
            refused.append(str(error))
            continue
        asked.append([name, ["layout", trees(layout.shape), as_json(layout.stride)], *others])
    wrong = [
        (text, mine, theirs)
        for (text, mine), theirs in zip(ours, printed_by_the_dsl(asked), strict=True)
        if mine != theirs
    ]
    assert wrong == []
    assert all("not divisible" in each or "has no complement" in each for each in refused)


@pytest.mark.slow
@pytest.mark.dsl
def test_coordinates_are_those_of_the_dsl() -> None:
    rng = random.Random(random.getrandbits(64))
    layouts = [CoordinateLayout(*drawn(rng)) for _ in range(LAYOUTS)]
    layouts = [layout for layout in layouts if len(layout.shape) == 2]  # type: ignore[arg-type]
    asked, expected = [], []
    for layout in layouts:
        table = layout.by_row()
        at = [rng.randrange(extent) for extent in table.shape]
        asked.append(["at", ["layout", trees(layout.shape), as_json(layout.stride)], at])
        expected.append(json.loads(json.dumps(table[tuple(at)])))
    found = [
        json.loads(line.replace("(", "[").replace(",)", "]").replace(")", "]")) for line in printed_by_the_dsl(asked)
    ]
    assert found == expected
