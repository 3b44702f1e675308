"""How the compiler spells plain copies on each target, which of them it joins, and boxes without a swizzle: built."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cutegen.errors import SpecError
from cutegen.hardware import dtype, target
from cutegen.plan import plan
from cutegen.plan.values.copies import load_global, load_shared, store_shared
from cutegen.spec import Epilogue, Extra, G2s, G2sCopy, GemmSpec, Mma, Operand, Smem, SmemLayout, Tile
from tests.plan.kernels import Build
from tests.plan.specs import gemm

UNIVERSAL = G2sCopy(op="universal")
ACROSS = "(128,8):(8,1)"


def simt(majors: str, layout: str = "", bits: int | None = None, cta: tuple[int, int, int] = (32, 32, 8)) -> GemmSpec:
    copy = None if bits is None else G2sCopy(bits=bits)
    smem = Smem(b=SmemLayout(layout=layout) if layout else None)
    bare = replace(gemm(majors, "f32", tile=Tile(cta, 1), name="fma"), family="simt")
    return replace(bare, mma=Mma(threads="(8,4):(4,1)"), smem=smem, g2s=G2s(copy, copy))


def alone(majors: str, threads: str, kind: str) -> GemmSpec:
    """A thread that has all rows of A, or of B."""
    asked = replace(gemm(majors, kind, c_dtype="f32", tile=Tile((32, 32, 8), 2), name="alone"), family="simt")
    return replace(asked, mma=Mma(threads=threads))


def rows_to_a_thread(kind: str, layout: str, bits: int | None = None) -> GemmSpec:
    """Each of 128 threads copies a row of B along K, which lies in shared memory as `layout` says."""
    copy = replace(UNIVERSAL, bits=bits, threads="(128,1):(1,0)")
    smem = Smem(b=SmemLayout(layout=layout))
    parts = {"tile": Tile((64, 128, 32), 2), "mma": Mma(atom_layout=(2, 2, 1)), "smem": smem, "g2s": G2s(b=copy)}
    return gemm("kkn", kind, name="rows", **parts)


def plain_boxes(cta: tuple[int, int, int], majors: str = "mkn") -> GemmSpec:
    return replace(gemm(majors, tile=Tile(cta), name="boxes"), family="sm120")


BUILT = {
    "two f32 are a register": (simt("kkn", bits=128), "sm_120"),
    "one vector of two f32": (simt("mnn", bits=64), "sm_100"),
    "tf32 in pairs": (gemm(dtype="tf32", tile=Tile((64, 64, 32), 2), g2s=G2s(a=replace(UNIVERSAL, bits=64))), "sm_120"),
    "joined along k by fma": (simt("mnm", "(32,(4,2)):(4,(1,128))"), "sm_90"),
    "joined along m by a thread": (alone("mkn", "(1,32):(1,1)", "f32"), "sm_89"),
    "joined along n by a thread": (alone("mnm", "(32,1):(1,1)", "f16"), "sm_80"),
    "joined of f16": (rows_to_a_thread("f16", ACROSS, 16), "sm_90"),
    "joined pairs of f16": (rows_to_a_thread("f16", "(128,4):(4,1)", 32), "sm_80"),
    "joined of s8": (rows_to_a_thread("s8", "(128,4):(4,1)", 8), "sm_90"),
    "joined of tf32": (rows_to_a_thread("tf32", "(128,2):(2,1)", 32), "sm_120"),
    "C in rows of 48 bytes": (plain_boxes((256, 24, 64)), "sm_90"),
    "A and B in rows of 48 bytes": (plain_boxes((24 * 2, 24, 64), "mnm"), "sm_100"),
}


@pytest.mark.dsl
@pytest.mark.parametrize("name", BUILT)
def test_emitted_as_predicted(name: str, built: Build) -> None:
    """`fma` kernels count more opcodes than they predict; what is predicted is exact."""
    spec, arch = BUILT[name]
    manifest, predicted = built(spec, arch).manifest, plan(spec, arch).predictions.instructions
    assert manifest.warnings == ()
    assert dict(manifest.instructions.emitted) == dict(predicted)


def test_words_of_each_target() -> None:
    """As compiled by nvidia-cutlass-dsl 4.8.1 for each of them."""
    f32, tf32, f16, s8 = map(dtype, ("f32", "tf32", "f16", "s8"))
    before, packing = target("sm_90"), target("sm_100")
    assert [load_global(bits, f32, before) for bits in (32, 64, 128)] == [
        "ld.global.b32",
        "ld.global.v2.b32",
        "ld.global.v4.b32",
    ]
    assert [store_shared(bits, f32, packing) for bits in (32, 64, 128)] == [
        "st.shared.b32",
        "st.shared.b64",
        "st.shared.v2.b64",
    ]
    assert [store_shared(bits, tf32, packing) for bits in (64, 128)] == ["st.shared.b64", "st.shared.v4.b32"]
    assert [store_shared(64, x, packing) for x in (f16, s8)] == ["st.shared.v2.b32", "st.shared.v2.b32"]
    assert store_shared(16, s8, before) == "st.shared.v2.b8"
    assert [load_shared(bits, 32) for bits in (32, 64, 128)] == [
        "ld.shared.b32",
        "ld.shared.v2.b32",
        "ld.shared.v4.b32",
    ]


@pytest.mark.parametrize("name", ["c", "residual", "aux"])
def test_fma_kernels_know_the_types_that_their_target_knows(name: str) -> None:
    spec = simt("mnm")
    part = Operand("e5m2", "m") if name == "c" else Extra("e5m2")
    epilogue = Epilogue(ops=None if name == "c" else (name,))
    asked = replace(spec, problem=replace(spec.problem, **{name: part}), epilogue=epilogue)
    with pytest.raises(
        SpecError, match=rf'problem\.{name}\.dtype: found "e5m2" for sm_80; expected sm_89, sm_90, sm_100, sm_103 or '
    ):
        plan(asked, "sm_80")
    plan(asked, "sm_89")


def test_stores_that_are_joined_take_the_wavefronts_of_what_they_become() -> None:
    """32 threads store a vector of 16 bytes each, 4 wavefronts, instead of four elements with 16 bytes in between."""
    found = plan(simt("mnm", "(32,(4,2)):(4,(1,128))"), "sm_80").predictions.wavefronts["g2s.b"]
    assert (found.predicted, found.ideal) == (2 * 4, 2 * 4)
