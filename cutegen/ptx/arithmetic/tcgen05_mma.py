"""Arithmetic of one `tcgen05.mma`, as MMA-Sim measured it on hardware.

All products of an instruction (32 bytes of K) and the accumulator are aligned to the largest exponent among them, cut
to 25 bits after the binary point, added exactly, and the sum is truncated to float32, or rounded to nearest even in
float16. A factor of ue8m0 adds to the exponents of its products. Of 4-bit floats with factors, products are first added
exactly in groups of 16; 35 bits of the scaled groups are kept, which are aligned by the exponents of their factors. A
zero counts as a term with the lowest exponent of all, `zero_exponent`. Integers are exact.

Source: Xie et al., "MMA-Sim: Bit-accurate reference model of tensor cores and matrix cores" (2025), on Blackwell's UTC
instructions; the package `mmasim` is the oracle of the tests. No GPU with `tcgen05` was at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cutegen.ptx.arithmetic.rounding import Array, Doubles, canonical_f32, decode, to_f16
from cutegen.ptx.arithmetic.warpgroup_mma import (
    LOWEST_EXPONENT,
    Factor,
    cut_products_f32,
    cut_products_f64,
    cut_to_bits,
    power_of_two,
)
from cutegen.ptx.text.types import scalar_type

_FRACTION_BITS, _GROUPED_FRACTION_BITS = 25, 35
_FLOAT32_BITS = 23
_GROUP = 16
_ZERO_EXPONENT = {np.dtype(np.float32): -133, np.dtype(np.float16): -21}
_GROUPED_ZERO_EXPONENT = -139
_LEAST_F32_EXPONENT, _LEAST_C_EXPONENT = -126, {np.dtype(np.float32): -126, np.dtype(np.float16): -14}
_LEAST_PRODUCT_IN_F32 = -100


def _small_floats(exponent_bits: int, mantissa_bits: int, bias: int) -> Doubles:
    """Values of the codes of a float without infinities and NaNs, sign bit above the exponent."""
    codes = np.arange(1 << (1 + exponent_bits + mantissa_bits))
    exponent, mantissa = codes >> mantissa_bits & ((1 << exponent_bits) - 1), codes & ((1 << mantissa_bits) - 1)
    values = np.ldexp(mantissa / (1 << mantissa_bits) + (exponent > 0), np.maximum(exponent, 1) - bias)
    return np.asarray(np.where(codes >> (exponent_bits + mantissa_bits), -values, values))


@dataclass(frozen=True, slots=True)
class ElementType:
    """An element type of A and B: its values from stored codes, and the exponent of its subnormals."""

    name: str
    bits: int
    least_exponent: int
    decode: Callable[[Array], Doubles]
    fits_f32: bool
    """True if a product of two such values is exact in float32."""


def _from_table(name: str, bits: int, least: int, table: Doubles) -> ElementType:
    return ElementType(name, bits, least, lambda codes: table[codes], True)


ELEMENT_TYPES = {
    each.name: each
    for each in (
        ElementType("f16", 16, -14, lambda codes: decode(scalar_type("f16"))(codes.view(np.float16)), True),
        ElementType("bf16", 16, -126, decode(scalar_type("bf16")), False),
        ElementType("tf32", 32, -126, decode(scalar_type("tf32")), False),
        _from_table("e4m3", 8, -6, decode(scalar_type("e4m3"))(np.arange(256))),
        _from_table("e5m2", 8, -14, decode(scalar_type("e5m2"))(np.arange(256))),
        _from_table("e2m3", 6, 0, _small_floats(2, 3, 1)),
        _from_table("e3m2", 6, -2, _small_floats(3, 2, 3)),
        _from_table("e2m1", 4, 0, _small_floats(2, 1, 1)),
    )
}


def factor_of(kind: ElementType, codes: Array, *, negated: bool = False) -> Factor:
    """The operand whose (rows, K) elements are `codes`."""
    values = kind.decode(np.ascontiguousarray(codes.T))
    if negated:
        values = -values
    fields = np.frexp(values)[1] - 1
    exponents = np.where(values == 0, LOWEST_EXPONENT, np.maximum(fields, kind.least_exponent)).astype(np.int16)
    return Factor(values.astype(np.float32) if kind.fits_f32 else values, exponents)


@dataclass(frozen=True, slots=True)
class BlockFactors:
    """Factors of one operand, (blocks, rows): significands and exponents."""

    significands: Doubles
    exponents: npt.NDArray[np.int64]

    @classmethod
    def ue8m0(cls, codes: Array) -> BlockFactors:
        """2^(code - 127); 0xff is a NaN."""
        return cls(np.where(codes == 0xFF, np.nan, 1.0), codes.astype(np.int64) - 127)

    @classmethod
    def ue4m3(cls, codes: Array) -> BlockFactors:
        """e4m3 without its sign; 0x7f is a NaN."""
        values = decode(scalar_type("e4m3"))(codes & 0x7F)
        exponents = np.maximum(np.frexp(values)[1] - 1, -6).astype(np.int64)
        return cls(values * np.exp2(-exponents), exponents)

    def values(self) -> Doubles:
        """The factors."""
        return np.ldexp(self.significands, self.exponents.astype(np.int32))


def multiply(a: Factor, b: Factor, c: Array, factors: tuple[BlockFactors, BlockFactors] | None = None) -> Array:
    """(K, M) x (K, N) + (M, N): `c` is float32 or float16, and the result has its dtype.

    `factors` are those of an `mxf8f6f4` multiplication, one block of each row, in ue8m0.
    """
    shift = np.zeros((1, 1), np.int64)
    scale_values = np.ones((1, 1))
    if factors is not None:
        shift = factors[0].exponents.T + factors[1].exponents
        scale_values = factors[0].values().T * factors[1].values()
    plain = _plain(a.values, b.values, c, scale_values)
    if plain is not None:
        a, b, c = _finite(a), _finite(b), np.where(np.isfinite(c), c, 0).astype(c.dtype)
    total, zero = c.astype(np.float64), _ZERO_EXPONENT[c.dtype]
    of_products = _largest_products(a, b)
    largest = np.maximum(of_products + shift, _exponents_of(total, c.dtype, zero))
    has_zero = (a.values == 0).any(axis=0)[:, None] | (b.values == 0).any(axis=0)
    largest = np.where(has_zero, np.maximum(largest, zero), largest)
    exponents = _FRACTION_BITS - largest + shift
    in_f32 = a.values.dtype == b.values.dtype == np.float32
    if in_f32 and int(exponents.max()) - _FRACTION_BITS <= -_LEAST_PRODUCT_IN_F32:
        small = exponents < _LEAST_F32_EXPONENT
        scale = power_of_two(np.where(small, 0, exponents), np.float32)
        units = cut_products_f32(a, b, np.where(small, np.float32(0), scale))
    else:
        units = cut_products_f64(a, b, power_of_two(exponents.clip(-1022, 1023), np.float64))
    units += np.trunc(total * power_of_two(_FRACTION_BITS - largest, np.float64))
    return _rounded(units * power_of_two(largest - _FRACTION_BITS, np.float64), plain, c.dtype)


def multiply_grouped(a: Array, b: Array, factors: tuple[BlockFactors, BlockFactors], c: Array) -> Array:
    """(64, M) x (64, N) values of 4-bit floats with `factors` of 2 or 4 blocks, + (M, N) float32."""
    blocks = len(factors[0].exponents)
    per_block = len(a) // blocks
    scales = [each.values() for each in factors]
    wide = np.repeat(scales[0], per_block, axis=0), np.repeat(scales[1], per_block, axis=0)
    plain = _plain(a * wide[0], b * wide[1], c, np.ones((1, 1)))
    total = np.where(np.isfinite(c), c, 0).astype(np.float64)
    largest, groups = _exponents_of(total, c.dtype, _GROUPED_ZERO_EXPONENT), []
    for first in range(0, len(a), _GROUP):
        piece, block = slice(first, first + _GROUP), first // per_block
        sums = a[piece].T.astype(np.float32) @ b[piece].astype(np.float32)
        any_product = (a[piece] != 0).T.astype(np.float32) @ (b[piece] != 0).astype(np.float32) > 0
        significands = np.nan_to_num(factors[0].significands[block])[:, None] * np.nan_to_num(
            factors[1].significands[block]
        )
        exponents = factors[0].exponents[block][:, None] + factors[1].exponents[block]
        exponents = np.where(any_product & (significands != 0), exponents, _GROUPED_ZERO_EXPONENT)
        largest = np.maximum(largest, exponents)
        groups.append((sums * significands, exponents))
    units = np.trunc(total * power_of_two(_GROUPED_FRACTION_BITS - largest, np.float64))
    for sums, exponents in groups:
        places = (exponents - largest + _GROUPED_FRACTION_BITS).clip(-1022, 1023)
        units += np.trunc(sums * power_of_two(places, np.float64))
    return _rounded(units * power_of_two(largest - _GROUPED_FRACTION_BITS, np.float64), plain, c.dtype)


def _plain(a: Array, b: Array, c: Array, scales: Doubles) -> Doubles | None:
    """The product as IEEE arithmetic gives it, if infinities or NaNs are among the operands."""
    if np.isfinite(a).all() and np.isfinite(b).all() and np.isfinite(c).all() and np.isfinite(scales).all():
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray((a.T.astype(np.float64) @ b.astype(np.float64)) * scales + c)


def _finite(operand: Factor) -> Factor:
    return Factor(np.where(np.isfinite(operand.values), operand.values, 0), operand.exponents)


def _largest_products(a: Factor, b: Factor) -> npt.NDArray[np.int64]:
    """The largest exponent of the products of each element."""
    largest = a.exponents[0][:, None] + b.exponents[0]
    sums = np.empty_like(largest)
    for of_a, of_b in zip(a.exponents[1:], b.exponents[1:], strict=True):
        np.add(of_a[:, None], of_b[None], out=sums)
        np.maximum(largest, sums, out=largest)
    found: npt.NDArray[np.int64] = largest.astype(np.int64)
    return found


def _exponents_of(values: Doubles, dtype: np.dtype, zero: int) -> npt.NDArray[np.int64]:
    """Exponents of an accumulator of `dtype`, whose subnormals all have one."""
    fields = (values.view(np.int64) >> 52 & 0x7FF) - 1023
    found: npt.NDArray[np.int64] = np.where(values == 0, zero, np.maximum(fields, _LEAST_C_EXPONENT[dtype]))
    return found


def _rounded(total: Doubles, plain: Doubles | None, dtype: np.dtype) -> Array:
    if plain is not None:
        total = np.where(np.isfinite(plain), total, plain)
    with np.errstate(over="ignore"):
        if dtype == np.float16:
            return to_f16(total) + np.float16(0)
        return canonical_f32(cut_to_bits(total, _FLOAT32_BITS).astype(np.float32)) + np.float32(0)
