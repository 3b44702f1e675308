"""Kernels with scales and two biases in every family, small enough for the CPU executor, for the GPU's tests too."""

from __future__ import annotations

from collections.abc import Mapping

from cutegen.spec import Bias, Epilogue, GemmSpec, Operand, Problem, Scale, Schedule, Tile

ALL = ("scale_m", "scale_n", "bias_n", "bias_m", "residual")


def scaled(
    name: str,
    family: str,
    dtype: str = "f16",
    c: str = "bf16",
    majors: str = "kkn",
    cta: tuple[int, int, int] = (64, 32, 32),
    ops: tuple[str, ...] = ALL,
    scale: str | None = None,
    bias: str | None = None,
    **schedule: object,
) -> GemmSpec:
    """`scale` and `bias` are the types of those vectors."""
    a, b, out = (Operand(kind, major) for kind, major in zip((dtype, dtype, c), majors, strict=True))
    biases = Bias(bias) if bias else None
    return GemmSpec(
        family=family,
        problem=Problem(a=a, b=b, c=out, scale=Scale(scale) if scale else None, bias=biases),
        tile=Tile(cta=cta),
        epilogue=Epilogue(ops=ops),
        schedule=Schedule(**schedule),  # type: ignore[arg-type]
        name=name,
    )


CASES: Mapping[str, GemmSpec] = {
    spec.name: spec
    for spec in (
        scaled("sm80", "sm80"),
        scaled("sm80_column_major", "sm80", c="f16", majors="mnm", scale="f16", bias="f32"),
        scaled("sm80_split_k", "sm80", split_k=3, bias="f32"),
        scaled("simt", "simt", "bf16", "f32", "mnn", (32, 32, 8), scale="bf16"),
        scaled("sm120", "sm120", cta=(64, 64, 32)),
        scaled("sm90_e4m3", "sm90", "e4m3", cta=(64, 64, 128), bias="f32"),
        scaled("sm90_s8", "sm90", "s8", "s8", cta=(64, 64, 128), ops=ALL[:3], bias="f32"),
        scaled("sm90_swapped", "sm90", cta=(64, 16, 64), swap=True, ops=("scale_m", "bias_n", "bias_m")),
        scaled("sm90_swapped_n", "sm90", cta=(64, 16, 64), swap=True, ops=("scale_n", "bias_m")),
        scaled("sm90_split_k", "sm90", cta=(64, 64, 64), split_k=2),
        scaled("sm90_pingpong", "sm90", majors="mnm", cta=(64, 64, 64), consumers="pingpong"),
    )
}
FAST = ("sm80_column_major", "sm90_e4m3", "sm90_swapped")
