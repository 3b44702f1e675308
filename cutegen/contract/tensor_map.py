"""Contract of a bulk tensor copy: the 128-byte tensor map that `cuTensorMapEncodeTiled` makes for a matrix.

Source: CUDA Driver API, "Tensor Map Object Management"; PTX ISA, "Tensors".
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_BOX_ELEMS = 256
"""Limit of a box's extent along one mode."""
STRIDE_MULTIPLE_BYTES = 16
"""Alignment of the matrix's address and strides."""


@dataclass(frozen=True, slots=True)
class TensorMapContract:
    """View of the tensor `name` for copies: one copy moves a box of `box` elements, the contiguous mode first.

    In shared memory a row of the box is contiguous, and `swizzle_bytes` gives the permutation of 16-byte chunks: 128,
    64 or 32 (CuTe's Swizzle<3,4,3>, <2,4,3> and <1,4,3> on byte addresses), or 0 for none. Elements outside the matrix
    are read as zeros and not written. Maps have rank 3: the contiguous mode, the other mode, the batch.
    """

    name: str
    box: tuple[int, int]
    swizzle_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMapFields:
    """Arguments of `cuTensorMapEncodeTiled` except the address, innermost mode first.

    `extents` are elements of the three modes, each at least 1; `strides_bytes` those of the last two.
    """

    dtype: str
    extents: tuple[int, int, int]
    strides_bytes: tuple[int, int]
    box: tuple[int, int, int]
    swizzle_bytes: int
