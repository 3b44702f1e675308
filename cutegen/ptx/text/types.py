"""PTX's scalar types and how a register lane of each is held in numpy.

Source: PTX ISA, "Types" (fundamental and alternate floating-point types, packed types).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

import numpy as np

WARP_LANES = 32
Dim3: TypeAlias = tuple[int, int, int]


class Kind(Enum):
    """Kind of number that a type's bits represent."""

    PREDICATE = "predicate"
    BITS = "bits"
    UNSIGNED = "unsigned"
    SIGNED = "signed"
    FLOAT = "float"


@dataclass(frozen=True, slots=True)
class ScalarType:
    """One PTX type; `dtype` is the numpy view of a lane that holds it.

    >>> scalar_type("s32").dtype
    dtype('int32')
    """

    name: str
    bits: int
    kind: Kind
    dtype: np.dtype

    @property
    def size_bytes(self) -> int:
        """Bytes that the type takes in memory."""
        return max(1, self.bits // 8)


def _row(name: str, bits: int, kind: Kind, dtype: object) -> tuple[str, ScalarType]:
    return name, ScalarType(name, bits, kind, np.dtype(dtype))  # type: ignore[call-overload]


_TYPES: dict[str, ScalarType] = dict(
    [
        _row("pred", 1, Kind.PREDICATE, bool),
        *[_row(f"b{n}", n, Kind.BITS, f"u{n // 8}") for n in (8, 16, 32, 64)],
        _row("b128", 128, Kind.BITS, "V16"),
        *[_row(f"u{n}", n, Kind.UNSIGNED, f"u{n // 8}") for n in (8, 16, 32, 64)],
        *[_row(f"s{n}", n, Kind.SIGNED, f"i{n // 8}") for n in (8, 16, 32, 64)],
        _row("f16", 16, Kind.FLOAT, np.float16),
        _row("bf16", 16, Kind.FLOAT, np.uint16),
        _row("tf32", 32, Kind.FLOAT, np.uint32),
        _row("f32", 32, Kind.FLOAT, np.float32),
        _row("f64", 64, Kind.FLOAT, np.float64),
        _row("f16x2", 32, Kind.FLOAT, np.uint32),
        _row("bf16x2", 32, Kind.FLOAT, np.uint32),
        _row("f32x2", 64, Kind.FLOAT, np.uint64),
        _row("e4m3", 8, Kind.FLOAT, np.uint8),
        _row("e5m2", 8, Kind.FLOAT, np.uint8),
        _row("e4m3x2", 16, Kind.FLOAT, np.uint16),
        _row("e5m2x2", 16, Kind.FLOAT, np.uint16),
    ]
)


def scalar_type(name: str) -> ScalarType:
    """The type that PTX writes as `.name`. Raises KeyError if there is none."""
    return _TYPES[name]


def is_type(name: str) -> bool:
    """True if `name` (without the dot) is a PTX type that this package knows."""
    return name in _TYPES
