"""Rounding exact results to PTX's float formats, and back to float64.

Every format of up to 32 bits is computed through float64: products of two such values are exact there, and sums are
rounded to odd, which makes the second rounding to the format correct (Boldo and Melquiond, "Emulation of FMA and
correctly rounded sums: proved algorithms using rounding to odd"). A NaN result becomes the canonical NaN that the
hardware gives (PTX ISA, "Floating Point Instructions": NaN payloads are not preserved below .f64).
"""

from collections.abc import Callable
from fractions import Fraction
from math import isqrt
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cutegen.ptx.text.syntax import ScalarType

Array: TypeAlias = npt.NDArray[Any]
Doubles: TypeAlias = npt.NDArray[np.float64]

ROUNDINGS = ("rn", "rz", "rm", "rp")
_CANONICAL_F32 = np.array(0x7FFFFFFF, np.uint32).view(np.float32)
_CANONICAL_F16 = np.array(0x7FFF, np.uint16).view(np.float16)
_CANONICAL_BF16 = np.uint16(0x7FFF)
_QUIET_F64 = np.uint64(1 << 51)


def canonical_f32(values: Array) -> Array:
    """float32 `values` with every NaN replaced by 0x7fffffff."""
    nan = values != values
    return np.where(nan, _CANONICAL_F32, values) if nan.any() else values


def quiet(values: Doubles) -> Doubles:
    """float64 `values` with every NaN made quiet: its payload and sign stay."""
    return np.where(np.isnan(values), (values.view(np.uint64) | _QUIET_F64).view(np.float64), values)


def canonical(values: Array, kind: ScalarType) -> Array:
    """Lanes of a float type with every NaN replaced by the canonical one; float64 keeps its payloads, made quiet."""
    if kind.name == "f64":
        return quiet(values)
    if kind.name == "f32":
        return canonical_f32(values)
    if kind.name == "f16":
        return np.where(np.isnan(values), _CANONICAL_F16, values)
    if kind.name == "bf16":
        return np.where(values & 0x7FFF > 0x7F80, _CANONICAL_BF16, values)
    return values


def odd_sum(a: Doubles, b: Doubles) -> Doubles:
    """A + b in float64, rounded to odd: the last bit of an inexact result is 1."""
    total = a + b
    from_b = total - a
    error = (a - (total - from_b)) + (b - from_b)
    inexact = (error != 0) & np.isfinite(total)
    if not inexact.any():
        return total
    even = (total.view(np.int64) & 1) == 0
    towards = np.where(error > 0, np.inf, -np.inf)
    return np.where(inexact & even, np.nextafter(total, towards), total)


def signed_zero(total: Doubles, a: Doubles, b: Doubles, mode: str) -> Doubles:
    """A sum a + b of opposite numbers: rounding down makes its zero negative (IEEE 754, 6.3)."""
    if mode != "rm":
        return total
    return np.where((total == 0) & (np.signbit(a) != np.signbit(b)), -0.0, total)


def _direct(rounded: Array, exact: Doubles, mode: str) -> Array:
    """Moves values rounded to nearest by one step if `mode` requires the other neighbor."""
    if mode == "rn":
        return rounded
    wide = rounded.astype(np.float64)
    zero, up, down = (rounded.dtype.type(x) for x in (0, np.inf, -np.inf))
    if mode == "rz":
        return np.where(np.abs(wide) > np.abs(exact), np.nextafter(rounded, zero), rounded)
    if mode == "rm":
        return np.where(wide > exact, np.nextafter(rounded, down), rounded)
    return np.where(wide < exact, np.nextafter(rounded, up), rounded)


def to_f32(exact: Doubles, mode: str = "rn") -> Array:
    """float64 -> float32."""
    return canonical_f32(_direct(exact.astype(np.float32), exact, mode))


def to_f16(exact: Doubles, mode: str = "rn") -> Array:
    """float64 -> float16."""
    rounded = _direct(exact.astype(np.float16), exact, mode)
    return np.where(np.isnan(rounded), _CANONICAL_F16, rounded)


def _odd_f32_bits(exact: Doubles) -> Array:
    """Bits of float64 values rounded to odd in float32."""
    towards_zero = _direct(exact.astype(np.float32), exact, "rz")
    inexact = (towards_zero != exact) & ~np.isnan(exact)
    return np.asarray(towards_zero.view(np.uint32) | inexact)


def to_bf16(exact: Doubles, mode: str = "rn") -> Array:
    """float64 -> the 16 bits of a bfloat16."""
    bits = _odd_f32_bits(exact)
    kept, rest = bits >> 16, bits & 0xFFFF
    negative = (bits >> 31) == 1
    if mode == "rn":
        up = (rest > 0x8000) | ((rest == 0x8000) & (kept & 1 == 1))
    elif mode == "rz":
        up = np.zeros(bits.shape, bool)
    else:
        up = (rest != 0) & (negative == (mode == "rm"))
    return np.where(np.isnan(exact), _CANONICAL_BF16, (kept + up).astype(np.uint16))


def to_tf32(exact: Doubles, mode: str = "rna") -> Array:
    """float64 -> the bits of a float32 whose last 13 bits are zero; `rna` rounds ties away from zero."""
    bits = _odd_f32_bits(exact)
    if mode == "rna":
        bits = bits + np.uint32(0x1000)
    elif mode == "rn":
        bits = bits + np.uint32(0x0FFF) + ((bits >> 13) & 1)
    return np.where(np.isnan(exact), np.uint32(0x7FFFE000), bits & np.uint32(0xFFFFE000))


def _f8_values(exponent_bits: int, mantissa_bits: int, bias: int) -> Doubles:
    codes = np.arange(256)
    exponent = (codes >> mantissa_bits) & ((1 << exponent_bits) - 1)
    mantissa = codes & ((1 << mantissa_bits) - 1)
    normal = exponent > 0
    significand = mantissa / (1 << mantissa_bits) + normal
    values = np.ldexp(significand, np.maximum(exponent, 1) - bias)
    return np.asarray(np.where(codes & 0x80, -values, values))


_E4M3 = _f8_values(4, 3, 7)
_E4M3[[0x7F, 0xFF]] = np.nan
_E5M2 = _f8_values(5, 2, 15)
_E5M2[[0x7C, 0xFC]] = np.inf, -np.inf
_E5M2[[0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF]] = np.nan
_F8 = {"e4m3": (_E4M3, 0x7E), "e5m2": (_E5M2, 0x7B)}


def to_f8(exact: Doubles, name: str) -> Array:
    """float64 -> e4m3 or e5m2 codes, to nearest even, saturated to the largest finite value."""
    table, last = _F8[name]
    positive = table[: last + 1]
    size = np.minimum(np.abs(exact), positive[-1])
    above = np.searchsorted(positive, size).clip(1, last)
    low, high = positive[above - 1], positive[above]
    middle = (low + high) / 2
    up = (size > middle) | ((size == middle) & (above % 2 == 0))
    code = np.where(up, above, above - 1) | (np.signbit(exact) << 7)
    return np.where(np.isnan(exact), 0x7F, code).astype(np.uint8)


_DECODERS: dict[str, Callable[[Array], Doubles]] = {
    "f16": lambda a: a.astype(np.float64),
    "f32": lambda a: a.astype(np.float64),
    "f64": lambda a: a,
    "bf16": lambda a: (a.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64),
    "tf32": lambda a: (a & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64),
    "e4m3": lambda a: _E4M3[a],
    "e5m2": lambda a: _E5M2[a],
}


def decode(kind: ScalarType) -> Callable[[Array], Doubles]:
    """The function from lanes of a scalar float type to float64."""
    return _DECODERS[kind.name]


def encode(kind: ScalarType, mode: str) -> Callable[[Doubles], Array]:
    """The function from float64 to lanes of a scalar float type, rounding by `mode`."""
    name = kind.name
    if name == "f64":
        return lambda x: x
    if name in _F8:
        return lambda x: to_f8(x, name)
    function = {"f32": to_f32, "f16": to_f16, "bf16": to_bf16, "tf32": to_tf32}[name]
    return lambda x: function(x, mode)


def flush_subnormals(values: Array) -> Array:
    """`.ftz`: subnormals of float32, float16 or (as its bits) bfloat16 become zeros of the same sign."""
    if values.dtype == np.uint16:
        return np.where(values & 0x7F80 == 0, values & 0x8000, values).astype(np.uint16)
    tiny = np.abs(values) < np.finfo(values.dtype).tiny
    return np.where(tiny, np.copysign(values.dtype.type(0), values), values)


def saturated(values: Doubles) -> Doubles:
    """`.sat`: clamped to [0, 1]; NaN and -0 become +0, as on a GPU."""
    return np.where(np.isnan(values), 0.0, values.clip(0.0, 1.0)) + 0.0


def rectified(values: Doubles) -> Doubles:
    """`.relu`: negative values and -0 become +0, as on a GPU; NaN stays."""
    return np.where(values <= 0, 0.0, values)


# float64 operations with any rounding, one lane at a time through exact rational numbers.
#
# Slow, and rarely needed: numpy rounds to nearest, as most code does, and only `fma` has no numpy function. NaNs are
# those of an H200: a NaN operand, made quiet, else 0xfff8000000000000. The second of two NaNs wins; in a division,
# which is a sequence of instructions there, the first one wins; in fma the order is b, c, a.


_ROOT_SCALE = 1 << 1200
_NAN_ORDER = {"fma": (0, 2, 1), "div": (1, 0)}
"""Operands by precedence if several are NaN, weakest first; other operations use operand order."""

_INVALID = np.array(0xFFF8000000000000, np.uint64).view(np.float64)


def _root(value: Fraction) -> Fraction:
    """The square root to 1200 bits, with an offset if it is inexact so that it never equals a representable value."""
    root = Fraction(isqrt(int(value * _ROOT_SCALE * _ROOT_SCALE)), _ROOT_SCALE)
    return root if root * root == value else root + Fraction(1, 2 * _ROOT_SCALE)


_EXACT: dict[str, Callable[..., Fraction | None]] = {
    "fma": lambda a, b, c: a * b + c,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b if b else None,
    "rcp": lambda a: 1 / a if a else None,
    "sqrt": lambda a: _root(a) if a > 0 else None,
}
_NEAREST: dict[str, Callable[..., Doubles]] = {
    "fma": lambda a, b, c: np.where(np.isinf(c) & np.isfinite(a) & np.isfinite(b), c, a * b + c),
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rcp": lambda a: 1.0 / a,
    "sqrt": np.sqrt,
}


def double_function(name: str, mode: str) -> Callable[..., Doubles]:
    """The operation `name` on float64 lanes with rounding `mode`."""
    nearest, exact = _NEAREST[name], _EXACT[name]
    if mode == "rn" and name != "fma":
        return lambda *operands: _with_nans(name, nearest(*operands), operands)

    def function(*operands: Doubles) -> Doubles:
        result = _with_nans(name, _with_zero_sign(name, mode, nearest(*operands), operands), operands)
        for lane, values in enumerate(zip(*operands, strict=True)):
            value = exact(*(Fraction(float(v)) for v in values)) if all(np.isfinite(values)) else None
            if value:
                result[lane] = _rounded(value, mode)
        return result

    return function


def _with_nans(name: str, result: Doubles, operands: tuple[Doubles, ...]) -> Doubles:
    if not np.isnan(result).any():
        return result
    result = np.where(np.isnan(result), _INVALID, result)
    for i in _NAN_ORDER.get(name, range(len(operands))):
        result = np.where(np.isnan(operands[i]), operands[i], result)
    return quiet(result)


def _with_zero_sign(name: str, mode: str, result: Doubles, operands: tuple[Doubles, ...]) -> Doubles:
    if name == "fma":
        return signed_zero(result, operands[0] * operands[1], operands[2], mode)
    if name in ("add", "sub"):
        return signed_zero(result, operands[0], operands[1] if name == "add" else -operands[1], mode)
    return result


def _rounded(value: Fraction, mode: str) -> float:
    try:
        nearest = float(value)
    except OverflowError:
        nearest = np.inf if value > 0 else -np.inf
    above = nearest == np.inf or (nearest != -np.inf and Fraction(nearest) > value)
    below = nearest == -np.inf or (nearest != np.inf and Fraction(nearest) < value)
    if above and (mode == "rm" or (mode == "rz" and value > 0)):
        return float(np.nextafter(nearest, -np.inf))
    if below and (mode == "rp" or (mode == "rz" and value < 0)):
        return float(np.nextafter(nearest, np.inf))
    return nearest
