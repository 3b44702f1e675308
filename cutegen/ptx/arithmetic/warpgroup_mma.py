"""Arithmetic of one `wgmma`: the model of `tensor_core`, for 64 rows at once.

The K products of an instruction and the accumulator are aligned to the largest exponent among them, truncated, and
added exactly, and the sum is truncated to float32. 16-bit floats and tf32 keep as many bits as in `mma`. 8-bit floats
keep 13 bits after the binary point, and the sum is truncated to 13 bits as well (Xie et al., "MMA-Sim: Bit-accurate
reference model of tensor cores and matrix cores", 2025, on Hopper's QGMMA).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cutegen.ptx.arithmetic.rounding import Array, Doubles, canonical_f32, decode, to_f16, to_f32
from cutegen.ptx.arithmetic.tensor_core import TensorCore
from cutegen.ptx.text.types import ScalarType

_FLOAT32_BITS = 23
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
