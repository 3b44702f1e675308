"""Rules of memory, barriers and copies that one small kernel shows: what is ordered, what is told, what is counted."""

from __future__ import annotations

import numpy as np
import pytest
from bulk_kernels import POLICIES, READY, SMEM_BYTES, expect, fault, launch, load, store, wait
from kernels import kernel, run_elements
from test_ptx_bulk import FENCED, matrix_map

from cutegen.errors import PtxSyntaxError
from cutegen.ptx import ExecutionFault, LaunchError, Program, ViolationKind

SMEM = "mov.u32 %r4, smem; shl.b32 %r5, %r0, 2; add.s32 %r6, %r4, %r5; mov.u32 %r3, 0;"


# Registers, barriers, steps


def test_a_lane_whose_guard_is_false_reads_nothing() -> None:
    body = "setp.lt.u32 %p0, %r0, 9; @%p0 mov.u32 %r9, 5; mov.u32 %r3, 0; @%p0 add.u32 %r3, %r9, 1;"
    assert run_elements(kernel(body), np.uint32).tolist() == [6] * 9 + [0] * 23
    with pytest.raises(ExecutionFault, match="never wrote") as caught:
        run_elements(kernel(body.replace("@%p0 add", "add")), np.uint32)
    assert caught.value.violation.thread == 9


def test_a_reduction_may_count_a_part_of_the_cta() -> None:
    """`barrier.red.popc d, a, b, p`: b threads take part, here the first two of three warps."""
    body = """
    mov.u32 %r3, 0; setp.ge.u32 %p0, %r0, 64; @%p0 bra END;
    setp.lt.u32 %p1, %r0, 40; barrier.cta.red.popc.aligned.u32 %r3, 1, 64, %p1;
    barrier.cta.red.and.aligned.pred %p2, 1, 64, %p1; @%p2 add.u32 %r3, %r3, 1000;
    END:
    """
    found = run_elements(kernel(body), np.uint32, block=96)
    assert found.tolist() == [40] * 64 + [0] * 32
    with pytest.raises(PtxSyntaxError):
        run_elements(kernel("barrier.cta.red.popc.aligned.u32 %r3, 1, 64, 32, %p1;"), np.uint32)


@pytest.mark.parametrize("guard", ["", "@%p0 "])
def test_a_reduction_writes_its_register(guard: str) -> None:
    """Only some path executes it, so its register is watched."""
    body = """
    mov.u32 %r7, %ntid.x; setp.gt.u32 %p0, %r7, 0; setp.eq.u32 %p1, %r0, %r0; @!%p0 bra SKIP;
    GUARDbar.red.popc.u32 %r6, 0, %p1;
    SKIP: mov.u32 %r3, 0; @%p0 mov.u32 %r3, %r6;
    """.replace("GUARD", guard)
    assert (run_elements(kernel(body), np.uint32, block=64) == 64).all()
    with pytest.raises(ExecutionFault, match="never wrote"):
        run_elements(
            kernel(body.replace("%p0, %r7, 0", "%p0, %r7, 64").replace("@%p0 mov", "mov")), np.uint32, block=64
        )


@pytest.mark.parametrize(("limit", "everywhere"), [(48, 1), (47, 0)])
def test_lanes_beyond_the_block_have_no_vote(limit: int, everywhere: int) -> None:
    body = f"setp.lt.u32 %p1, %r0, {limit}; bar.red.and.pred %p2, 1, 64, %p1; selp.u32 %r3, 1, 0, %p2;"
    assert (run_elements(kernel(body), np.uint32, block=48) == everywhere).all()


@pytest.mark.parametrize(("limit", "everywhere"), [(64, 1), (63, 0)])
def test_an_and_over_the_cta_asks_every_thread(limit: int, everywhere: int) -> None:
    body = f"setp.lt.u32 %p1, %r0, {limit}; barrier.cta.red.and.aligned.pred %p2, 0, %p1; selp.u32 %r3, 1, 0, %p2;"
    assert (run_elements(kernel(body), np.uint32, block=64) == everywhere).all()


@pytest.mark.parametrize(("barrier", "threads"), [("bar.sync 0", 64), ("bar.sync 2, 96", 96)])
def test_a_deadlock_counts_the_threads_that_are_missing(barrier: str, threads: int) -> None:
    body = f"mov.u32 %r3, 0; setp.ge.u32 %p0, %r0, 32; @%p0 bra END; {barrier}; END:"
    with pytest.raises(ExecutionFault, match=f"waits for {threads} threads and 32 have come") as caught:
        run_elements(kernel(body), np.uint32, block=64)
    assert caught.value.violation.kind is ViolationKind.BARRIER


def test_a_launch_may_take_exactly_its_steps() -> None:
    text = kernel("mov.u32 %r3, 7; mov.u32 %r3, 8;")
    report = Program.parse(text).launch("k", grid=1, block=32, args=[np.zeros(32, np.uint32)])
    steps = sum(report.executed(opcode) for opcode in ("ld", "mov", "mul", "add", "st", "ret"))
    run_elements(text, np.uint32, max_steps=steps)
    with pytest.raises((ExecutionFault, LaunchError), match=r"steps|instructions"):
        run_elements(text, np.uint32, max_steps=steps - 1)


# Shared and local memory


def test_an_access_stays_within_its_variable() -> None:
    """Two variables side by side are two objects: an address of one reaches neither into the other nor across it."""
    body = ".shared .align 16 .b8 a[8]; .shared .align 8 .b8 b[24]; mov.u32 %r4, a; mov.u32 %r9, b; mov.u32 %r3, 0;"
    body += "st.shared.u32 [%r4], %r3; st.shared.u32 [%r4+4], %r3; st.shared.v2.u32 [%r9], {%r3, %r3};"
    run_elements(kernel(body), np.uint32)
    with pytest.raises(ExecutionFault, match="hits another variable"):
        run_elements(kernel(body + "st.shared.v2.u32 [%r4+8], {%r3, %r3};"), np.uint32)
    with pytest.raises(ExecutionFault, match="runs past the end of a variable"):
        run_elements(kernel(body + "ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r4];"), np.uint32)


@pytest.mark.parametrize(("barrier", "message"), [("1, 0", "waits for 0 threads"), ("16", "barrier 16 does not exist")])
def test_there_are_16_barriers_of_at_least_a_warp(barrier: str, message: str) -> None:
    run_elements(kernel("mov.u32 %r3, 0; bar.sync 15, 32;"), np.uint32)
    with pytest.raises(ExecutionFault, match=message):
        run_elements(kernel(f"mov.u32 %r3, 0; bar.sync {barrier};"), np.uint32)


def test_sizes_of_shared_memory_in_special_registers() -> None:
    body = ".shared .b8 a[100]; mov.u32 %r4, %total_smem_size; mov.u32 %r5, %dynamic_smem_size;"
    body += "mad.lo.u32 %r3, %r5, 1000, %r4;"
    text = kernel(body, before=".extern .shared .align 16 .b8 dynamic[];")
    assert run_elements(text, np.uint32, block=1, dynamic_smem_bytes=64).tolist() == [64_000 + 112 + 64]


def test_an_access_does_not_run_from_a_variable_into_dynamic_memory() -> None:
    body = ".shared .align 8 .b8 a[4]; mov.u32 %r4, a; mov.u32 %r3, 0; st.shared.u32 [%r4], %r3;"
    text = kernel(body, before=".extern .shared .align 4 .b8 dynamic[];")
    run_elements(text, np.uint32, block=1, dynamic_smem_bytes=64)
    wide = text.replace("st.shared.u32 [%r4], %r3", "st.shared.v2.u32 [%r4], {%r3, %r3}")
    with pytest.raises(ExecutionFault, match="runs past the end of a variable"):
        run_elements(wide, np.uint32, block=1, dynamic_smem_bytes=64)


def test_the_lane_that_reads_what_nobody_wrote_is_named() -> None:
    body = "mov.u32 %r4, smem; shl.b32 %r5, %r0, 3; add.s32 %r6, %r4, %r5; mov.u32 %r3, 0;"
    body += "setp.ne.u32 %p0, %r0, 5; @%p0 st.shared.u32 [%r6], %r0; st.shared.u32 [%r6+4], %r0;"
    body += "ld.shared.v2.u32 {%r7, %r8}, [%r6];"
    with pytest.raises(ExecutionFault, match="never written") as caught:
        run_elements(kernel(body, shared_bytes=256), np.uint32)
    assert (caught.value.violation.kind, caught.value.violation.thread) == (ViolationKind.UNINITIALIZED, 5)


@pytest.mark.parametrize(
    ("first", "second", "races"),
    [
        ("st.volatile.shared.u64 [%r4], %rd2;", "ld.volatile.shared.u32 %r7, [%r4];", True),
        ("st.relaxed.cta.shared.u64 [%r4], %rd2;", "atom.shared.add.u32 %r7, [%r4], 1;", True),
        ("st.volatile.shared.v2.u32 [%r4], {%r0, %r0};", "ld.volatile.shared.u64 %rd3, [%r4];", True),
        ("st.volatile.shared.v2.u32 [%r4], {%r0, %r0};", "st.volatile.shared.u32 [%r4+4], %r0;", False),
        ("st.volatile.shared.u64 [%r4], %rd2;", "ld.volatile.shared.u64 %rd3, [%r4];", False),
        ("st.relaxed.cta.shared.u32 [%r4], %r0;", "atom.shared.add.u32 %r7, [%r4], 1;", False),
    ],
)
def test_strong_accesses_of_different_sizes_race(first: str, second: str, races: bool) -> None:
    """PTX ISA, "Morally strong operations": two that overlap must overlap completely; in either memory.

    Elements of a vector are accesses of their own ("Vector Data-types").
    """
    fill = "mov.u64 %rd2, 5; setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r0, 32; @%p0 st.shared.u64 [%r4], %rd2;"
    shared = SMEM + fill + f"bar.sync 0; @%p0 {first} @%p1 {second}"
    in_global = shared.replace(".shared", ".global").replace("%r4", "%rd0").replace("mov.u32 %rd0, smem;", "")
    for body in (shared, in_global.replace("shl.b32 %r5, %r0, 2; add.s32 %r6, %rd0, %r5;", "")):
        if not races:
            run_elements(kernel(body, shared_bytes=128).replace("st.global.b32 [%rd1], %r3;", ""), np.uint32, block=64)
            continue
        with pytest.raises(ExecutionFault) as caught:
            run_elements(kernel(body, shared_bytes=128).replace("st.global.b32 [%rd1], %r3;", ""), np.uint32, block=64)
        assert caught.value.violation.kind is ViolationKind.RACE


@pytest.mark.parametrize("written", ["st.relaxed.cta.shared.u32 [%r4], 5;", "st.volatile.shared.u32 [%r4], 5;"])
def test_a_strong_write_fills_memory_as_a_weak_one_does(written: str) -> None:
    body = SMEM + f"setp.eq.u32 %p0, %r0, 0; @%p0 {written} bar.sync 0; ld.shared.u32 %r3, [%r4];"
    assert (run_elements(kernel(body, shared_bytes=256), np.uint32, block=64) == 5).all()


@pytest.mark.parametrize("writer", [0, 3, 7])
def test_a_reader_may_not_overwrite_what_another_lane_has_read_beside_it(writer: int) -> None:
    """Each lane reads the word in an instruction of its own, and one of them writes it in the same interval."""
    read = "setp.eq.u32 %p1, %r0, {}; @%p1 ld.shared.u32 %r7, [%r4];"
    body = SMEM + "setp.eq.u32 %p0, %r0, 0; @%p0 st.shared.u32 [%r4], 1; bar.sync 0;"
    other = 5
    text = body + read.format(other) + read.format(writer) + "@%p1 st.shared.u32 [%r4], 2;"
    with pytest.raises(ExecutionFault, match="race"):
        run_elements(kernel(text, shared_bytes=256), np.uint32)
    alone = body + read.format(writer) + "@%p1 st.shared.u32 [%r4], 2;"
    run_elements(kernel(alone, shared_bytes=256), np.uint32)


def test_a_fault_in_local_memory_leaves_the_neighbors_alone() -> None:
    """A launch that goes on after faults: lane i's write past its 16 bytes is not lane i + 1's word."""
    body = ".local .align 8 .b8 mine[16]; st.local.u32 [mine], %r0; mov.u32 %r4, 77;"
    body += "setp.lt.u32 %p0, %r0, 31; @%p0 st.local.u32 [mine+16], %r4; ld.local.u32 %r3, [mine];"
    assert run_elements(kernel(body), np.uint32, raise_on=()).tolist() == list(range(32))


# Copies


def test_only_the_lanes_that_wait_get_their_copies() -> None:
    """Lanes 0 to 15 commit and wait; the copies of the others stay in flight until all wait."""
    body = SMEM + "mov.u64 %rd2, data; cvt.u64.u32 %rd3, %r5; add.s64 %rd2, %rd2, %rd3; setp.lt.u32 %p0, %r0, 16;"
    body += "cp.async.ca.shared.global [%r6], [%rd2], 4; @%p0 cp.async.commit_group; @%p0 cp.async.wait_group 0;"
    values = ", ".join(str(100 + i) for i in range(32))
    data = f".global .align 16 .b32 data[32] = {{{values}}};\n"
    first = "@%p0 ld.shared.u32 %r3, [%r6];"
    found = run_elements(kernel(body + first + "cp.async.wait_all;", before=data, shared_bytes=128), np.uint32)
    assert found.tolist() == [100 + i for i in range(16)] + [0] * 16
    late = "cp.async.commit_group; cp.async.wait_group 0; ld.shared.u32 %r3, [%r6];"
    found = run_elements(kernel(body + late, before=data, shared_bytes=128), np.uint32)
    assert found.tolist() == [100 + i for i in range(32)]
    with pytest.raises(ExecutionFault) as caught:
        run_elements(kernel(body + "ld.shared.u32 %r3, [%r6];", before=data, shared_bytes=128), np.uint32)
    assert (caught.value.violation.kind, caught.value.violation.thread) == (ViolationKind.ASYNC_COPY, 16)
    all_commit = body.replace("@%p0 cp.async.commit", "cp.async.commit") + "ld.shared.u32 %r3, [%r6];"
    without_commit = body + "@!%p0 cp.async.wait_group 0; @!%p0 ld.shared.u32 %r3, [%r6];"
    for wrong in (all_commit, without_commit):
        with pytest.raises(ExecutionFault, match="has not been waited for"):
            run_elements(kernel(wrong, before=data, shared_bytes=128), np.uint32)
    with pytest.raises(ExecutionFault, match="may still be reading"):
        run_elements(kernel(body + "@!%p0 st.global.u32 [%rd2], 1;", before=data, shared_bytes=128), np.uint32)


def test_the_source_of_a_copy_is_aligned_as_its_size() -> None:
    body = SMEM + "mov.u64 %rd2, data; shl.b32 %r8, %r0, 4; add.s32 %r9, %r4, %r8; add.s64 %rd2, %rd2, 8;"
    body += "cp.async.cg.shared.global [%r9], [%rd2], 16; cp.async.wait_all;"
    with pytest.raises(ExecutionFault, match="the source of a 16-byte copy is not a multiple of 16") as caught:
        run_elements(kernel(body, before=".global .align 16 .b32 data[64];\n", shared_bytes=512), np.uint32)
    assert (caught.value.violation.kind, caught.value.violation.thread) == (ViolationKind.MISALIGNED, 0)


def test_a_load_of_16_bytes_that_nobody_waits_for_names_its_thread() -> None:
    array = np.zeros((8, 8), np.uint16)
    violation = fault(READY + expect(16) + load((0, 0)), matrix_map(array, (8, 1)))
    assert (violation.kind, violation.thread) == (ViolationKind.ASYNC_COPY, 0)
    assert "nobody has waited" in violation.message


@pytest.mark.parametrize("policy", POLICIES)
def test_a_store_whose_thread_has_left_is_done_all_the_same(policy: str) -> None:
    tensor = np.zeros((16, 32), np.uint32)
    launch(READY + FENCED + store((0, 0)), matrix_map(tensor, (32, 16)), policy=policy, raise_on=())
    assert tensor.all()


def test_one_lane_that_waits_for_one_mbarrier_has_not_waited_for_another() -> None:
    """Thread 0 alone waits for the first box; the second one has an mbarrier that is made after that."""
    array = np.ones((16, 8), np.uint16)
    made = "@%p0 mbarrier.init.shared.b64 [%r5], 1; @%p0 fence.mbarrier_init.release.cluster;"
    second = (made + expect(16) + load((0, 1), to=128)).replace("[%r5]", "[%r5+-8]")
    body = READY + expect(16) + load((0, 0)) + wait(guard="@!%p0") + second
    violation = fault(body, matrix_map(array, (8, 1)))
    assert violation.kind is ViolationKind.ASYNC_COPY
    assert "nobody has waited" in violation.message


def test_an_mbarrier_that_one_warp_makes_orders_nothing_before_it() -> None:
    """Warp 1 writes a word; thread 0 makes an mbarrier and reads the word: no barrier stands between the two."""
    body = SMEM + "setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r0, 32; @%p0 st.shared.u32 [%r4], 1; bar.sync 0;"
    body += "@%p1 st.shared.u32 [%r4], 2; {} @%p0 ld.shared.u32 %r3, [%r4];"
    for between in ("", "@%p0 mbarrier.init.shared.b64 [%r4+64], 1;"):
        with pytest.raises(ExecutionFault, match="race"):
            run_elements(kernel(body.format(between), shared_bytes=256), np.uint32, block=64, policy="reversed")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("cp.async.bulk.wait_group %r0;", "number of groups"),
        ("cp.async.bulk.wait_group;", "number of groups"),
        (
            "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group %rd3, [%r4];",
            r"expected \[tensor map, \{2 coordinates\}\]",
        ),
        (
            "cp.async.bulk.tensor.2d.global.shared::cta.im2col_no_offs.bulk_group [%rd3, {0, 0}], [%r4];",
            r"bulk copies with \.im2col_no_offs are not supported",
        ),
        (
            "cp.async.bulk.tensor.2d.global.shared::cta.global.tile.bulk_group [%rd3, {0, 0}], [%r4];",
            r"cp\.async\.bulk\.tensor",
        ),
    ],
)
def test_bulk_copies_without_their_operands_are_refused(body: str, reason: str) -> None:
    with pytest.raises(PtxSyntaxError, match=reason):
        launch(READY + body, None)


def test_an_mbarrier_that_is_not_there_cannot_be_invalidated() -> None:
    violation = fault(READY + "@%p0 mbarrier.inval.shared.b64 [%r5+-16];")
    assert "no mbarrier is here" in violation.message
    assert violation.thread == 0


def test_the_state_of_a_later_phase_is_not_over() -> None:
    """After one phase, an arrival's state names the second one: asked twice, it has not ended."""
    made = READY.replace("[%r5], 1;", "[%r5], 2;")
    body = made + "@!%p0 bra END; mbarrier.arrive.shared.b64 _, [%r5]; mbarrier.arrive.shared.b64 _, [%r5];"
    body += "mbarrier.arrive.shared.b64 %rd4, [%r5]; mov.u32 %r8, 0;"
    body += "mbarrier.test_wait.shared.b64 %p1, [%r5], %rd4; @%p1 add.u32 %r8, %r8, 1;"
    body += "mbarrier.test_wait.shared.b64 %p1, [%r5], %rd4; @%p1 add.u32 %r8, %r8, 2; mov.u32 %r3, %r8; END:"
    out = np.zeros(32, np.uint32)
    Program.parse(kernel(body, shared_bytes=SMEM_BYTES)).launch("k", grid=1, block=32, args=[out])
    assert out[0] == 0


def test_a_wait_may_be_guarded_by_a_predicate_that_is_false() -> None:
    """`@!%p0`: the lanes but the first look, and see the phase that thread 0 has completed before the barrier."""
    body = READY + "@%p0 mbarrier.arrive.shared.b64 _, [%r5]; bar.sync 0;"
    body += "@!%p0 mbarrier.test_wait.parity.shared.b64 %p2, [%r5], 0; @!%p0 selp.u32 %r3, 1, 0, %p2;"
    assert run_elements(kernel(body, shared_bytes=SMEM_BYTES), np.uint32).tolist() == [0] + [1] * 31


def test_a_store_reads_its_source_at_once_or_later() -> None:
    """What is written over the source before the wait may reach the tensor, or not: orders show both."""
    seen = set()
    over = "st.shared.b32 [%r6], 7;" + "@%p0 cp.async.bulk.wait_group 0;"
    for policy in POLICIES:
        tensor = np.zeros((16, 32), np.uint32)
        launch(READY + FENCED + store((0, 0)) + over, matrix_map(tensor, (32, 16)), policy=policy, raise_on=())
        seen.add(int(tensor[0, 5]) == 7)
    assert seen == {True, False}
