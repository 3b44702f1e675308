"""Every `ldmatrix` of a CTA, enumerated: the rows that its lanes address, and the element of each register."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cutegen.algebra import layout
from cutegen.algebra.layout import Layout, LayoutExpr, mode, size
from cutegen.algebra.tiled import OPERAND_MODES, CopyAtomLike, OperandName, TiledMma, reordered
from cutegen.hardware.units import WARP

# The order in which an `ldmatrix` of 8-bit elements fills a thread's fragment of B, which differs from the MMA's.
#
# A load gives a thread four neighbors along k from the column n, then the same four from the column n + 8. A's atom
# numbers its values the same way, with rows instead of columns. B's atom has eight columns and numbers all their k
# first; n + 8 is in the next atom along n. A load therefore fills registers of two atoms, and copy and fragment number
# the same values differently.


NEIGHBORS = 4


def order_of_byte_loads(mma: TiledMma, op: OperandName) -> Layout | None:
    """Map a value's number in the copy to that in the tile of `mma`; None if they agree, or atoms have no pairs.

    >>> from cutegen.hardware import MMA_ATOMS
    >>> atom = MMA_ATOMS["SM89_16x8x32_F32E4M3E4M3F32_TN"]
    >>> order_of_byte_loads(TiledMma(atom, (2, 2, 1), (32, 32, 32)), "B")
    Layout((4, 2, 2, 1), (1, 8, 4, 16))
    """
    of_atom, all_values = _atom_values(mma, op), mma.values(op)
    if op == "A" or of_atom == NEIGHBORS or _repeats(mma, op)[0] % 2:
        return None
    along_k, pairs = of_atom // NEIGHBORS, all_values // (2 * of_atom)
    return Layout((NEIGHBORS, 2, along_k, pairs), (1, of_atom, NEIGHBORS, 2 * of_atom))


def view_in_order(mma: TiledMma, op: OperandName, tile: tuple[int, int], order: Layout, values: int) -> Layout:
    """Map (CPY, CPY_X, CPY_K) to the number in a `tile`'s fragment, (MMA, MMA_X, MMA_K) with the first mode fastest.

    CPY is (`values` of one load, loads of one MMA tile). Composed with a fragment, this equals CuTe's retile for copies
    that number values like the MMA.
    """
    repeat_x, repeat_k = _repeats(mma, op)
    rows, depth = mma.tile_of(op)
    in_column = _atom_values(mma, op) * repeat_x
    in_row_of_tiles = in_column * (tile[0] // rows)
    within = layout.compose(Layout((in_column, repeat_k), (1, in_row_of_tiles)), order)
    return layout.make_layout(
        layout.divide(within, values),
        Layout(tile[0] // rows, in_column),
        Layout(tile[1] // depth, in_row_of_tiles * repeat_k),
    )


def _atom_values(mma: TiledMma, op: OperandName) -> int:
    """Return the values of the operand that a thread holds for one atom."""
    return int(size(mode(mma.atom.a_layout if op == "A" else mma.atom.b_layout, 1)))


def _repeats(mma: TiledMma, op: OperandName) -> tuple[int, int]:
    """Return how often a warp repeats the atom in the MMA's tile, along M or N and along K."""
    x, k = OPERAND_MODES[op]
    return (
        mma.tile_mnk[x] // (mma.atom.shape_mnk[x] * size(mode(mma.atom_layout, x))),
        mma.tile_mnk[k] // (mma.atom.shape_mnk[k] * size(mode(mma.atom_layout, k))),
    )


# Every `ldmatrix` of a CTA, enumerated: the rows that its lanes address, and the element of each register.
#
# Based only on TiledMma's thread-value layouts, not on TiledCopy, so that the two can be checked against each other.


ROW_BYTES = 16
"""A row of a matrix, at one lane's address (PTX ISA, "ldmatrix": `.shape`)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LdmatrixTrace:
    """All `ldmatrix` instructions that load one tile of an operand to registers.

    `source_coords` and `source_offsets` [instr, warp, lane, row element]: tile coordinate (column-major) and element
    offset in shared memory that each lane's address points to; only the first `rows` lanes count.
    `destination_coords` [instr, thread, value]: the tile coordinate that the MMA needs in each register.
    """

    source_coords: NDArray[np.int64]
    source_offsets: NDArray[np.int64]
    destination_coords: NDArray[np.int64]
    tile_shape: tuple[int, int]
    rows: int
    bits: int

    @property
    def row_offsets_bytes(self) -> NDArray[np.int64]:
        """The byte offset of each addressed row: [instr, warp, rows]; other lanes address nothing."""
        return self.source_offsets[:, :, : self.rows, 0] * self.bits // 8

    @property
    def legal(self) -> bool:
        """True if each row is 16 contiguous, 16-byte aligned bytes."""
        return not self._illegal.any()

    def illegal_rows(self) -> str | None:
        """Describe the first row that `ldmatrix` cannot read, and count such rows; None without any."""
        illegal = self._illegal
        if not illegal.any():
            return None
        first = tuple(np.argwhere(illegal)[0])
        row, coords = self.source_offsets[first], self.source_coords[first]
        steps = np.diff(row)
        where = f"{self._coordinate(coords[0])} to {self._coordinate(coords[-1])}"
        if (steps == 1).all():
            fault = f"starts at byte {int(row[0]) * self.bits // 8}, not a multiple of {ROW_BYTES}"
        else:
            apart = ", ".join(map(str, sorted(set(steps.tolist()))))
            fault = f"lies {apart} elements apart in shared memory, not {ROW_BYTES} contiguous bytes"
        return f"the row of {len(row)} elements {where} {fault} ({int(illegal.sum())} of {illegal.size} rows)"

    @property
    def _illegal(self) -> NDArray[np.bool_]:
        """[instr, warp, rows]."""
        rows = self.source_offsets[:, :, : self.rows]
        elems = ROW_BYTES * 8 // self.bits
        contiguous = (rows == rows[..., :1] + np.arange(elems)).all(axis=-1)
        illegal: NDArray[np.bool_] = ~(contiguous & (rows[..., 0] % elems == 0))
        return illegal

    def _coordinate(self, index: int) -> str:
        return f"({index % self.tile_shape[0]},{index // self.tile_shape[0]})"


def ldmatrix_trace(
    mma: TiledMma,
    op: OperandName,
    smem_layout: LayoutExpr,
    atom: CopyAtomLike,
    bits: int = 16,
    order: Layout | None = None,
) -> LdmatrixTrace:
    """Enumerate the instructions `atom` that load an operand's tile from `smem_layout`: (x, y) -> element offset.

    They fill a thread's values in sequence, or by `order`: number in the copy -> number in the MMA's tile. Raises
    ValueError if the tile is not a multiple of the tiled MMA's, or a thread has too few values for the atom.
    """
    inner = layout.inner_layout(smem_layout)
    tile_shape = int(size(mode(inner, 0))), int(size(mode(inner, 1)))
    tv = mma.tv_layout(op)
    source, destination = _one_mma_tile(tv if order is None else reordered(tv, order), atom, bits)
    source_coords = _repeat(source, mma.tile_of(op), tile_shape)
    destination_coords = _repeat(destination, mma.tile_of(op), tile_shape)
    return LdmatrixTrace(
        source_coords=source_coords,
        source_offsets=layout.offsets(smem_layout)[source_coords],
        destination_coords=destination_coords.reshape(len(destination_coords), mma.threads, -1),
        tile_shape=tile_shape,
        rows=size(atom.dst_layout_bits) // (8 * ROW_BYTES),
        bits=bits,
    )


def _one_mma_tile(tv_layout: Layout, atom: CopyAtomLike, bits: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return coordinates in an MMA tile: read [instr, warp, lane, row element], received [instr, warp, lane, value]."""
    tv = layout.offsets_2d(tv_layout)
    read = layout.offsets_2d(layout.upcast(atom.src_layout_bits, bits))
    received = layout.offsets_2d(layout.upcast(atom.dst_layout_bits, bits))
    threads, values = tv.shape
    per_instr = received.shape[1]
    if values % per_instr:
        raise ValueError(
            f"TiledCopy uses too few vals for selected CopyAtom: {atom.name} moves {per_instr} values per thread, "
            f"{values} is not a multiple"
        )
    wanted = tv.reshape(threads // WARP, WARP, values // per_instr, per_instr).transpose(2, 0, 1, 3)
    # Both sides number the same bits, so a number identifies the element that a (lane, value) receives.
    receiver = np.argsort(received.ravel())
    return wanted.reshape(*wanted.shape[:2], -1)[..., receiver[read]], wanted


def _repeat(coords: NDArray[np.int64], mma_tile: tuple[int, int], tile_shape: tuple[int, int]) -> NDArray[np.int64]:
    """Repeat coordinates [instr, ...] of one MMA tile for each in `tile_shape`: [all instr, ...], mode 0 fastest."""
    if tile_shape[0] % mma_tile[0] or tile_shape[1] % mma_tile[1]:
        raise ValueError(f"the tiled MMA's tile {mma_tile} does not divide the tile {tile_shape}")
    x, y = coords % mma_tile[0], coords // mma_tile[0]
    local = x + y * tile_shape[0]
    starts_x = np.arange(0, tile_shape[0], mma_tile[0])
    starts_y = np.arange(0, tile_shape[1], mma_tile[1]) * tile_shape[0]
    starts = (starts_x + starts_y[:, None]).reshape(-1, *[1] * coords.ndim)
    repeated: NDArray[np.int64] = (starts + local).reshape(-1, *coords.shape[1:])
    return repeated
