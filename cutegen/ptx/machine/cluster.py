"""Runs the CTAs of one cluster side by side: their common clocks and barrier, and accesses to each other's memory.

Source: PTX ISA, "Cluster of Cooperative Thread Arrays", `barrier.cluster`, "State Spaces: Shared State Space". A CTA's
shared memory lives from the CTA's start until its last thread exits: a thread of another CTA that accesses it must have
seen the start, and must be ordered before that exit.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from cutegen.ptx.machine.cluster_barrier import ClusterBarrier
from cutegen.ptx.machine.cta import Cta, Machine
from cutegen.ptx.machine.grid import CTA_WINDOW_BYTES
from cutegen.ptx.machine.tensor_unit import TensorUnit
from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.text.syntax import WARP_LANES
from cutegen.ptx.watch.locations import FenceOrder
from cutegen.ptx.watch.ordering import Ordering
from cutegen.ptx.watch.tensor_order import TensorOrder
from cutegen.ptx.watch.violations import ViolationKind

MAX_ROUNDS_IN_VAIN = 3
"""Rounds in which all waits may return false without any event before this counts as a deadlock."""


@dataclass(slots=True)
class Cluster:
    """Cluster `number` of a launch."""

    machine: Machine
    number: int
    ordering: Ordering
    barrier: ClusterBarrier
    tensor: TensorUnit
    fence_order: FenceOrder = field(default_factory=FenceOrder)
    ctas: tuple[Cta, ...] = ()
    has_seen_refusal: bool = False
    """True if a thread knows that a request to cancel another cluster was refused."""

    def peer(self, warp: Warp, site: int, thread: int, rank: int, address: int) -> Cta:
        """The CTA of `rank`, in whose shared memory `thread` accesses `address`."""
        if not 0 <= rank < len(self.ctas):
            message = f"an address of CTA {rank} of a cluster of {len(self.ctas)}"
            warp.cta.fault(ViolationKind.OUT_OF_BOUNDS, site, thread, message, address, always=True)
        peer = self.ctas[rank]
        if peer is warp.cta:
            return peer
        if not self.ordering.has_begun(thread, rank):
            message = f"access to the shared memory of the cluster's CTA {rank}, which may not have begun"
            message += ": no barrier.cluster has been waited for"
            warp.cta.fault(ViolationKind.RACE, site, thread, message, address)
        if peer.has_ended:
            message = f"access to the shared memory of the cluster's CTA {rank}, which has exited"
            warp.cta.fault(ViolationKind.RACE, site, thread, message, address, always=True)
        return peer

    def at(self, warp: Warp, site: int, thread: int, address: int) -> tuple[Cta, int]:
        """The CTA whose shared memory has `address`, and the address."""
        return self.peer(warp, site, thread, address // CTA_WINDOW_BYTES, address), address

    def turns(self) -> Iterator[None]:
        """Runs all CTAs to their exit; if one keeps running, other clusters may run in between.

        Raises:
            ExecutionFault: undefined behavior that the launch raises on.
        """
        schedule = self.machine.rules.policy.schedule(f"cluster {self.number}")
        watch = _Watch(self.ctas)
        while running := [cta for cta in self.ctas if cta.is_running]:
            ran = goes_on = False
            for cta in schedule.order(running):
                went, on_and_on = _run(cta, once=schedule.takes_turns())
                ran, goes_on = ran or went, goes_on or on_and_on
            if not ran and not self._land_newest() and not watch.wake_in_vain():
                self._deadlock()
            if goes_on:
                yield

    def _land_newest(self) -> bool:
        """The last bulk copy completes, or a commit if there is none; False if nothing is in flight."""
        return any(cta.bulk.land_newest() for cta in self.ctas) or self.tensor.land_newest()

    def _deadlock(self) -> None:
        """Every running warp waits at a barrier or for an mbarrier that cannot complete."""
        stuck = [(cta, *each) for cta in self.ctas for each in cta.stuck()]
        assert stuck, "a warp that cannot go on waits for something"
        several = len(self.ctas) > 1
        lines = [f"CTA {cta.rank} of the cluster: {line}" if several else line for cta, _, _, line in stuck]
        cta, site, warp, _ = stuck[0]
        cta.fault(ViolationKind.BARRIER, site, warp.thread0, "; ".join(lines))


def make_cluster(machine: Machine, number: int) -> Cluster:
    """Cluster `number`, ready to run."""
    shape, policy = machine.shape, machine.rules.policy
    size, threads = shape.grid.cluster_size, shape.threads
    keeps_seen = size > 1 or machine.executable.keeps_seen
    ordering = Ordering(-(-threads // WARP_LANES), number, size, keeps_seen=keeps_seen)
    barrier = ClusterBarrier(ordering, np.arange(threads), size)
    tensor = TensorUnit(TensorOrder(ordering, machine.monitor))
    cluster = Cluster(machine, number, ordering, barrier, tensor)
    schedules = [policy.schedule(f"cta {shape.grid.place(number, rank)}") for rank in range(size)]
    cluster.ctas = tuple(Cta(machine, cluster, rank, schedule) for rank, schedule in enumerate(schedules))
    return cluster


def _run(cta: Cta, *, once: bool) -> tuple[bool, bool]:
    """Runs the CTA, `once` or as far as it can; returns whether it made progress, and whether it keeps running."""
    ran = goes_on = False
    while cta.is_running:
        went, goes_on = cta.run_round()
        ran |= went
        if goes_on or not went or once:
            break
    if not cta.is_running:
        cta.end()
    return ran, goes_on


@dataclass(slots=True)
class _Watch:
    """Detector of waits that never end."""

    ctas: tuple[Cta, ...]
    rounds_in_vain: int = 0
    happened: int = -1

    def wake_in_vain(self) -> bool:
        """Makes all waits for mbarriers return false; False if that led to no progress before."""
        happened = sum(cta.happened for cta in self.ctas)
        self.rounds_in_vain = self.rounds_in_vain + 1 if happened == self.happened else 0
        self.happened = happened
        if self.rounds_in_vain >= MAX_ROUNDS_IN_VAIN:
            return False
        woken = [cta.wake() for cta in self.ctas]
        return any(woken)
