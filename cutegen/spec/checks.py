"""Checks of single values of a spec.

A check states what it expects, in text that the error message and layouts/README.md share, and returns None or the
mismatch for a value. A check sees one value only; the part that holds two keys checks their combination.
"""

from dataclasses import dataclass, replace
from math import prod
from typing import Protocol

import numpy as np
import numpy.typing as npt

from cutegen.algebra import ComposedLayout, LayoutExpr, cosize, inner_layout, offsets, parse_layout, size
from cutegen.hardware.units import MAX_CLUSTER_CTAS, MAX_THREADS_PER_CTA, WARP
from cutegen.spec.families import FAMILIES
from cutegen.spec.steps import LONGEST_TEXT, ExpressionError, parse_expression
from cutegen.support.words import alternatives, literal, near, nearest, plural, typed

MAX_WARPS_PER_CTA = MAX_THREADS_PER_CTA // WARP
MAX_SMEM_ELEMS = 1 << 18  # the power of two above 227 KB of 8-bit elements
_LONGEST_LAYOUT_TEXT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """An invalid value: phrases without a final stop. `key` is relative to the checked key.

    `place` is two lines that show the fault in a text: the text and a caret under it.
    """

    found: str
    expected: str
    fix: str = ""
    key: str = ""
    place: str = ""


class Check(Protocol):
    """Validates one value."""

    @property
    def expected(self) -> str:
        """Permitted values, as text for messages and the documentation."""

    def __call__(self, value: object) -> Mismatch | None:
        """Return None if `value` is valid."""


@dataclass(frozen=True, slots=True)
class Boolean:
    """True or false."""

    expected: str = "true or false"

    def __call__(self, value: object) -> Mismatch | None:
        return None if isinstance(value, bool) else Mismatch(found=typed(value), expected=self.expected)


@dataclass(frozen=True, slots=True)
class BooleanOr:
    """True, false, or a name."""

    name: str

    @property
    def expected(self) -> str:
        """Permitted values, in words."""
        return f"true, false or {literal(self.name)}"

    def __call__(self, value: object) -> Mismatch | None:
        if isinstance(value, bool) or value == self.name:
            return None
        return Mismatch(found=typed(value), expected=self.expected)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of text, which is also written into the generated kernel as a comment."""

    longest: int = 200

    @property
    def expected(self) -> str:
        """Permitted values, in words."""
        return f"one line of text, at most {self.longest} printable characters"

    def __call__(self, value: object) -> Mismatch | None:
        if not isinstance(value, str):
            return Mismatch(found=typed(value), expected=self.expected)
        if len(value) > self.longest:
            return Mismatch(found=f"{len(value)} characters", expected=self.expected)
        return None if value.isprintable() else Mismatch(found=literal(value), expected=self.expected)


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a few names or numbers. The fix is the nearest of them, or `reason` if nearness is meaningless."""

    choices: tuple[str, ...] | tuple[int, ...]
    reason: str = ""

    @property
    def expected(self) -> str:
        """Permitted values, in words."""
        return alternatives(self.choices)

    def __call__(self, value: object) -> Mismatch | None:
        kind = type(self.choices[0])
        if type(value) is not kind:
            return Mismatch(found=typed(value), expected=self.expected)
        return None if value in self.choices else self._unknown(value)

    def _unknown(self, value: object) -> Mismatch:
        if self.reason:
            return Mismatch(found=literal(value), expected=self.expected, fix=self.reason)
        if isinstance(value, int):
            closest: object = min(self.choices, key=lambda choice: abs(int(choice) - value))
        else:
            closest = nearest(str(value), [str(choice) for choice in self.choices])
        fix = f"the nearest is {literal(closest)}" if closest is not None else ""
        return Mismatch(found=literal(value), expected=self.expected, fix=fix)


@dataclass(frozen=True, slots=True)
class OneOfMany:
    """One of more names than a message can list; `expected` says where they are. The suggested fix is near ones."""

    choices: tuple[str, ...]
    expected: str

    def __call__(self, value: object) -> Mismatch | None:
        if not isinstance(value, str):
            return Mismatch(found=typed(value), expected=self.expected)
        if value in self.choices:
            return None
        close = near(value, self.choices, most=3)
        fix = f"did you mean {alternatives(close)}?" if close else ""
        return Mismatch(found=literal(value), expected=self.expected, fix=fix)


@dataclass(frozen=True, slots=True)
class FamilyName:
    """The name of a registered family; families outside cutegen may be registered too."""

    @property
    def expected(self) -> str:
        """Permitted values, in words."""
        return OneOf(tuple(FAMILIES)).expected

    def __call__(self, value: object) -> Mismatch | None:
        return OneOf(tuple(FAMILIES))(value)


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer from `low` to `high`; `why_low` is the reason for the lower bound."""

    low: int
    high: int
    why_low: str = ""

    @property
    def expected(self) -> str:
        """Permitted values, in words."""
        return f"an integer, {self.low} to {self.high}"

    def __call__(self, value: object) -> Mismatch | None:
        if type(value) is not int:
            fix = f"write {value}, without quotes" if isinstance(value, str) and _is_number(value) else ""
            return Mismatch(found=typed(value), expected=self.expected, fix=fix)
        if self.low <= value <= self.high:
            return None
        if value < self.low and self.why_low:
            fix = f"the nearest is {self.low}: {self.why_low}"
        else:
            fix = f"the nearest is {min(max(value, self.low), self.high)}"
        return Mismatch(found=literal(value), expected=self.expected, fix=fix)


@dataclass(frozen=True, slots=True)
class ColumnsInTurn:
    """One of `names`, or a number of columns: a multiple of `unit` up to `high`."""

    names: tuple[str, ...]
    unit: int
    high: int

    @property
    def expected(self) -> str:
        """Permitted values, in words."""
        return f"{', '.join(map(literal, self.names))} or a multiple of {self.unit} up to {self.high}"

    def __call__(self, value: object) -> Mismatch | None:
        if isinstance(value, str):
            if value in self.names:
                return None
            close = nearest(value, self.names)
            return Mismatch(
                found=literal(value), expected=self.expected, fix=f"the nearest is {literal(close)}" if close else ""
            )
        if type(value) is not int:
            return Mismatch(found=typed(value), expected=self.expected)
        if value % self.unit == 0 and 0 < value <= self.high:
            return None
        near = min(max(1, round(value / self.unit)) * self.unit, self.high)
        fix = f'"{self.names[-1]}" for columns that alternate' if value == 1 else f"the nearest is {near}"
        return Mismatch(found=literal(value), expected=self.expected, fix=fix)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


@dataclass(frozen=True, slots=True)
class Names:
    """A list of names from `choices`, each at most once."""

    choices: tuple[str, ...]

    @property
    def expected(self) -> str:
        """Permitted values, in words."""
        return f"a list of {alternatives(self.choices)}, each at most once"

    def __call__(self, value: object) -> Mismatch | None:
        if not isinstance(value, tuple):
            fix = f"write [{literal(value)}]" if isinstance(value, str) and value in self.choices else ""
            return Mismatch(found=typed(value), expected=self.expected, fix=fix)
        for item in value:
            if wrong := OneOf(self.choices)(item):
                return Mismatch(found=wrong.found, expected=self.expected, fix=self._longer(item) or wrong.fix)
            if value.count(item) > 1:
                found = f"{literal(item)} {value.count(item)} times"
                return Mismatch(found=found, expected=self.expected, fix="an expression may contain it twice")
        return None

    def _longer(self, item: object) -> str:
        """Suggest the names that begin with `item`, as two do with `gelu`."""
        longer = [name for name in self.choices if isinstance(item, str) and name.startswith(f"{item}_")]
        return f"write {alternatives(longer)}" if longer else ""


@dataclass(frozen=True, slots=True)
class ExpressionText:
    """An expression in the grammar of `cutegen.spec.steps`, over x and the names `operands`."""

    operands: tuple[str, ...]

    @property
    def expected(self) -> str:
        """Permitted values, in words."""
        return 'an expression such as "x -> max(alpha * x + bias_n, 0)"'

    def __call__(self, value: object) -> Mismatch | None:
        if not isinstance(value, str):
            return Mismatch(found=typed(value), expected=self.expected)
        try:
            parse_expression(value, self.operands)
        except ExpressionError as error:
            return Mismatch(
                found=f"{error.found}, at character {error.position + 1}",
                expected=error.expected,
                place=_under(value, error.position),
            )
        return None


def _under(text: str, position: int) -> str:
    """Return the text and a caret under one of its characters; unprintable characters become question marks."""
    printable = "".join(letter if letter.isprintable() else "?" for letter in text)
    start = max(0, position - LONGEST_TEXT // 2)
    return f"    {printable[start : start + LONGEST_TEXT]}\n    {' ' * (position - start)}^"


@dataclass(frozen=True, slots=True)
class Extents:
    """Extents along M, N and K, each from 1 to `high`."""

    high: int

    @property
    def expected(self) -> str:
        """Permitted values, in words."""
        return f"three integers [M, N, K], each 1 to {self.high}"

    def __call__(self, value: object) -> Mismatch | None:
        if wrong := _not_integers(value, 3, self.expected):
            return wrong
        assert isinstance(value, tuple)
        for mode, extent in zip("MNK", value, strict=True):
            if not 1 <= extent <= self.high:
                fix = f"{mode} = {literal(extent)}: the nearest is {min(max(extent, 1), self.high)}"
                return Mismatch(found=literal(value), expected=self.expected, fix=fix)
        return None


@dataclass(frozen=True, slots=True)
class PermutedModes:
    """The tile of a TiledMMA: each mode's extent, or for M and N a layout that has each of 0 to extent - 1 once."""

    high: int
    example: str

    @property
    def expected(self) -> str:
        """Permitted values, in words."""
        return f"{Extents(self.high).expected}, or for M and N a CuTe layout, such as {literal(self.example)}"

    def __call__(self, value: object) -> Mismatch | None:
        if not isinstance(value, tuple) or not any(isinstance(item, str) for item in value):
            wrong = Extents(self.high)(value)
            return wrong and replace(wrong, expected=self.expected)
        extents = tuple(self.high if isinstance(item, str) else item for item in value)
        if wrong := Extents(self.high)(extents):
            return Mismatch(found=literal(value), expected=self.expected, fix=wrong.fix)
        for mode, item in zip("MNK", value, strict=True):
            if isinstance(item, str) and (reason := self._objection(mode, item)):
                return Mismatch(found=literal(value), expected=self.expected, fix=f"{mode}: {reason}")
        return None

    def _objection(self, mode: str, text: str) -> str:
        if mode == "K":
            return "k-blocks are consecutive: write the extent"
        if len(text) > _LONGEST_LAYOUT_TEXT:
            return f"a layout of at most {_LONGEST_LAYOUT_TEXT} characters"
        try:
            layout = parse_layout(text)
        except ValueError as error:
            return str(error)
        if isinstance(layout, ComposedLayout):
            return "a swizzle has no meaning here"
        if not 1 <= size(layout) <= self.high:
            return f"it has {literal(size(layout))} elements, more than {self.high}"
        if not np.array_equal(np.sort(offsets(layout)), np.arange(size(layout))):
            return f"each of 0 to {size(layout) - 1} must come exactly once"
        return ""


@dataclass(frozen=True, slots=True)
class BlockExtents:
    """Rows and elements of K that one factor stands for, each from 1 to `high`."""

    high: int

    @property
    def expected(self) -> str:
        """Permitted values, in words."""
        return f"two integers [rows, K], each 1 to {self.high}"

    def __call__(self, value: object) -> Mismatch | None:
        if wrong := _not_integers(value, 2, self.expected):
            return wrong
        assert isinstance(value, tuple)
        if all(1 <= extent <= self.high for extent in value):
            return None
        return Mismatch(found=literal(value), expected=self.expected, fix="[1, 128] and [128, 128] are usual")


@dataclass(frozen=True, slots=True)
class ClusterExtents:
    """CTAs of a cluster along M, N and, if given, K: powers of two, as many as every GPU can schedule together."""

    expected: str = (
        f"two integers [M, N] or three [M, N, K], each 1, 2, 4 or 8, at most {MAX_CLUSTER_CTAS} CTAs together"
    )

    def __call__(self, value: object) -> Mismatch | None:
        modes = 3 if isinstance(value, tuple) and len(value) == 3 else 2
        if wrong := _not_integers(value, modes, self.expected):
            return wrong
        assert isinstance(value, tuple)
        if all(extent in (1, 2, 4, 8) for extent in value) and prod(value) <= MAX_CLUSTER_CTAS:
            return None
        return Mismatch(found=literal(value), expected=self.expected, fix="[2, 1] is the smallest real cluster")


@dataclass(frozen=True, slots=True)
class SwizzleBits:
    """CuTe's Swizzle<B, M, S>: keep M low bits, XOR the next B bits with the B bits S positions higher.

    S >= B is CuTe's own condition (cute/swizzle.hpp): the two groups of bits do not overlap. All bits are within an
    offset into shared memory.
    """

    offset_bits: int = MAX_SMEM_ELEMS.bit_length() - 1

    @property
    def expected(self) -> str:
        """Permitted values, in words."""
        return f"three integers [B, M, S] with B >= 0, M >= 0, S >= B and B + M + S <= {self.offset_bits}"

    def __call__(self, value: object) -> Mismatch | None:
        if wrong := _not_integers(value, 3, self.expected):
            return wrong
        assert isinstance(value, tuple)
        bits, base, shift = value
        if bits >= 0 and base >= 0 and shift >= bits and bits + base + shift <= self.offset_bits:
            return None
        return Mismatch(found=literal(value), expected=self.expected, fix=self._fix(bits, base, shift))

    def _fix(self, bits: int, base: int, shift: int) -> str:
        small = bits in range(8) and base in range(8)
        if small and shift < bits:
            return f"S below B = {bits} swizzles bits with themselves: the nearest is {literal((bits, base, bits))}"
        return "[3, 3, 3] spreads the eight 16-byte pieces of a 128-byte row over all banks"


def _not_integers(value: object, count: int, expected: str) -> Mismatch | None:
    """Return the mismatch unless `value` is a tuple of exactly `count` ints; only Python could pass a list."""
    if not isinstance(value, tuple):
        fix = "write a tuple" if isinstance(value, list) else ""
        return Mismatch(found=typed(value), expected=expected, fix=fix)
    if len(value) != count:
        count_found = plural(len(value), "value")
        return Mismatch(found=f"{literal(value)}, which has {count_found}", expected=expected)
    for item in value:
        if type(item) is not int:
            return Mismatch(found=f"{literal(value)}, which contains {typed(item)}", expected=expected)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutText:
    """A layout in CuTe's notation with the two modes of a tile, at most `largest` elements, each at a distinct place.

    With `dense` the places are the numbers 0, 1, 2 ... without gaps, as for threads. `names` are layouts with a name.
    """

    example: str
    largest: int
    dense: bool = False
    names: tuple[str, ...] = ()

    @property
    def expected(self) -> str:
        """Permitted values, in words."""
        text = f"a CuTe layout of two modes, such as {literal(self.example)}"
        return f"{text}, or CUTLASS's name of one, such as {literal(self.names[0])}" if self.names else text

    def __call__(self, value: object) -> Mismatch | None:
        if not isinstance(value, str):
            return Mismatch(found=typed(value), expected=self.expected)
        if len(value) > _LONGEST_LAYOUT_TEXT:
            return Mismatch(found=f"{len(value)} characters", expected=self.expected)
        if value in self.names:
            return None
        if value[:1].isalpha() and (close := nearest(value, self.names)):
            return Mismatch(found=literal(value), expected=self.expected, fix=f"the nearest is {literal(close)}")
        try:
            reason = self._objection(parse_layout(value))
        except ValueError as error:
            reason = str(error)
        return Mismatch(found=literal(value), expected=self.expected, fix=reason) if reason else None

    def _objection(self, layout: LayoutExpr) -> str:
        modes = len(layout.shape) if isinstance(layout.shape, tuple) else 1
        if modes != 2:
            return f"modes at its top level: {modes}"
        inner = inner_layout(layout)
        extent = max(size(inner), cosize(inner))
        if extent > self.largest:
            return f"it spans {literal(extent)}, more than {self.largest}"
        if isinstance(layout, ComposedLayout):
            return self._objection_to_swizzle(layout)
        return self._objection_to_places(np.sort(offsets(layout)))

    def _objection_to_swizzle(self, layout: ComposedLayout) -> str:
        if self.dense:
            return "a swizzle has no meaning for threads"
        if layout.offset:
            return "an atom begins at offset 0"
        swizzle = layout.outer
        wrong = SwizzleBits()((swizzle.bits, swizzle.base, swizzle.shift))
        return f"its swizzle must be {wrong.expected}" if wrong else self._objection_to_places(np.sort(offsets(layout)))

    def _objection_to_places(self, places: npt.NDArray[np.int64]) -> str:
        if self.dense and not np.array_equal(places, np.arange(len(places))):
            return f"each thread from 0 to {len(places) - 1} must be at exactly one position"
        if places[0] < 0 or not np.all(np.diff(places)):
            return "each element needs a distinct offset, 0 or above"
        return ""
