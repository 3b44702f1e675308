"""The 32 bits that tell a `tcgen05.mma` its types, majors, signs and shape, and which shapes there are.

Source: PTX ISA, "TensorCore 5th Generation Family Instructions": "Instruction descriptor", "Data types and shapes".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

K_BYTES = 32
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
