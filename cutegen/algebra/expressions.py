"""Layout expressions for users: layouts in CuTe's notation, and CuTe's operations on them under their own names."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import tensor_layouts

from cutegen.algebra.layout import (
    DEEPEST,
    ComposedLayout,
    Layout,
    LayoutError,
    LayoutExpr,
    LayoutParser,
    coalesce,
    compact,
    complement,
    compose,
    divide,
    format_layout,
    inner_layout,
    leaves,
    left_inverse,
    logical_product,
    make_layout,
    modes,
    right_inverse,
    size,
    with_inner,
)

# CuTe's operations on layouts under their own names, for layouts in expressions; also on swizzled ones.
#
# CUTLASS `include/cute/layout.hpp` and `layout_composed.hpp`. A tiler is a layout, an integer (that many consecutive
# elements), or a tuple of tilers, one for each of the leading modes.


Tiler: TypeAlias = "int | Layout | tuple[Tiler, ...]"


def composition(layout: LayoutExpr, tiler: Tiler) -> LayoutExpr:
    """Compose `layout` with `tiler`; for a tuple, each mode with its own; modes beyond the tuple are dropped."""
    return with_inner(layout, _composed(inner_layout(layout), tiler))


def logical_divide(layout: LayoutExpr, tiler: Tiler) -> LayoutExpr:
    """Return (tile, rest), for a tuple in each mode: ((tile0, rest0), (tile1, rest1), ..., untiled modes)."""
    return with_inner(layout, _divided(inner_layout(layout), tiler))


def zipped_divide(layout: LayoutExpr, tiler: Tiler) -> LayoutExpr:
    """Return ((tile0, tile1, ...), (rest0, rest1, ..., untiled modes)); a nested tuple nests tiles and rests."""
    return with_inner(layout, make_layout(*_tile_and_rest(inner_layout(layout), tiler)))


def tiled_divide(layout: LayoutExpr, tiler: Tiler) -> LayoutExpr:
    """Return (tile, rest0, rest1, ..., untiled modes), for a tuple ((tile0, tile1, ...), rest0, rest1, ...)."""
    tile, rest = modes(inner_layout(zipped_divide(layout, tiler)))
    return with_inner(layout, make_layout(tile, *modes(rest)))


def flat_divide(layout: LayoutExpr, tiler: Tiler) -> LayoutExpr:
    """Return (tile0, tile1, ..., rest0, rest1, ..., untiled modes)."""
    tile, rest = modes(inner_layout(zipped_divide(layout, tiler)))
    return with_inner(layout, make_layout(*modes(tile), *modes(rest)))


def product(layout: LayoutExpr, tiler: Tiler) -> LayoutExpr:
    """Return (layout, repeats), for a tuple in each mode: ((mode0, repeats0), (mode1, repeats1), ..., other modes).

    CuTe's logical_product.
    """
    return with_inner(layout, _repeated(inner_layout(layout), tiler))


def blocked_product(layout: LayoutExpr, tiler: Layout) -> LayoutExpr:
    """Return ((block0, repeat0), (block1, repeat1), ...): copies of `layout` side by side."""
    return _by_mode(layout, tiler, raked=False)


def raked_product(layout: LayoutExpr, tiler: Layout) -> LayoutExpr:
    """Return ((repeat0, block0), (repeat1, block1), ...): copies of `layout` interleaved."""
    return _by_mode(layout, tiler, raked=True)


def zipped_product(layout: LayoutExpr, tiler: Tiler) -> LayoutExpr:
    """Return ((mode0, mode1, ...), (repeats0, repeats1, ...)); modes without repeats follow the first."""
    return with_inner(layout, make_layout(*_blocks_and_repeats(inner_layout(layout), tiler)))


def tiled_product(layout: LayoutExpr, tiler: Tiler) -> LayoutExpr:
    """Return ((mode0, mode1, ...), repeats0, repeats1, ...)."""
    blocks, repeats = _blocks_and_repeats(inner_layout(layout), tiler)
    return with_inner(layout, make_layout(blocks, *modes(repeats)))


def flat_product(layout: LayoutExpr, tiler: Tiler) -> LayoutExpr:
    """Return (mode0, mode1, ..., repeats0, repeats1, ...)."""
    blocks, repeats = _blocks_and_repeats(inner_layout(layout), tiler)
    return with_inner(layout, make_layout(*modes(blocks), *modes(repeats)))


def tile_to_shape(layout: LayoutExpr, shape: tuple[int, ...], order: tuple[int, ...] | None = None) -> LayoutExpr:
    """Return `layout` repeated until it covers `shape`, mode by mode; `order` ranks the modes along which it repeats.

    The first mode comes first by default. Raises ValueError if a mode of `shape` is no multiple of the layout's, where
    CuTe rounds up.
    """
    inner = inner_layout(layout)
    of_modes = [size(each) for each in modes(inner)]
    extents = [*of_modes, *[1] * (len(shape) - len(of_modes))]
    if len(shape) < len(of_modes) or any(whole % part for whole, part in zip(shape, extents, strict=False)):
        raise ValueError(f"{shape} is not a multiple of the layout's {tuple(of_modes)}, mode by mode")
    ranks = order or tuple(range(len(shape)))
    if len(ranks) != len(shape) or len(set(ranks)) != len(ranks):
        raise ValueError(f"the order {ranks} does not rank {len(shape)} modes")
    strides, stride = [0] * len(shape), 1
    for at in sorted(range(len(shape)), key=ranks.__getitem__):
        strides[at], stride = stride, stride * (shape[at] // extents[at])
    repeats = Layout(tuple(whole // part for whole, part in zip(shape, extents, strict=True)), tuple(strides))
    tiled = inner_layout(blocked_product(inner, repeats))
    return with_inner(layout, make_layout(*map(coalesce, modes(tiled))))


def recast(layout: LayoutExpr, old_bits: int, new_bits: int) -> Layout:
    """Return the layout of the same memory in elements of `new_bits` in place of `old_bits` (CuTe's recast_layout).

    Raises ValueError for a swizzled layout, and if the one is not a multiple of the other.
    """
    affine = _affine(layout, "recast")
    if new_bits % old_bits and old_bits % new_bits:
        raise ValueError(f"{new_bits} bits are no multiple of {old_bits}, nor the reverse")
    if new_bits >= old_bits:
        return tensor_layouts.upcast(affine, new_bits // old_bits)
    return tensor_layouts.downcast(affine, old_bits // new_bits)


def coalesced(layout: LayoutExpr, profile: tuple[int, ...] | None = None) -> LayoutExpr:
    """Return the same function with the fewest modes; with a `profile` such as (1,1), of each of the leading modes."""
    inner = inner_layout(layout)
    if profile is None:
        return with_inner(layout, coalesce(inner))
    leading = _leading(inner, profile)
    return with_inner(layout, make_layout(*map(coalesce, leading), *modes(inner)[len(leading) :]))


def complement_of(layout: LayoutExpr, bound: int = 1) -> Layout:
    """Return the layout of the offsets below `bound` that `layout` omits.

    Raises ValueError for a swizzled layout, and for one whose elements overlap.
    """
    return complement(_injective(_affine(layout, "complement")), bound)


def right_inverse_of(layout: LayoutExpr) -> Layout:
    """Return the inverse of `layout`. Raises ValueError for a swizzled one."""
    return right_inverse(_affine(layout, "right_inverse"))


def left_inverse_of(layout: LayoutExpr) -> Layout:
    """Return the layout that gives the coordinate of each offset.

    Raises ValueError for a swizzled layout, for one with several elements at one offset, and for one whose offsets no
    layout numbers: `(2,2):(2,5)` has a stride of 5 after offsets in steps of 2 (CuTe asserts).
    """
    affine = _injective(_affine(layout, "left_inverse"))
    if any(stride == 0 and extent > 1 for extent, stride in leaves(affine.shape, affine.stride)):
        raise ValueError(f"{format_layout(affine)} has no left inverse: several of its elements are at one offset")
    flat = coalesce(affine)
    strides = sorted(stride for _, stride in leaves(flat.shape, flat.stride) if stride)
    for shorter, stride in pairwise(strides):
        if stride % shorter:
            raise ValueError(
                f"{format_layout(affine)} has no left inverse: its stride {stride} is not a multiple of its stride "
                f"{shorter}"
            )
    return left_inverse(affine)


Argument: TypeAlias = Literal["tiler", "layout", "integer", "shape"]


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on a layout, with the kinds of its further arguments; the last `open` of them may be left out."""

    function: Callable[..., LayoutExpr]
    arguments: tuple[Argument, ...] = ()
    open: int = 0


OPERATIONS: Mapping[str, Operation] = MappingProxyType(
    {
        "composition": Operation(composition, ("tiler",)),
        "logical_divide": Operation(logical_divide, ("tiler",)),
        "zipped_divide": Operation(zipped_divide, ("tiler",)),
        "tiled_divide": Operation(tiled_divide, ("tiler",)),
        "flat_divide": Operation(flat_divide, ("tiler",)),
        "logical_product": Operation(product, ("tiler",)),
        "zipped_product": Operation(zipped_product, ("tiler",)),
        "tiled_product": Operation(tiled_product, ("tiler",)),
        "flat_product": Operation(flat_product, ("tiler",)),
        "blocked_product": Operation(blocked_product, ("layout",)),
        "raked_product": Operation(raked_product, ("layout",)),
        "tile_to_shape": Operation(tile_to_shape, ("shape", "shape"), open=1),
        "recast": Operation(recast, ("integer", "integer")),
        "coalesce": Operation(coalesced, ("shape",), open=1),
        "complement": Operation(complement_of, ("integer",), open=1),
        "right_inverse": Operation(right_inverse_of),
        "left_inverse": Operation(left_inverse_of),
    }
)
"""The operations, by CuTe's names."""


def _composed(layout: Layout, tiler: Tiler) -> Layout:
    if not isinstance(tiler, tuple):
        return compose(layout, _as_layout(tiler))
    return make_layout(*(_composed(part, each) for part, each in zip(_leading(layout, tiler), tiler, strict=True)))


def _divided(layout: Layout, tiler: Tiler) -> Layout:
    if not isinstance(tiler, tuple):
        return divide(layout, _injective(_as_layout(tiler)))
    cut = [_divided(part, each) for part, each in zip(_leading(layout, tiler), tiler, strict=True)]
    return make_layout(*cut, *modes(layout)[len(tiler) :])


def _repeated(layout: Layout, tiler: Tiler) -> Layout:
    if not isinstance(tiler, tuple):
        return logical_product(_injective(layout), _as_layout(tiler))
    repeated = [_repeated(part, each) for part, each in zip(_leading(layout, tiler), tiler, strict=True)]
    return make_layout(*repeated, *modes(layout)[len(tiler) :])


def _tile_and_rest(layout: Layout, tiler: Tiler) -> tuple[Layout, Layout]:
    """Return the tile, nested like the tiler, and the rest, nested in the same way, with the modes without a tiler."""
    if not isinstance(tiler, tuple):
        tile, rest = modes(_divided(layout, tiler))
        return tile, rest
    cut = [_tile_and_rest(part, each) for part, each in zip(_leading(layout, tiler), tiler, strict=True)]
    tiles, rests = zip(*cut, strict=True)
    return make_layout(*tiles), make_layout(*rests, *modes(layout)[len(tiler) :])


def _blocks_and_repeats(layout: Layout, tiler: Tiler) -> tuple[Layout, Layout]:
    """Return the modes and their repeats, each nested like the tiler; modes without repeats follow the first."""
    if not isinstance(tiler, tuple):
        block, repeats = modes(_repeated(layout, tiler))
        return block, repeats
    pairs = [_blocks_and_repeats(part, each) for part, each in zip(_leading(layout, tiler), tiler, strict=True)]
    blocks, repeats_of = zip(*pairs, strict=True)
    return make_layout(*blocks, *modes(layout)[len(tiler) :]), make_layout(*repeats_of)


def _leading(layout: Layout, tiler: Sequence[Tiler]) -> list[Layout]:
    """Return the modes that have a tiler each."""
    found = modes(layout)
    if len(tiler) > len(found):
        raise ValueError(f"{len(tiler)} tilers for a layout of {len(found)} modes, {layout}")
    return found[: len(tiler)]


def _as_layout(tiler: int | Layout) -> Layout:
    return compact(tiler) if isinstance(tiler, int) else tiler


def _by_mode(layout: LayoutExpr, tiler: Layout, *, raked: bool) -> LayoutExpr:
    """Zip blocks and repeats mode by mode; the shorter one is padded with modes of extent 1."""
    inner = inner_layout(layout)
    rank = max(len(modes(inner)), len(modes(tiler)))
    block, repeats = modes(logical_product(_injective(_filled(inner, rank)), _filled(tiler, rank)))
    pairs = zip(modes(block), modes(repeats), strict=True)
    return with_inner(layout, make_layout(*(make_layout(*(pair[::-1] if raked else pair)) for pair in pairs)))


def _filled(layout: Layout, rank: int) -> Layout:
    found = modes(layout)
    return make_layout(*found, *[Layout(1, 0)] * (rank - len(found)))


def _injective(layout: Layout) -> Layout:
    """Return `layout` if it has a complement, by the condition of CuTe's assertion; strides of 0 do not count."""
    end = 1
    for stride, extent in sorted((d, s) for s, d in leaves(layout.shape, layout.stride) if d and s > 1):
        if stride < end:
            text = format_layout(layout)
            raise ValueError(f"{text} has no complement: stride {stride} is below {end}, the end of another mode")
        end = stride * extent
    return layout


def _affine(layout: LayoutExpr, name: str) -> Layout:
    if isinstance(layout, ComposedLayout):
        raise ValueError(f"{name} of a swizzled layout, which has none; its affine part has one")
    return layout


# Layout expressions for users: layouts in CuTe's notation, and CuTe's operations on them by name.


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
