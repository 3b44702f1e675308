"""Factors of blocks as `tcgen05.mma` reads them: atoms of 128 rows by 4 factors, in memory and in tensor memory.

Factors of (M|N, K / block) lie in atoms of 512 bytes, one after another along K and then along the rows, whose last
ones are filled up: CUTLASS's `BlockScaledBasicChunk` (`utils/blockscaled_layout.py` of the DSL), torch's
`SwizzleType.SWIZZLE_32_4_4`. A word of an atom has the four factors of a row. In tensor memory an atom takes 4 columns
of every quarter of the lanes: row r is at lane r mod 32, column r / 32 (PTX ISA, "Scale Factor ID"; "tcgen05.cp",
`.32x128b.warpx4`).
"""

from typing import Any

ATOM_ROWS, PER_WORD = 128, 4
"""Rows of an atom, and the factors of each."""
ATOM_WORDS, ATOM_BYTES = ATOM_ROWS, ATOM_ROWS * PER_WORD
COLUMN_ROWS, ATOM_COLUMNS = 32, 4
"""Rows that have a column of tensor memory, and the columns of an atom."""

NAN_WORDS = {"ue8m0x4": -1, "ue4m3x4": 0x7F7F7F7F}
"""Four factors that are NaN, by the type of a word."""
BLOCK_VALUES = {"ue8m0": 32, "ue4m3": 16}
"""Values along K that share a factor, by the type of factors that instructions read."""


def copy_of(ctas: int) -> str:
    """Return the instruction that copies an atom: 32 rows of 16 bytes, to each quarter of the lanes, in each of `ctas`.

    >>> copy_of(2)
    'tcgen05.cp.cta_group::2.32x128b.warpx4'
    """
    return f"tcgen05.cp.cta_group::{ctas}.32x128b.warpx4"


def unblocked(words: Any) -> Any:
    """Return the bytes of words of atoms (..., rows / 128, K words) in the order of factors: (..., rows, factors).

    `words` is an array of NumPy with elements of 4 bytes, whose last mode is contiguous.

    >>> import numpy as np
    >>> unblocked(np.arange(128, dtype=np.int32)[None])[:34, 0].tolist()[-3:]
    [124, 1, 5]
    """
    *batch, blocks, columns = words.shape
    atoms = columns // ATOM_WORDS
    bytes_of = words.copy().view("uint8").reshape(*batch, blocks, atoms, COLUMN_ROWS, ATOM_COLUMNS, PER_WORD)
    # [block, atom, lane, column, factor] -> [block, column, lane, atom, factor]
    first = len(batch)
    order = (*range(first), *(first + axis for axis in (0, 3, 2, 1, 4)))
    return bytes_of.transpose(order).reshape(*batch, blocks * ATOM_ROWS, atoms * PER_WORD)
