"""Loads from tensor memory and places of sums: against the formulas by which the executor reads and writes them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from cutegen.algebra import offsets_2d
from cutegen.hardware.tcgen05 import LOADS, N_OF_CTAS, PAIR, ROWS_OF_CTA, columns_of_sums, places_of_sums
from cutegen.hardware.units import WARP
from cutegen.ptx.machine.tensor_memory import accumulator_pieces, warp_words

COLUMNS = (16, 32, 64, 128)


@pytest.mark.parametrize(("key", "columns"), list(product(LOADS, COLUMNS)))
def test_threads_receive_what_the_executor_loads(key: tuple[str, int], columns: int) -> None:
    """Sums of 16 bits share a register: the lower half has the even column, and a shape twice as many columns."""
    load = LOADS[key]
    shared = 32 // load.bits
    lanes, words = warp_words(load.shape, columns // load.columns)
    values = [
        (lanes[register], shared * words[register] + half) for register in range(len(lanes)) for half in range(shared)
    ]
    expected = np.array([[at + 128 * column for at, column in zip(*each, strict=True)] for each in values]).T
    found = load.places(columns)
    for warp in range(4):
        assert np.array_equal(found[WARP * warp : WARP * (warp + 1)], expected + WARP * warp)
    assert f".x{len(lanes) // {'16x256b': 4, '16x128b': 2, '32x32b': 1}[load.shape]}" in load.opcode(columns)


@pytest.mark.parametrize(("rows", "ctas"), list(product(ROWS_OF_CTA, N_OF_CTAS)))
def test_sums_are_where_the_executor_puts_them(rows: int, ctas: int) -> None:
    for n in N_OF_CTAS[ctas]:
        found = offsets_2d(places_of_sums(rows, n, ctas))
        expected = np.full((rows, n), -1)
        for piece in accumulator_pieces(rows * ctas, n, ctas, 0, 0):
            region = piece.region
            lanes = np.arange(128)[region.lanes] if isinstance(region.lanes, slice) else np.asarray(region.lanes)
            columns = np.arange(512)[region.columns] if isinstance(region.columns, slice) else region.columns
            expected[piece.rows, piece.columns] = lanes[:, None] + 128 * np.asarray(columns)
        assert np.array_equal(found, expected), (rows, n, ctas)
        assert columns_of_sums(rows, n, ctas) == found.max() // 128 + 1


def test_a_pair_with_half_of_the_rows_has_half_of_the_columns() -> None:
    assert [columns_of_sums(rows, 64, ctas) for rows in ROWS_OF_CTA for ctas in (1, PAIR)] == [64, 32, 64, 64]
