"""The accumulator: where the sums of a tile are while K is multiplied, and how they reach the epilogue."""

from dataclasses import dataclass
from enum import StrEnum
from math import prod

import numpy as np
from numpy.typing import NDArray

from cutegen.algebra import Layout, TiledMma, make_layout, mode, modes, offsets_2d, size
from cutegen.algebra.layout import compose
from cutegen.hardware import DType, MmaAtom
from cutegen.hardware.tcgen05 import LANES, TensorLoad
from cutegen.hardware.units import REGISTER_BITS, WARPGROUP


class Home(StrEnum):
    """Memory of the sums: registers of the threads that multiply, or what others drain.

    These are columns of tensor memory, or of shared memory with the same places, for instructions whose sums are in
    registers first.
    """

    REGISTERS = "registers"
    TENSOR_MEMORY = "tensor memory"
    SHARED_MEMORY = "shared memory"


PROMOTED_TILES = 8
"""K-tiles of a turn of a loop in which two sets of sums alternate, or whose scaled sums are multiplied in waves."""
SCALED_TILES = 4
"""K-tiles of a turn of a loop that scales the sums of each at once."""


@dataclass(frozen=True, slots=True)
class Promotion:
    """Sums of each `k` of K are added to others in registers, before they are so large that small addends are lost.

    They alternate between `sets` sets of registers: one k-tile is multiplied while another is promoted. If `staggered`,
    the second of two warpgroups that share a tile runs one k-tile later. In several `waves`, along M or N, a set has as
    many of a thread's sums at a time: one block of rows, or of columns, after the other. Where factors of blocks scale
    the sums, `k` is that of a block. A turn of the loop has `k_tiles_per_turn`, and the rest run one by one.
    """

    k: int
    sets: int = 1
    staggered: bool = False
    waves: tuple[int, int] = (1, 1)
    k_tiles_per_turn: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulator:
    """Sums of `dtype` of a tile (M, N), in one of `buffers`: a tile is multiplied into one while another is drained.

    With a `promotion` a buffer has those of its K alone, which those who drain it add to others in registers.

    `layout` maps (thread, value) of the threads that run the epilogue to a column-major offset in the tile: what they
    hold in registers, or receive by `drain`, the instruction that loads sums from tensor memory. A value is one of
    (MMA, MMA_M, MMA_N), as of the tiled MMA of `atom`, of whose tile of C they have equal shares. The sums of a group
    of `group_threads` are blocks of extents `block`, those of one instruction. A thread's values are its sub-tiles in
    order: all rows of a block, and columns of one of `widths`; none if only whole tiles are read. A buffer has
    `columns` of tensor memory.
    """

    home: Home
    dtype: DType
    tile: tuple[int, int]
    block: tuple[int, int]
    atom: MmaAtom
    layout: Layout
    buffers: int = 1
    columns: int = 0
    group_threads: int = WARPGROUP
    drain: TensorLoad | None = None
    widths: tuple[int, ...] = ()
    promotion: Promotion | None = None

    @property
    def threads(self) -> int:
        """Threads that hold or receive a tile's sums."""
        return int(size(mode(self.layout, 0)))

    @property
    def values(self) -> int:
        """Sums of the tile that each thread holds or receives."""
        return int(size(mode(self.layout, 1)))

    @property
    def table(self) -> NDArray[np.int64]:
        """Column-major coordinates in the tile of each thread's sums: int64[thread, value]."""
        return offsets_2d(self.layout)

    @property
    def extents(self) -> tuple[int, int, int]:
        """Extents of a thread's values: (MMA, MMA_M, MMA_N)."""
        mma, along_m, along_n = (int(size(part)) for part in modes(mode(self.layout, 1)))
        return mma, along_m, along_n

    def of_part(self, tile: tuple[int, int]) -> NDArray[np.int64]:
        """Return what threads of a group have of each of its sub-tiles, coordinates in it: int64[thread, value]."""
        rows, columns = tile
        first = self.table[: self.group_threads, : rows * columns // self.group_threads]
        return first % self.tile[0] + first // self.tile[0] * rows

    @property
    def places(self) -> NDArray[np.int64]:
        """Places of a buffer that each thread loads, int64[thread, value]: four warps have all lanes of their columns.

        Raises AssertionError for sums that nothing drains.
        """
        assert self.drain is not None, "sums in registers are loaded from nowhere"
        groups = max(1, self.threads // LANES)
        own = self.drain.places(self.columns // groups)
        return np.concatenate([own + LANES * self.columns // groups * group for group in range(groups)])

    def columns_of_load(self, of_part: int) -> int:
        """Return the columns of one load: those of a part of C, or of a wave of sums that are promoted."""
        return of_part if self.promotion is None else self.block[1]

    def of_load(self, values: int) -> Layout:
        """Return (thread, value) of the first `values` of each thread, a sub-tile's, to coordinates as in `layout`."""
        return make_layout(mode(self.layout, 0), compose(mode(self.layout, 1), Layout(values)))

    @property
    def registers(self) -> int:
        """Registers of a thread for the sums of a tile: of each set, and of those that sums are promoted to."""
        if self.home is not Home.REGISTERS and self.promotion is None:
            return 0
        sums = self.registers_of(self.values)
        return sums if self.promotion is None else sums + sums * self.promotion.sets // prod(self.promotion.waves)

    @property
    def drained_by_rows(self) -> bool:
        """True if a thread that loads sums has whole rows of a sub-tile, and no other lane has any of them."""
        return self.home is not Home.REGISTERS and self.atom.threads == 1

    @property
    def row_of_blocks(self) -> tuple[int, int]:
        """Extents of the blocks of a group side by side: of one, or of those that it multiplies in waves."""
        rows, columns = self.block
        return rows, columns * (1 if self.promotion is None else self.promotion.waves[1])

    def registers_of(self, values: int) -> int:
        """Return the registers of a thread for so many sums."""
        return values * self.dtype.bits // REGISTER_BITS

    def registers_while_stored(self, values: int) -> int:
        """Return the registers for sums of a thread that stores a sub-tile of so many: all, unless it loads those."""
        holds_all = self.home is Home.REGISTERS or self.promotion is not None
        return self.registers_of(self.values if holds_all else values)


def in_registers(
    tiled_mma: TiledMma,
    atom: MmaAtom,
    tile: tuple[int, int],
    *,
    widths: tuple[int, ...] = (),
    promotion: Promotion | None = None,
) -> Accumulator:
    """Return the accumulator that a tiled MMA of `atom` repeats over `tile`, in the registers of its threads."""
    rows, columns, _ = tiled_mma.tile_mnk
    threads = compose(Layout((rows, columns), (1, tile[0])), mode(tiled_mma.tv_layout("C"), 0))
    values = tiled_mma.partition("C", Layout(tile), 0).layout
    m, n, _ = atom.shape_mnk
    return Accumulator(
        home=Home.REGISTERS,
        dtype=atom.c_dtype,
        tile=tile,
        block=(m, n),
        atom=atom,
        layout=make_layout(threads, values),
        widths=widths,
        promotion=promotion,
    )
