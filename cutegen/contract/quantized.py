"""A quantized result: 8-bit floats, and a factor for each block of a row.

s = max(largest magnitude of the block, FLOOR) / MOST        r = round(1 / s)        values = round(x r)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from cutegen.support.words import round_up

FactorsOfC = Literal["f32", "ue8m0"]
"""Rounding of factors: to float32, or up to powers of two."""
QUANTIZED_BLOCK = (1, 128)
"""Rows and columns of C that share a factor."""
FLOOR = 1e-4
"""The least magnitude for which a factor is computed: a block of zeros has a factor too."""
_VECTOR = 4
"""Factors in the 16 bytes of which leading strides of a tensor map are multiples."""
MOST: Mapping[str, float] = {"e4m3": 448.0}
"""The largest finite value of each type that a kernel quantizes to."""


def leading_stride_of_factors(rows: int) -> int:
    """Return the leading stride of new factors of so many rows, which are contiguous: whole vectors.

    >>> leading_stride_of_factors(6), leading_stride_of_factors(0)
    (8, 4)
    """
    return round_up(max(1, rows), _VECTOR)
