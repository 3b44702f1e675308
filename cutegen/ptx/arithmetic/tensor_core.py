"""Arithmetic of a tensor core for one `mma`, without registers.

Products of the inputs are exact. The K products of a tile are added in groups. The products of a group and the
accumulator are aligned to the largest exponent among them (a product's exponent is the sum of its operands'
exponents, before normalization). Bits more than `extra_bits` below the float32 significand are truncated, the
integers are added exactly, and the sum is truncated to float32 (infinite from 2**128 on). The result is the
accumulator of the next group. With float16 accumulation the sum of the last group is rounded to nearest even instead.
Integers accumulate exactly in 32 bits, wrapping (or clamping with `.satfinite`). 8-bit floats are multiplied as f16,
as sm_90 does.

Sources: PTX ISA, `mma` ("the accumulation order, rounding and handling of subnormal inputs are unspecified"); Fasi,
Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores" (2021); Li et al., "FTTN: Feature-targeted
testing for numerical properties of GPU matrix accelerators" (2024). Group sizes and extra bits come from these and
are parameters here. `HOPPER` gives the bits of an H200 on every operand tried (`docs/ptx.md`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cutegen.ptx.arithmetic.rounding import Array, Doubles, canonical_f32, to_f16, to_f32
from cutegen.ptx.arithmetic.rounding import decode as decode_float
from cutegen.ptx.text.types import ScalarType, scalar_type

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
TENSOR_CORES = {core.name: core for core in (AMPERE, HOPPER)}


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
