"""Places of elements in tensor memory: 128 lanes of 512 columns, 32 bits each.

Accumulators: "Data path layout organization" A, B, D and F. Loads and stores: which lane and register of a warp holds
which word, by shape. Block factors: words of four bytes, each for one row. PTX ISA, "TensorCore 5th Generation Family
Instructions": "Tensor Memory Layouts", "tcgen05.ld", "Scale Factor ID". The figures are pictures there; the formulas
here are compared with the CuTe DSL's layouts in tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cutegen.ptx.watch.tensor_region import COLUMNS, LANES, Region

QUARTER_LANES = 32
Indices: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Rows `rows` and columns `columns` of a CTA's part of an accumulator, and the words that hold them."""

    rows: slice
    columns: slice
    region: Region


@lru_cache(maxsize=1024)
def accumulator_pieces(m: int, n: int, ctas: int, lane: int, column: int) -> tuple[Piece, ...]:
    """The words of each CTA's rows of D (m of the pair, n), at the address (`lane`, `column`).

    Raises:
        ValueError: a lane or columns that the layout does not allow; with a message.
    """
    rows = m // ctas
    used = n // 2 if m == 128 and ctas == 2 else n
    if lane not in ((0, 16) if rows == 64 and ctas == 1 else (0,)):
        raise ValueError(f"D is at lane {lane}; expected {'0 or 16' if rows == 64 and ctas == 1 else '0'}")
    if column + used > COLUMNS:
        raise ValueError(f"D takes columns {column} to {column + used - 1} of {COLUMNS}")
    whole, columns = slice(0, n), slice(column, column + used)
    if rows == LANES:  # layouts A and D
        return (Piece(slice(0, rows), whole, Region(slice(0, LANES), columns)),)
    if ctas == 1:  # layout F
        row = np.arange(rows)
        lanes = row % 16 + QUARTER_LANES * (row // 16) + lane
        return (Piece(slice(0, rows), whole, Region(lanes, columns)),)
    halves = ((slice(64 * i, 64 * i + 64), slice(used * i, used * i + used)) for i in range(2))  # layout B
    return tuple(Piece(slice(0, rows), part, Region(lanes, columns)) for lanes, part in halves)


SHAPES = {"32x32b": (1, 128), "16x64b": (1, 128), "16x128b": (2, 64), "16x256b": (4, 32), "16x32bx2": (1, 128)}
"""Shapes of loads and stores: registers per repetition, and the most repetitions."""


@lru_cache(maxsize=256)
def warp_words(shape: str, repetitions: int, second_column: int = 0) -> tuple[Indices, Indices]:
    """(lane in the quarter, column) of each register and lane of a warp: two arrays (registers, 32).

    `second_column`: of `16x32bx2`, the column of the second half of the lanes.
    """
    lane = np.arange(QUARTER_LANES)
    register = np.arange(SHAPES[shape][0] * repetitions)[:, None]
    places = {
        "32x32b": (lane, register),
        "16x32bx2": (lane % 16, register + np.where(lane >= 16, second_column, 0)),
        "16x64b": (8 * (lane % 2) + lane // 4, 2 * register + lane // 2 % 2),
        "16x128b": (lane // 4 + 8 * (register % 2), 4 * (register // 2) + lane % 4),
        "16x256b": (lane // 4 + 8 * (register // 2 % 2), 8 * (register // 4) + 2 * (lane % 4) + register % 2),
    }
    lanes, columns = np.broadcast_arrays(*places[shape])
    return lanes, columns


@dataclass(frozen=True, slots=True)
class CopyShape:
    """A shape of `tcgen05.cp`: rows and bytes of each that it reads, and the lanes that receive each row."""

    rows: int
    row_bytes: int
    lanes: tuple[tuple[int, int, int], ...]
    """(first row, first lane, rows) of each run."""


COPY_SHAPES = {
    ("128x256b", None): CopyShape(128, 32, ((0, 0, 128),)),
    ("128x128b", None): CopyShape(128, 16, ((0, 0, 128),)),
    ("64x128b", "warpx2::01_23"): CopyShape(64, 16, ((0, 0, 32), (0, 32, 32), (32, 64, 32), (32, 96, 32))),
    ("64x128b", "warpx2::02_13"): CopyShape(64, 16, ((0, 0, 64), (0, 64, 64))),
    ("32x128b", "warpx4"): CopyShape(32, 16, tuple((0, 32 * quarter, 32) for quarter in range(4))),
}


@lru_cache(maxsize=1024)
def factor_words(rows: int, column: int, *, halves: bool) -> Region:
    """The words of the factors of `rows` rows, one for each row, in the four quarters: (4, rows).

    Row r is at lane r % 32 of each quarter, r // 32 columns from `column`. With `halves`, of B of a pair with M = 128,
    quarters 0 and 1 have the first half of the rows, quarters 2 and 3 the second, from the same column on: (2, rows).
    """
    row = np.arange(rows)
    if not halves:
        quarter = np.arange(4)[:, None]
        return Region(*np.broadcast_arrays(row % 32 + 32 * quarter, column + row // 32))
    half, within = row // (rows // 2), row % (rows // 2)
    quarter = np.arange(2)[:, None]
    return Region(*np.broadcast_arrays(64 * half + within % 32 + 32 * quarter, column + within // 32))
