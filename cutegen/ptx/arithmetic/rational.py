"""float64 operations with any rounding, one lane at a time through exact rational numbers.

Slow, and rarely needed: numpy rounds to nearest, as most code does, and only `fma` has no numpy function. NaNs are
those of an H200: a NaN operand, made quiet, else 0xfff8000000000000. The second of two NaNs wins; in a division,
which is a sequence of instructions there, the first one wins; in fma the order is b, c, a.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import isqrt

import numpy as np

from cutegen.ptx.arithmetic.rounding import Doubles, quiet, signed_zero

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
