"""Layouts of coordinates: their strides, such as `1@0`, add to one mode of a coordinate instead of an offset.

CuTe writes E<0> for the stride 1 in mode 0 and prints it as `1@0`. E<1,0> is mode 0 within mode 1, printed from the
innermost mode on: `1@0@1`. Such are the layouts of identity tensors and of TMA's coordinates (CUTLASS's page
"CuTe TMA Tensors").
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutegen.algebra.expressions import ExpressionParser
from cutegen.algebra.layout import ComposedLayout, IntTree, Layout, LayoutExpr, congruent, flatten, offsets_by_row


@dataclass(frozen=True, slots=True)
class Basis:
    """A stride of `scale` in the mode of a coordinate that `path` leads to, the outermost mode first."""

    scale: int
    path: tuple[int, ...]

    def __str__(self) -> str:
        return "".join((f"_{self.scale}", *(f"@{mode}" for mode in reversed(self.path))))


StrideTree = int | Basis | tuple["StrideTree", ...]
"""Strides of a layout of coordinates, nested like its shape; an integer is 0."""
Coordinate = int | tuple["Coordinate", ...]


@dataclass(frozen=True, slots=True)
class CoordinateLayout:
    """A function from coordinates of `shape` to coordinates."""

    shape: IntTree
    stride: StrideTree

    def __str__(self) -> str:
        return f"{_text(self.shape)}:{_text(self.stride)}"

    @property
    def paths(self) -> tuple[tuple[int, ...], ...]:
        """The modes of its coordinates that have a stride."""
        return tuple(sorted({stride.path for stride in _leaves(self.stride) if isinstance(stride, Basis)}))

    def by_row(self) -> NDArray[np.object_]:
        """Return the coordinate of each element, mode 0 downwards and all others to the right.

        >>> parse_coordinates("(2,3):(1@0,1@1)").by_row()[1, 2]
        (1, 2)
        """
        paths = self.paths or ((0,),)
        tables = [offsets_by_row(Layout(self.shape, _along(self.stride, path))) for path in paths]
        found: NDArray[np.object_] = np.empty(tables[0].size, np.object_)
        for i, values in enumerate(zip(*(table.ravel().tolist() for table in tables), strict=True)):
            found[i] = _nested(dict(zip(paths, values, strict=True)))
        return found.reshape(tables[0].shape)


def is_of_coordinates(text: str) -> bool:
    """Return whether a layout's text has strides of coordinates."""
    return "@" in text or "E<" in text


def parse_coordinates(text: str) -> CoordinateLayout:
    """Parse a layout of coordinates, with strides as CuTe prints or writes them, or an operation on one.

    Raises ValueError that says what was expected at which position.

    >>> print(parse_coordinates("(4,(3,2)):(1@0,(1@0@1,3@1@1))"))
    (_4,(_3,_2)):(_1@0,(_1@0@1,_3@1@1))
    >>> print(parse_coordinates("(4,3):(E<0>,E<1>)"))
    (_4,_3):(_1@0,_1@1)
    >>> print(parse_coordinates("zipped_divide((8,6):(E<0>,E<1>), (2,3))"))
    ((_2,_3),(_4,_2)):((_1@0,_1@1),(_2@0,_3@1))
    """
    parser = _Parser(text)
    found = parser.expression()
    parser.expect_end()
    if not isinstance(found, Layout):
        raise parser.error("found a swizzle; expected none: a swizzle is of offsets", 0)
    return CoordinateLayout(found.shape, parser.decoded(found.stride))


OF_COORDINATES = ("composition", "logical_divide", "zipped_divide", "tiled_divide", "flat_divide", "coalesce")
"""Operations that only combine the strides of their first argument; others need its offsets."""
UNIT_BITS = 128
"""Bits of a stride in one mode. Operations see mode i of a coordinate as the stride 2^(128 (i + 1)): strides of two
modes are never added or merged, since no multiple of the one within 64 bits is one of the other.
"""


class _Parser(ExpressionParser):
    """`layout = tree ":" strides`, whose leaves are `int {"@" int}` or `"E" "<" int {"," int} ">"`; operations too."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.paths: list[tuple[int, ...]] = []

    def affine(self) -> Layout:
        """Parse a layout of offsets, or one of coordinates with an integer for each stride."""
        return self.coordinates() if self._is_of_coordinates() else super().affine()

    def _is_of_coordinates(self) -> bool:
        """Return whether the layout that begins here has strides of coordinates."""
        depth = 0
        for ahead in range(len(self.tokens) - self.at):
            token = self.peek(ahead)
            depth += {"(": 1, "<": 1, ")": -1, ">": -1}.get(token, 0)
            if depth < 0 or (depth == 0 and token == ","):
                break
            if token in ("E", "@"):
                return True
        return False

    def apply(self, name: str, arguments: Sequence[Any], at: int) -> LayoutExpr:
        """Return the result of an operation, whose strides of coordinates are integers."""
        layout, *others = arguments
        if any(map(_has_units, others)):
            raise self.error(f"{name}: found strides of coordinates in a tiler; expected those of offsets", at)
        if not _has_units(layout):
            return super().apply(name, arguments, at)
        if name not in OF_COORDINATES:
            expected = f"a layout of offsets, or one of {', '.join(OF_COORDINATES)}"
            raise self.error(f"{name}: found a layout of coordinates; expected {expected}", at)
        try:
            return super().apply(name, arguments, at)
        except ValueError as error:
            raise ValueError(_UNIT.sub(lambda found: str(self._decode(int(found[0]))), str(error))) from error

    def coordinates(self) -> Layout:
        """Parse a layout whose strides are those of coordinates, as integers."""
        shape = self.tree()
        if any(extent < 1 for extent in flatten(shape)):
            raise self.error("every extent of a shape is at least 1", 0)
        self.expect(":")
        start = self.position()
        stride = self.strides()
        if not congruent(shape, stride):
            raise self.error("the stride is not nested like the shape", start)
        for outer, inner in combinations(CoordinateLayout(shape, stride).paths, 2):
            if inner[: len(outer)] == outer:
                pair = f"{Basis(1, outer)} and {Basis(1, inner)}"
                raise self.error(f"found {pair}; expected a mode to be a number or a tuple, not both", start)
        return Layout(shape, self._encoded(stride))

    def strides(self, depth: int = 0) -> StrideTree:
        if self.peek() != "(":
            return self.basis()
        self.open(depth)
        parts = [self.strides(depth + 1)]
        while self.peek() == ",":
            self.at += 1
            parts.append(self.strides(depth + 1))
        self.expect(")")
        return tuple(parts)

    def basis(self) -> int | Basis:
        start = self.position()
        if self.peek() == "E":
            self.at += 1
            self.expect("<")
            path = [self.integer()]
            while self.peek() == ",":
                self.at += 1
                path.append(self.integer())
            self.expect(">")
            scale = 1
        else:
            scale, path = self.integer(), []
            while self.peek() == "@":
                self.at += 1
                path.insert(0, self.integer())
        if any(not 0 <= mode < MOST_MODES for mode in path) or (scale and not path):
            raise self.error(f"expected 0, or a stride in a mode below {MOST_MODES}, such as 1@0 or E<0>", start)
        return Basis(scale, tuple(path)) if path else 0

    def _encoded(self, stride: StrideTree) -> IntTree:
        if isinstance(stride, tuple):
            return tuple(map(self._encoded, stride))
        if not isinstance(stride, Basis):
            return 0
        if stride.path not in self.paths:
            self.paths.append(stride.path)
        return stride.scale << UNIT_BITS * (1 + self.paths.index(stride.path))

    def decoded(self, stride: IntTree) -> StrideTree:
        """Return strides of coordinates from the integers that stand for them."""
        return tuple(map(self.decoded, stride)) if isinstance(stride, tuple) else self._decode(stride)

    def _decode(self, stride: int) -> int | Basis:
        unit = (abs(stride).bit_length() - 1) // UNIT_BITS
        return Basis(stride >> UNIT_BITS * unit, self.paths[unit - 1]) if stride else 0


_UNIT = re.compile(r"\d{20,}")
"""An integer that stands for a stride of coordinates, in the message of an operation."""


def _has_units(argument: Any) -> bool:
    """Return whether an argument has strides that stand for those of coordinates."""
    if isinstance(argument, tuple):
        return any(map(_has_units, argument))
    inner = argument.inner if isinstance(argument, ComposedLayout) else argument
    return isinstance(inner, Layout) and any(abs(stride) >> UNIT_BITS for stride in flatten(inner.stride))


MOST_MODES = 16


def _text(tree: IntTree | StrideTree) -> str:
    if isinstance(tree, tuple):
        return f"({','.join(map(_text, tree))})"
    return str(tree) if isinstance(tree, Basis) else f"_{tree}"


def _leaves(stride: StrideTree) -> Iterator[int | Basis]:
    if isinstance(stride, tuple):
        for part in stride:
            yield from _leaves(part)
    else:
        yield stride


def _along(stride: StrideTree, path: tuple[int, ...]) -> IntTree:
    """Return the strides of one mode of the coordinate alone."""
    if isinstance(stride, tuple):
        return tuple(_along(part, path) for part in stride)
    return stride.scale if isinstance(stride, Basis) and stride.path == path else 0


def _nested(values: dict[tuple[int, ...], int]) -> Coordinate:
    """Return a coordinate from the values of its modes; a mode without one is 0."""
    if () in values:
        return values[()]
    count = 1 + max(path[0] for path in values)
    inner = [{path[1:]: value for path, value in values.items() if path[0] == mode} for mode in range(count)]
    return tuple(_nested(each) if each else 0 for each in inner)
