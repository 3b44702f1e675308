"""The order in which an `ldmatrix` of 8-bit elements fills a thread's fragment of B, which differs from the MMA's.

A load gives a thread four neighbors along k from the column n, then the same four from the column n + 8. A's atom
numbers its values the same way, with rows instead of columns. B's atom has eight columns and numbers all their k first;
n + 8 is in the next atom along n. A load therefore fills registers of two atoms, and copy and fragment number the same
values differently.
"""

from __future__ import annotations

from cutegen.algebra.layout import Layout, compose, divide, make_layout, mode, size
from cutegen.algebra.tiled_mma import OPERAND_MODES, OperandName, TiledMma

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
    within = compose(Layout((in_column, repeat_k), (1, in_row_of_tiles)), order)
    return make_layout(
        divide(within, values),
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
