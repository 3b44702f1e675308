"""Contract of a bulk tensor copy: the 128-byte tensor map that `cuTensorMapEncodeTiled` makes for a matrix.

Source: CUDA Driver API, "Tensor Map Object Management"; PTX ISA, "Tensors".
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cutegen.hardware import dtype

MAX_BOX_ELEMS = 256
"""Limit of a box's extent along one mode."""
STRIDE_MULTIPLE_BYTES = 16
"""Alignment of the matrix's address and strides."""
BOX_MULTIPLE_BYTES = 16
"""Alignment of a box's first element along the contiguous mode. The manuals do not say so: an H200 ends a kernel with
"illegal instruction" at any other."""


@dataclass(frozen=True, slots=True)
class TensorMapContract:
    """View of the tensor `name` for copies: one copy moves a box of `box` elements, the contiguous mode first.

    In shared memory a row of the box is contiguous, and `swizzle_bytes` gives the permutation of 16-byte chunks: 128,
    64 or 32 (CuTe's Swizzle<3,4,3>, <2,4,3> and <1,4,3> on byte addresses), or 0 for none. Elements outside the matrix
    are read as zeros and not written. Maps have rank 3: the contiguous mode, the other mode, the batch. Columns in
    pairs take a mode more, or two: the box then has as many of each member.
    """

    name: str
    box: tuple[int, int]
    swizzle_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMapFields:
    """Arguments of `cuTensorMapEncodeTiled` except the address, innermost mode first.

    `extents` are elements of the modes, each at least 1; `strides_bytes` those of all but the first.
    """

    dtype: str
    extents: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int


@dataclass(frozen=True, slots=True)
class MapMode:
    """One mode of a tensor map: its extent and stride in elements, and the extent of a box."""

    extent: int
    stride: int
    box: int

    def split(self, modes: Sequence[tuple[int, int]], together: int) -> "list[MapMode]":
        """Return the modes, of `modes` extents and strides, that hold its elements, the last one slowest.

        A box takes `together` elements of each element of the last mode, before it takes the next.

        >>> MapMode(96, 1, 32).split(((48, 1), (2, 48)), 16)
        [MapMode(extent=48, stride=1, box=16), MapMode(extent=2, stride=48, box=2)]
        >>> [each.box for each in MapMode(96, 64, 32).split(((8, 1), (6, 16), (2, 8)), 16)]
        [8, 2, 2]
        """
        found: list[MapMode] = []
        left = min(self.box, together)
        for extent, stride in modes[:-1]:
            box = min(left, extent) if len(found) + 2 < len(modes) else left
            found.append(MapMode(extent, stride * self.stride, box))
            left //= box
        extent, stride = modes[-1]
        return [*found, MapMode(extent, stride * self.stride, max(1, self.box // together))]


def tensor_map_fields(element: str, modes: Sequence[MapMode], swizzle_bytes: int) -> TensorMapFields:
    """Return the fields of a map of elements `element`; with an extent of 0 those of one element, which none reads."""
    empty = any(mode.extent == 0 for mode in modes)
    element_bytes = dtype(element).bytes
    return TensorMapFields(
        dtype=element,
        extents=tuple(1 if empty else mode.extent for mode in modes),
        strides_bytes=tuple(STRIDE_MULTIPLE_BYTES if empty else mode.stride * element_bytes for mode in modes[1:]),
        box=tuple(mode.box for mode in modes),
        swizzle_bytes=swizzle_bytes,
    )
