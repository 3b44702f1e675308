"""Specs of the `simt` family that together reach every branch of its template, on tiles small enough to execute."""

from __future__ import annotations

from typing import Any

from cutegen.spec import Epilogue, G2s, G2sCopy, GemmSpec, Mma, Operand, Problem, Smem, SmemLayout, Tile


def simt(majors: str, dtypes: str, align: int | None = None, **parts: Any) -> GemmSpec:
    """`dtypes` of A, B and C as `f32 f16 bf16`; with `align` None copies may be 16 bytes wide."""
    a, b, c = (Operand(dtype, major, align) for dtype, major in zip(dtypes.split(), majors, strict=True))
    parts.setdefault("tile", Tile(cta=(32, 32, 8)))
    return GemmSpec(family="simt", problem=Problem(a=a, b=b, c=c), name="case", **parts)


CASES = {
    "nt, one stage": simt("mnm", "f32 f32 f32", 4, tile=Tile(cta=(32, 64, 8), stages=1)),
    "tn, vectors": simt("kkn", "f32 f32 f32"),
    "halves, an element at a time": simt("mkn", "f16 bf16 f16", 2),
    "mixed, one stage": simt("knm", "bf16 f32 f16", 4, tile=Tile(cta=(32, 32, 16), stages=1)),
    "alpha and beta": simt("mnn", "f16 f16 f32", 4, epilogue=Epilogue(ops=("alpha", "beta"))),
    "bias, aux, gelu": simt("kkm", "bf16 bf16 bf16", epilogue=Epilogue(ops=("bias_n", "aux", "gelu_tanh"))),
    "rounded to integers": simt("mnm", "f32 f16 s8", 4, epilogue=Epilogue(ops=("alpha",))),
    "staged": simt("kkn", "f32 f16 f16", epilogue=Epilogue(smem=SmemLayout(pad=8))),
    "swizzled": simt("kkn", "f16 f16 f32", 4, smem=Smem(a=SmemLayout(swizzle=(1, 3, 3)))),
    "threads in blocks": simt(
        "mnm",
        "f32 f32 f32",
        4,
        tile=Tile(cta=(32, 64, 8)),
        mma=Mma(threads="((4,2),(2,4)):((1,8),(4,16))"),
        g2s=G2s(a=G2sCopy(bits=32, threads="(16,4):(1,16)"), b=G2sCopy(threads="(8,8):(8,1)")),
    ),
}
