"""Litmus tests of order between CTAs: judged as PTX's memory model says, whatever runs first."""

from __future__ import annotations

import numpy as np
import pytest
from litmus import Launch, entry, last_block, launch, message_passing, spin_lock

from cutegen.ptx import ExecutionFault, Program, ViolationKind

POLICIES = ("in-order", "reversed", "random:1", "random:2", "random:3")
POLICY = pytest.mark.parametrize("policy", POLICIES)
FENCE = "fence.acq_rel.gpu;"
LOAD = "ld.{}.global.u32 %r2, [%rd1];"
STORE = "st.{}.global.u32 [%rd1], 1;"

PASSED_ON = {
    "release and acquire": (STORE.format("release.gpu"), LOAD.format("acquire.gpu"), ""),
    "at system scope": (STORE.format("release.sys"), LOAD.format("acquire.sys"), ""),
    "of different wide scopes": (STORE.format("release.sys"), LOAD.format("acquire.gpu"), ""),
    "fences around relaxed accesses": (FENCE + STORE.format("relaxed.gpu"), LOAD.format("relaxed.gpu"), FENCE),
    "fences around volatile accesses": (
        f"membar.gl; {STORE.format('volatile')}",
        LOAD.format("volatile"),
        "membar.gl;",
    ),
    "a release and a fence": (STORE.format("release.gpu"), LOAD.format("relaxed.gpu"), "fence.sc.gpu;"),
    "an atomic that releases": ("red.release.gpu.global.add.u32 [%rd1], 1;", LOAD.format("acquire.gpu"), ""),
    "a fence and an atomic": (FENCE + "red.global.add.u32 [%rd1], 1;", "atom.global.or.b32 %r2, [%rd1], 0;", FENCE),
    "an exchange": ("atom.release.gpu.global.exch.b32 %r9, [%rd1], 1;", LOAD.format("acquire.gpu"), ""),
}
NOT_PASSED_ON = {
    "no order": (STORE.format("relaxed.gpu"), LOAD.format("relaxed.gpu"), ""),
    "no acquire": (STORE.format("release.gpu"), LOAD.format("relaxed.gpu"), ""),
    "no release": (STORE.format("relaxed.gpu"), LOAD.format("acquire.gpu"), ""),
    "volatile alone": (STORE.format("volatile"), LOAD.format("volatile"), ""),
    "release at scope cta": (STORE.format("release.cta"), LOAD.format("acquire.gpu"), ""),
    "acquire at scope cta": (STORE.format("release.gpu"), LOAD.format("acquire.cta"), ""),
    "a fence at scope cta": ("membar.cta;" + STORE.format("relaxed.gpu"), LOAD.format("acquire.gpu"), ""),
    "a fence behind the flag": (STORE.format("relaxed.gpu") + FENCE, LOAD.format("acquire.gpu"), ""),
    "a fence before the reading": (STORE.format("release.gpu"), FENCE + LOAD.format("relaxed.gpu"), ""),
    "a weak flag": ("st.global.u32 [%rd1], 1;", LOAD.format("acquire.gpu"), ""),
    "a weak look at it": (STORE.format("release.gpu"), "ld.global.u32 %r2, [%rd1];", ""),
    "a relaxed atomic": ("red.global.add.u32 [%rd1], 1;", LOAD.format("acquire.gpu"), ""),
    "a flag overwritten": (STORE.format("release.gpu") + STORE.format("relaxed.gpu"), LOAD.format("acquire.gpu"), ""),
}


def race(text: str, **options: object) -> str:
    with pytest.raises(ExecutionFault) as caught:
        launch(text, **options)
    assert caught.value.violation.kind is ViolationKind.RACE
    return str(caught.value)


@POLICY
@pytest.mark.parametrize("name", PASSED_ON)
def test_a_message_is_passed(name: str, policy: str) -> None:
    assert launch(message_passing(*PASSED_ON[name]), policy=policy).out[0] == 42


@POLICY
@pytest.mark.parametrize("name", NOT_PASSED_ON)
def test_a_message_is_not_passed(name: str, policy: str) -> None:
    message = race(message_passing(*NOT_PASSED_ON[name]), policy=policy)
    assert "CTA number" in message
    assert "line" in message
    assert "address" in message


@POLICY
@pytest.mark.parametrize("scope", ["cta", "cluster", "gpu"])
def test_every_scope_is_enough_within_one_cta(scope: str, policy: str) -> None:
    """Thread 0 tells thread 63; thread 62, of the same warp as 63, was told nothing."""
    text = entry(f"""
        setp.eq.u32 %p0, %r0, 0; @%p0 bra FIRST; setp.eq.u32 %p0, %r0, 63; @%p0 bra LAST; bra DONE;
    FIRST:
        st.global.u32 [%rd0], 42; st.release.{scope}.global.u32 [%rd1], 1; bra DONE;
    LAST:
        ld.acquire.{scope}.global.u32 %r2, [%rd1]; setp.eq.u32 %p1, %r2, 0; @%p1 bra LAST;
    DONE:
        setp.ne.u32 %p2, %r0, READER; @%p2 bra OUT;
        ld.global.u32 %r3, [%rd0]; st.global.u32 [%rd2], %r3;
    OUT:""")
    assert launch(text.replace("READER", "63"), grid=1, block=64, policy=policy).out[0] == 42
    race(text.replace("READER", "62"), grid=1, block=64, policy=policy)


@POLICY
def test_a_message_through_a_third(policy: str) -> None:
    """0 writes data and tells 1, 1 tells 2, and 2 reads the data: causality order is transitive."""
    text = entry("""
        setp.eq.u32 %p0, %r1, 1; @%p0 bra SECOND; setp.eq.u32 %p0, %r1, 2; @%p0 bra THIRD;
        st.global.u32 [%rd0], 42; st.release.gpu.global.u32 [%rd1], 1; bra DONE;
    SECOND:
        ld.acquire.gpu.global.u32 %r2, [%rd1]; setp.eq.u32 %p1, %r2, 0; @%p1 bra SECOND;
        st.RELEASE.gpu.global.u32 [%rd1+4], 1; bra DONE;
    THIRD:
        ld.acquire.gpu.global.u32 %r2, [%rd1+4]; setp.eq.u32 %p1, %r2, 0; @%p1 bra THIRD;
        ld.global.u32 %r3, [%rd0]; st.global.u32 [%rd2], %r3;
    DONE:""")
    assert launch(text.replace("RELEASE", "release"), grid=3, policy=policy).out[0] == 42
    race(text.replace("RELEASE", "relaxed"), grid=3, policy=policy)


@POLICY
def test_a_release_survives_atomics_of_others(policy: str) -> None:
    """1's relaxed atomic reads what 0 released, and 2 acquires what 1 wrote: one observation order."""
    text = entry("""
        setp.eq.u32 %p0, %r1, 1; @%p0 bra SECOND; setp.eq.u32 %p0, %r1, 2; @%p0 bra THIRD;
        st.global.u32 [%rd0], 42; st.release.gpu.global.u32 [%rd1], 1; bra DONE;
    SECOND:
        ld.relaxed.gpu.global.u32 %r2, [%rd1]; setp.eq.u32 %p1, %r2, 0; @%p1 bra SECOND;
        WRITE bra DONE;
    THIRD:
        ld.relaxed.gpu.global.u32 %r2, [%rd1]; setp.lt.u32 %p1, %r2, 2; @%p1 bra THIRD;
        ld.acquire.gpu.global.u32 %r2, [%rd1]; ld.global.u32 %r3, [%rd0]; st.global.u32 [%rd2], %r3;
    DONE:""")
    assert launch(text.replace("WRITE", "red.global.add.u32 [%rd1], 1;"), grid=3, policy=policy).out[0] == 42
    race(text.replace("WRITE", "st.relaxed.gpu.global.u32 [%rd1], 2;"), grid=3, policy=policy)


LAST_RIGHT = {
    "acq_rel": {},
    "fences around a relaxed counter": {
        "count": "atom.relaxed.gpu.global.add.u32 %r4, [%rd1], 1;", "before": FENCE, "after": FENCE,
    },
    "fences of all threads": {
        "barrier": "bar.sync 0;", "before": "fence.sc.gpu;",
        "count": "atom.global.add.u32 %r4, [%rd1], 1;", "after": "fence.sc.gpu;",
    },
    "release and a fence": {"count": "atom.release.gpu.global.add.u32 %r4, [%rd1], 1;", "after": FENCE},
}  # fmt: skip
LAST_WRONG = {
    "no barrier": {"barrier": ""},
    "relaxed": {"count": "atom.relaxed.gpu.global.add.u32 %r4, [%rd1], 1;"},
    "no acquire": {"count": "atom.release.gpu.global.add.u32 %r4, [%rd1], 1;"},
    "no release": {"count": "atom.acquire.gpu.global.add.u32 %r4, [%rd1], 1;"},
    "scope cta": {"count": "atom.acq_rel.cta.global.add.u32 %r4, [%rd1], 1;"},
    "a fence too few": {"count": "atom.relaxed.gpu.global.add.u32 %r4, [%rd1], 1;", "before": FENCE},
    "a fence before the barrier": {
        "barrier": FENCE + "bar.sync 0;", "count": "atom.relaxed.gpu.global.add.u32 %r4, [%rd1], 1;", "after": FENCE,
    },
    "a counter that is no atomic": {
        "count": "ld.acquire.gpu.global.u32 %r4, [%rd1]; add.u32 %r10, %r4, 1; st.release.gpu.global.u32 [%rd1], %r10;",
        "barrier": "",
    },
}  # fmt: skip


@POLICY
@pytest.mark.parametrize("name", LAST_RIGHT)
def test_the_last_block_may_read_what_all_left(name: str, policy: str) -> None:
    found: Launch = launch(last_block(**LAST_RIGHT[name]), grid=4, block=64, policy=policy)
    assert found.out[:64].tolist() == [4 * i + 64 * 6 for i in range(64)]


@POLICY
@pytest.mark.parametrize("name", LAST_WRONG)
def test_the_last_block_may_not_read_what_nothing_orders(name: str, policy: str) -> None:
    race(last_block(**LAST_WRONG[name]), grid=4, block=64, policy=policy)


@POLICY
def test_reading_another_slice_before_any_atomic(policy: str) -> None:
    early = "xor.b32 %r10, %r2, 64; mul.wide.u32 %rd9, %r10, 4; add.s64 %rd9, %rd0, %rd9; ld.global.u32 %r11, [%rd9];"
    message = race(last_block(barrier=early + "bar.sync 0;"), grid=4, block=64, policy=policy)
    assert "ld.global.u32 %r11" in message
    assert "st.global.u32 [%rd4]" in message


LOCK_RIGHT = {
    "acquire and release": {},
    "fences": {"take": "atom.global.cas.b32 %r2, [%rd1], 0, 1;", "first": FENCE, "last": FENCE,
               "give": "st.relaxed.gpu.global.u32 [%rd1], 0;"},
    "an exchange gives back": {"give": "atom.release.gpu.global.exch.b32 %r9, [%rd1], 0;"},
}  # fmt: skip
LOCK_WRONG = {
    "relaxed taking": {"take": "atom.global.cas.b32 %r2, [%rd1], 0, 1;"},
    "relaxed giving": {"give": "st.relaxed.gpu.global.u32 [%rd1], 0;"},
    "scope cta": {"take": "atom.acquire.cta.global.cas.b32 %r2, [%rd1], 0, 1;"},
    "weak giving": {"last": FENCE, "give": "st.global.u32 [%rd1], 0;"},
}


@POLICY
@pytest.mark.parametrize("name", LOCK_RIGHT)
def test_a_lock_orders_who_holds_it(name: str, policy: str) -> None:
    assert launch(spin_lock(**LOCK_RIGHT[name]), grid=5, policy=policy).data[0] == 5


@POLICY
@pytest.mark.parametrize("name", LOCK_WRONG)
def test_a_lock_without_order_does_not(name: str, policy: str) -> None:
    race(spin_lock(**LOCK_WRONG[name]), grid=5, policy=policy)


@POLICY
def test_reads_before_a_write_of_another_cta(policy: str) -> None:
    """Whoever comes first: CTA 0 reads what CTA 1 writes."""
    body = "setp.ne.u32 %p0, %r1, 0; @%p0 st.global.u32 [%rd0], 1; @!%p0 ld.global.u32 %r2, [%rd0];"
    race(entry(body), policy=policy)


def test_aliases_are_one_memory() -> None:
    memory = np.zeros(64, np.uint32)
    read_only = memory[:]
    read_only.flags.writeable = False
    body = "setp.ne.u32 %p0, %r1, 0; @%p0 st.global.u32 [%rd0], 1; @!%p0 ld.global.u32 %r2, [%rd1];"
    for policy in POLICIES:
        with pytest.raises(ExecutionFault, match="race"):
            Program.parse(entry(body)).launch("k", grid=2, block=1, args=[memory, read_only, memory], policy=policy)
