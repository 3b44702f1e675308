"""Undefined behavior is found, and its message names instruction, thread and address."""

from __future__ import annotations

import numpy as np
import pytest
from kernels import kernel, run_elements, run_report

from cutegen.ptx import ExecutionFault, Program, Violation, ViolationKind

POLICIES = ("in-order", "reversed", "random:5")
SMEM = "mov.u32 %r4, smem; shl.b32 %r5, %r0, 2; add.s32 %r6, %r4, %r5;"
"""%r6: this thread's word of shared memory."""


def fault(
    body: str, *, block: int = 64, shared_bytes: int = 1024, policies: tuple[str, ...] = POLICIES, **options: object
) -> Violation:
    """The violation that ends a launch of `body`, the same one under every policy's kind."""
    text = kernel(body, shared_bytes=shared_bytes)
    violations = []
    for policy in policies:
        with pytest.raises(ExecutionFault) as caught:
            run_elements(text, np.uint32, block=block, policy=policy, **options)
        violations.append(caught.value.violation)
    assert len({violation.kind for violation in violations}) == 1
    return violations[0]


NEIGHBOR = "st.shared.u32 [%r6], %r0; {between} xor.b32 %r7, %r5, 128; add.s32 %r7, %r4, %r7; ld.shared.u32 %r3, [%r7];"


def test_a_missing_barrier_between_warps_is_found() -> None:
    violation = fault(SMEM + NEIGHBOR.format(between=""))
    assert violation.kind in (ViolationKind.RACE, ViolationKind.UNINITIALIZED)
    right = run_elements(kernel(SMEM + NEIGHBOR.format(between="bar.sync 0;"), shared_bytes=1024), np.uint32, block=64)
    assert right.tolist() == [i ^ 32 for i in range(64)]


def test_a_race_names_both_instructions_and_threads() -> None:
    body = SMEM + "st.shared.u32 [%r6], %r0; bar.sync 0; st.shared.u32 [%r6], 1; xor.b32 %r7, %r5, 128; "
    violation = fault(body + "add.s32 %r7, %r4, %r7; ld.shared.u32 %r3, [%r7];", policies=("in-order",))
    assert violation.kind is ViolationKind.RACE
    assert "ld.shared.u32 %r3" in violation.message
    assert violation.instruction == "st.shared.u32 [%r6], 1;"
    earlier = int(violation.message.split("thread ")[1].split()[0])
    assert violation.thread is not None
    assert violation.thread ^ 32 == earlier
    assert violation.address == 1024 + 4 * violation.thread


def test_writing_what_others_may_still_read_is_a_race() -> None:
    body = SMEM + "st.shared.u32 [%r6], %r0; bar.sync 0; xor.b32 %r7, %r5, 128; add.s32 %r7, %r4, %r7;"
    assert fault(body + "ld.shared.u32 %r3, [%r7]; st.shared.u32 [%r6], 7;").kind is ViolationKind.RACE


def test_lanes_of_a_warp_need_a_warp_barrier() -> None:
    body = SMEM + "st.shared.u32 [%r6], %r0; {} xor.b32 %r7, %r5, 4; add.s32 %r7, %r4, %r7; ld.shared.u32 %r3, [%r7];"
    assert fault(body.format("")).kind is ViolationKind.RACE
    text = kernel(body.format("bar.warp.sync -1;"), shared_bytes=1024)
    assert run_elements(text, np.uint32, block=64).tolist() == [i ^ 1 for i in range(64)]


def test_two_lanes_that_write_one_word_race_unless_they_agree() -> None:
    assert fault("mov.u32 %r4, smem; st.shared.u32 [%r4], %r0; mov.u32 %r3, 0;", block=32).kind is ViolationKind.RACE
    run_elements(kernel("mov.u32 %r4, smem; st.shared.u32 [%r4], 5; mov.u32 %r3, 0;", shared_bytes=16), np.uint32)


def test_global_memory_written_by_two_threads_is_a_race() -> None:
    assert fault("mov.u32 %r3, 1; st.global.u32 [%rd0], %r0;").kind is ViolationKind.RACE


def test_ctas_that_write_the_same_word_race() -> None:
    text = kernel("mov.u32 %r3, %ctaid.x;")
    with pytest.raises(ExecutionFault, match=r"race: write of global memory.*CTA number 0"):
        Program.parse(text).launch("k", grid=2, block=32, args=[np.zeros(32, np.uint32)])


def test_atomics_do_not_race() -> None:
    body = SMEM + "st.shared.u32 [%r6], 0; bar.sync 0; atom.shared.add.u32 %r7, [smem], 3; bar.sync 0; "
    body += "ld.shared.u32 %r3, [smem];"
    assert set(run_elements(kernel(body, shared_bytes=1024), np.uint32, block=64).tolist()) == {192}


@pytest.mark.parametrize("use", ["bar.warp.sync %r4;", "vote.sync.ballot.b32 %r3, %p0, %r4;"])
def test_lanes_of_a_warp_name_one_member_mask(use: str) -> None:
    """Of lanes 4 to 7 one names a mask of its own: the fault is that of a lane that is named and gives another."""
    body = """
    mov.u32 %r3, 0; setp.lt.u32 %p0, %r0, 4; @%p0 bra END; setp.gt.u32 %p0, %r0, 7; @%p0 bra END;
    mov.u32 %r4, 0xf0; setp.eq.u32 %p1, %r0, {lane}; @%p1 mov.u32 %r4, {mask}; {use} END:
    """
    for lane, mask, says in (
        (4, "0xff", "0x000000f0 names lanes that give another mask: [4]"),
        (6, "0xff", "0x000000f0 names lanes that give another mask: [6]"),
        (7, "0", "0x00000000 leaves out lanes that execute it: [7]"),
        (5, "0x20", "0x000000f0 names lanes that give another mask: [5]"),
    ):
        found = fault(body.format(lane=lane, mask=mask, use=use), block=32)
        assert found.kind is ViolationKind.DIVERGENCE
        assert found.message == f"the member mask {says}"
        assert found.thread == lane
    run_elements(kernel(body.format(lane=6, mask="0xf0", use=use)), np.uint32)
    assert "leaves out lanes" in fault(body.format(lane=6, mask="0xf0", use=use).replace("0xf0", "0x70")).message


COPY = (
    SMEM
    + """
    mov.u64 %rd2, data; shl.b32 %r8, %r0, 4; cvt.u64.u32 %rd3, %r8; add.s64 %rd2, %rd2, %rd3;
    add.s32 %r9, %r4, %r8; cp.async.cg.shared.global [%r9], [%rd2], 16; {} ld.shared.u32 %r3, [%r9];"""
)
DATA = ".global .align 16 .b32 data[512];\n"


@pytest.mark.parametrize(
    ("between", "kind"),
    [
        ("cp.async.commit_group; cp.async.wait_group 0;", None),
        ("cp.async.wait_all;", None),
        ("", ViolationKind.ASYNC_COPY),
        ("cp.async.commit_group;", ViolationKind.ASYNC_COPY),
        ("cp.async.commit_group; cp.async.wait_group 1;", ViolationKind.ASYNC_COPY),
        ("cp.async.wait_group 0;", ViolationKind.ASYNC_COPY),
        ("bar.sync 0;", ViolationKind.ASYNC_COPY),
    ],
)
def test_a_copy_lands_at_the_wait_that_covers_it(between: str, kind: ViolationKind | None) -> None:
    text = kernel(COPY.format(between), before=DATA, shared_bytes=1024)
    if kind is None:
        assert run_elements(text, np.uint32, block=64).tolist() == [0] * 64
        return
    with pytest.raises(ExecutionFault) as caught:
        run_elements(text, np.uint32, block=64)
    assert caught.value.violation.kind is kind


@pytest.mark.parametrize(("guard", "copied"), [("%p1", [0, 0, 3, 4]), ("!%p1", [1, 2, 0, 0])])
def test_a_copy_that_ignores_its_source_gives_zeros(guard: str, copied: list[int]) -> None:
    body = "setp.lt.u32 %p1, %r0, 2;" + COPY.format("cp.async.wait_all;").replace("16;", f"16, {guard};")
    body = body.replace("cp.async.cg", f"@{guard} add.s64 %rd2, %rd2, 2; cp.async.cg")  # not read, so aligned or not
    before = f".global .align 16 .b32 data[16] = {{{', '.join(f'{lane + 1}, 9, 9, 9' for lane in range(4))}}};\n"
    assert run_elements(kernel(body, before=before, shared_bytes=1024), np.uint32, block=4).tolist() == copied


def test_a_source_size_is_at_most_the_copy_size() -> None:
    text = kernel(COPY.format("cp.async.wait_all;").replace("16;", "16, %r0;"), before=DATA, shared_bytes=1024)
    run_elements(text, np.uint32, block=17)
    with pytest.raises(ExecutionFault, match="source size 17 of a 16-byte copy"):
        run_elements(text, np.uint32, block=18)


def test_a_copy_into_memory_that_others_still_read_is_a_race() -> None:
    body = (
        SMEM
        + """
        st.shared.u32 [%r6], %r0; bar.sync 0; xor.b32 %r7, %r5, 128; add.s32 %r7, %r4, %r7; ld.shared.u32 %r3, [%r7];
        mov.u64 %rd2, data; cp.async.ca.shared.global [%r6], [%rd2], 4; cp.async.wait_all;"""
    )
    with pytest.raises(ExecutionFault, match="race") as caught:
        run_elements(kernel(body, before=DATA, shared_bytes=1024), np.uint32, block=64)
    assert "cp.async" in str(caught.value)


def test_a_source_size_below_the_copy_size_gives_zeros() -> None:
    body = """
        mov.u32 %r4, smem; shl.b32 %r5, %r0, 4; add.s32 %r6, %r4, %r5; mov.u64 %rd2, data;
        and.b32 %r7, %r0, 3; shl.b32 %r7, %r7, 2; cp.async.cg.shared.global [%r6], [%rd2], 16, %r7;
        cp.async.wait_all; ld.shared.v4.u32 {%r8, %r9, %r10, %r11}, [%r6];
        add.u32 %r3, %r8, %r9; add.u32 %r3, %r3, %r10; add.u32 %r3, %r3, %r11;"""
    before = ".global .align 16 .b32 data[4] = {1, 10, 100, 1000};\n"
    result = run_elements(kernel(body, before=before, shared_bytes=1024), np.uint32)
    assert result.tolist() == [0, 1, 11, 111] * 8


def test_shared_memory_starts_uninitialized() -> None:
    violation = fault(SMEM + "ld.shared.u32 %r3, [%r6];", block=32)
    assert violation.kind is ViolationKind.UNINITIALIZED
    assert violation.address == 1024


def test_registers_and_local_memory_start_uninitialized() -> None:
    assert fault("setp.lt.u32 %p1, %r0, 7; @%p1 mov.u32 %r3, 1;", block=32).thread == 7
    local = ".local .align 8 .b8 depot[16]; ld.local.u32 %r3, [depot+4];"
    assert fault(local, block=32).kind is ViolationKind.UNINITIALIZED


def test_what_is_not_raised_is_gathered_and_reads_as_poison() -> None:
    report = run_report(kernel("add.u32 %r3, %r4, 1;"), raise_on=())
    assert [violation.kind for violation in report.violations] == [ViolationKind.UNINITIALIZED]
    result = run_elements(kernel("ld.global.f32 %f1, [%rd0+1024]; mov.b32 %r3, %f1;"), np.float32, raise_on=())
    assert np.isnan(result).all()


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        ("ld.global.u32 %r3, [%rd1+128];", ViolationKind.OUT_OF_BOUNDS, "at byte 256 of argument 0, which has 256"),
        ("ld.global.u32 %r3, [%rd1+-256];", ViolationKind.OUT_OF_BOUNDS, "byte -256 of argument 0"),
        ("ld.global.u32 %r3, [%rd1+2];", ViolationKind.MISALIGNED, "4-byte read"),
        ("ld.global.v2.u32 {%r3, %r4}, [%rd1];", ViolationKind.MISALIGNED, "8-byte read"),
        ("mov.u32 %r3, 0; st.shared.u32 [%r3], %r3;", ViolationKind.OUT_OF_BOUNDS, "1024 bytes of shared memory"),
        ("mov.u32 %r3, smem; st.shared.u32 [%r3+2], %r3;", ViolationKind.MISALIGNED, "shared memory"),
        ("mov.u64 %rd2, 0; ld.u32 %r3, [%rd2];", ViolationKind.OUT_OF_BOUNDS, "4-byte read"),
        ("trap; mov.u32 %r3, 0;", ViolationKind.TRAP, "gave up"),
        ("L: bra L; mov.u32 %r3, 0;", ViolationKind.STEP_LIMIT, "more than 1000 warp instructions"),
    ],
)
def test_faults_say_what_and_where(body: str, kind: ViolationKind, message: str) -> None:
    violation = fault(body, max_steps=1000)
    assert violation.kind is kind
    assert message in violation.message


def test_read_only_arrays_are_not_written() -> None:
    array = np.zeros(32, np.uint32)
    array.flags.writeable = False
    with pytest.raises(ExecutionFault, match="argument 0, which is read-only"):
        Program.parse(kernel("mov.u32 %r3, 1;")).launch("k", grid=1, block=32, args=[array])


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("setp.lt.u32 %p1, %r0, 9; @%p1 bra A; bar.sync 0; A: mov.u32 %r3, 0;", ViolationKind.DIVERGENCE),
        ("setp.lt.u32 %p1, %r0, 32; @%p1 bra A; bar.sync 0; A: mov.u32 %r3, 0;", ViolationKind.BARRIER),
        ("mov.u32 %r3, 0; setp.lt.u32 %p1, %r0, 32; @%p1 ret; bar.sync 0;", ViolationKind.BARRIER),
        ("bar.sync 1, 96; mov.u32 %r3, 0;", ViolationKind.BARRIER),
        ("bar.sync 16; mov.u32 %r3, 0;", ViolationKind.BARRIER),
        ("mov.u32 %r3, 0; setp.lt.u32 %p1, %r0, 9; @%p1 bar.sync 0;", ViolationKind.DIVERGENCE),
        ("mov.u32 %r3, 0; setp.lt.u32 %p1, %r0, 32; @%p1 bar.sync 0;", ViolationKind.BARRIER),
        ("bar.sync 0, 40; mov.u32 %r3, 0;", ViolationKind.BARRIER),
        (
            "mov.u32 %r3, 0; setp.lt.u32 %p1, %r0, 9; @%p1 shfl.sync.idx.b32 %r3, %r0, 0, 31, -1;",
            ViolationKind.DIVERGENCE,
        ),
        ("mov.u32 %r3, 0; shfl.sync.idx.b32 %r3, %r0, 0, 31, 0xff;", ViolationKind.DIVERGENCE),
    ],
)
def test_barriers_and_warp_instructions_need_their_lanes(body: str, kind: ViolationKind) -> None:
    assert fault(body).kind is kind


def test_named_barriers_order_only_their_participants() -> None:
    body = (
        SMEM
        + """
        setp.ge.u32 %p1, %r0, 64; @%p1 bra OTHER;
        st.shared.u32 [%r6], %r0; bar.sync 1, 64; xor.b32 %r7, %r5, 128; add.s32 %r7, %r4, %r7;
        ld.shared.u32 %r3, [%r7]; bra.uni END;
        OTHER: {} ld.shared.u32 %r3, [%r4];
        END:"""
    )
    with pytest.raises(ExecutionFault):
        run_elements(kernel(body.format(""), shared_bytes=1024), np.uint32, block=96)
    produced = body.replace("ld.shared.u32 %r3, [%r7];", "ld.shared.u32 %r3, [%r7]; bar.arrive 2, 96;")
    result = run_elements(kernel(produced.format("bar.sync 2, 96;"), shared_bytes=1024), np.uint32, block=96)
    assert result.tolist() == [i ^ 32 for i in range(64)] + [0] * 32


@pytest.mark.parametrize("packing", ["prmt.b32 %r4, %r0, %r6, 0x5410;", "mov.b32 %r4, {%h1, %h2};"])
def test_bytes_of_a_register_that_nothing_writes_may_be_moved(packing: str) -> None:
    """LLVM's undefined values: here the upper half of %r4, which dp2a.lo does not look at."""
    body = f"cvt.u16.u32 %h1, %r0; {packing} mov.u32 %r5, 0x00010001; dp2a.lo.u32.u32 %r3, %r5, %r4, 0;"
    assert run_elements(kernel(body), np.uint32, block=64).tolist() == list(range(64))
    written_later = f"{body} mov.u32 %r6, 1; mov.u16 %h2, 1;"
    assert fault(written_later).kind is ViolationKind.UNINITIALIZED
