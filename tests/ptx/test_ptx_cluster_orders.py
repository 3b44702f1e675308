"""Random programs of a cluster, judged by vector clocks of their own: races and late accesses, where there are any.

Two threads of each CTA, of two warps, read and write words of all CTAs. Between them stand barriers of the cluster
(released or relaxed), barriers of the CTA, and messages: a thread arrives at an mbarrier of a CTA, which waits for it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from cluster_kernels import FENCE, HERE, POLICIES, RELAXED, SYNC, launch, wait

from cutegen.ptx import ExecutionFault, ViolationKind

CTAS, WORDS, BOXES = 3, 3, 6
THREADS = 2 * CTAS
PROGRAMS = 160


@dataclass(slots=True)
class Oracle:
    """Follows a program in text order; `now[t][u]` is the last event of thread u that thread t comes after."""

    now: list[list[int]] = field(default_factory=lambda: [[0] * THREADS for _ in range(THREADS)])
    told: dict[int, list[int]] = field(default_factory=dict)
    accesses: dict[tuple[int, int], list[tuple[int, int, bool]]] = field(default_factory=dict)
    visits: list[tuple[int, int, int]] = field(default_factory=list)
    races: bool = False

    def access(self, thread: int, home: int, word: int, writes: bool) -> None:
        """A thread reads or writes a word of CTA `home`."""
        self.now[thread][thread] += 1
        earlier = self.accesses.setdefault((home, word), [])
        for other, event, wrote in earlier:
            self.races |= (writes or wrote) and self.now[thread][other] < event
        earlier.append((thread, self.now[thread][thread], writes))
        if home != thread // 2:
            self.visits.append((home, thread, self.now[thread][thread]))

    def meet(self, threads: range) -> None:
        """Threads meet at a barrier."""
        joined = [max(self.now[t][u] for t in threads) for u in range(THREADS)]
        for thread in threads:
            self.now[thread] = list(joined)

    def send(self, thread: int, box: int, releases: bool) -> None:
        """A thread arrives at an mbarrier."""
        self.told[box] = list(self.now[thread]) if releases else [0] * THREADS

    def receive(self, thread: int, box: int) -> None:
        """A thread has waited for it."""
        self.now[thread] = [max(pair) for pair in zip(self.now[thread], self.told[box], strict=True)]

    def finds_fault(self) -> bool:
        """Return whether there are races, or visits that no thread of their CTA comes after."""
        return self.races or any(max(self.now[2 * h][t], self.now[2 * h + 1][t]) < e for h, t, e in self.visits)


def program(seed: int) -> tuple[str, bool]:
    """A kernel, and whether anything in it is undefined."""
    rng, oracle = random.Random(seed), Oracle()
    body = HERE + "and.b32 %r9, %r0, 31; shr.u32 %r10, %r0, 5; mad.lo.u32 %r11, %r1, 2, %r10;"
    body += "setp.ne.u32 %p1, %r9, 0; selp.u32 %r11, 99, %r11, %p1; add.s32 %r13, %r4, 4096;"
    body += "".join(f"@%p0 mbarrier.init.shared.b64 [%r13+{8 * box}], 1;" for box in range(BOXES)) + FENCE
    for word in range(WORDS):
        body += f"@%p0 st.shared.u32 [%r4+{4 * word}], {word};"
        for cta in range(CTAS):
            oracle.access(2 * cta, cta, word, True)
    body += _barrier(oracle, SYNC)
    sent: list[tuple[int, int]] = []
    for step in range(rng.randint(3, 12)):
        kind = rng.choices(("access", "barrier", "send", "receive"), (5, 2, 2, 2))[0]
        thread = rng.randrange(THREADS)
        chosen = f"setp.eq.u32 %p2, %r11, {thread};"
        if kind == "access":
            home, word, writes = rng.randrange(CTAS), rng.randrange(WORDS), rng.random() < 0.5
            oracle.access(thread, home, word, writes)
            body += f"{chosen} mov.u32 %r12, {home}; mapa.shared::cluster.u32 %r8, %r4, %r12;"
            place = f"[%r8+{4 * word}]"
            body += (
                f"@%p2 st.shared::cluster.u32 {place}, %r0;" if writes else f"@%p2 ld.shared::cluster.u32 %r3, {place};"
            )
        elif kind == "barrier":
            body += _barrier(oracle, rng.choice((SYNC, RELAXED, "bar.sync 0;")))
        elif kind == "send" and len(oracle.told) < BOXES:
            box, home, releases = len(oracle.told), rng.randrange(CTAS), rng.random() < 0.8
            oracle.send(thread, box, releases)
            sent.append((box, home))
            order = "release" if releases else "relaxed"
            body += f"{chosen} mov.u32 %r12, {home}; mapa.shared::cluster.u32 %r8, %r13, %r12;"
            body += f"@%p2 mbarrier.arrive.{order}.cluster.shared::cluster.b64 _, [%r8+{8 * box}];"
        elif kind == "receive" and sent:
            body += _receive(oracle, *sent.pop(rng.randrange(len(sent))), rng.randrange(2), step)
    for box, home in sent:
        body += _receive(oracle, box, home, rng.randrange(2), 100 + box)
    if rng.random() < 0.8:
        body += _barrier(oracle, SYNC)
    return body, oracle.finds_fault()


def _barrier(oracle: Oracle, text: str) -> str:
    if text == SYNC:
        oracle.meet(range(THREADS))
    elif text != RELAXED:
        for cta in range(CTAS):
            oracle.meet(range(2 * cta, 2 * cta + 2))
    return text


def _receive(oracle: Oracle, box: int, home: int, which: int, label: int) -> str:
    """A thread of CTA `home` waits for an arrival there."""
    thread = 2 * home + which
    oracle.receive(thread, box)
    skip = f"setp.eq.u32 %p2, %r11, {thread}; add.s32 %r14, %r13, {8 * box}; @!%p2 bra SKIP{label};"
    return skip + wait(0, name=f"SKIP{label}", at="%r14")


def finds_a_race(body: str, policy: str) -> bool:
    """Runs a kernel; nothing but races may be found."""
    try:
        launch(body, cluster=CTAS, policy=policy)
    except ExecutionFault as fault:
        if fault.violation.kind is ViolationKind.RACE:
            return True
        raise
    return False


@pytest.mark.parametrize("first", range(0, PROGRAMS, 40))
def test_what_is_found_is_what_nothing_orders(first: int) -> None:
    verdicts = set()
    for seed in range(first, first + 40):
        body, is_wrong = program(seed)
        policy = POLICIES[seed % len(POLICIES)]
        assert finds_a_race(body, policy) == is_wrong, (seed, policy)
        verdicts.add(is_wrong)
    assert verdicts == {True, False}
