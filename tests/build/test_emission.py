"""Counting the instructions of a PTX entry, and comparing them with the plan's."""

from __future__ import annotations

import pytest

from cutegen.build.emission import check_emission, check_mbarriers, count_instructions, count_mbarriers
from cutegen.errors import EmissionError

PTX = """
.version 8.8
.visible .entry gemm_0(
    .param .u64 .ptr .global .align 16 gemm_0_param_0
)
.reqntid 128, 1, 1
{
    .reg .pred %p<9>;
    // begin inline asm
    { .reg .pred q; setp.ne.b32 q, %r1, 0; @q cp.async.cg.shared.global.L2::128B [%r1], [%rd1], 16, %r2; }
    // end inline asm
    cp.async.ca.shared.global [%r1], [%rd1], 4, %r2;
    cp.async.commit_group;
    cp.async.wait_group 1;
    /* ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r2]; */
$L__BB0_2:
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r9];
$L__BB0_3:  @!%p1 ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r1, %r2, %r3, %r4}, [%r9];
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6},
        {%f1, %f2, %f3, %f4};
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
        {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4};
    @%p2 bra $L__BB0_2;
    ret;
}
"""
COUNTS = {
    "cp.async.ca.shared.global": 1,
    "cp.async.cg.shared.global.L2::128B": 1,
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16": 1,
    "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16": 1,
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": 2,
}


def test_full_opcodes_are_counted_without_predicates_labels_and_comments() -> None:
    assert count_instructions(PTX, "gemm_0") == COUNTS


def test_the_entry_must_be_the_one_asked_for_and_alone() -> None:
    with pytest.raises(EmissionError, match=r"has the entries gemm_0; expected exactly gemm_1"):
        count_instructions(PTX, "gemm_1")
    with pytest.raises(EmissionError, match=r"has the entries gemm_0, other; expected exactly gemm_0"):
        count_instructions(PTX + ".entry other() { ret; }", "gemm_0")
    with pytest.raises(EmissionError, match=r"has the entries none"):
        count_instructions("", "gemm_0")


def test_the_predicted_counts_pass_without_a_word() -> None:
    assert check_emission(COUNTS, dict(COUNTS)) == ()


def test_another_count_is_a_warning() -> None:
    opcode = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    assert check_emission({**COUNTS, opcode: 4}, COUNTS) == (f"{opcode}: 4 predicted, 2 emitted",)


def test_another_kind_is_an_error_that_names_both() -> None:
    x4, x2 = (f"ldmatrix.sync.aligned.m8n8.{form}.shared.b16" for form in ("x4", "x2"))
    with pytest.raises(EmissionError) as error:
        check_emission({x4: 3}, {x2: 6})
    assert f"{x2} (6 times)" in str(error.value)
    assert f"{x4} (3 times)" in str(error.value)


@pytest.mark.parametrize("opcode", COUNTS)
def test_an_absent_kind_and_an_unplanned_kind_are_errors(opcode: str) -> None:
    rest = {name: count for name, count in COUNTS.items() if name != opcode}
    for predicted, emitted in ((COUNTS, rest), (rest, COUNTS)):
        with pytest.raises(EmissionError, match="emitted"):
            check_emission(predicted, emitted)


MBARRIERS = """
    mov.b32 %r5, 8;
    mbarrier.init.shared.b64 [%r10+8], %r5;
    // mbarrier.init.shared.b64 [%r10+16], %r5;
    mov.u32 %r5, 1;
    mbarrier.init.shared::cta.b64 [__dynamic_shmem__0+98304], %r5;
    @%p1 mbarrier.init.shared.b64 [%r11], 4;
"""


def test_mbarriers_are_counted_by_their_arrivals() -> None:
    """A register has the constant that was last written to it."""
    assert count_mbarriers(MBARRIERS) == {1: 1, 4: 1, 8: 1}


def test_an_mbarrier_of_an_unknown_count_is_refused() -> None:
    with pytest.raises(EmissionError, match=r"initialized with %r7, which is no constant"):
        count_mbarriers("mbarrier.init.shared.b64 [%r1], %r7;")


PLANNED = {"ab.full": (2, 1), "ab.empty": (2, 8), "turn.full": (2, 4)}


def test_mbarriers_as_planned_pass_without_a_word() -> None:
    assert check_mbarriers(PLANNED, {1: 2, 4: 2, 8: 2}) == ()
    assert check_mbarriers({"ab.full": (2, 4), "turn.full": (2, 4)}, {4: 4}) == ()
    assert check_mbarriers({}, {}) == ()


@pytest.mark.parametrize("emitted", [{1: 2, 4: 2, 8: 1}, {1: 2, 4: 2, 9: 2}, {1: 2, 8: 2}, {1: 3, 4: 2, 8: 2}, {}])
def test_other_mbarriers_than_planned_are_an_error(emitted: dict[int, int]) -> None:
    with pytest.raises(EmissionError, match=r"but the plan's pipelines have 2 for 1 arrivals \(ab\.full\), 2 for 8"):
        check_mbarriers(PLANNED, emitted)
    (warning,) = check_mbarriers(PLANNED, emitted, edited=True)
    assert "turn.full" in warning
