"""The memory that one bulk copy moves: a box of a tensor, or consecutive bytes, and its place in shared memory.

Source: PTX ISA, `cp.async.bulk`, `cp.async.bulk.tensor`. Both give their bytes in 16-byte chunks, in the order of their
places in shared memory.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from cutegen.ptx.machine.memory import Addresses, Buffer, Data
from cutegen.ptx.machine.shared import BULK_CHUNK_BYTES
from cutegen.ptx.machine.tensor_map import DESTINATION_ALIGN, BoundTensor, swizzled
from cutegen.ptx.watch.violations import ViolationKind


class Region(Protocol):
    """A part of `buffer` and `size_bytes` of shared memory, whose place there is a multiple of `align_bytes`."""

    @property
    def buffer(self) -> Buffer:
        """The buffer in global memory."""

    @property
    def size_bytes(self) -> int:
        """Bytes in shared memory, which are also the transaction bytes of a load."""

    @property
    def address(self) -> int:
        """The first address in shared memory."""

    @property
    def align_bytes(self) -> int:
        """Bytes of which the address in shared memory is a multiple."""

    @property
    def map_address(self) -> int | None:
        """The tensor map in global memory that a copy of the region reads until it is complete, if it does."""

    @property
    def unfenced(self) -> ViolationKind:
        """The finding for a load that signals an mbarrier of its own CTA without a fence after `mbarrier.init`."""

    @property
    def is_padded(self) -> bool:
        """True if chunks of shared memory have padding that global memory lacks: such a region is only loaded."""

    def key(self) -> Hashable:
        """Equal for copies of the same bytes to the same place."""

    def read(self) -> Data:
        """The chunks of global memory now."""

    def write(self, chunks: Data) -> None:
        """Write chunks to global memory."""

    def pieces(self) -> tuple[Addresses, int]:
        """(offsets into the buffer, size) of the equal, aligned pieces of global memory that are accessed."""

    def inside(self) -> npt.NDArray[np.bool_]:
        """Mark the chunks that come from global memory, or go there."""

    def chunks(self, address: int) -> Addresses:
        """The addresses of the chunks in shared memory from `address` on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """One box of a bulk tensor copy: its first coordinates and its address in shared memory.

    The coordinates, innermost first, count items of the tensor's array.
    """

    tensor: BoundTensor
    corner: tuple[int, ...]
    address: int
    align_bytes: int = DESTINATION_ALIGN
    map_address: int | None = None
    """The tensor map in global memory; None if it is a parameter."""
    unfenced: ViolationKind = ViolationKind.RACE

    @property
    def buffer(self) -> Buffer:
        """The tensor's buffer."""
        return self.tensor.buffer

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole box: what lies outside of the tensor counts too."""
        return self.tensor.map.box_bytes

    @property
    def is_padded(self) -> bool:
        """True if its elements are."""
        return self.tensor.map.is_padded

    def key(self) -> Hashable:
        """Equal for copies of the same bytes to the same place."""
        return id(self.tensor), self.corner, self.address

    def read(self) -> Data:
        """The box; zeros outside of the tensor."""
        return self.tensor.read_box(self.corner)

    def write(self, chunks: Data) -> None:
        """Write the part of the box that lies in the tensor."""
        self.tensor.write_box(self.corner, chunks)

    def pieces(self) -> tuple[Addresses, int]:
        """The pieces of the part that lies in the tensor."""
        return self.tensor.pieces(self.corner)

    def inside(self) -> npt.NDArray[np.bool_]:
        """Mark the chunks that overlap the tensor."""
        return self.tensor.chunks_inside(self.corner)

    def chunks(self, address: int) -> Addresses:
        """The chunks' addresses, as the swizzle places them."""
        consecutive, of = _consecutive(address, self.size_bytes), self.tensor.map
        return swizzled(consecutive, of.swizzle_bytes, of.swizzle_atom_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """`size_bytes` consecutive bytes from byte `offset` of `buffer` on."""

    buffer: Buffer
    offset: int
    size_bytes: int
    address: int
    align_bytes: int = BULK_CHUNK_BYTES
    map_address: None = None
    unfenced: ViolationKind = ViolationKind.CONVENTION
    """`cuda::memcpy_async` with a `cuda::barrier` has no fence."""
    is_padded: bool = False

    def key(self) -> Hashable:
        """Equal for copies of the same bytes to the same place."""
        return self.buffer.start + self.offset, self.size_bytes, self.address

    def read(self) -> Data:
        """The bytes."""
        return self._window().copy()

    def write(self, chunks: Data) -> None:
        """Write the bytes."""
        self._window()[:] = chunks

    def _window(self) -> Data:
        return self.buffer.bytes.data[self.offset : self.offset + self.size_bytes].view(f"V{BULK_CHUNK_BYTES}")

    def pieces(self) -> tuple[Addresses, int]:
        """The chunks."""
        return _consecutive(self.offset, self.size_bytes), BULK_CHUNK_BYTES

    def inside(self) -> npt.NDArray[np.bool_]:
        """All chunks are inside."""
        return np.ones(self.size_bytes // BULK_CHUNK_BYTES, bool)

    def chunks(self, address: int) -> Addresses:
        """Consecutive chunks."""
        return _consecutive(address, self.size_bytes)


def _consecutive(first: int, size_bytes: int) -> Addresses:
    return np.arange(first, first + size_bytes, BULK_CHUNK_BYTES, dtype=np.int64)
