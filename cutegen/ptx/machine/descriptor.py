"""Descriptors of `wgmma` and `tcgen05`: 64 bits for an operand, 32 for what an instruction computes."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt

# Matrix descriptors of `wgmma` and `tcgen05`: the bytes of shared memory to which the 64 bits of an operand refer.
#
# A matrix consists of 16-byte chunks. K-major, a chunk holds 16 bytes of one row's K; M- or N-major, 16 bytes of rows
# of one k. The canonical layouts place each chunk; the swizzle then moves it, or the atom of two chunks that it is in,
# within its 128-byte line, by its address.
#
# Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions" and "TensorCore 5th Generation Family
# Instructions": "Shared Memory Matrix Layout", "Strides", "Matrix Descriptor Format", "Shared memory descriptor".


CHUNK_BYTES = 16
ROWS_OF_CORE = LINES_OF_ATOM = 8
"""A core matrix is 8 rows of one chunk each, or one chunk of 8 rows for each of 8 k."""
K_BYTES = 32
"""Bytes of a row's K that every instruction reads."""
_LINE_SHIFT, _CHUNK_SHIFT = 7, 4
_SWIZZLE_BYTES = (0, 128, 64, 32)
_TCGEN05_SWIZZLES = {0: (0, 16), 1: (128, 32), 2: (128, 16), 4: (64, 16), 6: (32, 16)}
"""Bytes of the swizzle and of its atom, by code."""
_TCGEN05_VERSION = 1
_TCGEN05_RESERVED = 3 << 14 | 3 << 30 | 0xFF << 53
"""Bits that are 0."""

Addresses: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """A matrix descriptor; all except `base_offset` and `swizzle_bytes` (0, 32, 64, 128) are bytes of shared memory.

    The swizzle permutes atoms of `atom_bytes`.

    >>> Descriptor.decode(0x4000_0040_0001_0080)
    Descriptor(start=2048, leading_bytes=16, stride_bytes=1024, base_offset=0, swizzle_bytes=128)
    """

    start: int
    leading_bytes: int
    stride_bytes: int
    base_offset: int
    swizzle_bytes: int
    atom_bytes: int = field(default=CHUNK_BYTES, repr=False)

    @classmethod
    def decode_tcgen05(cls, bits: int) -> Self:
        """Reads the 64 bits of a `tcgen05` operand.

        Raises:
            ValueError: bits that have no meaning, or an absolute leading dimension; with a message.
        """
        code = bits >> 61
        if bits >> 46 & 7 != _TCGEN05_VERSION or code not in _TCGEN05_SWIZZLES:
            version = bits >> 46 & 7
            raise ValueError(f"version {version} and swizzle {code}; expected version 1 and swizzle 0, 1, 2, 4 or 6")
        if bits & _TCGEN05_RESERVED:
            raise ValueError(f"reserved bits {bits & _TCGEN05_RESERVED:#x}; expected 0")
        if bits >> 52 & 1:
            raise ValueError("an absolute address as its leading dimension, which is not supported")
        swizzle_bytes, atom_bytes = _TCGEN05_SWIZZLES[code]
        return cls(
            start=_bytes_at(bits, 0),
            leading_bytes=_bytes_at(bits, 16),
            stride_bytes=_bytes_at(bits, 32),
            base_offset=bits >> 49 & 7,
            swizzle_bytes=swizzle_bytes,
            atom_bytes=atom_bytes,
        )

    @classmethod
    def decode(cls, bits: int) -> Self:
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

    def chunks(self, rows: int, *, k_major: bool, element_bytes: int = 2) -> Addresses:
        """Addresses of the chunks of an instruction's 32 bytes of K.

        (rows, 2) of a K-major matrix, else (K, chunks of rows), one line for each k.
        """
        offsets = self._k_major(rows) if k_major else self._mn_major(rows, element_bytes)
        return self.swizzled(self.start + offsets)

    def _k_major(self, rows: int) -> Addresses:
        """((8, m), (T, 2)) : ((row, SBO), (1, LBO)); in a swizzled row the second chunk follows the first."""
        row, half = np.ogrid[:rows, :2]
        pitch, step = (self.swizzle_bytes, CHUNK_BYTES) if self.swizzle_bytes else (CHUNK_BYTES, self.leading_bytes)
        return np.asarray(row % ROWS_OF_CORE * pitch + row // ROWS_OF_CORE * self.stride_bytes + half * step)

    def _mn_major(self, rows: int, element_bytes: int) -> Addresses:
        """((T, w, m), (8, k)) : ((1, T, LBO), (w T, SBO)) of w chunks; without swizzle w is 1, and LBO and SBO swap.

        Atoms of two chunks repeat every 4 k.
        """
        k, chunk = np.ogrid[: K_BYTES // element_bytes, : rows * element_bytes // CHUNK_BYTES]
        lines = LINES_OF_ATOM * CHUNK_BYTES // self.atom_bytes
        width = max(1, self.swizzle_bytes // CHUNK_BYTES)
        far_rows, far_k = self.leading_bytes, self.stride_bytes
        if not self.swizzle_bytes:
            far_rows, far_k = far_k, far_rows
        along_k = k % lines * (width * CHUNK_BYTES) + k // lines * far_k
        return np.asarray(along_k + chunk % width * CHUNK_BYTES + chunk // width * far_rows)

    def swizzled(self, addresses: Addresses) -> Addresses:
        """Each address with the number of its atom XORed with that of its line, from the start of the pattern."""
        lines = (addresses >> _LINE_SHIFT) - self.base_offset
        atoms = max(1, self.swizzle_bytes // self.atom_bytes)
        return addresses ^ (lines & atoms - 1) * self.atom_bytes


def _bytes_at(bits: int, place: int) -> int:
    return (bits >> place & 0x3FFF) << _CHUNK_SHIFT


@lru_cache(maxsize=4096)
def chunk_addresses(bits: int, rows: int, *, k_major: bool) -> Addresses:
    """The chunks of a descriptor's `bits`, cached: loops reuse the same few descriptors."""
    return Descriptor.decode(bits).chunks(rows, k_major=k_major)


@lru_cache(maxsize=4096)
def tcgen05_chunks(bits: int, rows: int, *, k_major: bool, element_bytes: int) -> Addresses:
    """The same for a `tcgen05` operand with elements of `element_bytes`. Raises `ValueError`."""
    return Descriptor.decode_tcgen05(bits).chunks(rows, k_major=k_major, element_bytes=element_bytes)


# The 32 bits that tell a `tcgen05.mma` its types, majors, signs and shape, and which shapes there are.
#
# Source: PTX ISA, "TensorCore 5th Generation Family Instructions": "Instruction descriptor", "Data types and shapes".


"""Bytes of a row of K that an instruction multiplies; 4- and 6-bit values of `f8f6f4` kinds take a byte each."""
_F8F6F4 = {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}
_TYPES = {
    "f16": {0: "f16", 1: "bf16"},
    "tf32": {2: "tf32"},
    "f8f6f4": _F8F6F4,
    "i8": {0: "u8", 1: "s8"},
    "mxf8f6f4": _F8F6F4,
    "mxf4": {1: "e2m1"},
    "mxf4nvf4": {1: "e2m1"},
}
_SUMS = {0: "f16", 1: "f32", 2: "s32"}
_SUMS_OF = {"f16": ("f16", "f32"), "tf32": ("f32",), "f8f6f4": ("f16", "f32"), "i8": ("s32",)}
KINDS = tuple(_TYPES)
PACKED_KINDS = ("mxf4", "mxf4nvf4")
"""Kinds whose operands hold two 4-bit values in a byte."""
_PLAIN_RESERVED = (6, 23, 29)
_SCALED_RESERVED = (0, 1, 3, 6, 24, 25, 26)
_RESERVED = {
    **dict.fromkeys(("f16", "tf32", "f8f6f4", "i8"), _PLAIN_RESERVED),
    "mxf8f6f4": (*_SCALED_RESERVED, 31),
    **dict.fromkeys(PACKED_KINDS, (*_SCALED_RESERVED, 12)),
}
"""Bits that are 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionDescriptor:
    """A decoded instruction descriptor; `m` and `n` are those of the pair if two CTAs multiply together.

    `a_id` and `b_id` are the bytes, in words of tensor memory, at which the block factors begin. `factors` is their
    type, or None.
    """

    kind: str
    d: str
    a: str
    b: str
    m: int
    n: int
    negates_a: bool
    negates_b: bool
    transposes_a: bool
    transposes_b: bool
    saturates: bool
    factors: str | None
    a_id: int
    b_id: int

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of A and B in shared memory; of two elements where 4 bits are packed."""
        return {"f16": 2, "tf32": 4}.get(self.kind, 1)


@lru_cache(maxsize=1024)
def decode_instruction(kind: str, bits: int, ctas: int) -> InstructionDescriptor:
    """Reads the 32 bits for a `kind` and a group of `ctas`.

    Raises:
        ValueError: a sparse operand, or a type, a shape or a bit that the kind does not have; with a message.
    """
    scaled = kind.startswith("mx")
    packed = kind in PACKED_KINDS
    if bits & 7:
        raise ValueError("a sparse A, which is not supported")
    types, fields = _TYPES[kind], (bits >> 7 & 7, bits >> 10 & (3 if packed else 7))
    unknown = [code for code in fields if code not in types]
    sums = "f32" if scaled else _SUMS.get(bits >> 4 & 3, "")
    if unknown or (not scaled and sums not in _SUMS_OF[kind]):
        raise ValueError(f"types {fields} and sums {bits >> 4 & 3}, which kind::{kind} does not have")
    d, a, b = sums, types[fields[0]], types[fields[1]]
    if kind == "f16" and d == "f16" and "bf16" in (a, b):
        raise ValueError("sums in f16 of bf16 operands, which do not exist")
    m = (bits >> 27 & 3) << 7 if scaled else (bits >> 24 & 31) << 4
    found = InstructionDescriptor(
        kind=kind,
        d=d,
        a=a,
        b=b,
        m=m,
        n=(bits >> 17 & 63) << 3,
        negates_a=bool(bits >> 13 & 1),
        negates_b=bool(bits >> 14 & 1),
        transposes_a=bool(bits >> 15 & 1),
        transposes_b=bool(bits >> 16 & 1),
        saturates=bool(bits >> 3 & 1),
        factors=("ue8m0" if bits >> 23 & 1 else "ue4m3") if scaled else None,
        a_id=bits >> 29 & 3 if scaled else 0,
        b_id=bits >> 4 & 3 if scaled else 0,
    )
    _check(found, bits, ctas)
    return found


def _check(found: InstructionDescriptor, bits: int, ctas: int) -> None:
    kind, n, m = found.kind, found.n, found.m
    scaled, packed = found.factors is not None, found.kind in PACKED_KINDS
    rows = {1: (128,), 2: (128, 256)}[ctas] if scaled else {1: (64, 128), 2: (128, 256)}[ctas]
    step = {1: 8, 2: 16}[ctas]
    columns = n % step == 0
    if kind == "i8":
        columns = n in (8, 24) or n % 16 == 0 if ctas == 1 else n % 32 == 0
    narrow = {found.a, found.b} & {"e2m1", "e2m3", "e3m2"}
    reserved = [bit for bit in _RESERVED[kind] if bits >> bit & 1]
    rules = (
        (not reserved, f"bit {', '.join(map(str, reserved))}, which kind::{kind} reserves"),
        (m in rows, f"M is {m}; kind::{kind} of {ctas} CTAs has {' and '.join(map(str, rows))}"),
        (8 <= n <= 256 and columns and (ctas == 1 or n >= 16), f"N is {n}, which kind::{kind} of {ctas} CTAs does not"
         " have"),
        (not found.saturates or kind == "i8", "saturation, which only kind::i8 has"),
        (kind != "i8" or not (found.negates_a or found.negates_b), "a negation, which kind::i8 does not have"),
        (not packed or not (found.transposes_a or found.transposes_b), f"a transposition, which kind::{kind} does not"
         " have"),
        (not narrow or not (found.transposes_a or found.transposes_b), "a transposition of 4- or 6-bit elements, which"
         " is not supported"),
        (kind != "mxf8f6f4" or found.factors == "ue8m0", "factors of ue4m3, which kind::mxf8f6f4 does not have"),
        (not packed or not bits >> 31, "K of 96, which is not supported"),
        (scaled or not bits >> 29, "a shift of .ws, which is not supported"),
    )  # fmt: skip
    for holds, message in rules:
        if not holds:
            raise ValueError(message)
