"""Kernels of every element type, for the CPU executor and for a GPU."""

from __future__ import annotations

from dataclasses import replace

from cutegen.spec import Bias, Epilogue, Extra, GemmSpec, Mma, S2r, S2rCopy, Tile, load_spec
from tests.plan.specs import gemm

TILES = {"tf32": Tile(cta=(64, 64, 16), stages=2), "f16": Tile(cta=(64, 64, 32), stages=2)}
SHIPPED = ("sm80_tf32_tn", "sm80_s8_tn", "sm89_e4m3_tn")
OF_8_BITS = Tile(cta=(64, 64, 64), stages=2)


def case(majors: str, dtype: str, **asked: object) -> GemmSpec:
    return gemm(majors, dtype, tile=TILES.get(dtype, OF_8_BITS), **asked)  # type: ignore[arg-type]


def bulk(dtype: str, majors: str = "kkn", **asked: object) -> GemmSpec:
    """Fed by bulk tensor copies."""
    return replace(case(majors, dtype, mma=Mma(atom_layout=(2, 2, 1)), **asked), family="sm120")


def scaled() -> GemmSpec:
    """As a quantized linear layer has it, with a bias in f32."""
    spec = case("kkn", "s8", c_dtype="s8", epilogue=Epilogue(ops=("alpha", "bias_n", "relu")))
    return replace(spec, problem=replace(spec.problem, bias=Bias("f32")))


def e5m2_aside() -> GemmSpec:
    """The sums as they are in two types that are not theirs."""
    spec = case("kkn", "s8", c_dtype="f32", epilogue=Epilogue(ops=("aux",), smem=False))
    return replace(spec, problem=replace(spec.problem, aux=Extra("e5m2")))


_ASKED = {
    "tf32": case("kkn", "tf32"),
    "tf32 nearest": case("kkn", "tf32", mma=Mma(tf32="nearest")),
    "tf32 across K": case("mnm", "tf32"),
    "tf32 of 4": case("kkn", "tf32", mma=Mma(atom="SM80_16x8x4_F32TF32TF32F32_TN")),
    "tf32 to f16": case("knn", "tf32", c_dtype="f16"),
    "s8": case("kkn", "s8"),
    "s8 across K": case("mnm", "s8"),
    "s8 of 16": case("kkn", "s8", mma=Mma(atom="SM80_16x8x16_S32S8S8S32_TN_SATURATE")),
    "s8 to s8": case("kkm", "s8", c_dtype="s8"),
    "s8 to f16": case("kkn", "s8", c_dtype="f16"),
    "s8 to f32": case("knn", "s8", c_dtype="f32", epilogue=Epilogue(smem=False)),
    "s8 to e4m3": case("kkn", "s8", c_dtype="e4m3"),
    "s8 to e5m2 in aux": e5m2_aside(),
    "s8 scaled": scaled(),
    "s8 scaled to s32": case("kkn", "s8", epilogue=Epilogue(ops=("alpha", "beta", "aux"))),
    "s8 aligned to 4": case("kkn", "s8", align=(4, 8, 1), c_dtype="s8"),
    "u8": case("kkn", "u8"),
    "u8 across K": case("mnm", "u8", c_dtype="f32"),
    "u8 and s8": case("kkn", "u8", b_dtype="s8"),
    "u8 to u8": case("kkm", "u8", b_dtype="s8", c_dtype="u8", epilogue=Epilogue(ops=("alpha", "residual", "relu"))),
    "s8 to u8": case("kkn", "s8", c_dtype="u8"),
    "f16 to s8": case("kkn", "f16", c_dtype="s8", epilogue=Epilogue(expression="x -> 3 * x")),
    "f16 to e4m3": case("kkn", "f16", c_dtype="e4m3"),
    "e4m3": case("kkn", "e4m3", c_dtype="f32"),
    "e5m2 to f16": case("kkm", "e5m2", c_dtype="f16"),
    "e4m3 and e5m2": case("kkn", "e4m3", b_dtype="e5m2", c_dtype="bf16"),
    "e5m2 and e4m3 across K": case("mnn", "e5m2", b_dtype="e4m3", c_dtype="f32"),
    "e4m3 in f16": case("kkn", "e4m3", accumulator="f16", c_dtype="f16"),
    "e5m2 and e4m3 in f16": case("kkn", "e5m2", b_dtype="e4m3", accumulator="f16", c_dtype="f32"),
    "e4m3 to e4m3 across N": case("kkm", "e4m3", epilogue=Epilogue(ops=("aux", "alpha"))),
    "e4m3 to e4m3": case("kkn", "e4m3", epilogue=Epilogue(ops=("alpha", "residual"))),
    "e4m3 to e5m2": case("kkm", "e4m3", c_dtype="e5m2", epilogue=Epilogue(smem=False)),
    "bulk tf32": bulk("tf32"),
    "bulk s8": bulk("s8", c_dtype="s8"),
    "bulk u8 and s8": bulk("u8", b_dtype="s8", c_dtype="u8"),
    "bulk e4m3 and e5m2": bulk("e4m3", b_dtype="e5m2", c_dtype="bf16"),
    **{name: load_spec(name) for name in SHIPPED},
}
_TRANSPOSED = {
    "s8 nn": ("sm_120", case("mnn", "s8")),
    "s8 nt": ("sm_100", case("mkm", "s8", c_dtype="f16")),
    "e4m3 tt": ("sm_120", case("knn", "e4m3", c_dtype="f32")),
    "e5m2 and e4m3 nn": ("sm_100", case("mnm", "e5m2", b_dtype="e4m3", c_dtype="bf16")),
    "s8 tt, one matrix": ("sm_120", case("knn", "s8", s2r=S2r(b=S2rCopy("SM100_U8x8_LDSM_T")))),
    "bulk e4m3 nn": ("sm_120", bulk("e4m3", "mnn", c_dtype="bf16")),
}
"""Not K-major, for targets whose ldmatrix transposes 8-bit elements; elsewhere plain loads do it."""

CASES = {
    name: replace(spec, name=name)
    for name, spec in (*_ASKED.items(), *((name, spec) for name, (_, spec) in _TRANSPOSED.items()))
}
ARCHES = {name: spec.needs for name, spec in CASES.items()} | {name: arch for name, (arch, _) in _TRANSPOSED.items()}
FAST = ("tf32 nearest", "s8 scaled", "e4m3 and e5m2", "s8 nn", "e4m3 tt")
EDGES = [(1, 1, 1), (5, 9, 0), (65, 72, 97)]
