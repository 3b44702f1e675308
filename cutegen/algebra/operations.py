"""CuTe's operations on layouts under their own names, for layouts in expressions; also on swizzled ones.

CUTLASS `include/cute/layout.hpp` and `layout_composed.hpp`. A tiler is a layout, an integer (that many consecutive
elements), or a tuple of tilers, one for each of the leading modes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Literal, TypeAlias

import tensor_layouts

from cutegen.algebra.layout import (
    ComposedLayout,
    Layout,
    LayoutExpr,
    coalesce,
    complement,
    compose,
    divide,
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
from cutegen.algebra.notation import compact, format_layout

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
