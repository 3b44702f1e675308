"""Floats that NumPy lacks, as bits in unsigned integers: bf16 in uint16, e4m3 and e5m2 in uint8."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

CARRIERS: Mapping[str, str] = {"bf16": "uint16", "e4m3": "uint8", "e5m2": "uint8"}
"""NumPy's name of the integers that hold the bits of a type."""


def bf16_bits(values: Array) -> Array:
    """Return the bits of bf16, in uint16, nearest to `values` in float32 (ties to even; NaN stays NaN).

    >>> [hex(bits) for bits in bf16_bits(np.array([1.0, -2.5, np.nan]))]
    ['0x3f80', '0xc020', '0x7fc0']
    """
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


def bf16_values(bits: Array) -> Array:
    """Return float32 values of bf16's bits.

    >>> bf16_values(np.array([0x3F80], np.uint16))
    array([1.], dtype=float32)
    """
    return (bits.astype(np.uint32) << 16).view(np.float32)


@dataclass(frozen=True, slots=True)
class _Float8:
    """The largest finite code, and all 256 values (Micikevicius et al., "FP8 Formats for Deep Learning")."""

    largest: int
    values: Array


def _float8(exponent_bits: int, *, largest: int, infinite: bool) -> _Float8:
    fraction_bits, bias = 7 - exponent_bits, 2 ** (exponent_bits - 1) - 1
    code = np.arange(128)
    exponent, fraction = code >> fraction_bits, code & (2**fraction_bits - 1)
    normal = np.ldexp(1 + fraction / 2**fraction_bits, exponent - bias)
    values = np.where(exponent > 0, normal, np.ldexp(fraction / 2**fraction_bits, 1 - bias))
    values[largest + 1 :] = np.nan
    if infinite:
        values[largest + 1] = np.inf
    return _Float8(largest, np.concatenate((values, -values)).astype(np.float32))


_FLOAT8 = {"e4m3": _float8(4, largest=0x7E, infinite=False), "e5m2": _float8(5, largest=0x7B, infinite=True)}


def float8_bits(values: Array, name: str) -> Array:
    """Return the bits of "e4m3" or "e5m2", in uint8, nearest to `values` (ties to even).

    Larger values become the largest finite value, as with `cvt.satfinite`; NaN stays NaN.

    >>> float8_bits(np.array([1.0, -448.0, 1e6, np.nan]), "e4m3").tolist()
    [56, 254, 126, 127]
    """
    kind, wide = _FLOAT8[name], np.asarray(values, np.float64)
    finite = kind.values[: kind.largest + 1].astype(np.float64)
    middles = (finite[:-1] + finite[1:]) / 2  # a midpoint goes to the even code
    size = np.abs(wide)
    code = np.searchsorted(middles, size, "left")
    code += (code < len(middles)) & (size == middles[np.minimum(code, len(middles) - 1)]) & (code % 2 == 1)
    return np.where(np.isnan(wide), 0x7F, code | np.where(np.signbit(wide), 0x80, 0)).astype(np.uint8)


def float8_values(bits: Array, name: str) -> Array:
    """Return float32 values of the bits of "e4m3" or "e5m2".

    >>> float8_values(np.array([0x38, 0x7E], np.uint8), "e4m3")
    array([  1., 448.], dtype=float32)
    """
    values: Array = _FLOAT8[name].values[bits]
    return values
