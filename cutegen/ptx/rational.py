"""float64 operations with any rounding, one lane at a time through exact rational numbers.

Slow, and needed rarely: numpy rounds to nearest, which is what most code asks for, and only `fma` has no numpy
function.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import isqrt

import numpy as np

from cutegen.ptx.rounding import Doubles, signed_zero

_ROOT_SCALE = 1 << 1200


def _root(value: Fraction) -> Fraction:
    """The square root to 1200 bits, nudged off any value that it does not equal."""
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
    "fma": lambda a, b, c: a * b + c,
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
        return nearest

    def function(*operands: Doubles) -> Doubles:
        result = _with_zero_sign(name, mode, nearest(*operands), operands)
        for lane, values in enumerate(zip(*operands, strict=True)):
            value = exact(*(Fraction(float(v)) for v in values)) if all(np.isfinite(values)) else None
            if value:
                result[lane] = _rounded(value, mode)
        return result

    return function


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
