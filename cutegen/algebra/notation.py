"""Layouts as text: CuTe C++'s print format, and the notation of specs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from cutegen.algebra.layout import ComposedLayout, IntTree, Layout, LayoutExpr, Swizzle


class Dyn(int):
    """An integer that CuTe holds at run time: printed without `_`, and never known to equal another.

    Two such integers are equal only if they are one object, as for a C++ compiler that does not know the values; this
    keeps `coalesce` from merging modes that CuTe keeps apart.

    >>> format_layout(Layout((128, Dyn(64)), (1, Dyn(128))))
    '(_128,64):(_1,128)'
    """

    __slots__ = ()

    def __mul__(self, other: int) -> int:
        """Return a run-time integer, unless `other` is the static 0."""
        return Dyn(int(self) * int(other)) if isinstance(other, Dyn) or other else 0

    __rmul__ = __mul__

    def __add__(self, other: int) -> Dyn:
        """Return a run-time integer."""
        return Dyn(int(self) + int(other))

    __radd__ = __add__

    def __floordiv__(self, other: int) -> Dyn:
        """Return a run-time integer."""
        return Dyn(int(self) // int(other))

    def __eq__(self, other: object) -> bool:
        """Return whether they are known to be equal: the same object."""
        return self is other

    def __ne__(self, other: object) -> bool:
        """Return whether they are not known to be equal."""
        return self is not other

    __hash__ = int.__hash__


class MixedBits(int):
    """An offset before a swizzle; CuTe knows all of its bits at compile time except those of `varying`."""

    varying: int

    def __new__(cls, value: int, varying: int) -> MixedBits:
        """Return `value`, every bit of it within `varying`."""
        self = super().__new__(cls, value)
        self.varying = varying
        return self


def format_layout(layout: LayoutExpr) -> str:
    """Format `layout` as CuTe C++ prints it: static integers with `_`, a swizzle as `Sw<B,M,S> o offset o ...`.

    >>> format_layout(Layout((8, (8, 8)), (8, (1, 64))))
    '(_8,(_8,_8)):(_8,(_1,_64))'
    >>> format_layout(ComposedLayout(Swizzle(3, 3, 3), Layout((8, 64), (64, 1))))
    'Sw<3,3,3> o _0 o (_8,_64):(_64,_1)'
    """
    if isinstance(layout, ComposedLayout):
        swizzle = layout.outer
        function = f"Sw<{swizzle.bits},{swizzle.base},{swizzle.shift}>"
        return f"{function} o {_format_tree(layout.offset)} o {format_layout(layout.inner)}"
    return f"{_format_tree(layout.shape)}:{_format_tree(layout.stride)}"


def _format_tree(tree: IntTree) -> str:
    if isinstance(tree, tuple):
        return f"({','.join(map(_format_tree, tree))})"
    if isinstance(tree, MixedBits):
        return f"M_0|({int(tree)}&{tree.varying})={int(tree)}"
    return f"{int(tree)}" if isinstance(tree, Dyn) else f"_{tree}"


def parse_layout(text: str) -> LayoutExpr:
    """Parse a layout in CuTe notation; underscores, spaces and `o _0` may be omitted.

    A missing stride means compact column-major, as CuTe's make_layout of a shape. Raises ValueError that says what was
    expected at which position.

    >>> format_layout(parse_layout("Sw<3,3,3> o (8,(8,8)):(8,(1,64))"))
    'Sw<3,3,3> o _0 o (_8,(_8,_8)):(_8,(_1,_64))'
    >>> parse_layout("(16,8)")
    Layout((16, 8), (1, 16))
    >>> parse_layout("(4,1)")
    Layout((4, 1), (1, 0))
    """
    parser = LayoutParser(text)
    layout = parser.layout()
    parser.expect_end()
    return layout


DEEPEST = 16
_LONGEST = 19
_TOKEN = re.compile(r"\s*(Swizzle|Sw|S|o|[<>(),:]|_?\d+|-\d+|\S)")


@dataclass(slots=True)
class LayoutParser:
    """Recursive descent over `layout = [swizzle "o" [int "o"]] tree [":" tree]`."""

    text: str
    tokens: list[tuple[str, int]] = field(init=False)
    at: int = 0

    def __post_init__(self) -> None:
        self.tokens = [(m.group(1), m.start(1)) for m in _TOKEN.finditer(self.text)]

    def layout(self) -> LayoutExpr:
        if self.peek() not in ("S", "Sw", "Swizzle"):
            return self.affine()
        swizzle = self.swizzle()
        self.expect("o")
        offset = self.integer() if self.peek(1) == "o" else 0
        if offset or self.peek() == "o":
            self.expect("o")
        return ComposedLayout(swizzle, self.affine(), offset=offset)

    def swizzle(self) -> Swizzle:
        self.at += 1
        start = self.position()
        self.expect("<")
        bits = self.integer()
        self.expect(",")
        base = self.integer()
        self.expect(",")
        shift = self.integer()
        self.expect(">")
        if bits < 0 or base < 0 or abs(shift) < bits:
            raise self.error(f"Swizzle<{bits},{base},{shift}> needs B >= 0, M >= 0 and |S| >= B", start)
        return Swizzle(bits, base, shift)

    def affine(self) -> Layout:
        shape_at = self.position()
        shape = self.tree()
        if any(extent < 1 for extent in flatten(shape)):
            raise self.error("every extent of a shape is at least 1", shape_at)
        if self.peek() != ":":
            return compact(shape)
        self.at += 1
        stride_at = self.position()
        stride = self.tree()
        if not congruent(shape, stride):
            such = spec_notation(compact(shape)).partition(":")[2]
            raise self.error(f"the stride is not nested like the shape; expected a stride such as {such}", stride_at)
        return Layout(shape, stride)

    def tree(self, depth: int = 0) -> IntTree:
        if self.peek() != "(":
            return self.integer()
        self.open(depth)
        parts = [self.tree(depth + 1)]
        while self.peek() == ",":
            self.at += 1
            parts.append(self.tree(depth + 1))
        self.expect(")")
        return tuple(parts)

    def integer(self) -> int:
        token = self.peek()
        if len(token) > _LONGEST:
            raise self.error(f"found {len(token):,} characters; expected an integer of 64 bits", self.position())
        if not re.fullmatch(r"_?\d+|-\d+", token):
            raise self.error(f"expected an integer, found {token or 'the end'!r}", self.position())
        self.at += 1
        return int(token.removeprefix("_"))

    def open(self, depth: int, token: str = "(") -> None:
        """Read what opens a mode `depth` levels deep. Raises ValueError below DEEPEST: Python's stack ends."""
        if depth == DEEPEST:
            raise self.error(f"found more than {DEEPEST} nested modes", self.position())
        self.expect(token)

    def expect(self, token: str) -> None:
        if self.peek() != token:
            raise self._unexpected(repr(token))
        self.at += 1

    def expect_end(self) -> None:
        if self.at < len(self.tokens):
            raise self._unexpected("the end")

    def _unexpected(self, expected: str) -> ValueError:
        hint = ""
        if expected == "'o'":
            hint = "; a swizzle is in front of a layout, as in Sw<3,3,3> o (8,64):(64,1)"
        elif self.peek() == "," and expected != "'>'":
            hint = "; several modes are in parentheses, as in (8,64):(64,1)"
        return self.error(f"expected {expected}, found {self.peek() or 'the end'!r}{hint}", self.position())

    def peek(self, ahead: int = 0) -> str:
        """Return the token `ahead` of the current one, or "" after the last."""
        return self.tokens[self.at + ahead][0] if self.at + ahead < len(self.tokens) else ""

    def position(self) -> int:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else len(self.text)

    def error(self, message: str, position: int) -> ValueError:
        return ValueError(f"layout {self.text!r}, position {position}: {message}")


def flatten(tree: IntTree) -> list[int]:
    """Return the leaves of a tree, in order."""
    return [leaf for part in tree for leaf in flatten(part)] if isinstance(tree, tuple) else [tree]


def congruent(a: object, b: object) -> bool:
    """Return whether two trees are nested alike; what is no tuple is a leaf."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(congruent, a, b))
    return not isinstance(a, tuple) and not isinstance(b, tuple)


def compact(shape: IntTree) -> Layout:
    """Return the compact column-major layout of a static shape; a mode of one element has stride 0, as in CuTe."""
    return Layout(shape, _strides(shape, 1)[0])


def _strides(shape: IntTree, begin: int) -> tuple[IntTree, int]:
    """Return the strides of a part of a shape, which begins with stride `begin`, and the stride of what follows."""
    if not isinstance(shape, tuple):
        return (begin if shape > 1 else 0), begin * shape
    strides = []
    for part in shape:
        stride, begin = _strides(part, begin)
        strides.append(stride)
    return tuple(strides), begin


def spec_notation(layout: Layout) -> str:
    """Format a layout as in a spec.

    >>> spec_notation(Layout((16, 8), (8, 1)))
    '(16,8):(8,1)'
    """
    return f"{layout.shape}:{layout.stride}".replace(" ", "")
