"""Constructed layouts: modes in a given order, register fragments, an atom repeated over a tile."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from cutegen.algebra.layout import (
    ComposedLayout,
    IntTree,
    Layout,
    LayoutError,
    LayoutExpr,
    complement,
    compose,
    leaves,
    make_layout,
    mode,
    modes,
    size,
    with_inner,
)
from cutegen.algebra.notation import Dyn, format_layout


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
