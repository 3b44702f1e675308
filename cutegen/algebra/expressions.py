"""Layout expressions for users: layouts in CuTe's notation, and CuTe's operations on them by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cutegen.algebra.layout import ComposedLayout, Layout, LayoutError, LayoutExpr
from cutegen.algebra.notation import DEEPEST, LayoutParser
from cutegen.algebra.operations import OPERATIONS, Argument, Tiler

_NAME = re.compile(r"[A-Za-z_]\w*(?=\s*\()")
_CLOSING = {"(": ")", "<": ">"}


def parse_expression(text: str) -> LayoutExpr:
    """Parse a layout, or an operation on layouts such as `zipped_divide((8,8):(1,8), (2,4))`; operations nest.

    As a tiler `(2,4)` means 2 of the first mode and 4 of the second, `(2,4):(1,2)` is a layout, and `(2:4,4:1)` a
    layout for each mode, also written `<2:4,4:1>` as in CuTe's documentation. Raises ValueError that says what was
    expected at which position.

    >>> from cutegen.algebra import format_layout
    >>> format_layout(parse_expression("zipped_divide((8,8):(1,8), (2,4))"))
    '((_2,_4),(_4,_2)):((_1,_8),(_2,_32))'
    >>> format_layout(parse_expression("logical_product((16,8,8), (4,2))"))
    '((_16,_4),(_8,_2),_8):((_1,_16),(_16,_1),_128)'
    >>> format_layout(parse_expression("composition(Sw<3,3,3> o (8,64):(64,1), (4,16))"))
    'Sw<3,3,3> o _0 o (_4,_16):(_64,_1)'
    """
    parser = ExpressionParser(text)
    found = parser.expression()
    if parser.peek() == "o":
        raise parser.error("expected the end, found 'o'; `composition(A, B)` composes layouts", parser.position())
    parser.expect_end()
    return found


@dataclass(slots=True)
class ExpressionParser(LayoutParser):
    """`expression = name "(" expression {"," argument} ")" | layout`."""

    depth: int = 0

    def __post_init__(self) -> None:
        LayoutParser.__post_init__(self)
        # A name is one token; the notation of layouts has no names but those of swizzles.
        names = {match.start(): match.group() for match in _NAME.finditer(self.text) if match.group() != "o"}
        inside = {at for start, name in names.items() for at in range(start + 1, start + len(name))}
        self.tokens = [(names.get(at, token), at) for token, at in self.tokens if at not in inside]

    def expression(self) -> LayoutExpr:
        """Parse an operation or a layout."""
        name, at = self.peek(), self.position()
        if not _is_name(name):
            return self.layout()
        if name not in OPERATIONS:
            word = re.split(r"\W", self.text[at:], maxsplit=1)[0]
            raise self.error(f"found {word!r}; expected a layout or one of {', '.join(OPERATIONS)}", at)
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.error(f"found more than {DEEPEST} nested operations", at)
        self.at += 1
        self.expect("(")
        operation, arguments = OPERATIONS[name], list[Any]((self.expression(),))
        least = len(operation.arguments) - operation.open
        for number, kind in enumerate(operation.arguments):
            if number < least or self.peek() == ",":
                self.expect(",")
                arguments.append(self._argument(kind))
        if self.peek() == ",":
            few = ("one argument", "two arguments", "three arguments")[len(operation.arguments)]
            hint = "; several modes are in parentheses" if operation.arguments else ""
            raise self.error(f"expected ')', found ',': {name} has {few}{hint}", self.position())
        self.expect(")")
        self.depth -= 1
        return self.apply(name, arguments, at)

    def apply(self, name: str, arguments: Sequence[Any], at: int) -> LayoutExpr:
        """Return the result of an operation. Raises ValueError for arguments that it does not take."""
        try:
            return OPERATIONS[name].function(*arguments)
        except (ValueError, LayoutError, TypeError) as error:
            raise self.error(f"{name}: {error}", at) from error

    def _argument(self, kind: Argument) -> Any:
        at = self.position()
        match kind:
            case "tiler":
                return self.tiler()
            case "layout":
                return self._affine(self.expression(), at)
            case "integer":
                return self._positive()
            case "shape":
                return self._extents()

    def _extents(self) -> tuple[int, ...]:
        """Parse `(128,64)`, or one integer."""
        if self.peek() != "(":
            return (self._positive(),)
        self.at += 1
        extents = [self._positive()]
        while self.peek() == ",":
            self.at += 1
            extents.append(self._positive())
        self.expect(")")
        return tuple(extents)

    def tiler(self, depth: int = 0) -> Tiler:
        """Parse an integer, a layout, or a tuple of tilers."""
        closing = _CLOSING.get(self.peek())
        if closing is None:
            if re.fullmatch(r"_?\d+", self.peek()) and self.peek(1) != ":":
                return self._positive()
            start = self.position()
            return self._affine(self.expression(), start)
        if closing == ")" and self._closes_before_a_colon():
            return self.affine()
        self.open(depth, self.peek())
        parts = [self.tiler(depth + 1)]
        while self.peek() == ",":
            self.at += 1
            parts.append(self.tiler(depth + 1))
        self.expect(closing)
        return tuple(parts)

    def _closes_before_a_colon(self) -> bool:
        """Return whether a stride follows the parenthesis that closes the one here."""
        depth = 0
        for ahead in range(len(self.tokens) - self.at):
            depth += {"(": 1, ")": -1}.get(self.peek(ahead), 0)
            if depth == 0:
                return self.peek(ahead + 1) == ":"
        return False

    def _positive(self) -> int:
        at, value = self.position(), self.integer()
        if value < 1:
            raise self.error("expected an integer of at least 1", at)
        return value

    def _affine(self, layout: LayoutExpr, at: int) -> Layout:
        if isinstance(layout, ComposedLayout):
            raise self.error("expected a layout without a swizzle", at)
        return layout


def _is_name(token: str) -> bool:
    """Return whether a token is the name of an operation, known or not."""
    return (
        re.fullmatch(r"[A-Za-z_]\w*", token) is not None
        and token not in ("S", "Sw", "Swizzle", "o")
        and not (re.fullmatch(r"_\d+", token))
    )
