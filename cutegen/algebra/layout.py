"""Layouts: the only interface to tensor-layouts, and what is added: text, tables, constructors, shares of threads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import tensor_layouts
from numpy.typing import NDArray
from tensor_layouts import (
    ComposedLayout,
    Layout,
    LayoutError,
    LayoutExpr,
    Swizzle,
    coalesce,
    complement,
    cosize,
    logical_product,
    mode,
    rank,
    size,
    upcast,
)

# The only interface to tensor-layouts: its layout types and operations, and short helpers as in CuTe C++.


__all__ = [
    "ComposedLayout",
    "IntTree",
    "Layout",
    "LayoutError",
    "LayoutExpr",
    "Swizzle",
    "coalesce",
    "complement",
    "compose",
    "cosize",
    "divide",
    "inner_layout",
    "leaves",
    "logical_product",
    "make_layout",
    "mode",
    "modes",
    "right_inverse",
    "size",
    "upcast",
    "with_inner",
    "zipped_divide",
]

# A shape or a stride: an integer, or a tuple of such trees.
IntTree = int | tuple["IntTree", ...]


@lru_cache(maxsize=4096)  # dozens of shared memory layouts are compared, which differ in one mode only
def compose(outer: Layout, inner: Layout) -> Layout:
    """Return the layout of outer(inner(i)) (CuTe's composition). Raises LayoutError if there is none.

    Beyond its elements a layout continues along its last mode, even if that mode has one element.

    >>> compose(Layout(1, 8), Layout(4, 1))
    Layout(4, 8)
    """
    return tensor_layouts.compose(_open_ended(outer), inner)


def _open_ended(layout: Layout) -> Layout:
    """Return `layout` with 2 elements in a last mode of 1, which compose keeps then (CuTe's detail::coalesce_x)."""
    flat = list(leaves(layout.shape, layout.stride))
    if not flat or flat[-1][0] != 1:
        return layout
    flat[-1] = (2, flat[-1][1])
    return make_layout(*(Layout(extent, stride) for extent, stride in flat))


def make_layout(*layouts: Layout) -> Layout:
    """Return the layout whose modes are `layouts` (CuTe's make_layout of layouts); one layout gives rank 1."""
    return Layout(tuple(x.shape for x in layouts), tuple(x.stride for x in layouts))


def modes(layout: Layout) -> list[Layout]:
    """Return the top-level modes of an affine layout; a layout of rank 0 is its own only mode."""
    return [mode(layout, i) for i in range(rank(layout))] if isinstance(layout.shape, tuple) else [layout]


def inner_layout(layout: LayoutExpr) -> Layout:
    """Return the affine part: the layout itself, or what a swizzle is composed with."""
    return layout.inner if isinstance(layout, ComposedLayout) else layout


def with_inner(layout: LayoutExpr, inner: Layout) -> LayoutExpr:
    """Return `layout` with its affine part replaced; swizzle and offset stay."""
    return ComposedLayout(layout.outer, inner, offset=layout.offset) if isinstance(layout, ComposedLayout) else inner


def leaves(shape: IntTree, stride: IntTree) -> Iterator[tuple[int, int]]:
    """Yield (extent, stride) of every leaf of two congruent trees, left to right.

    >>> list(leaves((8, (2, 4)), (8, (1, 64))))
    [(8, 8), (2, 1), (4, 64)]
    """
    if isinstance(shape, tuple) and isinstance(stride, tuple):
        for sub_shape, sub_stride in zip(shape, stride, strict=True):
            yield from leaves(sub_shape, sub_stride)
    else:
        assert isinstance(shape, int)
        assert isinstance(stride, int)
        yield shape, stride


@lru_cache(maxsize=4096)
def divide(layout: Layout, tiler: int | Layout) -> Layout:
    """Return (tile, rest): `layout` divided by a tiler of rank 1 (CuTe's logical_divide)."""
    tile = Layout(tiler, 1) if isinstance(tiler, int) else tiler
    return make_layout(compose(layout, tile), compose(layout, complement(tile, size(layout))))


def zipped_divide(layout: Layout, tilers: Sequence[int | Layout]) -> tuple[Layout, Layout]:
    """Return ((tile0, tile1, ...), (rest0, rest1, ..., untiled modes)): each leading mode divided by its own tiler."""
    all_modes = modes(layout)
    cut = [divide(part, tiler) for part, tiler in zip(all_modes, tilers, strict=False)]
    tiles = make_layout(*(mode(part, 0) for part in cut))
    rests = make_layout(*(mode(part, 1) for part in cut), *all_modes[len(tilers) :])
    return tiles, rests


def left_inverse(layout: Layout) -> Layout:
    """Return the layout L with L(layout(i)) = i, of an injective layout (CuTe's left_inverse)."""
    return tensor_layouts.left_inverse(layout)


def right_inverse(layout: Layout) -> Layout:
    """Return the layout R with layout(R(i)) = i (CuTe's right_inverse).

    Of modes with one stride the first counts.

    >>> right_inverse(Layout((4, 2, 2), (1, 1, 4)))
    Layout((4, 2), (1, 8))
    """
    flat = coalesce(layout)
    by_stride: dict[int, Layout] = {}
    position = 1
    for extent, stride in leaves(flat.shape, flat.stride):
        by_stride.setdefault(stride, Layout(extent, position))
        position *= extent
    inverse, end = [Layout(1, 0)], 1
    while end in by_stride:
        inverse.append(by_stride.pop(end))
        end *= size(inverse[-1])
    return coalesce(make_layout(*inverse))


# Layouts as text: CuTe C++'s print format, and the notation of specs.


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


# Layouts as numpy tables: every offset at once, so that counting and proving need no Python loop.


MOST_KEPT = 1 << 14
"""Maximum elements of a cached table: 128 KiB."""


def offsets(layout: LayoutExpr) -> NDArray[np.int64]:
    """Return the offset of each coordinate in colexicographic order, swizzle included: int64[size], read-only.

    >>> from cutegen.algebra import Layout
    >>> offsets(Layout((2, 3), (10, 1)))
    array([ 0, 10,  1, 11,  2, 12])
    """
    return _kept_offsets(layout) if size(inner_layout(layout)) <= MOST_KEPT else _offsets(layout)


def _offsets(layout: LayoutExpr) -> NDArray[np.int64]:
    inner = inner_layout(layout)
    table = np.zeros(1, np.int64)
    for extent, stride in leaves(inner.shape, inner.stride):
        table = (np.arange(extent, dtype=np.int64)[:, None] * int(stride) + table).ravel()
    if isinstance(layout, ComposedLayout):
        table = layout.outer(table + layout.offset)
    table.flags.writeable = False
    return table


# Ranking shared memory layouts requests each one three or four times.
_kept_offsets = lru_cache(maxsize=256)(_offsets)


def offsets_2d(layout: LayoutExpr) -> NDArray[np.int64]:
    """Return the offsets of a layout of rank 2, indexed by its two modes: int64[size<0>, size<1>]."""
    inner = inner_layout(layout)
    return offsets(layout).reshape(size(mode(inner, 1)), size(mode(inner, 0))).T


def offsets_by_row(layout: LayoutExpr) -> NDArray[np.int64]:
    """Return a layout's offsets, of any rank, as a table: mode 0 downwards, the others to the right; rank 1 is one row.

    int64[size<0>, size of the rest], columns in colexicographic order.

    >>> from cutegen.algebra import Layout
    >>> offsets_by_row(Layout((2, (2, 2)), (1, (10, 100)))).tolist()
    [[0, 10, 100, 110], [1, 11, 101, 111]]
    """
    inner = inner_layout(layout)
    rows = size(mode(inner, 0)) if isinstance(inner.shape, tuple) and len(inner.shape) > 1 else 1
    return offsets(layout).reshape(-1, rows).T


# Constructed layouts: modes in a given order, register fragments, an atom repeated over a tile.


def ordered_layout(shape: IntTree, order: Sequence[int] | None = None) -> Layout:
    """Return the compact layout of `shape`, its leaves in the given order, smallest first (CuTe's make_ordered_layout).

    `order` has one number per leaf of `shape`; equal numbers keep their position order, and run-time numbers follow all
    static ones. The default is left to right: column-major. A leaf of extent 1 has stride 0, as in CuTe.

    >>> ordered_layout((4, 8, 3), (1, 0, 2))
    Layout((4, 8, 3), (8, 1, 32))
    """
    extents = [extent for extent, _ in leaves(shape, shape)]
    numbers = range(len(extents)) if order is None else order
    ranks = [(1, 0) if isinstance(number, Dyn) else (0, number) for number in numbers]
    strides, stride = [0] * len(extents), 1
    for i in sorted(range(len(extents)), key=lambda i: ranks[i]):
        strides[i] = stride if extents[i] > 1 else 0
        stride *= extents[i]
    return Layout(shape, _unflatten(strides, shape))


def _unflatten(flat: list[int], profile: IntTree) -> IntTree:
    """Return the leading numbers of `flat` (consumed) with the nesting of `profile`."""
    return tuple(_unflatten(flat, part) for part in profile) if isinstance(profile, tuple) else flat.pop(0)


def fragment_like(partition: Layout) -> Layout:
    """Return the register layout for a partition (V, Rest...): V compact first, the other modes ordered by stride.

    CUTLASS `cute/layout.hpp`, make_fragment_like.
    """
    flat = list(leaves(partition.shape, partition.stride))
    v = modes(partition)[0]
    v_leaves = len(list(leaves(v.shape, v.stride)))
    order = [i - v_leaves for i in range(v_leaves)] + [stride for _, stride in flat[v_leaves:]]
    return ordered_layout(partition.shape, order)


def tile_to_shape(atom: LayoutExpr, shape: Sequence[int], order: Sequence[int] | None = None) -> LayoutExpr:
    """Repeat `atom` over `shape`, mode by mode: ((atom0, rest0), (atom1, rest1), ...) (CuTe's tile_to_shape).

    `order` gives the order of repetition: the mode with the smallest number gets the smallest stride; the default is
    left to right. A repetition starts at the end of the atom, including its padding. Raises ValueError if the atom does
    not divide the shape.

    >>> from cutegen.algebra import format_layout
    >>> format_layout(tile_to_shape(Layout((8, 32), (40, 1)), (128, 64)))
    '((_8,_16),(_32,_2)):((_40,_320),(_1,_5120))'
    """
    if isinstance(atom, ComposedLayout):
        return with_inner(atom, tile_to_shape(atom.inner, shape, order))
    return _tiled(atom, tuple(shape), None if order is None else tuple(order))


@lru_cache(maxsize=1024)  # compared swizzles share an atom
def _tiled(atom: Layout, shape: tuple[int, ...], order: tuple[int, ...] | None) -> Layout:
    blocks = modes(atom) + [Layout(1, 0)] * (len(shape) - len(modes(atom)))
    if len(blocks) > len(shape) or any(extent % size(block) for extent, block in zip(shape, blocks, strict=True)):
        raise ValueError(f"an atom of shape {tuple(map(size, blocks))} does not divide a tile of shape {shape}")
    counts = tuple(extent // size(block) for extent, block in zip(shape, blocks, strict=True))
    repeats = ordered_layout(counts, order)
    # The bound counts complete spans, not elements: padding also takes space.
    span = max(extent * stride for extent, stride in leaves(atom.shape, atom.stride))
    holes = complement(atom, span * size(repeats))
    try:
        rest = compose(holes, repeats)
    except LayoutError as error:
        raise ValueError(
            f"{size(repeats)} copies of {format_layout(atom)} do not fit into its holes {holes}"
        ) from error
    return make_layout(*(make_layout(block, mode(rest, i)) for i, block in enumerate(blocks)))


# One thread's share of a tensor: a layout sliced at a thread's coordinate, also through a swizzle.


@dataclass(frozen=True, slots=True)
class Partition:
    """A thread's part of a tensor: `layout` (V, Rest...) starting `offset` elements into the tensor."""

    layout: LayoutExpr
    offset: int

    def offsets(self) -> NDArray[np.int64]:
        """Return element offsets into the tensor, colexicographic: int64[size]."""
        return offsets(self.layout) + self.offset

    def __str__(self) -> str:
        """Return the layout as CuTe C++ prints it."""
        return format_layout(self.layout)


def slice_thread(layout: LayoutExpr, thread: int | tuple[object, ...]) -> Partition:
    """Return the partition at coordinate `thread` of the first mode; the other modes stay.

    A swizzled layout becomes affine wherever CuTe's slice_and_offset makes it so.
    """
    inner = inner_layout(layout)
    thread_mode, *rest_modes = modes(inner)
    rest, offset = make_layout(*rest_modes), int(thread_mode(thread))
    if not isinstance(layout, ComposedLayout):
        return Partition(rest, offset)
    return _slice_swizzled(layout.outer, rest, offset + layout.offset, varying=_reach(thread_mode))


def _slice_swizzled(swizzle: Swizzle, rest: Layout, offset: int, *, varying: int) -> Partition:
    """Return swizzle o offset o rest, made affine if the rest never has both a bit and the one it is XORed with.

    `varying` has the bits of the offset that differ between threads. CUTLASS `cute/swizzle_layout.hpp`,
    slice_and_offset.
    """
    window = swizzle.yyy_msk | swizzle.zzz_msk
    reach = _reach(rest)
    if offset & reach & ((1 << window.bit_length()) - 1):  # adding the rest could carry into the window
        return Partition(ComposedLayout(swizzle, rest, offset=offset), 0)
    active = reach & window
    if not active & ~swizzle(active) and _splits_into_bits(rest, window):
        return Partition(compose(_unswizzled(swizzle, offset, varying, cosize(rest)), rest), swizzle(offset))
    inside = MixedBits(offset & window, varying & window) if varying & window else offset & window
    return Partition(ComposedLayout(swizzle, rest, offset=inside), offset - inside)


def _unswizzled(swizzle: Swizzle, offset: int, varying: int, extent: int) -> Layout:
    """Return the affine layout that a swizzle equals at `offset`: one mode of extent 2 per swizzled bit.

    Its stride is known at compile time only if the bit it is XORed with does not vary between threads.
    """
    bits, base, distance = swizzle.bits, swizzle.base, abs(swizzle.shift)

    def strides(lowest: int, partner_shift: int) -> list[int]:
        found = []
        for bit in (1 << (lowest + i) for i in range(bits)):
            partner = bit << partner_shift if partner_shift > 0 else bit >> -partner_shift
            stride = swizzle(offset | bit) - swizzle(offset & ~bit)
            found.append(Dyn(stride) if partner & varying else stride)
        return found

    low, high = strides(base, distance), strides(base + distance, -distance)
    window = 1 << (base + distance + bits)
    return Layout(
        (1 << base, *[2] * bits, 1 << (distance - bits), *[2] * bits, -(-extent // window) + 1),
        (1, *low, 1 << (base + bits), *high, window),
    )


def _reach(layout: Layout) -> int:
    """Return every bit that an offset of `layout` can have set, extents rounded up to powers of two."""
    bits = 0
    for extent, stride in leaves(layout.shape, layout.stride):
        bits |= ((1 << (extent - 1).bit_length()) - 1) * int(stride)
    return bits


def _splits_into_bits(layout: Layout, window: int) -> bool:
    """Return whether each stride is one bit or entirely above the window, so that the swizzle acts per mode."""
    end = 1 << window.bit_length()
    return all(int(stride).bit_count() <= 1 or stride % end == 0 for _, stride in leaves(layout.shape, layout.stride))
