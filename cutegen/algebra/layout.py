"""The only interface to tensor-layouts: its layout types and operations, and short helpers as in CuTe C++."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import tensor_layouts
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
