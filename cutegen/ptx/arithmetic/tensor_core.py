"""Arithmetic of tensor cores, without registers: one `mma`, one `wgmma`, one `tcgen05.mma`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cutegen.ptx.arithmetic.rounding import Array, Doubles, canonical_f32, decode, to_f16, to_f32
from cutegen.ptx.arithmetic.rounding import decode as decode_float
from cutegen.ptx.text.syntax import ScalarType, scalar_type

# Arithmetic of a tensor core for one `mma`, without registers.
#
# Products of the inputs are exact. The K products of a tile are added in groups. The products of a group and the
# accumulator are aligned to the largest exponent among them (a product's exponent is the sum of its operands'
# exponents, before normalization). Bits more than `extra_bits` below the float32 significand are truncated, the
# integers are added exactly, and the sum is truncated to float32 (infinite from 2**128 on). The result is the
# accumulator of the next group. With float16 accumulation the sum of the last group is rounded to nearest even instead.
# Integers accumulate exactly in 32 bits, wrapping (or clamping with `.satfinite`). 8-bit floats are multiplied as f16,
# as sm_90 does.
#
# Sources: PTX ISA, `mma` ("the accumulation order, rounding and handling of subnormal inputs are unspecified"); Fasi,
# Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores" (2021); Li et al., "FTTN: Feature-targeted
# testing for numerical properties of GPU matrix accelerators" (2024). Group sizes and extra bits come from these and
# are parameters here. `HOPPER` gives the bits of an H200 on every operand tried (`docs/ptx.md`).


_FLOAT32_BITS = 23
_FLOAT32_OVERFLOW = 2.0**128
_LOWEST_EXPONENT = -1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorCore:
    """Parameters of the model: how many products are added at once, and with how many bits below float32's last.

    `wide_8_bit_bits` is the number of bits after the binary point that a `wgmma` of 8-bit floats keeps.
    """

    name: str
    group_16_bit: int
    group_tf32: int
    extra_bits: int
    wide_8_bit_bits: int = 13

    def group(self, kind: ScalarType) -> int:
        """Number of products per group for inputs of type `kind`."""
        return self.group_tf32 if kind.bits == 32 else self.group_16_bit


AMPERE = TensorCore(name="sm_80", group_16_bit=8, group_tf32=4, extra_bits=1)
HOPPER = TensorCore(name="sm_90", group_16_bit=16, group_tf32=8, extra_bits=2)


@dataclass(frozen=True, slots=True)
class _Format:
    """Tables or functions from the bits of an input to its value and its exponent."""

    value: Callable[[Array], Doubles]
    exponent: Callable[[Array], npt.NDArray[np.int64]]


def _table_format(name: str, mantissa_bits: int, bias: int) -> _Format:
    codes = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    kind = scalar_type(name)
    with np.errstate(invalid="ignore"):
        values = decode_float(kind)(codes.view(kind.dtype))
    field = (codes.astype(np.int64) & 0x7FFF) >> mantissa_bits
    exponents = np.maximum(field, 1) - bias
    exponents[values == 0] = _LOWEST_EXPONENT
    return _Format(lambda a: values[a], lambda a: exponents[a])


def _tf32_exponent(a: Array) -> npt.NDArray[np.int64]:
    field = (a >> 23 & 0xFF).astype(np.int64)
    return np.where(a & 0x7FFFE000 == 0, _LOWEST_EXPONENT, np.maximum(field, 1) - 127)


_FORMATS = {
    "f16": _table_format("f16", 10, 15),
    "bf16": _table_format("bf16", 7, 127),
    "tf32": _Format(decode_float(scalar_type("tf32")), _tf32_exponent),
}


_F16 = scalar_type("f16")
_F8_AS_F16 = {
    name: to_f16(decode_float(scalar_type(name))(np.arange(256))).view(np.uint16) for name in ("e4m3", "e5m2")
}


def multiply_integers(a: Array, b: Array, c: Array, *, saturate: bool) -> Array:
    """(..., M, K) x (..., N, K) + (..., M, N) of 8-bit integers into s32."""
    total = a.astype(np.float64) @ b.astype(np.float64).swapaxes(-1, -2) + c
    exact = total.astype(np.int64)
    return exact.clip(-(1 << 31), (1 << 31) - 1).astype(np.int32) if saturate else exact.astype(np.int32)


def multiply_floats(
    core: TensorCore, kinds: tuple[ScalarType, ScalarType], a: Array, b: Array, c: Array, *, f16_result: bool
) -> Array:
    """(..., M, K) x (..., N, K) + (..., M, N).

    `a`, `b` are the bits of the inputs, `c` is float32 or float16; the result has its dtype.
    """
    if kinds[0].bits == 8:
        return _multiply_8_bit_floats(core, kinds, a, b, c, f16_result=f16_result)
    left, right = (_FORMATS[kind.name] for kind in kinds)
    a_values, b_values = left.value(a), right.value(b)
    a_exponents, b_exponents = left.exponent(a), right.exponent(b)
    k = a.shape[-1]
    group = min(core.group(kinds[0]), k)
    total = c.astype(np.float64)
    for start in range(0, k, group):
        piece = slice(start, start + group)
        products = a_values[..., :, None, piece] * b_values[..., None, :, piece]  # [..., M, N, group]
        exponents = (a_exponents[..., :, None, piece] + b_exponents[..., None, :, piece]).max(axis=-1)
        last = start + group >= k
        total = _add_group(core, products, exponents, total, f16_result=f16_result and last)
    return to_f16(total) if f16_result else canonical_f32(total.astype(np.float32))


def _multiply_8_bit_floats(
    core: TensorCore, kinds: tuple[ScalarType, ScalarType], a: Array, b: Array, c: Array, *, f16_result: bool
) -> Array:
    """Two f16 products of half the columns each, then an addition of c: the code that ptxas generates for sm_90."""
    wide = [_F8_AS_F16[kind.name][matrix] for kind, matrix in zip(kinds, (a, b), strict=True)]
    lower = np.arange(a.shape[-1]) % 4 < 2
    total = np.zeros_like(c)
    for half in (lower, ~lower):
        left, right = (np.ascontiguousarray(matrix[..., half]) for matrix in wide)
        total = multiply_floats(core, (_F16, _F16), left, right, total, f16_result=f16_result)
    result = total.astype(np.float64) + c.astype(np.float64)
    return to_f16(result) if f16_result else to_f32(result)


def _add_group(
    core: TensorCore, products: Doubles, exponents: npt.NDArray[np.int64], total: Doubles, *, f16_result: bool
) -> Doubles:
    """Adds the products over their last axis and `total`, aligned and truncated."""
    fraction, exponent = np.frexp(total)
    largest = np.maximum(exponents, np.where(fraction == 0, _LOWEST_EXPONENT, np.maximum(exponent - 1, -126)))
    largest = np.maximum(largest, -500)
    scale = np.ldexp(1.0, _FLOAT32_BITS + core.extra_bits - largest)
    units = np.trunc(products * scale[..., None]).sum(axis=-1) + np.trunc(total * scale)
    result = units / scale
    exact = np.isfinite(products).all() and np.isfinite(total).all()
    if not exact:
        plain = products.sum(axis=-1) + total
        result = np.where(np.isfinite(plain), result, plain)
    return result if f16_result else _cut_to_f32(result)


def _cut_to_f32(values: Doubles) -> Doubles:
    """Rounded towards zero to float32, but infinite from 2**128 on; rounding would stop at the largest number."""
    cut = to_f32(values, "rz").astype(np.float64)
    return np.where(
        np.abs(values) < _FLOAT32_OVERFLOW, cut, np.where(np.isnan(values), np.nan, np.copysign(np.inf, values))
    )


# Arithmetic of one `wgmma`: the model of `tensor_core`, for 64 rows at once.
#
# The K products of an instruction and the accumulator are aligned to the largest exponent among them, truncated, and
# added exactly, and the sum is truncated to float32. 16-bit floats and tf32 keep as many bits as in `mma`. 8-bit floats
# keep 13 bits after the binary point, and the sum is truncated to 13 bits as well (Xie et al., "MMA-Sim: Bit-accurate
# reference model of tensor cores and matrix cores", 2025, on Hopper's QGMMA).


_FLOAT64_BITS = 52
LOWEST_EXPONENT = -1000
_LEAST_EXPONENT_IN_F32 = -100
_TINY = 2.0**-126
_SMALL = ("f16", "e4m3", "e5m2")
"""Types whose products are exact in float32."""

Exponents: TypeAlias = npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Factor:
    """One operand as (K, rows): values, and the exponents that its products are aligned by."""

    values: npt.NDArray[Any]
    exponents: Exponents

    def part(self, piece: slice) -> Factor:
        """The operand restricted to a range of k."""
        return Factor(self.values[piece], self.exponents[piece])


def factor(kind: ScalarType, bits: Array, *, negated: bool) -> Factor:
    """The operand whose (rows, K) elements are `bits`."""
    values = decode(kind)(np.ascontiguousarray(bits.T).view(kind.dtype))
    if negated:
        values = -values
    fields = np.frexp(values)[1] - 1
    least = {"f16": -14, "e4m3": -6, "e5m2": -14}.get(kind.name, -126)
    exponents = np.where(values == 0, LOWEST_EXPONENT, np.maximum(fields, least)).astype(np.int16)
    return Factor(values.astype(np.float32) if kind.name in _SMALL else values, exponents)


def multiply_wide_floats(core: TensorCore, kind: ScalarType, a: Factor, b: Factor, c: Array) -> Array:
    """(K, 64) x (K, N) + (64, N): `c` is float32 or float16, and the result has its dtype. `kind` is A's type."""
    plain = None
    if not (np.isfinite(a.values).all() and np.isfinite(b.values).all() and np.isfinite(c).all()):
        with np.errstate(invalid="ignore"):
            plain = a.values.T.astype(np.float64) @ b.values.astype(np.float64) + c
        a, b, c = _finite(a), _finite(b), np.where(np.isfinite(c), c, 0).astype(c.dtype)
    depth = len(a.values)
    group = depth if kind.bits == 8 else min(core.group(kind), depth)
    kept_bits = core.wide_8_bit_bits if kind.bits == 8 else _FLOAT32_BITS + core.extra_bits
    total = c.astype(np.float64)
    for start in range(0, depth, group):
        piece = slice(start, start + group)
        total = _add_aligned(a.part(piece), b.part(piece), total, kept_bits)
        if c.dtype == np.float32 or start + group < depth:
            total = cut_to_bits(total, min(kept_bits, _FLOAT32_BITS))
    if plain is not None:
        total = np.where(np.isfinite(plain), total, plain)
    with np.errstate(over="ignore"):
        return to_f16(total) if c.dtype == np.float16 else canonical_f32(total.astype(np.float32))


def multiply_wide_integers(a: Array, b: Array, c: Array, *, saturate: bool) -> Array:
    """(64, K) x (N, K) + (64, N) of 8-bit integers into s32: float32 holds every sum of 32 products exactly."""
    total = (a.astype(np.float32) @ b.astype(np.float32).T).astype(np.int64) + c
    return (total.clip(-(1 << 31), (1 << 31) - 1) if saturate else total).astype(np.int32)


def _finite(operand: Factor) -> Factor:
    return replace(operand, values=np.where(np.isfinite(operand.values), operand.values, 0))


def _add_aligned(a: Factor, b: Factor, total: Doubles, kept_bits: int) -> Doubles:
    """`total` plus the products of all k, each truncated to `kept_bits` after the binary point of the largest."""
    largest = _largest_exponents(a, b, total)
    in_f32 = a.values.dtype == b.values.dtype == np.float32 and largest.min() >= _LEAST_EXPONENT_IN_F32
    scale = power_of_two(kept_bits - largest, np.float32 if in_f32 else np.float64)
    units = cut_products_f32(a, b, scale) if in_f32 else cut_products_f64(a, b, scale)
    units += np.trunc(total * scale)
    return np.asarray(units * power_of_two(largest - kept_bits, np.float64))


def _largest_exponents(a: Factor, b: Factor, total: Doubles) -> npt.NDArray[np.int64]:
    """Return for each element the largest exponent of its products and of `total`; 0 if all are zero."""
    fields = total.view(np.int64) >> _FLOAT64_BITS & 0x7FF
    largest = np.where(total == 0, LOWEST_EXPONENT, np.maximum(fields - 1023, -126)).astype(np.int16)
    sums = np.empty_like(largest)
    for of_a, of_b in zip(a.exponents, b.exponents, strict=True):
        np.add(of_a[:, None], of_b[None], out=sums)
        np.maximum(largest, sums, out=largest)
    return np.where(largest < LOWEST_EXPONENT // 2, 0, largest).astype(np.int64)


def cut_products_f32(a: Factor, b: Factor, scale: Array) -> Doubles:
    """Sums of truncated products, in units of 1 / scale: a product is below 2^27 units, so 16 of them fit 31 bits."""
    product, cut = np.empty(scale.shape, np.float32), np.empty(scale.shape, np.int32)
    units = np.zeros(scale.shape, np.float64)
    for start in range(0, len(a.values), 16):
        part = np.zeros(scale.shape, np.int32)
        for of_a, of_b in zip(a.values[start : start + 16], b.values[start : start + 16], strict=True):
            np.multiply(of_a[:, None], of_b[None], out=product)
            np.multiply(product, scale, out=product)
            np.copyto(cut, product, casting="unsafe")
            part += cut
        units += part
    return units


def cut_products_f64(a: Factor, b: Factor, scale: Array) -> Doubles:
    product, units = np.empty(scale.shape, np.float64), np.zeros(scale.shape, np.float64)
    for of_a, of_b in zip(a.values, b.values, strict=True):
        np.multiply(of_a[:, None], of_b[None], out=product)
        np.multiply(product, scale, out=product)
        units += np.trunc(product, out=product)
    return units


def power_of_two(exponents: npt.NDArray[np.int64], dtype: type[np.floating[Any]]) -> Array:
    """2 ** exponents, assembled from bits."""
    if dtype is np.float32:
        return ((exponents + 127) << _FLOAT32_BITS).astype(np.int32).view(np.float32)
    return ((exponents + 1023) << _FLOAT64_BITS).view(np.float64)


def cut_to_bits(total: Doubles, bits: int) -> Doubles:
    """Truncated to a float32 with `bits` after the binary point; 2^128 and more are left alone: infinite there."""
    cut = (total.view(np.int64) & -(1 << (_FLOAT64_BITS - bits))).view(np.float64)
    tiny = (np.abs(total) < _TINY) & (total != 0)
    if tiny.any():
        cut = np.where(tiny, to_f32(total, "rz").astype(np.float64), cut)
    return np.asarray(cut)


# Arithmetic of one `tcgen05.mma`, as MMA-Sim measured it on hardware.
#
# All products of an instruction (32 bytes of K) and the accumulator are aligned to the largest exponent among them, cut
# to 25 bits after the binary point, added exactly, and the sum is truncated to float32, or rounded to nearest even in
# float16. A factor of ue8m0 adds to the exponents of its products. Of 4-bit floats with factors, products are first
# added exactly in groups of 16; 35 bits of the scaled groups are kept, which are aligned by the exponents of their
# factors. A zero counts as a term with the lowest exponent of all, `zero_exponent`. Integers are exact.
#
# Source: Xie et al., "MMA-Sim: Bit-accurate reference model of tensor cores and matrix cores" (2025), on Blackwell's
# UTC instructions; the package `mmasim` is the oracle of the tests. No GPU with `tcgen05` was at hand.


_FRACTION_BITS, _GROUPED_FRACTION_BITS = 25, 35

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


def multiply_tcgen05(a: Factor, b: Factor, c: Array, factors: tuple[BlockFactors, BlockFactors] | None = None) -> Array:
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
        a, b, c = _finite_factor(a), _finite_factor(b), np.where(np.isfinite(c), c, 0).astype(c.dtype)
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


def _finite_factor(operand: Factor) -> Factor:
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
