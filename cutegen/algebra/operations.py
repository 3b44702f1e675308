"""CuTe's operations on layouts under their own names, for layouts in expressions; also on swizzled ones.

CUTLASS `include/cute/layout.hpp` and `layout_composed.hpp`. A tiler is a layout, an integer (that many consecutive
elements), or a tuple of tilers, one for each of the leading modes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

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
    logical_product,
    make_layout,
    modes,
    right_inverse,
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


def coalesced(layout: LayoutExpr) -> LayoutExpr:
    """Return the same function with the fewest modes (CuTe's coalesce)."""
    return with_inner(layout, coalesce(inner_layout(layout)))


def complement_of(layout: LayoutExpr, bound: int = 1) -> Layout:
    """Return the layout of the offsets below `bound` that `layout` omits.

    Raises ValueError for a swizzled layout, and for one whose elements overlap.
    """
    return complement(_injective(_affine(layout, "complement")), bound)


def right_inverse_of(layout: LayoutExpr) -> Layout:
    """Return the inverse of `layout`. Raises ValueError for a swizzled one."""
    return right_inverse(_affine(layout, "right_inverse"))


OPERATIONS: Mapping[str, Callable[..., LayoutExpr]] = MappingProxyType(
    {
        "composition": composition,
        "logical_divide": logical_divide,
        "zipped_divide": zipped_divide,
        "tiled_divide": tiled_divide,
        "flat_divide": flat_divide,
        "logical_product": product,
        "blocked_product": blocked_product,
        "raked_product": raked_product,
        "coalesce": coalesced,
        "complement": complement_of,
        "right_inverse": right_inverse_of,
    }
)
"""By CuTe's names."""
TILERS = frozenset({"composition", "logical_divide", "zipped_divide", "tiled_divide", "flat_divide", "logical_product"})
"""Operations with a tiler as second argument; LAYOUTS take a layout, `complement` an integer, others nothing."""
LAYOUTS = frozenset({"blocked_product", "raked_product"})


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
