"""Element types of operands and accumulators, and their names in other libraries."""

from collections.abc import Mapping
from dataclasses import dataclass

from cutegen.hardware.lookup import find
from cutegen.hardware.multiplies import Instruction


@dataclass(frozen=True, slots=True)
class DType:
    """One element type: `name` in specs and PTX, `dsl_name` in module `cutlass`, `torch_name` in module `torch`.

    `significand_bits` are those of a float, including the leading one; None for an integer. `needs` are the
    instructions that support the type, if not every target does. An element has so many `values`, adjacent along K.
    """

    name: str
    bits: int
    dsl_name: str
    torch_name: str
    significand_bits: int | None
    needs: frozenset[Instruction] = frozenset()
    values: int = 1

    @property
    def bytes(self) -> int:
        """The size in bytes."""
        return self.bits // 8

    @property
    def is_integer(self) -> bool:
        """True if this is an integer type."""
        return self.significand_bits is None

    @property
    def is_float8(self) -> bool:
        """True if this is an 8-bit float, which has separate instructions.

        >>> dtype("e4m3").is_float8, dtype("s8").is_float8
        (True, False)
        """
        return self.bits == 8 and not self.is_integer

    @property
    def is_unsigned(self) -> bool:
        """True if this is an unsigned integer type.

        >>> dtype("u8").is_unsigned, dtype("s8").is_unsigned
        (True, False)
        """
        return self.name.startswith("u")

    @property
    def in_memory(self) -> str:
        """The element type of its arrays: tf32 is how a tensor core reads an f32; words are s32, pairs u8.

        >>> dtype("tf32").in_memory, dtype("e2m1x2").in_memory, dtype("f16").in_memory
        ('f32', 'u8', 'f16')
        """
        if self.name in WORDS:
            return "s32"
        return "u8" if self.name in PACKED else "f32" if self.name == "tf32" else self.name


_FLOAT8 = frozenset({Instruction.MMA_SYNC_FLOAT8})

DTYPES: Mapping[str, DType] = {
    row.name: row
    for row in (
        DType("f16", 16, "Float16", "float16", 11),
        DType("bf16", 16, "BFloat16", "bfloat16", 8),
        DType("f32", 32, "Float32", "float32", 24),
        DType("tf32", 32, "TFloat32", "float32", 11),
        DType("s8", 8, "Int8", "int8", None),
        DType("u8", 8, "Uint8", "uint8", None),
        DType("s32", 32, "Int32", "int32", None),
        DType("e4m3", 8, "Float8E4M3FN", "float8_e4m3fn", 4, needs=_FLOAT8),
        DType("e5m2", 8, "Float8E5M2", "float8_e5m2", 3, needs=_FLOAT8),
    )
}

PACKED: Mapping[str, DType] = {
    "e2m1x2": DType("e2m1x2", 8, "Uint8", "uint8", None, needs=frozenset({Instruction.TCGEN05}), values=2)
}
"""Types of several values in a byte, the first in the low bits: of A and B alone."""
WORDS: Mapping[str, DType] = {
    row.name: row
    for row in (DType("ue8m0x4", 32, "Int32", "int32", None), DType("ue4m3x4", 32, "Int32", "int32", None))
}
"""Types of four factors in a word, those of one row and adjacent blocks of K, the first in the low byte."""
_ALL = {**DTYPES, **PACKED, **WORDS}


def dtype(name: str) -> DType:
    """Return the element type called `name`. Raises RequestError for an unknown one.

    >>> dtype("bf16").bits, dtype("ue8m0x4").bytes
    (16, 4)
    """
    return _ALL[name] if name in _ALL else find(DTYPES, name, "dtype")
