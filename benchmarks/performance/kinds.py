"""The kernels that are compared with fp16 TN: other majors and types, epilogues, and the mma.sync families."""

from __future__ import annotations

from collections.abc import Mapping

from cutegen.spec import Bias, Epilogue, GemmSpec, Mma, Operand, Problem

PLAIN = "TN"


def _spec(element: str, a: str, b: str, sums: str, c: str | None = None, **keys: object) -> GemmSpec:
    ops = keys.pop("ops", None)
    operands = Problem(
        a=Operand(element, a),
        b=Operand(element, b),
        c=Operand(c or element, "n"),
        accumulator=sums,
        bias=Bias("f32") if ops else None,
    )
    epilogue = Epilogue(ops=ops) if ops else Epilogue()
    return GemmSpec(problem=operands, epilogue=epilogue, name="kind", **keys)


KINDS: Mapping[str, GemmSpec] = {
    PLAIN: _spec("f16", "k", "k", "f32"),
    "NT": _spec("f16", "m", "n", "f32"),
    "NN": _spec("f16", "m", "k", "f32"),
    "TT": _spec("f16", "k", "n", "f32"),
    "TN, bf16": _spec("bf16", "k", "k", "f32"),
    "TN, f16 accumulation": _spec("f16", "k", "k", "f16"),
    "TN, bias and tanh-GELU": _spec("f16", "k", "k", "f32", ops=("bias_n", "gelu_tanh")),
    "TN, bias and erf-GELU": _spec("f16", "k", "k", "f32", ops=("bias_n", "gelu_erf")),
    "e4m3, promoted sums": _spec("e4m3", "k", "k", "f32", "f16"),
    "e4m3, tensor core sums": _spec("e4m3", "k", "k", "f32", "f16", family="sm90", mma=Mma(promote_k=0)),
    "s8": _spec("s8", "k", "k", "s32", "s32"),
    "family sm120": _spec("f16", "k", "k", "f32", family="sm120"),
    "family sm80": _spec("f16", "k", "k", "f32", family="sm80"),
}
"""BLAS notation: T is K-major for A, N is K-major for B. Every other key is left open."""
