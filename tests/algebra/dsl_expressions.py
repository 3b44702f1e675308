"""Evaluates layout expressions with the CuTe DSL: `python dsl_expressions.py < trees.json`, one printout a line.

An expression is a tree, so that cutegen's parser has no part in it: `["layout", shape, stride]`, whose stride may be
null; `["at", expression, coordinate]`; `[operation, expression]`; or `[operation, expression, tiler]`, with an integer,
a layout, or `["modes", tiler, ...]`. The DSL ends the process on some layouts that it does not expect: this is one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from cutlass import cute
from cutlass._mlir import ir

ONLY_LAYOUTS = (
    *("zipped_divide", "tiled_divide", "flat_divide", "blocked_product", "raked_product"),
    *("zipped_product", "tiled_product", "flat_product"),
)
"""Operations of the DSL that do not take an integer: CuTe C++ makes a layout of it."""


WITH_EXTENTS: dict[str, Callable[..., Any]] = {
    "tile_to_shape": lambda layout, shape, order=None: cute.coalesce(
        cute.tile_to_shape(layout, shape, order or tuple(range(1, len(shape) + 1))), target_profile=(1,) * len(shape)
    ),
    "recast": lambda layout, old_bits, new_bits: cute.recast_layout(new_bits, old_bits, layout),
    "coalesce": lambda layout, profile=None: cute.coalesce(layout, target_profile=profile),
}
"""Operations with integers as arguments, which are not tilers. The DSL does not coalesce what CuTe C++ does."""


def tree(value: Any) -> Any:
    """Shapes and strides as tuples; a stride in a mode of a coordinate is `{"scale": 3, "path": [1, 0]}`."""
    if isinstance(value, dict):
        return value["scale"] * cute.E(value["path"])
    return tuple(map(tree, value)) if isinstance(value, list) else value


def tiler_of(given: Any) -> Any:
    if isinstance(given, int):
        return given
    kind, *parts = given
    return tuple(map(tiler_of, parts)) if kind == "modes" else value_of(given)


def value_of(expression: Any) -> Any:
    name, *rest = expression
    if name == "layout":
        shape, stride = map(tree, rest)
        return cute.make_layout(shape) if stride is None else cute.make_layout(shape, stride=stride)
    if name == "at":
        return cute.crd2idx(tree(rest[1]), value_of(rest[0]))
    if name in WITH_EXTENTS:
        return WITH_EXTENTS[name](value_of(rest[0]), *map(tree, rest[1:]))
    arguments = [value_of(rest[0]), *map(tiler_of, rest[1:])]
    if name in ONLY_LAYOUTS and isinstance(arguments[1], int):
        arguments[1] = cute.make_layout(arguments[1])
    return getattr(cute, name)(*arguments)


def main() -> None:
    with ir.Context() as context, ir.Location.unknown():
        context.enable_multithreading(False)
        with ir.InsertionPoint(ir.Module.create().body):
            for expression in json.load(sys.stdin):
                print(value_of(expression), flush=True)


if __name__ == "__main__":
    main()
