"""Kernels of family sm90, small enough for the CPU executor; the GPU's tests take the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cutegen.spec import Bias, Epilogue, Extra, GemmSpec, Mma, Operand, Problem, Raster, Schedule, SmemLayout, Tile

CTA = (128, 64, 64)


def spec(
    name: str,
    majors: str = "kkn",
    dtype: str = "f16",
    *ops: str,
    c: Operand | None = None,
    accumulator: str | None = None,
    cta: tuple[int, int, int] = CTA,
    stages: int = 2,
    groups: tuple[int, int, int] | None = None,
    raster: Raster | None = None,
    smem: Any = None,
    promote_k: int | None = None,
    consumers: str | None = None,
    cluster: tuple[int, ...] | None = None,
    split_k: int | None = None,
    reduction: str | None = None,
    **extras: Extra | Bias,
) -> GemmSpec:
    """`majors` of A, B and C; `groups` are the warpgroups that multiply; `extras` are problem.residual and so on."""
    a, b, out = (Operand(dtype, major) for major in majors)
    return GemmSpec(
        family="sm90",
        problem=Problem(a=a, b=b, c=c or out, accumulator=accumulator, **extras),  # type: ignore[arg-type]
        tile=Tile(cta=cta, stages=stages),
        mma=Mma(atom_layout=groups, promote_k=promote_k),
        epilogue=Epilogue(smem, ops or None),
        schedule=Schedule(raster, split_k, reduction, consumers=consumers, cluster=cluster),
        name=name,
    )


FUSED = ("alpha", "beta", "bias_n", "aux", "gelu_tanh", "residual")
CASES: Mapping[str, GemmSpec] = {
    case.name: case
    for case in (
        spec("tn"),
        spec("nt", "mnm"),
        spec("nn", "mkn", "bf16"),
        spec("tt", "knm", raster=Raster("m", 3, zigzag=True)),
        spec("one_warpgroup", cta=(64, 32, 64)),
        spec("warpgroups_side_by_side", cta=(64, 128, 64), groups=(1, 2, 1)),
        spec("two_atoms_a_warpgroup", "mkn", cta=(256, 64, 64)),
        spec("three_warpgroups", cta=(192, 64, 64), groups=(3, 1, 1)),
        spec("k_tile_of_two_boxes", cta=(64, 64, 128)),
        spec("rows_of_64_bytes", cta=(64, 64, 32)),
        spec("parts_of_32_columns", cta=(64, 96, 64)),
        spec("parts_of_8_columns", cta=(64, 24, 64)),
        spec("swizzle_of_32_bytes_for_c", smem=SmemLayout(swizzle=(1, 3, 3))),
        spec("f16_sums", accumulator="f16"),
        spec("f32", c=Operand("f32", "n")),
        spec("f32_column_major", "kkm", c=Operand("f32", "m")),
        spec("c_from_registers", c=Operand("f16", "n", 2)),
        spec("c_from_registers_column_major", "mkm", smem=False),
        spec("blas", "kkn", "f16", "alpha", "beta"),
        spec("fused", "kkn", "f16", *FUSED, cta=(128, 128, 64), bias=Bias("f32"), aux=Extra("f32", "m")),
        spec("pingpong", cta=(64, 64, 64), stages=3, consumers="pingpong"),
        spec("pingpong_column_major", "mnm", cta=(128, 64, 64), consumers="pingpong"),
        spec("pingpong_from_registers", c=Operand("f16", "n", 2), cta=(64, 32, 64), consumers="pingpong"),
        spec("pingpong_e4m3", dtype="e4m3", c=Operand("bf16", "n"), cta=(64, 64, 128), consumers="pingpong"),
        spec("ends_in_turns", cta=(128, 192, 16), stages=3),
        spec("cluster_ends_in_turns", "mnm", "bf16", cta=(128, 256, 16), groups=(1, 2, 1), cluster=(2, 1)),
        spec("cluster_along_m", cta=(64, 64, 64), stages=3, cluster=(2, 1)),
        spec("cluster_along_n", "mnm", cta=(128, 64, 64), cluster=(1, 2)),
        spec("cluster_of_two_boxes", "mnn", cta=(128, 128, 64), cluster=(2, 2)),
        spec("shares_of_ten_rows", cta=(64, 40, 64), cluster=(4, 2)),
        spec("cluster_taking_turns", "kkm", cta=(64, 64, 128), consumers="pingpong", cluster=(2, 1)),
        spec("cluster_of_e4m3", dtype="e4m3", c=Operand("bf16", "n"), cta=(64, 64, 128), cluster=(1, 4)),
        spec("split_k", cta=(64, 64, 64), split_k=3),
        spec("split_k_of_two_warpgroups", "mnm", "bf16", "alpha", "bias_n", "relu", cta=(128, 128, 64), split_k=2),
        spec("more_slices_than_k_tiles", "kkm", accumulator="f16", cta=(64, 64, 64), split_k=5),
        spec("s8_in_slices", dtype="s8", c=Operand("s32", "n"), cta=(64, 32, 128), split_k=2),
        spec("slices_of_a_cluster", cta=(64, 64, 64), split_k=4, reduction="cluster"),
        spec(
            "clusters_leave_shares", "mnm", "bf16", "alpha", "bias_n", cta=(128, 64, 64), split_k=4, cluster=(1, 1, 2)
        ),
        spec("eight_slices_fused", "kkn", "f16", *FUSED, cta=(128, 128, 64), split_k=8, cluster=(1, 1, 8)),
        spec("slices_share_copies", cta=(64, 64, 64), split_k=3, cluster=(2, 1)),
        spec("cluster_of_tiles_and_slices", "kkm", cta=(64, 64, 64), stages=3, split_k=4, cluster=(2, 1, 2)),
        spec("two_atoms_in_slices", cta=(256, 64, 64), stages=3, split_k=2, reduction="cluster"),
        spec("slices_from_registers", c=Operand("f16", "n", 2), cta=(64, 64, 64), split_k=6, reduction="cluster"),
        spec("f16_sums_in_a_cluster", accumulator="f16", cta=(64, 64, 64), split_k=2, reduction="cluster"),
        spec("s8_in_a_cluster", "kkn", "s8", c=Operand("s32", "n"), cta=(64, 32, 128), split_k=8, cluster=(1, 1, 4)),
        spec(
            "e4m3_in_a_cluster", "kkn", "e4m3", c=Operand("bf16", "n"), cta=(64, 64, 128), split_k=6, cluster=(1, 1, 2)
        ),
        spec("s8", dtype="s8", c=Operand("s32", "n"), cta=(64, 64, 128)),
        spec("u8_to_f16", dtype="u8", c=Operand("f16", "n"), cta=(64, 64, 128)),
        spec("s8_column_major", "kkm", "s8", cta=(64, 64, 128)),
        spec("e4m3", dtype="e4m3", c=Operand("bf16", "n"), cta=(64, 64, 128)),
        spec("e4m3_of_two_warpgroups", dtype="e4m3", c=Operand("bf16", "n"), cta=(128, 64, 128)),
        spec("e4m3_at_once", "kkn", "e4m3", "bias_n", "relu", c=Operand("bf16", "n"), cta=(128, 128, 64)),
        spec("e4m3_promoted_every_second", dtype="e4m3", c=Operand("f32", "n"), cta=(128, 64, 64)),
        spec("e4m3_never_promoted", dtype="e4m3", c=Operand("f16", "n"), cta=(64, 64, 128), promote_k=0),
        spec("e5m2_to_e4m3", dtype="e5m2", c=Operand("e4m3", "n"), cta=(64, 64, 128)),
    )
}
"""Every branch of the template, and each kind of shared layout and of sums."""
