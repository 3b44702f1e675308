"""Kinds of tcgen05.mma: the types that go together, the majors that descriptors read, the targets that have each."""

from __future__ import annotations

import pytest

from cutegen.errors import SpecError
from cutegen.hardware.tcgen05 import kind_of
from cutegen.plan import GemmPlan, plan
from cutegen.spec import GemmSpec, Operand, Problem


def _spec(a: str, b: str, c: str, *, majors: str = "kk", sums: str | None = None) -> GemmSpec:
    operands = Operand(a, majors[0]), Operand(b, majors[1])
    problem = Problem(a=operands[0], b=operands[1], c=Operand(c, "n"), accumulator=sums)
    return GemmSpec(family="sm100", problem=problem, name="kinds")


@pytest.mark.parametrize(
    ("a", "b", "c", "sums", "kind", "k_tile"),
    [
        ("f16", "f16", "f16", "f32", "f16", 64),
        ("bf16", "bf16", "bf16", "f32", "f16", 64),
        ("tf32", "tf32", "f32", "f32", "tf32", 32),
        ("e4m3", "e5m2", "bf16", "f32", "f8f6f4", 128),
        ("s8", "u8", "s32", "s32", "i8", 128),
    ],
)
def test_types_decide_the_kind_and_a_line_of_k(a: str, b: str, c: str, sums: str, kind: str, k_tile: int) -> None:
    found = plan(_spec(a, b, c), "sm_100")
    assert isinstance(found, GemmPlan)
    assert (kind_of(found.atom).name, found.atom.c_dtype.name, found.mma.cta_tile[2]) == (kind, sums, k_tile)
    assert found.mma.k_blocks * found.atom.shape_mnk[2] == k_tile


def test_the_default_sums_of_floats_are_f32_and_f16_may_be_asked_for() -> None:
    found = plan(_spec("e4m3", "e4m3", "f16", sums="f16"), "sm_103")
    assert isinstance(found, GemmPlan)
    assert found.atom.c_dtype.name == "f16"


@pytest.mark.parametrize(
    ("spec", "arch", "message"),
    [
        (_spec("f16", "bf16", "f16"), "sm_100", 'problem.b.dtype: found "bf16"; expected f16 with A\'s f16'),
        (_spec("f32", "f32", "f32"), "sm_100", 'problem.a.dtype: found "f32"; expected f16, bf16, tf32, e4m3, e5m2'),
        (_spec("bf16", "bf16", "f32", sums="f16"), "sm_100", 'problem.accumulator: found "f16" with bf16 operands'),
        (_spec("s8", "s8", "s32"), "sm_103", 'problem.a.dtype: found "s8" for sm_103; expected sm_100'),
        (_spec("tf32", "tf32", "f32", majors="kn"), "sm_100", 'problem.b.major: found "n" of tf32; expected "k"'),
    ],
)
def test_what_no_instruction_multiplies_is_refused(spec: GemmSpec, arch: str, message: str) -> None:
    with pytest.raises(SpecError) as refused:
        plan(spec, arch)
    assert message in str(refused.value)


def test_8_bit_operands_have_both_majors() -> None:
    found = plan(_spec("e4m3", "e4m3", "f16", majors="mn"), "sm_100")
    assert isinstance(found, GemmPlan)
    chosen = {decision.key: decision.chosen for decision in found.decisions}
    assert (chosen["smem.a"], chosen["smem.b"]) == ("Layout_MN_SW128_Atom",) * 2
