"""mbarriers: phases, counts and transactions, what a wait orders, and what a deadlock says."""

from __future__ import annotations

import re

import numpy as np
import pytest
from bulk_kernels import PLACES, POLICIES, READY, SMEM_BYTES, fault, launch, wait
from kernels import kernel

from cutegen.ptx import ExecutionFault, Program, ViolationKind

ARRIVE = "@%p0 mbarrier.arrive.shared.b64 _, [%r5];"


def made_for(count: int) -> str:
    """The mbarrier for `count` arrivals."""
    return READY.replace("[%r5], 1;", f"[%r5], {count};")


def results(body: str, *, block: int = 32, policy: str = "in-order") -> list[int]:
    """%r3 of each thread."""
    text = kernel(body, shared_bytes=SMEM_BYTES)
    out = np.zeros(block, np.uint32)
    Program.parse(text).launch("k", grid=1, block=block, args=[out], policy=policy)
    return out.tolist()


def test_parity() -> None:
    """PTX ISA: the parity is that of the current phase (incomplete) or of the one before (complete)."""
    look = "mbarrier.test_wait.parity.shared.b64 %p1, [%r5], {}; selp.u32 %r7, 1, 0, %p1; "
    look += "shl.b32 %r3, %r3, 1; or.b32 %r3, %r3, %r7;"
    both = look.format(0) + look.format(1)
    body = READY + both + "bar.sync 0;" + ARRIVE + "bar.sync 0;" + both + "bar.sync 0;" + ARRIVE + "bar.sync 0;" + both
    for policy in ("in-order", "reversed"):
        assert results(body, policy=policy) == [0b01_10_01] * 32


def test_a_state_names_its_phase_and_pending_count() -> None:
    body = made_for(3) + "@!%p0 bra END; mbarrier.arrive.shared.b64 %rd4, [%r5];"
    body += "mbarrier.pending_count.b64 %r7, %rd4; mbarrier.arrive.shared::cta.b64 %rd5, [%r5], 1;"
    body += "mbarrier.pending_count.b64 %r8, %rd5; mbarrier.test_wait.shared.b64 %p1, [%r5], %rd4;"
    body += (
        "mbarrier.arrive.release.cta.shared.b64 _, [%r5]; mbarrier.try_wait.acquire.cta.shared.b64 %p2, [%r5], %rd4;"
    )
    body += "selp.u32 %r9, 10, 0, %p1; selp.u32 %r10, 20, 0, %p2; mad.lo.u32 %r3, %r7, 10000, %r9;"
    body += "mad.lo.u32 %r3, %r8, 1000, %r3; add.u32 %r3, %r3, %r10; END:"
    assert results(body)[0] == 3 * 10000 + 2 * 1000 + 20


PING_PONG = (
    PLACES
    + """
    @%p0 mbarrier.init.shared.b64 [%r5], 32;
    @%p0 mbarrier.init.shared.b64 [%r5+-8], 32;
    bar.sync 0;
    shr.u32 %r8, %r0, 5;
    mul.lo.u32 %r9, %r8, 8;
    sub.u32 %r9, %r5, %r9;
    mul.lo.u32 %r10, %r8, 8;
    sub.u32 %r10, 8, %r10;
    sub.u32 %r10, %r5, %r10;
    setp.eq.u32 %p1, %r8, 1;
    mov.b32 %r11, 0;
    and.b32 %r12, %r0, 31;
    shl.b32 %r12, %r12, 2;
    add.u32 %r12, %r12, %r4;
    @%p1 bra TAKE;
    st.shared.b32 [%r12], 0;
GIVE:
    ld.shared.b32 %r13, [%r12];
    add.u32 %r13, %r13, 1;
    st.shared.b32 [%r12], %r13;
    mbarrier.arrive.shared.b64 _, [%r9];
TAKE:
    and.b32 %r14, %r11, 1;
AGAIN:
    mbarrier.try_wait.parity.shared.b64 %p2, [%r10], %r14;
    @!%p2 bra AGAIN;
    add.u32 %r11, %r11, 1;
    setp.lt.u32 %p3, %r11, ROUNDS;
    @%p3 bra GIVE;
    @!%p1 bra LAST;
    ld.shared.b32 %r13, [%r12];
    add.u32 %r13, %r13, 1;
    st.shared.b32 [%r12], %r13;
    mbarrier.arrive.shared.b64 _, [%r9];
LAST:
    ld.shared.b32 %r3, [%r12];
"""
)
"""Two warps count in turn: each waits for the other's mbarrier, adds one to its lane's word, and arrives at its own."""


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_two_warps_take_turns_over_many_phases(rounds: int, policy: str) -> None:
    assert results(PING_PONG.replace("ROUNDS", str(rounds)), block=64, policy=policy) == [2 * rounds] * 64


def test_a_turn_taken_without_waiting_is_a_race() -> None:
    impatient = PING_PONG.replace("ROUNDS", "3").replace("@!%p2 bra AGAIN;", "")
    with pytest.raises(ExecutionFault) as caught:
        results(impatient, block=64, policy="random:4")
    assert caught.value.violation.kind in (ViolationKind.RACE, ViolationKind.UNINITIALIZED, ViolationKind.BARRIER)


def test_relaxed_arrivals_and_waits_order_nothing() -> None:
    right = PING_PONG.replace("ROUNDS", "2")
    for wrong in (
        right.replace("mbarrier.arrive.", "mbarrier.arrive.relaxed.cta."),
        right.replace("try_wait.parity", "try_wait.parity.relaxed.cta"),
    ):
        with pytest.raises(ExecutionFault) as caught:
            results(wrong, block=64)
        assert caught.value.violation.kind in (ViolationKind.RACE, ViolationKind.UNINITIALIZED)


def test_a_phase_needs_its_transactions_too() -> None:
    """Bytes may be expected before or after the other arrivals; the phase waits for both."""
    body = made_for(2) + ARRIVE + "@%p0 mbarrier.expect_tx.relaxed.cta.shared.b64 [%r5], 64;" + ARRIVE
    violation = fault(body + wait())
    assert violation.kind is ViolationKind.BARRIER
    assert "2 of 2 arrivals have come, tx-count 64" in violation.message


def test_arrive_drop_lowers_the_count_of_later_phases() -> None:
    body = made_for(2) + "@%p0 mbarrier.arrive_drop.shared.b64 _, [%r5];" + ARRIVE
    body += wait(0, name="W0") + "bar.warp.sync -1;" + ARRIVE + wait(1, name="W1") + "mov.b32 %r3, 5;"
    assert results(body) == [5] * 32


def test_arrive_drop_of_several_counts_lowers_the_count_by_as_many() -> None:
    body = made_for(3) + "@%p0 mbarrier.arrive_drop.shared.b64 _, [%r5], 2;" + ARRIVE
    body += wait(0, name="W0") + "bar.warp.sync -1;" + ARRIVE + wait(1, name="W1") + "mov.b32 %r3, 5;"
    assert results(body) == [5] * 32


def test_arrive_drop_with_bytes_drops_one_arrival() -> None:
    body = made_for(2) + "@%p0 mbarrier.arrive_drop.expect_tx.shared.b64 _, [%r5], 0;" + ARRIVE
    body += wait(0, name="W0") + "bar.warp.sync -1;" + ARRIVE + wait(1, name="W1") + "mov.b32 %r3, 5;"
    assert results(body) == [5] * 32


def test_an_invalidated_mbarrier_is_memory_again() -> None:
    inval = "bar.sync 0; @%p0 mbarrier.inval.shared.b64 [%r5];"
    launch(READY + inval + "@%p0 st.shared.b64 [%r5], 3; @%p0 ld.shared.b32 %r3, [%r5];")
    launch(READY + inval + "@%p0 mbarrier.init.shared.b64 [%r5], 1;" + ARRIVE)
    assert fault(READY + inval + ARRIVE).kind is ViolationKind.BARRIER
    assert fault(READY + inval + "@%p0 ld.shared.b32 %r3, [%r5];").kind is ViolationKind.UNINITIALIZED


def test_a_generic_address_names_it_too() -> None:
    generic = "cvta.shared.u64 %rd2, %rd3; @%p0 mbarrier.arrive.b64 _, [%rd2];"
    launch(READY + "cvt.u64.u32 %rd3, %r5;" + generic + wait())


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (PLACES + ARRIVE, ViolationKind.BARRIER, "mbarrier.init has not been executed"),
        (made_for(1).replace("bar.sync 0;", "") + wait(), ViolationKind.RACE, "after its mbarrier.init"),
        (READY + "@%p0 mbarrier.init.shared.b64 [%r5], 1;", ViolationKind.BARRIER, "hold an mbarrier"),
        (READY + "@%p0 st.shared.b32 [%r5+4], 0;", ViolationKind.BARRIER, "hold an mbarrier"),
        (READY + "@%p0 ld.shared.b64 %rd4, [%r5];", ViolationKind.BARRIER, "hold an mbarrier"),
        (READY + "@%p0 mbarrier.arrive.shared.b64 _, [%r5], 2;", ViolationKind.BARRIER, "2 arrivals at the mbarrier"),
        (made_for(0), ViolationKind.BARRIER, "an mbarrier of 0 arrivals"),
        (made_for(1 << 20), ViolationKind.BARRIER, "expected 1 to 1048575"),
        (READY + "@%p0 mbarrier.expect_tx.shared.b64 [%r5], 1048576;", ViolationKind.BARRIER, "at most 1048575"),
        (READY + "@%p0 mbarrier.arrive.shared.b64 _, [%r5+4];", ViolationKind.BARRIER, "no mbarrier is here"),
        (PLACES + "@%p0 mbarrier.init.shared.b64 [%r5+4], 1;", ViolationKind.OUT_OF_BOUNDS, "8-byte"),
        (PLACES + "@%p0 mbarrier.init.shared.b64 [%r5+-4], 1;", ViolationKind.MISALIGNED, "8-byte"),
    ],
)
def test_misuse_is_found(body: str, kind: ViolationKind, message: str) -> None:
    violation = fault(body)
    assert violation.kind is kind
    assert message in violation.message


def test_a_deadlock_says_who_waits_for_what() -> None:
    body = made_for(3) + "shr.u32 %r8, %r0, 5; setp.eq.u32 %p1, %r8, 1;" + ARRIVE
    body += "@%p1 bra MEET;" + wait(0) + "MEET: bar.sync 1, 96;"
    violation = fault(body, block=96)
    assert violation.kind is ViolationKind.BARRIER
    found = re.search(
        r"warp (\d) waits for the mbarrier at (0x\w+) \(in phase 0: (.*?), tx-count 0\)", violation.message
    )
    assert found is not None
    assert found[1] in "02"
    assert int(found[2], 16) == 1024 + SMEM_BYTES - 8
    assert found[3] == "1 of 3 arrivals have come"
    assert "barrier 1 waits for 96 threads and 32 have come" in violation.message
    assert "mbarrier.try_wait.parity" in violation.message


def test_a_wait_that_nothing_ends_comes_back_false_first() -> None:
    """A try_wait may give up: a program that asks twice and then goes on is right."""
    ask = "mbarrier.try_wait.parity.shared.b64 %p1, [%r5], 0; selp.u32 %r7, 1, 2, %p1; add.u32 %r3, %r3, %r7;"
    for policy in POLICIES:
        assert results(READY + ask + ask, policy=policy) == [4] * 32


def test_spinning_warps_do_not_starve_others() -> None:
    """Seven warps spin before the one that arrives gets its turn."""
    body = READY + "setp.ne.u32 %p1, %r0, 224; @%p1 bra SPIN; mbarrier.arrive.shared.b64 _, [%r5]; SPIN:" + wait()
    for policy in POLICIES:
        assert results(body + "mov.b32 %r3, 1;", block=256, policy=policy) == [1] * 256


def test_lanes_may_wait_for_different_phases() -> None:
    """Odd lanes of warp 0 ask for the phase before the first, which counts as complete; even lanes wait for warp 1."""
    body = READY + "setp.lt.u32 %p1, %r0, 32; setp.eq.u32 %p2, %r0, 40; @%p2 mbarrier.arrive.shared.b64 _, [%r5];"
    body += "and.b32 %r7, %r0, 1; @!%p1 bra END;" + wait("%r7") + "mov.b32 %r3, 1; END:"
    assert results(body, block=64) == [1] * 32 + [0] * 32


ELECT = "elect.sync %r7|%p1, {}; selp.u32 %r8, 100, 0, %p1; add.u32 %r3, %r7, %r8;"


def test_elect_chooses_one_lane_and_always_the_same() -> None:
    chosen = {}
    for policy in ("in-order", "reversed", *(f"random:{seed}" for seed in range(12))):
        first = results(ELECT.format(-1), policy=policy)
        assert sorted(first)[-1] == sorted(first)[0] + 100
        assert first.index(max(first)) == min(first)
        twice = results(
            ELECT.format(-1) + "mov.b32 %r9, %r3;" + ELECT.format(-1) + "sub.u32 %r3, %r3, %r9;", policy=policy
        )
        assert twice == [0] * 32
        chosen[policy] = min(first)
    assert (chosen["in-order"], chosen["reversed"]) == (0, 31)
    assert len(set(chosen.values())) > 5


def test_named_barriers_beside_mbarriers() -> None:
    """Warps 0 and 1 meet at barrier 1 while warp 2 waits for an mbarrier that they then complete."""
    body = READY + "shr.u32 %r8, %r0, 5; setp.eq.u32 %p1, %r8, 2; @%p1 bra SPIN; st.shared.b32 [%r4], 6; "
    body = body.replace("st.shared.b32 [%r4], 6;", "@%p0 st.shared.b32 [%r4], 6; barrier.cta.sync.aligned 1, 64;")
    body += "setp.eq.u32 %p2, %r0, 32; @%p2 mbarrier.arrive.shared.b64 _, [%r5]; bra END; SPIN:" + wait()
    body += "ld.shared.b32 %r3, [%r4]; END:"
    for policy in POLICIES:
        assert results(body, block=96, policy=policy) == [0] * 64 + [6] * 32
