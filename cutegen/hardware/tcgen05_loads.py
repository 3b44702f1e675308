"""Loads from tensor memory, `tcgen05.ld`, and the places of the sums of `tcgen05.mma` that they read.

A place is lane + LANES x column. Loads: PTX ISA, "tcgen05.ld": a warp reaches the 32 lanes of its quarter. Places of
sums: CUTLASS `cute/atom/mma_traits_sm100.hpp`, `tmem_frg` of one SM and of two (the ISA's text has them in pictures).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cutegen.algebra import Layout, mode, offsets_2d, size
from cutegen.hardware.dtypes import DType
from cutegen.hardware.tcgen05_atoms import LANES, PAIR
from cutegen.hardware.units import REGISTER_BITS, WARP

QUARTERS = LANES // WARP


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorLoad:
    """A `.shape` of `tcgen05.ld` for sums of `bits`: `layout` maps (thread, value) of a warp to a place in its quarter.

    A repetition has `columns`. Two sums of 16 bits share a register, and have a column each.
    """

    shape: str
    bits: int
    columns: int
    layout: Layout

    def opcode(self, columns: int) -> str:
        """Return the load of so many columns.

        >>> LOADS["32x32b", 32].opcode(64), LOADS["16x256b", 16].opcode(64)
        ('tcgen05.ld.sync.aligned.32x32b.x64.b32', 'tcgen05.ld.sync.aligned.16x128b.x8.pack::16b.b32')
        """
        pack = ".pack::16b" if self.bits < REGISTER_BITS else ""
        return f"tcgen05.ld.sync.aligned.{self.shape}.x{columns // self.columns}{pack}.b32"

    def places(self, columns: int) -> NDArray[np.int64]:
        """Return the places that the threads of four warps load of so many columns: int64[thread, value]."""
        repetition, values = np.arange(columns // self.columns), int(size(mode(self.layout, 1)))
        of_warp = offsets_2d(self.layout)[:, None, :] + LANES * self.columns * repetition[:, None]
        quarter = WARP * np.arange(QUARTERS)[:, None, None]
        return (quarter + of_warp.reshape(1, WARP, -1)).reshape(LANES, len(repetition) * values)


# A lane's columns for each thread; and the fragment of mma.m16n8, of which a register has two sums of 16 bits.
_FRAGMENT = Layout(((4, 8), (2, 2)), ((2 * LANES, 1), (LANES, 8)))
LOADS: Mapping[tuple[str, int], TensorLoad] = {
    ("32x32b", 32): TensorLoad(shape="32x32b", bits=32, columns=1, layout=Layout((WARP, 1), (1, 0))),
    ("32x32b", 16): TensorLoad(shape="32x32b", bits=16, columns=2, layout=Layout((WARP, 2), (1, LANES))),
    ("16x256b", 32): TensorLoad(shape="16x256b", bits=32, columns=8, layout=_FRAGMENT),
    ("16x256b", 16): TensorLoad(shape="16x128b", bits=16, columns=8, layout=_FRAGMENT),
}
"""Loads by the shape for sums of 32 bits, and the bits of a sum."""


def load_of(rows: int, ctas: int, element: DType) -> TensorLoad:
    """Return the load of sums of a CTA with so many rows: by lanes, or half of them as fragments."""
    return LOADS["32x32b" if rows * ctas >= LANES else "16x256b", element.bits]


def places_of_sums(rows: int, columns: int, ctas: int) -> Layout:
    """Map (m, n) of the sums that a CTA has of one instruction to their places.

    >>> places_of_sums(64, 32, 1)
    Layout(((16, 4), 32), ((1, 32), 128))
    """
    if rows == LANES:
        return Layout((rows, columns), (1, LANES))
    if ctas == PAIR:  # the second half of the columns lies below the first
        return Layout((rows, (columns // 2, 2)), (1, (LANES, rows)))
    return Layout(((16, rows // 16), columns), ((1, WARP), LANES))


def columns_of_sums(rows: int, columns: int, ctas: int) -> int:
    """Return the columns of tensor memory that the sums have.

    >>> columns_of_sums(128, 256, 2), columns_of_sums(64, 256, 2)
    (256, 128)
    """
    return columns // 2 if rows < LANES and ctas == PAIR else columns
