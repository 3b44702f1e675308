"""One thread's share of a tensor: a layout sliced at a thread's coordinate, also through a swizzle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cutegen.algebra import tables
from cutegen.algebra.layout import (
    ComposedLayout,
    Layout,
    LayoutExpr,
    Swizzle,
    compose,
    cosize,
    inner_layout,
    leaves,
    make_layout,
    modes,
)
from cutegen.algebra.notation import Dyn, MixedBits, format_layout


@dataclass(frozen=True, slots=True)
class Partition:
    """A thread's part of a tensor: `layout` (V, Rest...) starting `offset` elements into the tensor."""

    layout: LayoutExpr
    offset: int

    def offsets(self) -> NDArray[np.int64]:
        """Return element offsets into the tensor, colexicographic: int64[size]."""
        return tables.offsets(self.layout) + self.offset

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
