"""Table of the element that each register of each thread receives before an MMA, from layout algebra."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cutegen.algebra import Layout, OperandName, TiledMma, modes, offsets_2d, size
from cutegen.hardware.units import REGISTER_BITS
from cutegen.plan.values.gemm_plan import OperandPlan

Coordinates = NDArray[np.int64]
Place = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class FragmentTable:
    """The fragments of one k-tile: the MMA's operands, independent of the instruction that loads them.

    `coordinates` int64[thread, value] are column-major in the operand's (X, K) tile. Values are in the order of tCrA or
    tCrB, of `extents` (MMA, MMA_X, MMA_K), first mode fastest; `bits` is the width of one.
    """

    operand: OperandName
    tile: tuple[int, int]
    coordinates: Coordinates
    extents: Place
    bits: int

    @property
    def values(self) -> int:
        """Values of a thread."""
        return int(self.coordinates.shape[1])

    @property
    def registers(self) -> int:
        """Registers of a thread, of 32 bits each."""
        return self.values * self.bits // REGISTER_BITS

    def place(self, value: int) -> Place:
        """Return the coordinate of a value in (MMA, MMA_X, MMA_K)."""
        rest, v = divmod(value, self.extents[0])
        k, x = divmod(rest, self.extents[1])
        return v, x, k

    def element(self, coordinate: int) -> tuple[int, int]:
        """Return (x, k) of a column-major coordinate."""
        return coordinate % self.tile[0], coordinate // self.tile[0]


def fragment_table(tiled_mma: TiledMma, operand: OperandPlan) -> FragmentTable:
    """Return what each thread of `tiled_mma` holds of one k-tile of `operand`.

    >>> from cutegen.plan import plan
    >>> from cutegen.spec import load_spec
    >>> gemm = plan(load_spec("sm80_hgemm_tn"), "sm_80")
    >>> table = fragment_table(gemm.tiled_mma, gemm.a)
    >>> [table.element(coordinate) for coordinate in table.coordinates[5, :4].tolist()]
    [(1, 2), (1, 3), (9, 2), (9, 3)]
    """
    op, tile = operand.operand, operand.tile
    # The tile is affine, so every thread's share is thread 0's, shifted to its first value.
    share = tiled_mma.partition(op, Layout(tile), 0)
    first = offsets_2d(tiled_mma.tv_layout(op))[:, 0]
    rows = tiled_mma.tile_of(op)[0]
    starts = first % rows + first // rows * tile[0]
    values, along_x, along_k = (int(size(part)) for part in modes(share.layout))
    return FragmentTable(
        operand=op,
        tile=tile,
        coordinates=starts[:, None] + share.offsets(),
        extents=(values, along_x, along_k),
        bits=operand.dtype.bits,
    )
