"""Table of the element that each register of each thread receives before an MMA, from layout algebra."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.algebra import OperandName, TiledMma
from cutegen.hardware.units import REGISTER_BITS
from cutegen.plan.geometry import Coordinates, Place, place_of_value, shares_of_threads
from cutegen.plan.values.path import OperandPath


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
        return place_of_value(self.extents, value)

    def element(self, coordinate: int) -> tuple[int, int]:
        """Return (x, k) of a column-major coordinate."""
        return coordinate % self.tile[0], coordinate // self.tile[0]


def fragment_table(tiled_mma: TiledMma, operand: OperandPath) -> FragmentTable:
    """Return what each thread of `tiled_mma` holds of one k-tile of `operand`.

    >>> from cutegen.plan import plan
    >>> from cutegen.spec import load_spec
    >>> gemm = plan(load_spec("sm80_hgemm_tn"), "sm_80")
    >>> table = fragment_table(gemm.tiled_mma, gemm.a)
    >>> [table.element(coordinate) for coordinate in table.coordinates[5, :4].tolist()]
    [(1, 2), (1, 3), (9, 2), (9, 3)]
    """
    coordinates, extents = shares_of_threads(tiled_mma, operand.operand, operand.tile)
    return FragmentTable(
        operand=operand.operand,
        tile=operand.tile,
        coordinates=coordinates,
        extents=extents,
        bits=operand.dtype.bits,
    )
