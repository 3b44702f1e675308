"""Matrix descriptors of `wgmma`: the bytes of shared memory to which the 64 bits of an operand refer.

A matrix consists of 16-byte chunks. K-major, a chunk holds 16 bytes of one row's K; M- or N-major, 8 rows of one k. The
canonical layouts place each chunk; the swizzle then moves it within its 128-byte line, by its address.

Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": "Shared Memory Matrix Layout", "Strides", "Matrix
Descriptor Format".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

CHUNK_BYTES = 16
ROWS_OF_CORE = 8
"""A core matrix is 8 rows of one chunk each, or one chunk of 8 rows for each of 8 k."""
K_BYTES = 32
"""Bytes of a row's K that every instruction reads."""
_LINE_SHIFT, _CHUNK_SHIFT = 7, 4
_SWIZZLE_BYTES = (0, 128, 64, 32)

Addresses: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """A matrix descriptor; all except `base_offset` and `swizzle_bytes` (0, 32, 64, 128) are bytes of shared memory.

    >>> Descriptor.decode(0x4000_0040_0001_0080)
    Descriptor(start=2048, leading_bytes=16, stride_bytes=1024, base_offset=0, swizzle_bytes=128)
    """

    start: int
    leading_bytes: int
    stride_bytes: int
    base_offset: int
    swizzle_bytes: int

    @classmethod
    def decode(cls, bits: int) -> Descriptor:
        """Reads the 64 bits."""
        return cls(
            start=_bytes_at(bits, 0),
            leading_bytes=_bytes_at(bits, 16),
            stride_bytes=_bytes_at(bits, 32),
            base_offset=bits >> 49 & 7,
            swizzle_bytes=_SWIZZLE_BYTES[bits >> 62 & 3],
        )

    def encode(self) -> int:
        """The 64 bits; the inverse of `decode`."""
        fields = ((self.start, 0), (self.leading_bytes, 16), (self.stride_bytes, 32))
        bits = sum((size >> _CHUNK_SHIFT & 0x3FFF) << place for size, place in fields)
        return bits | self.base_offset << 49 | _SWIZZLE_BYTES.index(self.swizzle_bytes) << 62

    def chunks(self, rows: int, *, k_major: bool) -> Addresses:
        """Addresses of the chunks: (rows, 2) of a K-major matrix, else (16, rows / 8), one line for each k."""
        offsets = self._k_major(rows) if k_major else self._mn_major(rows)
        return self._swizzled(self.start + offsets)

    def _k_major(self, rows: int) -> Addresses:
        """((8, m), (T, 2)) : ((row, SBO), (1, LBO)); in a swizzled row the second chunk follows the first."""
        row, half = np.ogrid[:rows, :2]
        pitch, step = (self.swizzle_bytes, CHUNK_BYTES) if self.swizzle_bytes else (CHUNK_BYTES, self.leading_bytes)
        return np.asarray(row % ROWS_OF_CORE * pitch + row // ROWS_OF_CORE * self.stride_bytes + half * step)

    def _mn_major(self, rows: int) -> Addresses:
        """((T, w, m), (8, k)) : ((1, T, LBO), (w T, SBO)) of w chunks; without swizzle w is 1, and LBO and SBO swap."""
        k, chunk = np.ogrid[: K_BYTES // 2, : rows // ROWS_OF_CORE]
        width = max(1, self.swizzle_bytes // CHUNK_BYTES)
        far_rows, far_k = self.leading_bytes, self.stride_bytes
        if not self.swizzle_bytes:
            far_rows, far_k = far_k, far_rows
        along_k = k % ROWS_OF_CORE * (width * CHUNK_BYTES) + k // ROWS_OF_CORE * far_k
        return np.asarray(along_k + chunk % width * CHUNK_BYTES + chunk // width * far_rows)

    def _swizzled(self, addresses: Addresses) -> Addresses:
        """Each address with its chunk number XORed with its line number, counted from the start of the pattern."""
        lines = (addresses >> _LINE_SHIFT) - self.base_offset
        return addresses ^ (lines & max(0, self.swizzle_bytes // CHUNK_BYTES - 1)) << _CHUNK_SHIFT


def _bytes_at(bits: int, place: int) -> int:
    return (bits >> place & 0x3FFF) << _CHUNK_SHIFT


@lru_cache(maxsize=4096)
def chunk_addresses(bits: int, rows: int, *, k_major: bool) -> Addresses:
    """The chunks of a descriptor's `bits`, cached: loops reuse the same few descriptors."""
    return Descriptor.decode(bits).chunks(rows, k_major=k_major)
