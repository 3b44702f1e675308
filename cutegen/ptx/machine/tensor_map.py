"""Tensor maps: the description of a tensor in global memory for bulk tensor copies, and the boxes that they move.

Source: CUDA Driver API, `cuTensorMapEncodeTiled`; PTX ISA, "Tensors" (tiled mode, bounding box, swizzling modes).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from cutegen.ptx.errors import LaunchError
from cutegen.ptx.machine.memory import Buffer
from cutegen.ptx.machine.shared import BULK_CHUNK_BYTES

TENSOR_MAP_BYTES = 128
TENSOR_MAP_ALIGN = 64
DESTINATION_ALIGN = 128
MAX_RANK, MAX_BOX = 5, 256
_SWIZZLE_MASKS = {0: 0x00, 32: 0x10, 64: 0x30, 128: 0x70}
_ATOM_SHIFTS = {16: 3, 32: 2}
"""Bits by which a swizzle moves the row bits down, by the bytes of its atoms: it changes whole atoms only."""

Slices = tuple[slice, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorMap:
    """A launch argument for a `CUtensorMap` parameter: a tensor, and the box of it that one copy moves.

    `array` is the storage: its element 0 is the tensor's first element, its dtype gives the element size. `extents` and
    `box` count elements, the innermost mode first; `strides_bytes` has one entry fewer, for the outer modes (the
    innermost mode is contiguous). `swizzle_bytes` is 0, 32, 64 or 128; a swizzle of 128 bytes moves atoms of 16 bytes,
    or of 32 (`swizzle_atom_bytes`). `element_bits` is 4 if the array's bytes hold two elements each (16U4_ALIGN8B).
    With `is_padded`, 16 elements of 4 or 6 bits take 16 bytes of shared memory, the last of them zeros (16U4_ALIGN16B,
    16U6_ALIGN16B).

    >>> a = np.zeros((256, 64), np.float16)
    >>> TensorMap(array=a, extents=(64, 256), strides_bytes=(128,), box=(64, 128), swizzle_bytes=128).box_bytes
    16384

    Raises:
        LaunchError: arguments that `cuTensorMapEncodeTiled` would refuse.
    """

    array: npt.NDArray[Any]
    extents: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int = 0
    swizzle_atom_bytes: int = BULK_CHUNK_BYTES
    element_bits: int | None = None
    is_padded: bool = False

    def __post_init__(self) -> None:
        """Checks all sizes."""
        rank, item = len(self.extents), self.array.dtype.itemsize
        row_bytes = (self.box[0] if self.is_padded else self.items(self.box[0]) * item) if self.box else 0
        span = self.swizzle_bytes or row_bytes
        rules = (
            (1 <= rank <= MAX_RANK, f"{rank} extents; a tensor map has 1 to {MAX_RANK}"),
            (len(self.strides_bytes) == rank - 1, f"{len(self.strides_bytes)} strides; expected {rank - 1}, innermost"
             " left out"),
            (len(self.box) == rank, f"a box of {len(self.box)} modes for a tensor of {rank}"),
            (item in (1, 2, 4, 8), f"elements of {item} bytes; expected 1, 2, 4 or 8"),
            (all(1 <= e <= 1 << 32 for e in self.extents), f"extents {self.extents}; expected 1 to 2^32"),
            (all(1 <= b <= MAX_BOX for b in self.box), f"box {self.box}; expected 1 to {MAX_BOX} elements in a mode"),
            (all(s % 16 == 0 and 0 <= s < 1 << 40 for s in self.strides_bytes),
             f"strides {self.strides_bytes}; expected multiples of 16 bytes below 2^40"),
            (row_bytes % BULK_CHUNK_BYTES == 0, f"a box row of {row_bytes} bytes; expected a multiple of 16"),
            (self.swizzle_bytes in _SWIZZLE_MASKS, f"swizzle {self.swizzle_bytes}; expected 0, 32, 64 or 128"),
            (self.element_bits in (widths := (4, 6) if self.is_padded else (None, 4)),
             f"elements of {self.element_bits} bits; expected one of {widths}"),
            (self.element_bits is None or item == 1, f"elements of {self.element_bits} bits in items of {item} bytes;"
             " expected bytes"),
            (all(size % self.align_elems == 0 for size in (*self.extents[:1], *self.box[:1])),
             f"extents {self.extents} and box {self.box} of {self.element_bits}-bit elements; expected multiples of"
             f" {self.align_elems} along the first mode"),
            (not self.is_padded or (self.swizzle_bytes in (0, 128) and all(s % 32 == 0 for s in self.strides_bytes)),
             f"a swizzle of {self.swizzle_bytes} and strides {self.strides_bytes} of padded elements; expected 0 or"
             " 128, and multiples of 32"),
            (self.swizzle_atom_bytes in _ATOM_SHIFTS, f"atoms of {self.swizzle_atom_bytes} bytes; expected 16 or 32"),
            (self.swizzle_atom_bytes == BULK_CHUNK_BYTES or self.swizzle_bytes == 128,
             f"atoms of {self.swizzle_atom_bytes} bytes under a swizzle of {self.swizzle_bytes}; expected 128"),
            (row_bytes == span, f"a box row of {row_bytes} bytes under a swizzle of {span}; only equal ones are"
             " supported"),
        )  # fmt: skip
        for holds, message in rules:
            if not holds:
                raise LaunchError(f"tensor map: {message}")

    def items(self, elems: int) -> int:
        """Items of the array that so many elements take."""
        return elems if self.element_bits is None else elems * self.element_bits // 8

    @property
    def align_elems(self) -> int:
        """Elements of which extent and box along the innermost mode are multiples."""
        return 128 if self.is_padded else 1 if self.element_bits is None else 2

    @property
    def bits(self) -> int:
        """Bits of an element."""
        return self.array.dtype.itemsize * 8 if self.element_bits is None else self.element_bits

    @property
    def corner_align_elems(self) -> int:
        """Elements of which a box's first coordinate is a multiple: 16 bytes.

        The PTX ISA does not say so; an H200 ends a kernel with "illegal instruction" at any other.
        """
        return 128 if self.is_padded else BULK_CHUNK_BYTES * 8 // self.bits

    @property
    def item_extents(self) -> tuple[int, ...]:
        """The extents in items of the array."""
        return (self.items(self.extents[0]), *self.extents[1:])

    @property
    def item_box(self) -> tuple[int, ...]:
        """The box in items of the array."""
        return (self.items(self.box[0]), *self.box[1:])

    @property
    def box_bytes(self) -> int:
        """Bytes of a box in shared memory, which are also the transaction bytes of a load."""
        return int(np.prod(self.box)) if self.is_padded else int(np.prod(self.item_box)) * self.array.dtype.itemsize

    @property
    def chunk_items(self) -> int:
        """Items of the array in a 16-byte chunk of shared memory."""
        return self.items(BULK_CHUNK_BYTES) if self.is_padded else BULK_CHUNK_BYTES // self.array.dtype.itemsize


@dataclass(frozen=True, slots=True, eq=False)
class TensorMaps:
    """A launch argument for a pointer to `maps`, 128 bytes each, in global memory; the launch fills `storage`."""

    maps: tuple[TensorMap, ...]
    storage: npt.NDArray[np.uint8] = field(init=False)

    def __post_init__(self) -> None:
        """Makes room."""
        object.__setattr__(self, "storage", np.zeros(TENSOR_MAP_BYTES * len(self.maps), np.uint8))


@dataclass(frozen=True, slots=True, eq=False)
class BoundTensor:
    """A tensor map in a launch: the tensor starts at byte `offset` of `buffer`."""

    map: TensorMap
    buffer: Buffer
    offset: int

    def __post_init__(self) -> None:
        """Checks conditions that depend on the array's address."""
        if (self.buffer.start + self.offset) % BULK_CHUNK_BYTES:
            raise LaunchError(f"tensor map: the tensor's address is not a multiple of {BULK_CHUNK_BYTES} bytes")

    @property
    def _element(self) -> np.dtype[Any]:
        return np.dtype(f"u{self.map.array.dtype.itemsize}")

    def _part(self, inside: Slices) -> npt.NDArray[Any]:
        """A part of the tensor as an array, the innermost mode last; elements are raw bits."""
        strides = (*self.map.strides_bytes[::-1], self._element.itemsize)
        first = sum(part.start * stride for part, stride in zip(inside, strides, strict=True))
        shape = [part.stop - part.start for part in inside]
        return np.ndarray(shape, self._element, self.buffer.bytes.data, self.offset + first, strides)

    def excess_bytes(self, corner: tuple[int, ...]) -> int:
        """Bytes beyond the array that the part of a box at `corner` inside the tensor reaches; 0 if none.

        A map may describe more than there is: kernels of groups of rows give one that begins again at each row.
        """
        places, strides = self.clip(corner), (*self.map.strides_bytes[::-1], self.map.array.dtype.itemsize)
        if places is None:
            return 0
        last = sum((part.stop - 1) * stride for part, stride in zip(places[0], strides, strict=True))
        return max(0, self.offset + int(last) + strides[-1] - len(self.buffer.bytes.data))

    def clip(self, corner: tuple[int, ...]) -> tuple[Slices, Slices] | None:
        """(slices of the tensor, slices of the box) of the intersection of a box at `corner` with the tensor.

        The corner, as in all of these methods, counts items of the array.
        """
        inside, within = [], []
        sizes = zip(corner[::-1], self.map.item_box[::-1], self.map.item_extents[::-1], strict=True)
        for start, size, extent in sizes:
            low, high = max(start, 0), min(start + size, extent)
            if low >= high:
                return None
            inside.append(slice(low, high))
            within.append(slice(low - start, high - start))
        return tuple(inside), tuple(within)

    def read_box(self, corner: tuple[int, ...]) -> npt.NDArray[Any]:
        """The box's bytes in 16-byte chunks, before the swizzle; zeros outside the tensor."""
        box = np.zeros(self.map.item_box[::-1], self._element)
        places = self.clip(corner)
        if places is not None:
            box[places[1]] = self._part(places[0])
        if not self.map.is_padded:
            return box.reshape(-1).view(f"V{BULK_CHUNK_BYTES}")
        chunks = box.reshape(-1, self.map.chunk_items)
        padded = np.pad(chunks, ((0, 0), (0, BULK_CHUNK_BYTES - self.map.chunk_items)))
        return padded.reshape(-1).view(f"V{BULK_CHUNK_BYTES}")

    def write_box(self, corner: tuple[int, ...], chunks: npt.NDArray[Any]) -> None:
        """Writes the box's bytes to the tensor; bytes outside it are dropped."""
        places = self.clip(corner)
        if places is not None:
            self._part(places[0])[...] = chunks.view(self._element).reshape(self.map.item_box[::-1])[places[1]]

    def pieces(self, corner: tuple[int, ...]) -> tuple[npt.NDArray[np.int64], int]:
        """(offsets into the buffer, size) of the equal, aligned pieces that a box at `corner` accesses."""
        places, item = self.clip(corner), self.map.array.dtype.itemsize
        if places is None:
            return np.zeros(0, np.int64), BULK_CHUNK_BYTES
        row = places[0][-1]
        first, length = row.start * item + self.offset + self.buffer.start, (row.stop - row.start) * item
        size = (first | length | BULK_CHUNK_BYTES) & -(first | length | BULK_CHUNK_BYTES)
        offsets = np.arange(first, first + length, size, dtype=np.int64) - self.buffer.start
        for mode, stride in zip(places[0][-2::-1], self.map.strides_bytes, strict=True):
            offsets = (np.arange(mode.start, mode.stop)[:, None] * stride + offsets).reshape(-1)
        return offsets, size

    def chunks_inside(self, corner: tuple[int, ...]) -> npt.NDArray[np.bool_]:
        """Mark the 16-byte chunks of a box at `corner` that overlap the tensor."""
        inside = np.zeros(self.map.item_box[::-1], bool)
        places = self.clip(corner)
        if places is not None:
            inside[places[1]] = True
        return np.asarray(inside.reshape(-1, self.map.chunk_items).any(axis=1))


def swizzled(
    addresses: npt.NDArray[np.int64], swizzle_bytes: int, atom_bytes: int = BULK_CHUNK_BYTES
) -> npt.NDArray[np.int64]:
    """Return the swizzled addresses of the 16-byte chunks at `addresses`.

    Bits 4 to 6 are XORed with bits 7 to 9; with atoms of 32 bytes, bits 5 and 6 with bits 7 and 8.

    >>> swizzled(np.arange(3) * 16 + 256, 128).tolist(), swizzled(np.arange(3) * 16 + 256, 128, 32).tolist()
    ([288, 304, 256], [320, 336, 352])
    """
    kept = _SWIZZLE_MASKS[swizzle_bytes] & -atom_bytes
    return addresses ^ (addresses >> _ATOM_SHIFTS[atom_bytes] & kept)
