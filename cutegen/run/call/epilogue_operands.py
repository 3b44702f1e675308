"""Operands of a call beside A and B: exactly those that the spec's epilogue names, and the ends of its groups."""

import ctypes
import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Self

from cutegen.contract.launch import OPERANDS, RESULT, SCALARS, LaunchContract
from cutegen.errors import OperandError
from cutegen.run.call.storage import call_tensors
from cutegen.support.words import literal

TENSOR_NAMES = (
    "scale_a",
    "scale_b",
    "c",
    "residual",
    "bias",
    "bias_n",
    "bias_m",
    "scale_m",
    "scale_n",
    "aux",
    "scale_c",
    "offs",
    "sizes",
)
"""The factors of blocks, the epilogue's tensors, and those of groups, by argument name, in the order of a contract."""

TOO_LARGE = 2.0**128 - 2.0**103
"""The smallest number that float32 rounds to infinity."""

_NOTHING = (False,) * len((*TENSOR_NAMES, *SCALARS))
_NONE: tuple[tuple[tuple[str, Any], ...], tuple[float, ...]] = (), ()
_USES = {
    "scale_a": "problem.scale_a = { block = [1, 128] }",
    "scale_b": "problem.scale_b = { block = [128, 128] }",
    "c": 'the op "beta", or c in epilogue.expression',
    "residual": 'the op "residual", or residual in epilogue.expression',
    "bias": 'the op "bias_n" or "bias_m"',
    "bias_n": 'the ops "bias_n" and "bias_m"; with only one of them, the vector is bias=',
    "bias_m": 'the ops "bias_n" and "bias_m"; with only one of them, the vector is bias=',
    "scale_m": 'the op "scale_m"',
    "scale_n": 'the op "scale_n"',
    "aux": 'the op "aux"',
    "scale_c": 'epilogue.quantize = { dtype = "e4m3" }',
    "offs": 'problem.groups = { of = "m", layout = "packed" }',
    "sizes": 'problem.groups = { of = "m", layout = "padded" }',
    "alpha": 'the op "alpha", or alpha in epilogue.expression',
    "beta": 'the op "beta", or beta in epilogue.expression',
}
_MEANING = {
    "scale_a": "the factors of blocks of A",
    "scale_b": "the factors of blocks of B",
    "c": "the input C, which the epilogue reads",
    "residual": "the matrix that the epilogue reads",
    "bias": "the vector that the epilogue reads",
    "bias_n": "the vector (N,) that the epilogue reads in addition to bias_m",
    "bias_m": "the vector (M,) that the epilogue reads in addition to bias_n",
    "scale_m": "the factors of C's rows, or a single factor",
    "scale_n": "the factors of C's columns, or a single factor",
    "aux": "the matrix that the epilogue writes",
    "scale_c": "the factors of blocks of C, which the kernel writes",
    "offs": "the ends of the groups, (G,) of int32 on the device of a",
    "sizes": "the sizes of the groups, (G,) of int32 on the device of a",
    "alpha": "a number that the epilogue reads",
    "beta": "a number that the epilogue reads",
}


@dataclass(frozen=True, slots=True)
class Extras:
    """Operands that a kernel requires beside A and B: `asked` has a flag for each of `TENSOR_NAMES` and `SCALARS`."""

    asked: tuple[bool, ...]

    @classmethod
    def of(cls, contract: LaunchContract) -> Self:
        """Return those of a kernel of this contract."""
        tensors = (x for role, x in call_tensors(contract).items() if role not in (*OPERANDS, RESULT))
        names = {*(tensor.name for tensor in tensors), *contract.scalars}
        return cls(tuple(name in names for name in (*TENSOR_NAMES, *SCALARS)))

    def take(self, *handed: Any) -> tuple[tuple[tuple[str, Any], ...], tuple[float, ...]]:
        """Return the kernel's tensors with their names, and its scalars, from `handed`, which may hold None.

        Arguments have the order of `TENSOR_NAMES` and `SCALARS`. Raises OperandError for a missing one, one that the
        epilogue does not take, and a scalar that is not a number.
        """
        given = tuple([value is not None for value in handed])  # a list is faster than a generator
        if given != self.asked:
            raise self._mismatch(given)
        if given == _NOTHING:
            return _NONE
        tensors = zip(TENSOR_NAMES, handed, strict=False)
        named = tuple([(name, value) for name, value in tensors if value is not None])
        numbers = zip(SCALARS, handed[len(TENSOR_NAMES) :], strict=True)
        return named, tuple([_number(name, value) for name, value in numbers if value is not None])

    def take_named(self, handed: Mapping[str, Any]) -> tuple[tuple[tuple[str, Any], ...], tuple[float, ...]]:
        """Return what `take` does, from operands by name. Raises OperandError as it does, and for a name of none."""
        names = (*TENSOR_NAMES, *SCALARS)
        if unknown := [name for name in handed if name not in names]:
            fix = f"one of {', '.join(names)}"
            raise OperandError(operand=unknown[0], found="no operand of a kernel", expected=fix)
        return self.take(*map(handed.get, names))

    def _mismatch(self, given: tuple[bool, ...]) -> OperandError:
        names = (*TENSOR_NAMES, *SCALARS)
        index = next(i for i, (one, other) in enumerate(zip(given, self.asked, strict=True)) if one is not other)
        name = names[index]
        if given[index]:
            asked = [other for other, is_asked in zip(names, self.asked, strict=True) if is_asked]
            return OperandError(
                operand=name,
                found="one",
                expected=f"none: this kernel's epilogue takes {', '.join(asked) or 'no operands'}",
                fix=f"compile a spec with {_USES[name]}",
            )
        return OperandError(operand=name, found="none", expected=_MEANING[name], fix=f"pass {name}=")


def _number(name: str, value: Any) -> float:
    """Return a number as float32 stores it."""
    if not isinstance(value, Real):
        fix = f"pass `{name}.item()`" if hasattr(value, "item") else ""
        raise OperandError(operand=name, found=f"a {type(value).__qualname__}", expected="a number, by value", fix=fix)
    try:
        rounded = ctypes.c_float(float(value)).value
    except OverflowError:  # an integer or a fraction beyond float64
        rounded = math.inf
    if math.isinf(rounded):
        check_range(name, value)
    return rounded


def check_range(name: str, value: Any) -> None:
    """Reject a finite number that float32 rounds to infinity. Raises OperandError."""
    try:
        number = value if isinstance(value, (float, int)) else float(value)
    except OverflowError:  # a fraction beyond float64
        number = TOO_LARGE
    if abs(number) >= TOO_LARGE and abs(value) < math.inf:  # a wider type may be finite beyond float64
        raise OperandError(operand=name, found=literal(value), expected="a number within the range of float32")
