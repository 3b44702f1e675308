"""`ldmatrix` of 8-bit elements that are not K-major: which registers a load fills, against PTX ISA."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from cutegen.algebra import Layout, OperandName, TiledMma, offsets
from cutegen.hardware import MMA_ATOMS, ldmatrix_atom, ldmatrix_trace, order_of_byte_loads, view_in_order

OF_BYTES = ["SM80_16x8x16_S32S8S8S32_TN_SATURATE", "SM89_16x8x32_F32E4M3E5M2F32_TN"]
TILE = 128, 64


def in_pairs(warps: int, pairs: int) -> Layout:
    """Columns of N: 8 of an atom, the warps 16 apart, the pair's second atom beside the first, more pairs."""
    return Layout((8, warps, 2, pairs), (1, 16, 8, 16 * warps))


MMAS = [
    pytest.param(TiledMma(MMA_ATOMS[atom], (m, n, 1), (16 * m * repeat, in_pairs(n, repeat), 32 * repeat)))
    for atom, (m, n), repeat in product(OF_BYTES, [(1, 1), (2, 2), (1, 4)], [1, 2])
]


def received_by_the_isa(source: np.ndarray) -> np.ndarray:
    """[instr, thread, value] of the rows that lanes address, [instr, warp, lane, 16 elements].

    PTX ISA, ldmatrix, figure of the 16x16 matrix: register r of thread t holds elements 4 (t % 4) to 4 (t % 4) + 3 of
    row t / 4 + 8 (r % 2) of matrix r / 2, which with .trans are elements of that column of the rows addressed.
    """
    lane, value = np.arange(32)[:, None], np.arange(16)
    matrix, half, byte = value // 8, value // 4 % 2, value % 4
    received = source[:, :, 16 * matrix + 4 * (lane % 4) + byte, lane // 4 + 8 * half]
    return received.reshape(len(received), -1, 16)


@pytest.mark.parametrize("op", ["A", "B"])
@pytest.mark.parametrize("mma", MMAS)
def test_registers_receive_what_the_order_says(mma: TiledMma, op: OperandName) -> None:
    order = order_of_byte_loads(mma, op)
    for matrices in (1, 2):
        atom = ldmatrix_atom(matrices, transpose=True, element_bits=8)
        trace = ldmatrix_trace(mma, op, Layout(TILE), atom, 8, order)
        assert trace.legal
        assert trace.rows == 16 * matrices
        by_isa = received_by_the_isa(np.concatenate([trace.source_coords] * 2, axis=2))[..., : 8 * matrices]
        assert np.array_equal(trace.destination_coords, by_isa)


@pytest.mark.parametrize("mma", MMAS)
def test_the_view_puts_them_into_the_fragment(mma: TiledMma) -> None:
    """Number by number, the fragment's register has the element that the load brings."""
    order = order_of_byte_loads(mma, "B")
    if order is None:
        assert mma.atom.shape_mnk[2] == 16  # four values of an atom: the copy's order is the MMA's
        return
    atom = ldmatrix_atom(2, transpose=True, element_bits=8)
    received = ldmatrix_trace(mma, "B", Layout(TILE), atom, 8, order).destination_coords
    view = offsets(view_in_order(mma, "B", TILE, order, 16))
    assert np.array_equal(np.sort(view), np.arange(view.size))
    for thread in (0, 21, mma.threads - 1):
        held = mma.partition("B", Layout(TILE), thread).offsets()
        assert np.array_equal(held[view], received[:, thread].ravel())


def test_columns_that_are_not_in_pairs_have_no_rows_of_16() -> None:
    mma = TiledMma(MMA_ATOMS[OF_BYTES[1]], (2, 2, 1), (32, 32, 32))
    atom = ldmatrix_atom(2, transpose=True, element_bits=8)
    assert not ldmatrix_trace(mma, "B", Layout(TILE), atom, 8, order_of_byte_loads(mma, "B")).legal
    alone = TiledMma(MMA_ATOMS[OF_BYTES[1]], (2, 2, 1))
    assert order_of_byte_loads(alone, "B") is None
