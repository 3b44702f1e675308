"""Kernels whose K is split, small enough for the CPU executor; the GPU's tests take the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cutegen.spec import Bias, G2s, G2sCopy, GemmSpec, SmemLayout, Tile
from tests.run.epilogues import spec

SMALL = Tile(cta=(32, 32, 32), stages=2)
PLAIN = G2sCopy("universal", 64)


def split(asked: GemmSpec, slices: int, reduction: str | None = None) -> GemmSpec:
    """The same with K split."""
    schedule = replace(asked.schedule, split_k=slices, reduction=reduction)
    return replace(asked, schedule=schedule, name=f"{asked.name}_split_{slices}")


CASES: Mapping[str, GemmSpec] = {
    case.name: case
    for case in (
        split(spec("plain", tile=SMALL), 3),
        split(spec("blas_f32", "alpha", "beta", tile=SMALL, c="f32", majors="mnm", smem=False), 2),
        split(spec("bias_aux", "bias_n", "aux", "gelu_tanh", tile=SMALL, bias=Bias("f32")), 4),
        split(spec("f16_sums", "beta", tile=SMALL, accumulator="f16", majors="mkn"), 2),
        split(spec("bf16", "residual", tile=SMALL, dtype="bf16", majors="knm", smem=SmemLayout(pad=8)), 5),
        split(spec("s8", tile=Tile(cta=(32, 32, 64), stages=2), dtype="s8", c="s32", accumulator="s32"), 3),
        split(spec("added", tile=SMALL, c="f32", smem=False), 3, "atomics"),
        split(replace(spec("registers", tile=SMALL), g2s=G2s(PLAIN, PLAIN)), 3),
        split(replace(spec("registers_and_cp_async", tile=replace(SMALL, stages=3)), g2s=G2s(b=PLAIN)), 2),
        split(spec("one_stage", tile=replace(SMALL, stages=1)), 4),
        split(spec("many", tile=Tile(cta=(16, 32, 32), stages=3)), 24),
    )
}
FAST = ("plain_split_3", "bias_aux_split_4")
