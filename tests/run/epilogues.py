"""Kernels with fused epilogues, small enough for the CPU executor; the GPU's tests take the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cutegen.spec import Bias, Epilogue, Extra, GemmSpec, Operand, Problem, Scale, SmemLayout, Tile

SMALL = Tile(cta=(64, 32, 32), stages=2)
EVERY_FUNCTION = (
    "x -> min(max(x, -beta), 4) * sigmoid(alpha * c) + tanh(x) / (1 + abs(residual)) - erf(bias_n) * exp(-abs(x)) "
    "+ relu(x - 1) + silu(x) + gelu_erf(x) - gelu_tanh(-x)"
)


def spec(
    name: str,
    *ops: str,
    expression: str | None = None,
    majors: str = "kkn",
    dtype: str = "f16",
    c: str | None = None,
    accumulator: str = "f32",
    smem: Any = None,
    tile: Tile = SMALL,
    **extras: Extra | Bias | Scale,
) -> GemmSpec:
    """`majors` of A, B and C; `extras` are problem.residual, problem.bias, problem.scale, problem.aux."""
    a, b, out = (Operand(kind, major) for kind, major in zip((dtype, dtype, c or dtype), majors, strict=True))
    return GemmSpec(
        family="sm80",
        problem=Problem(a=a, b=b, c=out, accumulator=accumulator, **extras),  # type: ignore[arg-type]
        tile=tile,
        epilogue=Epilogue(smem, ops or None, expression),
        name=name,
    )


CASES: Mapping[str, GemmSpec] = {
    case.name: case
    for case in (
        spec("blas", "alpha", "beta"),
        spec("blas_column_major", "alpha", "beta", majors="mnm", smem=False, accumulator="f16"),
        spec("beta_only_f32_c", "beta", c="f32"),
        spec("bias_aux_gelu", "bias_n", "aux", "gelu_tanh", bias=Bias("f32"), aux=Extra("f32", "m")),
        spec("bias_m_residual_silu", "bias_m", "residual", "silu", residual=Extra("bf16", "m", 4), smem=False),
        spec("bf16_gelu_erf_staged_column", "gelu_erf", "aux", majors="mkm", dtype="bf16", smem=SmemLayout(pad=8)),
        spec("relu", "relu"),
        spec("scales_two_biases", "scale_m", "scale_n", "alpha", "bias_n", "bias_m", "gelu_erf", scale=Scale("f32")),
        spec("scales_f16_column_major", "bias_m", "scale_n", "scale_m", majors="mnm", scale=Scale("f16"), c="f32"),
        spec("residual_twice", "residual", expression="x -> max(x, residual) - 0.5 * residual"),
        spec("every_function", "alpha", expression=EVERY_FUNCTION, c="f32"),
    )
}
