"""Element types of a call: the operands', the result's without `out_dtype`, and the one that a kernel has for C."""

from __future__ import annotations

from collections.abc import Mapping

from cutegen.errors import OperandError, RequestError
from cutegen.hardware import PACKED, dtype

RESULTS: Mapping[str, str] = {"f16": "f16", "bf16": "bf16", "f32": "f32", "tf32": "f32", "s8": "s32", "u8": "s32"}
"""Result type by that of A and B. 8-bit floats give bf16: their own range rarely fits a sum."""

FLOAT8 = frozenset({"e4m3", "e5m2"})
_MIXED = (FLOAT8, frozenset({"s8", "u8"}))
SCALE_DTYPES = ("f32", "f16", "bf16")
OUT_DTYPES = ("f16", "bf16", "f32", "s8", "u8", "s32", "e4m3", "e5m2")


def check_operands(a: str, b: str) -> None:
    """Reject types that no kernel multiplies. Raises OperandError."""
    known = (*RESULTS, *sorted(FLOAT8), *PACKED)
    for name, found in (("a", a), ("b", b)):
        if found not in known:
            raise OperandError(
                operand=name,
                found=f"dtype {found}",
                expected=f"one of {', '.join(x for x in known if x != 'tf32')}",
                fix="cast it to float32" if found in ("float64", "f64") else "cast it",
            )
    if a != b and not any({a, b} <= together for together in _MIXED):
        raise OperandError(
            operand="b", found=f"dtype {b}", expected=f"{a} as in a", fix="cast one of them: types are not promoted"
        )


def result_type(a: str, asked: str | None) -> str:
    """Return the element type of the result. Raises RequestError for one that no kernel writes."""
    if asked is None:
        return RESULTS.get(a, "bf16")
    if asked not in OUT_DTYPES:
        raise RequestError(f"matmul: out_dtype: found {asked}; expected one of {', '.join(OUT_DTYPES)}")
    return asked


def stored_type(result: str, source: str) -> str | None:
    """Return the type that a kernel has for C, which it reads and writes; None for a source C of no such type.

    It is the result's if that has every value of the source's, else f32, so that a source is converted exactly and the
    sum with it is rounded once. Integers are not converted.

    >>> stored_type("f32", "bf16"), stored_type("bf16", "f32"), stored_type("f16", "bf16"), stored_type("f32", "s8")
    ('f32', 'f32', 'f32', None)
    """
    if source == result:
        return result
    if source not in OUT_DTYPES or dtype(source).is_integer or dtype(result).is_integer:
        return None
    # Of different float types here, f32 has the values of all, and the two of 16 bits have those of both of 8.
    return result if dtype(result).bits > dtype(source).bits else "f32"
