"""Loads from shared memory to registers: what the rules choose, and what they say of the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cutegen.plan import plan
from cutegen.spec import (
    GemmSpec,
    Mma,
    Operand,
    Problem,
    S2r,
    S2rCopy,
    Tile,
)
from tests.plan.said import decision, refusal, rejected
from tests.plan.specs import gemm

TILE = Tile(cta=(128, 128, 64))


def bytes_spec(family: str, b: str = "n", **parts: Any) -> GemmSpec:
    problem = Problem(a=Operand("s8", "k"), b=Operand("s8", b), c=Operand("s32", "n"))
    return GemmSpec(family=family, problem=problem, **parts)


def test_plain_loads_of_f16_along_k_bring_a_register() -> None:
    found = plan(gemm(s2r=S2r(a=S2rCopy("universal"))), "sm_80")
    assert found.a.s2r.bits == 32


def test_only_bytes_along_n_are_taken_in_pairs() -> None:
    def words(spec: GemmSpec, arch: str) -> str:
        return decision(plan(spec, arch), "mma.permutation").chosen

    tile = Tile(cta=(128, 128, 128), stages=2)
    assert "N as (8,2,2)" in words(bytes_spec("sm80", tile=tile, mma=Mma(atom_layout=(2, 2, 1))), "sm_120")
    assert "N as" not in words(bytes_spec("sm80", tile=tile), "sm_80")
    assert "N as" not in words(bytes_spec("sm80", "k", tile=tile), "sm_120")
    assert "N as" not in words(bytes_spec("sm80", tile=tile, s2r=S2r(b=S2rCopy("universal"))), "sm_120")
    assert "N as" not in words(gemm("knn", tile=TILE), "sm_120")


def test_bytes_that_are_transposed_name_the_targets_that_can() -> None:
    spec = bytes_spec("sm80", tile=Tile(cta=(128, 128, 128), stages=2))
    found = rejected(plan(spec, "sm_80"), "s2r.b")
    assert found["SM100_U8x16_LDSM_T"] == "transposes 8-bit elements, on sm_100, sm_103 or sm_120; this is sm_80"
    said = refusal(replace(spec, s2r=S2r(b=S2rCopy("SM75_U16x8_LDSM_T"))))
    assert "sm_100, sm_103 or sm_120 transpose 8-bit elements as well" in said
    assert 'use "universal", or problem.b.major = "k", or --arch sm_120' in said
    there = refusal(replace(spec, s2r=S2r(b=S2rCopy("SM75_U16x8_LDSM_T"))), "sm_120")
    assert "transposes 8-bit elements" in there
    assert "SM100_U8x16_LDSM_T" in there or "SM100_U8x8_LDSM_T" in there


def test_orientation_of_loads_is_said() -> None:
    found = plan(gemm("mkn", tile=TILE), "sm_80")
    assert decision(found, "s2r.b").why.endswith("N, since rows of shared memory run along k as fragments do")
    assert decision(found, "s2r.a").why.endswith("T, since rows of shared memory run along m and fragments along k")
    wide = plan(gemm(dtype="tf32", tile=Tile(cta=(128, 128, 32))), "sm_80")
    assert decision(wide, "s2r.a").why.endswith("16 bytes are 4 elements of 32 bits")


def test_the_forced_smaller_ldmatrix_says_what_the_larger_would_do() -> None:
    found = plan(gemm(s2r=S2r(b=S2rCopy("SM75_U32x2_LDSM_N"))), "sm_80")
    rejected = {row.what: row.why for row in found.b.s2r.rejected}
    assert "not what the spec requests" in rejected["SM75_U32x4_LDSM_N"]
    assert rejected["SM75_U32x1_LDSM_N"] == "2 times as many instructions as x2"
    assert set(rejected) == {"SM75_U32x4_LDSM_N", "SM75_U32x1_LDSM_N", "SM75_U16x8_LDSM_T", "universal, 32 bits"}


def test_too_few_values_are_rejected_in_cutes_words() -> None:
    mma = Mma(atom_layout=(2, 2, 1), permutation=(32, 16, 16))
    found = plan(gemm(tile=Tile(cta=(128, 128, 64)), mma=mma), "sm_80")
    rejected = {row.what: row.why for row in found.b.s2r.rejected}
    assert rejected["SM75_U32x4_LDSM_N"].startswith("TiledCopy uses too few vals for selected CopyAtom: V = 4")
