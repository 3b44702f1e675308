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
    "a narrower fence after the release": (
        f"{FENCE} membar.cta; {STORE.format('relaxed.gpu')}",
        LOAD.format("relaxed.gpu"),
        FENCE,
    ),
    "narrower fences between": (
        f"membar.gl; membar.cta; {STORE.format('volatile')}",
        LOAD.format("volatile"),
        "membar.cta; membar.gl;",
    ),
    "a narrower fence and an atomic": (
        f"{FENCE} membar.cta; red.global.add.u32 [%rd1], 1;",
        "atom.global.or.b32 %r2, [%rd1], 0;",
        f"membar.cta; {FENCE}",
    ),
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
    "written after the wide fence": (
        f"{FENCE} st.global.u32 [%rd0], 43; membar.cta; {STORE.format('relaxed.gpu')}",
        LOAD.format("acquire.gpu"),
        "",
    ),
    "narrow fences only": (STORE.format("release.gpu"), LOAD.format("relaxed.gpu"), "membar.cta; membar.cta;"),
    "a fence behind the flag": (STORE.format("relaxed.gpu") + FENCE, LOAD.format("acquire.gpu"), ""),
    "a fence before the reading": (STORE.format("release.gpu"), FENCE + LOAD.format("relaxed.gpu"), ""),
    "a weak flag": ("st.global.u32 [%rd1], 1;", LOAD.format("acquire.gpu"), ""),
    "a weak look at it": (STORE.format("release.gpu"), "ld.global.u32 %r2, [%rd1];", ""),
    "a relaxed atomic": ("red.global.add.u32 [%rd1], 1;", LOAD.format("acquire.gpu"), ""),
    "a flag overwritten": (
        STORE.format("release.gpu") + "st.relaxed.gpu.global.u32 [%rd1], 2;",
        LOAD.format("relaxed.gpu") + "and.b32 %r2, %r2, 2;",
        LOAD.format("acquire.gpu"),
    ),
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
@pytest.mark.parametrize(
    ("release", "acquire"),
    [("release.cluster", "acquire.cluster"), ("release.cluster", "acquire.gpu"), ("release.gpu", "acquire.cluster")],
)
def test_scope_cluster_is_enough_within_a_cluster(release: str, acquire: str, policy: str) -> None:
    """CTA 0 tells another one: of its cluster, which may know, or of the next one, which may not."""
    text = message_passing(
        f"st.{release}.global.u32 [%rd1], 1;",
        f"ld.{acquire}.global.u32 %r2, [%rd1];",
    ).replace(
        "setp.ne.u32 %p0, %r1, 0; @%p0 bra READER;",
        "setp.eq.u32 %p0, %r1, LAST; @%p0 bra READER; setp.ne.u32 %p0, %r1, 0; @%p0 bra DONE;",
    )
    near, far = text.replace("LAST", "1"), text.replace("LAST", "2")
    assert launch(near, grid=4, cluster=2, policy=policy).out[0] == 42
    race(far, grid=4, cluster=2, policy=policy)
    narrow = near.replace(f"st.{release}.global", "fence.acq_rel.cta; st.relaxed.cluster.global")
    race(narrow, grid=4, cluster=2, policy=policy)
    race(near, grid=4, policy=policy)
    assert launch(far, grid=4, cluster=4, policy=policy).out[0] == 42


@POLICY
@pytest.mark.parametrize(("scope", "cluster", "races"), [("cta", 2, True), ("cluster", 2, False), ("cluster", 1, True)])
def test_atomics_include_each_other_within_a_cluster(scope: str, cluster: int, races: bool, policy: str) -> None:
    text = entry(f"red.relaxed.{scope}.global.add.u32 [%rd0], 1;")
    if races:
        race(text, cluster=cluster, policy=policy)
    else:
        assert launch(text, cluster=cluster, policy=policy).data[0] == 2


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


SEEDS = tuple(f"random:{seed}" for seed in range(24))
EVERY = (*POLICIES, *SEEDS)


def store_buffering(fence: str, *, fence_of_1: str | None = None) -> str:
    """CTA i raises flag i and looks at the other's: who sees it down takes what both want."""
    second = fence if fence_of_1 is None else fence_of_1
    return entry(f"""
        mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd1, %rd3; xor.b32 %r4, %r1, 1;
        mul.wide.u32 %rd5, %r4, 4; add.s64 %rd6, %rd1, %rd5; add.s64 %rd7, %rd2, %rd3;
        st.relaxed.gpu.global.u32 [%rd4], 1;
        setp.ne.u32 %p0, %r1, 0; @%p0 bra SECOND; {fence} bra LOOK;
    SECOND:
        {second}
    LOOK:
        ld.relaxed.gpu.global.u32 %r5, [%rd6]; st.global.u32 [%rd7], %r5;
        setp.ne.u32 %p1, %r5, 0; @%p1 bra DONE;
        CRITICAL
    DONE:""")


def outcomes(text: str, *, grid: int, words: int) -> set[tuple[int, ...]]:
    """What `out` begins with, over many orders."""
    return {tuple(launch(text, grid=grid, policy=policy).out[:words].tolist()) for policy in EVERY}


def test_store_buffering() -> None:
    """Both may see 0 unless both execute `fence.sc` in between; acquire and release do not help."""
    weak = store_buffering("").replace("CRITICAL", "")
    assert outcomes(weak, grid=2, words=2) >= {(0, 0), (0, 1)}
    for fence in ("fence.acq_rel.gpu;", "fence.gpu;"):  # .acq_rel where no order is written
        acq_rel = store_buffering(fence).replace("CRITICAL", "")
        assert (0, 0) in outcomes(acq_rel, grid=2, words=2)
    one = store_buffering("fence.sc.gpu;", fence_of_1="fence.acq_rel.gpu;").replace("CRITICAL", "")
    assert (0, 0) in outcomes(one, grid=2, words=2)
    narrow = store_buffering("fence.sc.cta;").replace("CRITICAL", "")
    assert (0, 0) in outcomes(narrow, grid=2, words=2)
    right = store_buffering("fence.sc.gpu;").replace("CRITICAL", "")
    assert (0, 0) not in outcomes(right, grid=2, words=2)
    assert (0, 0) not in outcomes(store_buffering("membar.gl;").replace("CRITICAL", ""), grid=2, words=2)


def test_what_store_buffering_lets_in_is_a_race() -> None:
    """Dekker's way into a critical section: without `fence.sc` both go in, in some order."""
    critical = "ld.global.u32 %r6, [%rd0]; add.u32 %r6, %r6, 1; st.global.u32 [%rd0], %r6;"
    right = store_buffering("fence.sc.gpu;").replace("CRITICAL", critical)
    wrong = store_buffering("fence.acq_rel.gpu;").replace("CRITICAL", critical)
    for policy in EVERY:
        assert launch(right, policy=policy).data[0] <= 1
    race(wrong, policy="reversed")


def independent_reads(between: str, load: str = "ld.relaxed.gpu") -> str:
    """CTAs 0 and 1 each write a word; 2 and 3 read both, in opposite orders: IRIW."""
    return entry(f"""
        setp.eq.u32 %p0, %r1, 0; @%p0 st.relaxed.gpu.global.u32 [%rd1], 1;
        setp.eq.u32 %p1, %r1, 1; @%p1 st.relaxed.gpu.global.u32 [%rd1+4], 1;
        setp.lt.u32 %p2, %r1, 2; @%p2 bra DONE;
        setp.eq.u32 %p3, %r1, 2; mov.u64 %rd3, %rd1; add.s64 %rd4, %rd1, 4;
        @!%p3 mov.u64 %rd3, %rd4; @!%p3 mov.u64 %rd4, %rd1;
        {load}.global.u32 %r5, [%rd3]; {between} {load}.global.u32 %r6, [%rd4];
        sub.u32 %r7, %r1, 2; mul.wide.u32 %rd5, %r7, 8; add.s64 %rd6, %rd2, %rd5;
        st.global.u32 [%rd6], %r5; st.global.u32 [%rd6+4], %r6;
    DONE:""")


def test_independent_reads_of_independent_writes() -> None:
    """Two readers may disagree on which write came first, unless each has a `fence.sc` between its reads."""
    disagree = (1, 0, 1, 0)
    many = (*EVERY, *(f"random:{seed}" for seed in range(100, 400)))

    def found(text: str) -> set[tuple[int, ...]]:
        return {tuple(launch(text, grid=4, policy=policy).out[:4].tolist()) for policy in many}

    assert disagree in found(independent_reads(""))
    assert disagree in found(independent_reads("", "ld.acquire.gpu"))
    assert disagree not in found(independent_reads("fence.sc.gpu;"))


def test_reads_of_one_location_do_not_go_back() -> None:
    """Coherence: once the new value was read, by whom one knows of, the old one cannot be."""
    text = entry("""
        setp.ne.u32 %p0, %r1, 0; @%p0 bra READER;
        st.relaxed.gpu.global.u32 [%rd1], 1; st.relaxed.gpu.global.u32 [%rd1], 2; bra DONE;
    READER:
        ld.relaxed.gpu.global.u32 %r5, [%rd1]; ld.relaxed.gpu.global.u32 %r6, [%rd1];
        st.global.u32 [%rd2], %r5; st.global.u32 [%rd2+4], %r6;
    DONE:""")
    found = outcomes(text, grid=2, words=2)
    assert len(found) > 2
    assert all(first <= second for first, second in found)
