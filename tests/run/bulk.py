"""Kernels of family sm120, small enough for the CPU executor; the GPU's tests take the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cutegen.spec import Bias, Epilogue, Extra, GemmSpec, Mma, Operand, Problem, Raster, Schedule, SmemLayout, Tile

SMALL = Tile(cta=(64, 64, 32), stages=2)


def spec(
    name: str,
    majors: str = "kkn",
    dtype: str = "f16",
    *ops: str,
    c: Operand | None = None,
    accumulator: str | None = None,
    tile: Tile = SMALL,
    warps: tuple[int, int, int] | None = None,
    raster: Raster | None = None,
    smem: Any = None,
    **extras: Extra | Bias,
) -> GemmSpec:
    """`majors` of A, B and C; `extras` are problem.residual, problem.bias, problem.aux."""
    a, b, out = (Operand(dtype, major) for major in majors)
    return GemmSpec(
        family="sm120",
        problem=Problem(a=a, b=b, c=c or out, accumulator=accumulator, **extras),  # type: ignore[arg-type]
        tile=tile,
        mma=Mma(atom_layout=warps),
        epilogue=Epilogue(smem, ops or None),
        schedule=Schedule(raster),
        name=name,
    )


def transposed(name: str) -> GemmSpec:
    """B as no tensor map can have it, in 8-bit elements at any address: the kernel reads a copy."""
    s8 = spec(name, "kkn", "s8", c=Operand("s32", "n"), tile=Tile(cta=(64, 64, 64), stages=2))
    return replace(s8, problem=replace(s8.problem, b=Operand("s8", "n", 1, "once")))


CASES: Mapping[str, GemmSpec] = {
    case.name: case
    for case in (
        spec("tn"),
        spec("nt", "mnn"),
        spec("one_stage", tile=Tile(cta=(64, 64, 32), stages=1)),
        transposed("b_transposed_once"),
        spec("nn", "knm"),
        spec("tt", "mkm", raster=Raster("m", 3, zigzag=True)),
        spec("bf16_to_f32", dtype="bf16", c=Operand("f32", "n")),
        spec("f16_sums", accumulator="f16", tile=Tile(cta=(64, 128, 64), stages=3)),
        spec("c_from_registers", c=Operand("f16", "n", 2)),
        spec("c_from_registers_column_major", "mkm", smem=False),
        spec("swizzle_of_32_bytes_for_c", smem=SmemLayout(swizzle=(1, 3, 3))),
        spec("two_boxes", "mnn", tile=Tile(cta=(128, 128, 32), stages=2), warps=(2, 2, 1)),
        spec("k_tile_of_two_boxes", tile=Tile(cta=(64, 64, 128), stages=2)),
        spec("skinny", tile=Tile(cta=(16, 64, 64), stages=4), warps=(1, 4, 1)),
        spec("eight_warps", tile=Tile(cta=(128, 256, 64), stages=3), warps=(2, 4, 1)),
        spec("blas", "kkn", "f16", "alpha", "beta"),
        spec("bias_aux_gelu", "kkn", "f16", "bias_n", "aux", "gelu_tanh", bias=Bias("f32"), aux=Extra("f32", "m")),
        spec("tf32", dtype="tf32", c=Operand("f32", "n")),
        spec("s8", dtype="s8", c=Operand("s32", "n"), tile=Tile(cta=(64, 64, 64), stages=2)),
    )
}
