"""Specs made in one line."""

from __future__ import annotations

from typing import Any

from cutegen.spec import GEMM, GemmSpec, Operand, Problem, load_spec, shipped_specs

SHIPPED_GEMMS = tuple(name for name in shipped_specs() if load_spec(name).kind == GEMM)

ACCUMULATOR_OF = {"F16F16F16F16": ("f16", "f16"), "F32F16F16F32": ("f16", "f32"), "F32BF16BF16F32": ("bf16", "f32")}


def gemm(
    majors: str = "kkn",
    dtype: str = "f16",
    accumulator: str | None = None,
    *,
    c_dtype: str | None = None,
    align: tuple[int | None, int | None, int | None] = (None, None, None),
    **parts: Any,
) -> GemmSpec:
    """`majors` names the contiguous mode of A, B and C; `parts` are further fields of GemmSpec."""
    a, b, c = (
        Operand(kind, major, least)
        for kind, major, least in zip((dtype, dtype, c_dtype or dtype), majors, align, strict=True)
    )
    return GemmSpec(family="sm80", problem=Problem(a=a, b=b, c=c, accumulator=accumulator), **parts)


def types_of(atom: str) -> tuple[str, str]:
    """(operands' dtype, accumulator) of an atom by its CUTLASS name."""
    return ACCUMULATOR_OF[atom.split("_")[2]]
