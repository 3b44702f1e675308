"""The kernels that are measured and checked with NVIDIA's tools, by name. A name is also the kernel's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cutegen.spec import Epilogue, G2s, G2sCopy, GemmSpec, Mma, Operand, Problem, Schedule, Smem, SmemLayout, Tile
from tests.run.wgmma import CASES as WGMMA_CASES
from tests.run.wgmma import spec as wgmma

COUNTERS = "counters_"
SANITIZE = "sanitize_"
CTA_M = CTA_N = 128

PLAIN = SmemLayout(pad=0)
UNSWIZZLED_ATOM = SmemLayout(layout="(8,(8,8)):(8,(1,64))")


def _problem(majors: str, dtype: str = "f16", accumulator: str = "f32", align: int | None = None) -> Problem:
    a, b, c = (Operand(dtype, major, align) for major in majors)
    return Problem(a=a, b=b, c=c, accumulator=accumulator)


def _gemm(name: str, majors: str = "kkn", dtype: str = "f16", *, k: int = 64, **parts: Any) -> GemmSpec:
    tile = Tile(cta=(CTA_M, CTA_N, k), stages=3)
    return GemmSpec(**{"family": "sm80", "problem": _problem(majors, dtype), "tile": tile, "name": name, **parts})


def _wgmma(name: str, *problem: Any, **parts: Any) -> GemmSpec:
    return wgmma(f"wgmma_{name}", *problem, **parts)


def _both(layout: SmemLayout) -> Smem:
    return Smem(a=layout, b=layout)


def _swizzle(*bms: int) -> SmemLayout:
    return SmemLayout(swizzle=(bms[0], bms[1], bms[2]))


_MEASURED = (
    _gemm("bk32_plain", k=32, smem=_both(PLAIN)),
    _gemm("bk32_swizzle_2_3_3", k=32, smem=_both(_swizzle(2, 3, 3))),
    _gemm("bk32_pad_8", k=32, smem=_both(SmemLayout(pad=8))),
    _gemm("bk64_plain", smem=_both(PLAIN)),
    _gemm("bk64_swizzle_3_3_3", smem=_both(_swizzle(3, 3, 3))),
    _gemm("bk64_swizzle_2_3_3", smem=_both(SmemLayout(layout="Sw<2,3,3> o (8,64):(64,1)"))),
    _gemm("bk64_swizzle_1_3_3", smem=_both(SmemLayout(layout="Sw<1,3,3> o (8,64):(64,1)"))),
    _gemm("bk64_unswizzled_atom", smem=_both(UNSWIZZLED_ATOM)),
    _gemm("mn_major", "mnm"),
    _gemm("mn_major_plain", "mnn", smem=_both(PLAIN)),
    _gemm("c_plain", epilogue=Epilogue(PLAIN)),
    _gemm("c_pad_8", epilogue=Epilogue(SmemLayout(pad=8))),
    _gemm("c_column_major_plain", "kkm", epilogue=Epilogue(PLAIN)),
    _gemm("c_from_registers", epilogue=Epilogue(smem=False)),
    _gemm("bf16", dtype="bf16"),
    _gemm("plain_copies_128", g2s=G2s(G2sCopy("universal", 128), G2sCopy("universal", 128))),
    _gemm("plain_copies_16", k=32, g2s=G2s(G2sCopy("universal", 16), G2sCopy("universal", 16))),
    _gemm("one_plain_copy", g2s=G2s(b=G2sCopy("universal", 64))),
    _gemm("cp_async_ca_64", g2s=G2s(a=G2sCopy(op="cp.async.ca", bits=64), b=G2sCopy(op="cp.async.ca", bits=64))),
)

_BY_WGMMA = (
    _wgmma("tn", cta=(128, 128, 64)),
    _wgmma("nt", "mnm", cta=(128, 128, 64)),
    _wgmma("bf16_256_columns", dtype="bf16", cta=(128, 256, 64)),
    _wgmma("side_by_side", cta=(64, 256, 64), groups=(1, 2, 1)),
    _wgmma("rows_of_64_bytes", cta=(128, 128, 32), stages=4),
    _wgmma("pingpong", cta=(64, 128, 64), stages=4, consumers="pingpong"),
    _wgmma("cluster_2x1", cta=(128, 128, 64), stages=4, cluster=(2, 1)),
    _wgmma("cluster_1x2", "mnn", cta=(128, 128, 64), stages=4, cluster=(1, 2)),
    _wgmma("c_f32", c=Operand("f32", "n"), cta=(128, 128, 64)),
    _wgmma("c_from_registers", smem=False, cta=(128, 128, 64)),
    _wgmma("e4m3", dtype="e4m3", c=Operand("bf16", "n"), cta=(128, 128, 128)),
    _wgmma("s8", dtype="s8", c=Operand("s32", "n"), cta=(128, 128, 128)),
    _wgmma("u8_to_u8", dtype="u8", cta=(128, 128, 128)),
)
"""Kernels of family sm90 whose counters are predicted: operands in lines of every width, each way out of C."""

_OF_WARPGROUPS = (
    _wgmma("cooperative", cta=(128, 128, 64)),
    _wgmma("column_major", "mnm", cta=(128, 64, 64)),
    _wgmma("pingpong", cta=(64, 64, 64), stages=3, consumers="pingpong"),
    _wgmma("cluster_2x1", cta=(64, 64, 64), stages=3, cluster=(2, 1)),
    _wgmma("split_k", cta=(64, 64, 64), split_k=3),
    _wgmma("e4m3", dtype="e4m3", c=Operand("bf16", "n"), cta=(64, 64, 128)),
)
"""Kernels of family sm90, each with another way for its warpgroups and CTAs to meet."""

_SANITIZED = (
    *_OF_WARPGROUPS,
    replace(wgmma("swap", cta=(64, 32, 64)), schedule=Schedule(swap=True), name="wgmma_swap"),
    _gemm("f16_tn"),
    _gemm(
        "bf16_padded",
        "mnm",
        "bf16",
        tile=Tile(cta=(64, 64, 32), stages=4),
        smem=Smem(a=SmemLayout(pad=4), b=SmemLayout(pad=8)),
    ),
    _gemm("bulk_tn", family="sm120"),
    _gemm("bulk_column_major", "mnm", family="sm120", tile=Tile(cta=(64, 64, 32), stages=2)),
    _gemm("split_k", tile=Tile(cta=(64, 64, 32), stages=2), schedule=Schedule(split_k=3)),
    GemmSpec(
        family="sm80",
        problem=_problem("mkn", accumulator="f16", align=4),
        tile=Tile(cta=(64, 32, 32), stages=2),
        mma=Mma(atom="SM80_16x8x8_F16F16F16F16_TN"),
        epilogue=Epilogue(smem=False),
        name="f16_narrow",
    ),
    GemmSpec(
        family="sm80", problem=_problem("kkn", align=2), tile=Tile(cta=(64, 64, 32), stages=2), name="f16_align_2"
    ),
)

CASES: Mapping[str, GemmSpec] = {
    **{COUNTERS + spec.name: replace(spec, name=COUNTERS + spec.name) for spec in (*_MEASURED, *_BY_WGMMA)},
    **{SANITIZE + spec.name: replace(spec, name=SANITIZE + spec.name) for spec in _SANITIZED},
}

CHOSEN = tuple(
    GemmSpec(family="sm80", problem=_problem(f"{a}{b}{c}", dtype, accumulator))
    for a in "mk"
    for b in "nk"
    for c in "mn"
    for dtype, accumulator in (("f16", "f32"), ("bf16", "f32"), ("f16", "f16"))
)
"""What tests/run/test_gpu.py compiles."""

OF_TESTS = (*CHOSEN, *WGMMA_CASES.values())
"""What the tests on a GPU compile."""

PLANTED = "planted_"


@dataclass(frozen=True, slots=True)
class Mistake:
    """A kernel of CASES, and what its text says in place of what is right."""

    case: str
    before: str
    after: str


RELEASED = "warpgroup.wait_group(1)\n        release(empty + last)"
MISTAKES: Mapping[str, Mistake] = {
    PLANTED + "released_before_it_is_read": Mistake(
        "sanitize_wgmma_cooperative",
        RELEASED,
        "release(empty + last)\n        warpgroup.wait_group(1)",
    ),
    PLANTED + "stored_before_it_is_written": Mistake(
        "sanitize_wgmma_cooperative", "cute.arch.barrier(barrier_id=1 + group, number_of_threads=128)", "pass"
    ),
}
"""Races: what racecheck is asked to find."""
