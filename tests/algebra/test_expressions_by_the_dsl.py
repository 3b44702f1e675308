"""Layout expressions at random are printed as the CuTe DSL prints them, to the last stride.

The DSL differs from CuTe C++, whose printouts cutegen's are, in a few places:

- its `raked_product` coalesces each mode of the result; CuTe C++ and its own `blocked_product` do not;
- its `tile_to_shape` does not coalesce each mode of the result, as CuTe C++ does (`dsl_expressions.py` does it then);
- its divisions take an integer only within a tuple (`dsl_expressions.py` passes a layout);
- it refuses the `raked_product` of a block that is one integer, and its `blocked_product` with a tiler of one mode in
  parentheses has a mode too many: here blocks have modes;
- of a layout whose elements overlap it has a complement with modes of 0 elements, and of extents that do not divide
  it rounds up: CuTe C++ asserts, and cutegen refuses.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cutegen.algebra import Layout, LayoutExpr, format_layout, inner_layout, modes, parse_expression, size
from cutegen.algebra.expressions import OPERATIONS
from cutegen.algebra.layout import coalesce, make_layout

pytestmark = pytest.mark.dsl

EXPRESSIONS = 700
REFUSALS = ("not divisible", "has no complement", "has no left inverse")
"""What CuTe C++ asserts."""
DEEPEST = 2
LAYOUTS = ("blocked_product", "raked_product")
PRODUCTS = ("zipped_product", "tiled_product", "flat_product")
TILERS = tuple(name for name, operation in OPERATIONS.items() if operation.arguments == ("tiler",))
MOST_ELEMENTS = 4096
EXTENTS = (1, 1, 2, 2, 3, 4, 6, 8)


def random_shape(rng: random.Random, depth: int = 0) -> Any:
    if depth < DEEPEST and rng.random() < 0.35:
        return [random_shape(rng, depth + 1) for _ in range(rng.randint(1, 3))]
    return rng.choice(EXTENTS)


def random_strides(rng: random.Random, shape: Any) -> Any:
    if isinstance(shape, list):
        return [random_strides(rng, part) for part in shape]
    return rng.choice((0, 1, 1, 2, 3, 4, 8, 12, 16))


def dense_strides(rng: random.Random, shape: list[int]) -> list[int]:
    """Compact, its modes in any order."""
    strides, end = [0] * len(shape), 1
    for index in rng.sample(range(len(shape)), len(shape)):
        strides[index], end = end, end * shape[index]
    return strides


def random_layout(rng: random.Random) -> list[Any]:
    shape = [random_shape(rng, 1) for _ in range(rng.randint(1, 3))]
    how = rng.random()
    if how < 0.2:
        return ["layout", rng.choice(EXTENTS), None]
    if how < 0.5:
        return ["layout", shape, None]
    if how < 0.7:
        return ["layout", shape, random_strides(rng, shape)]
    flat = [rng.choice((1, 2, 3, 4, 6, 8, 12, 16)) for _ in range(rng.randint(1, 3))]
    return ["layout", flat, dense_strides(rng, flat)]


def divisor(rng: random.Random, number: int) -> int:
    return rng.choice([each for each in range(1, number + 1) if number % each == 0])


def random_tiler(rng: random.Random, part: Layout, *, nests: bool = True) -> Any:
    """An integer or a layout that fits a part, now and then twice as long; or one for each of its modes."""
    if nests and isinstance(part.shape, tuple) and rng.random() < 0.6:
        chosen = modes(part)[: rng.randint(1, len(modes(part)))]
        return ["modes", *(random_tiler(rng, each) for each in chosen)]
    extent = divisor(rng, size(part))
    if rng.random() < 0.5:
        return extent * rng.choice((1, 1, 1, 2))
    return ["layout", extent, divisor(rng, size(part) // extent)]


def random_repeats(rng: random.Random, part: Layout) -> Any:
    """A tiler of `logical_product`."""
    if isinstance(part.shape, tuple) and rng.random() < 0.6:
        return ["modes", *(random_repeats(rng, each) for each in modes(part)[: rng.randint(1, len(modes(part)))])]
    return rng.choice((1, 2, 3, 4, ["layout", 4, 2], ["layout", 3, 1], ["layout", [2, 3], [1, 2]]))


def random_expression(rng: random.Random, depth: int = 0) -> list[Any]:
    names = [name for name in OPERATIONS if name != "raked_product" or not depth]
    name = rng.choice(names)
    nested = depth < DEEPEST and rng.random() < 0.3
    operand = random_expression(rng, depth + 1) if nested else random_layout(rng)
    layout = inner_layout(parse_expression(written(operand)))
    if size(layout) > MOST_ELEMENTS or (name in LAYOUTS and not isinstance(layout.shape, tuple)):
        return random_expression(rng, depth)
    if name == "tile_to_shape":
        repeats = [rng.choice((1, 2, 3)) for _ in modes(layout)]
        shape = [size(each) * times for each, times in zip(modes(layout), repeats, strict=True)]
        orders = [[rng.sample(range(1, len(shape) + 1), len(shape))]] * (rng.random() < 0.5)
        return [name, operand, shape, *(orders[0] if orders else ())]
    if name == "recast":
        return [name, operand, *rng.choice(((16, 32), (32, 16), (8, 32), (16, 16), (4, 8), (32, 8)))]
    if name == "coalesce":
        ranks = [[1] * rng.randint(1, len(modes(layout)))] if isinstance(layout.shape, tuple) else []
        return [name, operand, *ranks] if rng.random() < 0.5 else [name, operand]
    if name in PRODUCTS:
        return [name, operand, rng.choice((1, 2, 3, 4, ["layout", 4, 2], ["layout", [2, 3], [1, 2]]))]
    if name == "complement":
        return [name, operand, rng.choice((size(layout), 2 * size(layout), 48, 96))]
    if name == "logical_product":
        return [name, operand, random_repeats(rng, layout)]
    if name in LAYOUTS:
        shape = [rng.choice((1, 2, 3, 4)) for _ in range(rng.randint(1, 3))]
        return [name, operand, ["layout", shape, None]]
    return [name, operand, random_tiler(rng, layout)] if name in TILERS else [name, operand]


def written(expression: Any, brackets: str = "<>") -> str:
    """An expression as users write it; a tiler of several modes in either of its brackets."""
    if isinstance(expression, int):
        return str(expression)
    if isinstance(expression[0], int):  # extents
        return _tree(expression)
    name, *rest = expression
    if name == "layout":
        return ":".join(_tree(each) for each in rest if each is not None)
    opening, closing = brackets if name == "modes" else (f"{name}(", ")")
    return f"{opening}{', '.join(written(each, brackets) for each in rest)}{closing}"


def _tree(value: Any) -> str:
    return f"({','.join(map(_tree, value))})" if isinstance(value, list) else str(value)


def printed_by_the_dsl(expressions: list[Any]) -> list[str]:
    script = Path(__file__).with_name("dsl_expressions.py")
    done = subprocess.run(
        [sys.executable, str(script)], input=json.dumps(expressions), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (expressions[len(done.stdout.splitlines())], done.stderr[-500:])
    return done.stdout.splitlines()


def as_the_dsl_prints(name: str, found: LayoutExpr) -> str:
    """Our result, without the difference that is the DSL's own."""
    assert isinstance(found, Layout)
    shown = make_layout(*map(coalesce, modes(found))) if name == "raked_product" else found
    return format_layout(shown).replace("_", "")


def test_random_expressions_are_printed_as_the_dsl_prints_them() -> None:
    rng = random.Random(random.getrandbits(64))
    expressions, ours, refused = [], [], Counter[str]()
    while len(expressions) < EXPRESSIONS:
        try:
            expression = random_expression(rng)
            text = written(expression, rng.choice(("<>", "()")))
            found = parse_expression(text)
        except ValueError as error:
            refused[next((each for each in REFUSALS if each in str(error)), str(error))] += 1
            continue
        expressions.append(expression)
        ours.append((text, as_the_dsl_prints(expression[0], found)))
    assert set(refused) <= set(REFUSALS)
    assert refused.total() < EXPRESSIONS
    theirs = printed_by_the_dsl(expressions)
    wrong = [(text, mine, said) for (text, mine), said in zip(ours, theirs, strict=True) if mine != said]

    assert wrong == []
    used = Counter(expression[0] for expression in expressions)
    assert min(used[name] for name in OPERATIONS) >= 10
