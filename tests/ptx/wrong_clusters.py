"""Kernels of clusters with one mistake each, beside the right ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from cluster_kernels import (
    ARRIVE,
    BOX_BYTES,
    HERE,
    RELAXED,
    SYNC,
    WAIT,
    arrive_at,
    expect,
    launch,
    multicast,
    neighbor,
    ready,
    wait,
)

from cutegen.ptx import TensorMap, ViolationKind

K = ViolationKind


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongCluster:
    """A right body, the one change that makes it wrong, and what is found then."""

    name: str
    kind: ViolationKind
    right: str
    change: tuple[str, str]
    says: str = ""
    cluster: int = 2
    has_map: bool = False
    also: tuple[ViolationKind, ...] = ()
    """What some orders come to first."""

    @property
    def wrong(self) -> str:
        """The body with the mistake."""
        before, after = self.change
        assert self.right.count(before) >= 1, self.name
        return self.right.replace(before, after)

    def run(self, body: str, policy: str) -> None:
        """Runs `body` on fresh arrays."""
        launch(body, cluster=self.cluster, tensor_map=matrix() if self.has_map else None, policy=policy)


def matrix() -> TensorMap:
    """64 x 64 words, in boxes of 16 x 32."""
    tensor = np.random.default_rng(3).integers(0, 1 << 32, (64, 64), dtype=np.uint32)
    return TensorMap(array=tensor, extents=(64, 64), strides_bytes=(256,), box=(32, 16))


PUT = "st.shared.u32 [%r6], %r0;"
PEER = neighbor("%r8", "%r6")
TAKE = "ld.shared::cluster.u32 %r3, [%r8];"
LAST = " " + SYNC
EXCHANGE = HERE + PUT + SYNC + PEER + TAKE + LAST
SEND = "st.shared::cluster.u32 [%r8], %r0;"
ADD = "ld.shared.u32 %r3, [%r6]; add.u32 %r3, %r3, %r0;"
SLOTS = HERE + SYNC + PEER + SEND + LAST + ADD
"""Each CTA sends its sum to a slot of the other's, and adds what it was sent."""


def memory_mistakes() -> Iterator[WrongCluster]:
    """Each other's shared memory, and the cluster's barrier."""
    yield WrongCluster(
        name="a neighbor that may not have begun",
        kind=K.RACE,
        also=(K.UNINITIALIZED,),
        right=EXCHANGE,
        change=(PUT + SYNC, PUT),
        says="may not have begun",
    )
    yield WrongCluster(
        name="a neighbor that may have exited",
        kind=K.RACE,
        right=EXCHANGE,
        change=(LAST, ""),
        says="exited",
    )
    yield WrongCluster(
        name="a slot that is added before the neighbor has sent",
        kind=K.RACE,
        also=(K.UNINITIALIZED,),
        right=SLOTS,
        change=(SEND + LAST, SEND),
        says="without a barrier",
    )
    yield WrongCluster(
        name="a neighbor that may have exited when it is sent to",
        kind=K.RACE,
        right=HERE + SYNC + PEER + SEND + LAST,
        change=(SEND + LAST, SEND),
        says="exited",
    )
    yield WrongCluster(
        name="a slot of a neighbor that may not have begun",
        kind=K.RACE,
        right=SLOTS,
        change=(HERE + SYNC, HERE),
        says="may not have begun",
    )
    yield WrongCluster(
        name="data behind a relaxed arrival",
        kind=K.RACE,
        right=EXCHANGE,
        change=(PUT + SYNC, PUT + RELAXED),
        says="read without a barrier after the write by thread",
    )
    yield WrongCluster(
        name="a last read before a relaxed arrival",
        kind=K.RACE,
        right=EXCHANGE,
        change=(LAST, RELAXED),
        says="may have exited: nothing orders it before",
    )
    yield WrongCluster(
        name="a rank that the cluster has not",
        kind=K.OUT_OF_BOUNDS,
        right=EXCHANGE,
        change=("%r6, %r2;", "%r6, %r22;"),
        says="CTA 2 of a cluster of 2",
    )
    yield WrongCluster(
        name="an address of a neighbor in .shared::cta",
        kind=K.OUT_OF_BOUNDS,
        right=EXCHANGE,
        change=("ld.shared::cluster", "ld.shared::cta"),
        says="needs .shared::cluster",
    )
    yield WrongCluster(
        name="an access past a neighbor's memory",
        kind=K.OUT_OF_BOUNDS,
        right=EXCHANGE,
        change=("%r3, [%r8];", "%r3, [%r8+16384];"),
        says="in the shared memory of the cluster's CTA",
    )
    yield WrongCluster(
        name="a neighbor's word that nobody wrote",
        kind=K.UNINITIALIZED,
        right=EXCHANGE,
        change=("%r3, [%r8];", "%r3, [%r8+512];"),
    )
    give = HERE + PUT + SYNC + "ld.shared.u32 %r3, [%r6];" + SYNC + PEER + "st.shared::cluster.u32 [%r8], %r3;" + LAST
    yield WrongCluster(
        name="a neighbor's word that it may still read",
        kind=K.RACE,
        right=give,
        change=("%r3, [%r6];" + SYNC, "%r3, [%r6];"),
        says="without a barrier after the",
    )
    yield WrongCluster(
        name="a barrier of the CTA in place of the cluster's",
        kind=K.RACE,
        right=give,
        change=("%r3, [%r6];" + SYNC, "%r3, [%r6]; bar.sync 0;"),
        says="without a barrier after the",
    )
    yield WrongCluster(
        name="a warp that arrives twice",
        kind=K.BARRIER,
        right=HERE + ARRIVE + WAIT + ARRIVE + WAIT,
        change=(ARRIVE + WAIT + ARRIVE + WAIT, ARRIVE + ARRIVE + WAIT),
        says="arrive twice without a barrier.cluster.wait",
    )
    yield WrongCluster(
        name="a wait without an arrival",
        kind=K.BARRIER,
        right=HERE + ARRIVE + WAIT,
        change=(ARRIVE, ""),
        says="wait without a barrier.cluster.arrive",
    )
    yield WrongCluster(
        name="lanes that come apart to an aligned arrival",
        kind=K.DIVERGENCE,
        right=HERE + "setp.lt.u32 %p1, %r0, 16; @%p1 barrier.cluster.arrive; @!%p1 barrier.cluster.arrive;" + WAIT,
        change=("barrier.cluster.arrive;", ARRIVE),
    )
    yield WrongCluster(
        name="a CTA whose threads wait elsewhere",
        kind=K.BARRIER,
        right=HERE + "setp.eq.u32 %p1, %r1, 0; mov.u32 %r9, 64; @%p1 bra MET; bar.sync 1, %r9; MET:" + SYNC,
        change=("%r9, 64;", "%r9, 96;"),
        says="threads have yet to arrive",
    )
    count = HERE + "@%p0 st.shared.u32 [%r4], 0;" + SYNC + "mov.u32 %r9, 0; mapa.shared::cluster.u32 %r8, %r4, %r9;"
    yield WrongCluster(
        name="atomics at scope cta on a neighbor's word",
        kind=K.RACE,
        right=count + "red.relaxed.cluster.shared::cluster.add.u32 [%r8], 1;" + SYNC,
        change=("relaxed.cluster", "relaxed.cta"),
    )
    flag = "LOOP: ld.acquire.cluster.shared::cta.u32 %r9, [%r4+4]; setp.eq.u32 %p2, %r9, 0; @%p2 bra LOOP;"
    tell = HERE + "@%p0 st.shared.u32 [%r4+4], 0;" + SYNC + neighbor("%r8", "%r4") + "@!%p0 bra END;"
    tell += "st.shared::cluster.u32 [%r8], %r20; st.release.cluster.shared::cluster.u32 [%r8+4], 1;"
    yield WrongCluster(
        name="a flag that is released at scope cta",
        kind=K.RACE,
        right=tell + flag + "ld.shared.u32 %r3, [%r4]; END:" + SYNC,
        change=("release.cluster", "release.cta"),
    )
    yield WrongCluster(
        name="a flag that is read without an acquire",
        kind=K.RACE,
        right=tell + flag + "ld.shared.u32 %r3, [%r4]; END:" + SYNC,
        change=("acquire.cluster", "relaxed.cluster"),
    )


def mbarrier_mistakes() -> Iterator[WrongCluster]:
    """Arrivals at a neighbor's mbarrier, and what it counts."""
    there = neighbor("%r9", "%r5")
    arrive = HERE + ready(1) + there + arrive_at("%r9") + wait()
    yield WrongCluster(
        name="an mbarrier that was made without a fence",
        kind=K.RACE,
        right=arrive,
        change=("@%p0 fence.mbarrier_init.release.cluster;", ""),
        says="without a barrier after its mbarrier.init",
    )
    yield WrongCluster(
        name="an mbarrier of a neighbor that may not have begun",
        kind=K.RACE,
        also=(K.BARRIER,),
        right=arrive,
        change=(RELAXED, "bar.sync 0;"),
    )
    yield WrongCluster(
        name="a wait for a neighbor's mbarrier",
        kind=K.BARRIER,
        right=arrive + SYNC,
        change=("shared::cta.b64 P, [%r5]", "shared::cta.b64 P, [%r9]"),
        says="only its own threads may wait for it",
    )
    yield WrongCluster(
        name="a neighbor that does not wait for an arrival",
        kind=K.RACE,
        right=arrive,
        change=(wait(), ""),
        says="exited",
    )
    yield WrongCluster(
        name="an arrival too few from a neighbor",
        kind=K.BARRIER,
        right=arrive,
        change=("[%r5], 1;", "[%r5], 2;"),
        says="1 of 2 arrivals have come",
    )
    yield WrongCluster(
        name="an arrival at a neighbor that nothing makes wait",
        kind=K.BARRIER,
        also=(K.RACE,),
        right=arrive,
        change=(arrive_at("%r9"), arrive_at("%r9") + arrive_at("%r9")),
    )
    leave = HERE + ready(64) + neighbor("%r8", "%r6") + there + "st.shared::cluster.u32 [%r8], %r0;"
    leave += arrive_at("%r9", guard="") + wait() + "ld.shared.u32 %r3, [%r6];"
    yield WrongCluster(
        name="data behind a relaxed arrival at an mbarrier",
        kind=K.RACE,
        right=leave,
        change=("mbarrier.arrive.release", "mbarrier.arrive.relaxed"),
    )
    sent = HERE + ready(1) + expect(64 * 4) + neighbor("%r8", "%r6") + there
    sent += "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r8], %r0, [%r9];"
    sent += wait() + "ld.shared.u32 %r3, [%r6];" + LAST
    yield WrongCluster(
        name="stores that are not waited for",
        kind=K.ASYNC_COPY,
        also=(K.UNINITIALIZED,),
        right=sent,
        change=(wait(), ""),
    )
    yield WrongCluster(
        name="stores that count where they do not go",
        kind=K.OUT_OF_BOUNDS,
        right=sent,
        change=("%r0, [%r9];", "%r0, [%r5];"),
        says="and the mbarrier is in CTA",
    )
    yield WrongCluster(
        name="stores of fewer bytes than expected", kind=K.BARRIER, right=sent, change=(", 256;", ", 260;")
    )
    copy = HERE + ready(1) + expect(256) + PUT + "fence.proxy.async; bar.sync 0; add.s32 %r10, %r4, 1024;"
    copy += neighbor("%r8", "%r10") + there
    copy += "@%p0 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r8], [%r4], 256, [%r9];"
    copy += wait() + "ld.shared.u32 %r3, [%r6+1024];" + LAST
    yield WrongCluster(
        name="a copy without a proxy fence",
        kind=K.RACE,
        right=copy,
        change=("fence.proxy.async;", ""),
        says="no fence.proxy.async",
    )
    yield WrongCluster(
        name="a copy's source that is written again",
        kind=K.ASYNC_COPY,
        right=copy + "st.shared.u32 [%r6], 1;",
        change=(LAST, ""),
    )
    yield WrongCluster(
        name="a CTA that exits while its memory is read",
        kind=K.RACE,
        also=(K.ASYNC_COPY,),
        right=copy,
        change=(LAST, ""),
        says="exited",
    )


def multicast_mistakes() -> Iterator[WrongCluster]:
    """CTA 0 loads a box for both CTAs."""
    first = "setp.eq.and.u32 %p5, %r1, 0, %p0;"
    right = (
        HERE + ready(1) + expect(BOX_BYTES) + first + multicast("@%p5", (0, 16)) + wait() + "ld.shared.u32 %r3, [%r6];"
    )
    yield WrongCluster(
        name="a mask with a CTA that the cluster has not",
        kind=K.OUT_OF_BOUNDS,
        right=right,
        has_map=True,
        change=("%h0, 3;", "%h0, 7;"),
        says="names CTA 2 of a cluster of 2",
    )
    yield WrongCluster(
        name="a mask without a CTA that waits",
        kind=K.BARRIER,
        right=right,
        has_map=True,
        change=("%h0, 3;", "%h0, 1;"),
        says="tx-count 2048",
    )
    yield WrongCluster(
        name="a multicast of fewer bytes than expected",
        kind=K.BARRIER,
        right=right,
        has_map=True,
        change=(f", {BOX_BYTES};", f", {2 * BOX_BYTES};"),
        says="tx-count 2048",
    )
    yield WrongCluster(
        name="a multicast of more bytes than expected",
        kind=K.BARRIER,
        right=right,
        has_map=True,
        change=(f", {BOX_BYTES};", f", {BOX_BYTES // 2};"),
        says="tx-count -1024",
    )
    yield WrongCluster(
        name="a multicast to a CTA that may not have begun",
        kind=K.RACE,
        also=(K.BARRIER,),
        right=right,
        has_map=True,
        change=(RELAXED, "bar.sync 0;"),
    )
    yield WrongCluster(
        name="a multicast that a neighbor does not wait for",
        kind=K.ASYNC_COPY,
        also=(K.RACE, K.UNINITIALIZED),
        right=right,
        has_map=True,
        change=(wait(), "@!%p5 bra W;" + wait()),
    )
    yield WrongCluster(
        name="a multicast to an mbarrier that was made without a fence",
        kind=K.RACE,
        right=right.replace(RELAXED, SYNC),
        has_map=True,
        change=("@%p0 fence.mbarrier_init.release.cluster;", ""),
        says="no fence.mbarrier_init",
    )
    again = f"@%p0 mbarrier.arrive.expect_tx.shared.b64 %rd4, [%r5], {BOX_BYTES};"
    twice = right + "fence.proxy.async;" + SYNC + again + multicast("@%p5", (0, 32)) + wait(1, name="V")
    yield WrongCluster(
        name="a stage that a neighbor may still read",
        kind=K.ASYNC_COPY,
        right=twice,
        has_map=True,
        change=("fence.proxy.async;" + SYNC, "fence.proxy.async; bar.sync 0;"),
        says="the bulk copy",
    )
    release = "add.s32 %r12, %r5, -8; mov.u32 %r9, 0; mapa.shared::cluster.u32 %r13, %r12, %r9;"
    held = HERE + "add.s32 %r12, %r5, -8; @%p0 mbarrier.init.shared.b64 [%r12], 2;" + right.removeprefix(HERE) + release
    held += "fence.proxy.async; bar.sync 0;" + arrive_at("%r13") + "@!%p5 bra AFTER;" + wait(0, name="FREE", at="%r12")
    held += "AFTER:" + again + multicast("@%p5", (0, 32)) + wait(1, name="V") + SYNC
    yield WrongCluster(
        name="a stage that is filled before it is released",
        kind=K.ASYNC_COPY,
        right=held,
        has_map=True,
        change=("@!%p5 bra AFTER;" + wait(0, name="FREE", at="%r12") + "AFTER:", ""),
        says="the bulk copy",
    )
    yield WrongCluster(
        name="a stage that only its own CTA releases",
        kind=K.ASYNC_COPY,
        also=(K.BARRIER,),
        right=held,
        has_map=True,
        change=("[%r12], 2;", "[%r12], 1;"),
    )


WRONG = tuple(wrong for group in (memory_mistakes, mbarrier_mistakes, multicast_mistakes) for wrong in group())
