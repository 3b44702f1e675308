"""Running error analysis: the epilogue's chain in float64, with a bound on the float32 error.

Each operation rounds once, to a relative 2**-24, and propagates the errors of its inputs (N. J. Higham, Accuracy
and Stability of Numerical Algorithms, section 3.3). Functions are allowed 8 roundings.
"""

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cutegen.contract.problem import Member, Pairs
from cutegen.spec import NARROW_SHARE, Binary, Call, Expression, Name, Negation, Number, Step

MEMBERS: Mapping[str, Member] = {"x": "gate", "y": "up"}
"""Names of the sums of a pair in expressions."""
UNIT = 2.0**-24
FUNCTION_UNITS = 8 * UNIT
HALF_STEP = 2.0**-150  # the rounding error of float32 subnormals
GELU_SHARE = 3e-7
GELU_REACH = 6.5
GELU_SLOPE = 1.13
TANH_SHARE = 2.0**-16
"""Relative error of tanh.approx.f32: on an H200 at most 2**-16.4 (`docs/ptx.md`); PTX promises 2**-11."""
ERF_SHARE = 2.0**-19
"""Maximum error of the tanh form of a narrow GELU against erf below -3.4, where GELU is close to zero."""
LARGEST = 2.0**128 - 2.0**104
SMALLEST_NORMAL = 2.0**-126  # ex2.approx.ftz flushes smaller results to zero


@dataclass(frozen=True, slots=True)
class Bounded:
    """Values in float64, NumPy's or torch's, and the float32 error of each: unbounded if infinite."""

    value: Any
    error: Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a chain, the intermediate result that it stored, if any, and the factors of a quantized result."""

    result: Bounded
    aux: Bounded | None
    factors: Bounded | None = None


def run_chain(
    x: Bounded,
    chain: tuple[Step, ...],
    operands: Mapping[str, Any],
    *,
    narrow: bool = False,
    pairs: Pairs | None = None,
) -> Outcome:
    """Follow `chain` from the sums `x`; `operands` are float64 and exact, by their names in expressions.

    `narrow` says that every result has 16 bits or fewer, which permits less exact functions. The columns of the sums
    are `pairs` if a step takes them.
    """
    aux, functions = None, _NARROW if narrow else _FUNCTIONS
    known = {name: Bounded(_constant(x.value, value), 0.0) for name, value in operands.items()}
    with np.errstate(all="ignore"):
        for step in chain:
            if step.expression is None:
                aux = x
            else:
                sums = {"x": x} if pairs is None or not step.takes_pair else _members(x, pairs)
                x = _evaluate(step.expression, {**known, **sums}, functions)
    return Outcome(x, aux)


def _members(sums: Bounded, pairs: Pairs) -> dict[str, Bounded]:
    """Return the gates and the ups of sums whose columns are pairs, by their names in expressions."""
    value, columns = sums.value, sums.value.shape[-1]
    error = sums.error + 0.0 * (value == value)
    found: dict[str, Bounded] = {}
    for name, member in MEMBERS.items():
        places = [pairs.column(pair, member, columns) for pair in range(columns // 2)]
        found[name] = Bounded(value[..., places], error[..., places])
    return found


def _constant(like: Any, value: Any) -> Any:
    """Return a number as a scalar array of `like`'s framework and device; arrays unchanged."""
    if not isinstance(value, float):
        return value
    return like.new_full((), value) if _is_torch(like) else np.float64(value)


def _evaluate(
    expression: Expression, known: Mapping[str, Bounded], functions: Mapping[str, Callable[..., Bounded]]
) -> Bounded:
    match expression:
        case Number(value):
            return Bounded(_constant(known["x"].value, value), abs(value) * UNIT)
        case Name(name):
            return known[name]
        case Negation(operand):
            inner = _evaluate(operand, known, functions)
            return Bounded(-inner.value, inner.error)
        case Binary(symbol, left, right):
            return _OPERATORS[symbol](_evaluate(left, known, functions), _evaluate(right, known, functions))
        case Call(function, arguments):
            return functions[function](*(_evaluate(argument, known, functions) for argument in arguments))


def _rounded(value: Any, error: Any, units: float = UNIT) -> Bounded:
    """Round to float32; without a bound if the result may be infinite there, or is NaN."""
    size = abs(value) + error
    return Bounded(value, _library(size).where(size < LARGEST, error + units * size + HALF_STEP, math.inf))


def _add(a: Bounded, b: Bounded) -> Bounded:
    return _rounded(a.value + b.value, a.error + b.error)


def _subtract(a: Bounded, b: Bounded) -> Bounded:
    return _rounded(a.value - b.value, a.error + b.error)


def _multiply(a: Bounded, b: Bounded) -> Bounded:
    value = a.value * b.value
    error = abs(a.value) * b.error + abs(b.value) * a.error + a.error * b.error
    endless = (a.error + b.error + 0 * value) == math.inf  # also times 0
    return _rounded(value, _library(value).where(endless, math.inf, error))


def _divide(a: Bounded, b: Bounded) -> Bounded:
    """Divide, without a bound if the divisor may be zero; the value there is arbitrary, but not NaN."""
    room = abs(b.value) - b.error + 0 * a.value
    value = _library(room).where(room > 0, a.value / b.value, 0.0)
    error = (a.error + abs(value) * b.error) / room
    return _rounded(value, _library(value).where(room > 0, error, math.inf))


def _exp(x: Bounded) -> Bounded:
    xp = _library(x.value)
    value = xp.exp(x.value)
    error = xp.where(value > 0, value * _expm1(x), xp.exp(x.value + x.error))  # 0 times infinity would give no bound
    return _rounded(value, error + SMALLEST_NORMAL, FUNCTION_UNITS)


def _expm1(x: Bounded) -> Any:
    """Return exp(error) - 1; the error may be a number."""
    return _library(x.value).expm1(x.error + 0 * x.value)


def _sigmoid(x: Bounded) -> Bounded:
    """Bound a sigmoid: its slope is at most 1/4, and that of its logarithm at most 1.

    Kernels scale x for a power of 2, with two roundings; beyond 200 these do not change the result, 0 or 1.
    """
    size = _smaller_of(abs(x.value) + x.error, 200.0)
    return _exact_sigmoid(Bounded(x.value, x.error + 2 * UNIT * size))


def _exact_sigmoid(x: Bounded) -> Bounded:
    xp = _library(x.value)
    small = xp.exp(-abs(x.value))
    value = xp.where(x.value < 0, small, 1.0) / (1 + small)
    error = xp.fmin(x.error / 4 + 0 * value, value * _expm1(x))  # of 0 times infinity, the other
    return _rounded(value, error + SMALLEST_NORMAL, FUNCTION_UNITS)


def _tanh(x: Bounded) -> Bounded:
    return _rounded(_library(x.value).tanh(x.value), x.error, FUNCTION_UNITS)


def _erf(x: Bounded) -> Bounded:
    slope = 2 / math.sqrt(math.pi)
    erf = sys.modules["torch"].erf if _is_torch(x.value) else _ERF
    return _rounded(erf(x.value), slope * x.error, FUNCTION_UNITS)


def _larger(a: Bounded, b: Bounded) -> Bounded:
    xp = _library(a.value)
    return Bounded(xp.maximum(a.value, b.value), a.error + b.error)


def _smaller(a: Bounded, b: Bounded) -> Bounded:
    xp = _library(a.value)
    return Bounded(xp.minimum(a.value, b.value), a.error + b.error)


def _number(like: Bounded, value: float) -> Bounded:
    return _evaluate(Number(value), {"x": like}, _FUNCTIONS)


def _relu(x: Bounded) -> Bounded:
    return _larger(x, _number(x, 0.0))


def _silu(x: Bounded) -> Bounded:
    return _multiply(x, _sigmoid(x))


def _gelu_tanh(x: Bounded) -> Bounded:
    xp = _library(x.value)
    inner = 2 * math.sqrt(2 / math.pi) * (x.value + 0.044715 * x.value**3)
    small = xp.exp(-abs(inner))
    return _no_limit(x, _gelu(x, xp.where(inner < 0, small, 1.0) / (1 + small)))


def _gelu_erf(x: Bounded) -> Bounded:
    return _gelu(x, 0.5 * _erfc(-math.sqrt(0.5) * x.value))


def _gelu(x: Bounded, share: Any) -> Bounded:
    """Bound X F(x) with `share` F. Kernels compute F(-|x|) by a polynomial (1.8e-7) and ex2 (relative 2**-22), or F(x)
    by ex2 and a reciprocal.

    Either error is in total less than `GELU_SHARE`; beyond `GELU_REACH` it is less than that error at the limit. The
    slope of a GELU is at most 1.13. The product and the sum are rounded together.
    """
    value = _library(x.value).where(share == 0, 0.0 * share, x.value * share)  # -infinity: its limit, as in kernels
    of_share = GELU_SHARE * _smaller_of(abs(x.value) + x.error, GELU_REACH)
    return _rounded(value, GELU_SLOPE * x.error + of_share)


def _no_limit(x: Bounded, found: Bounded) -> Bounded:
    """Give -infinity no bound: kernels return the limit or, like PyTorch, NaN."""
    return Bounded(found.value, _library(x.value).where(x.value == -math.inf, math.inf, found.error))


def _narrow_gelu_erf(x: Bounded) -> Bounded:
    """Bound the form with `tanh.approx.f32` of a polynomial, accurate to `NARROW_SHARE` of GELU or to `ERF_SHARE`."""
    found = _no_limit(x, _gelu_erf(x))
    return _by_tanh(x, Bounded(found.value, found.error + NARROW_SHARE * abs(found.value)), TANH_SHARE + ERF_SHARE)


def _narrow_gelu_tanh(x: Bounded) -> Bounded:
    return _by_tanh(x, _gelu_tanh(x), TANH_SHARE)


def _by_tanh(x: Bounded, found: Bounded, share: float) -> Bounded:
    """Bound a GELU with 16-bit or narrower results: x / 2 times 1 plus a tanh with relative error `share`; from
    `GELU_REACH` on, tanh is 1 or -1.
    """
    half = _smaller_of(abs(x.value) + x.error, GELU_REACH) / 2
    return Bounded(found.value, found.error + share * half)


def _smaller_of(values: Any, most: float) -> Any:
    return values.clip(max=most) if _is_torch(values) else np.minimum(values, most)


def _erfc(values: Any) -> Any:
    return sys.modules["torch"].erfc(values) if _is_torch(values) else _ERFC(values)


_ERFC = np.vectorize(math.erfc, otypes=[np.float64])
_ERF = np.vectorize(math.erf, otypes=[np.float64])
_OPERATORS: Mapping[str, Callable[[Bounded, Bounded], Bounded]] = {
    "+": _add,
    "-": _subtract,
    "*": _multiply,
    "/": _divide,
}
_FUNCTIONS: Mapping[str, Callable[..., Bounded]] = {
    "abs": lambda x: Bounded(abs(x.value), x.error),
    "erf": _erf,
    "exp": _exp,
    "gelu_erf": _gelu_erf,
    "gelu_tanh": _gelu_tanh,
    "max": _larger,
    "min": _smaller,
    "relu": _relu,
    "sigmoid": _sigmoid,
    "silu": _silu,
    "tanh": _tanh,
}
_NARROW = {**_FUNCTIONS, "gelu_erf": _narrow_gelu_erf, "gelu_tanh": _narrow_gelu_tanh}


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _library(value: Any) -> Any:
    """Return the module whose functions take this array."""
    return sys.modules["torch"] if _is_torch(value) else np
