"""One CTA at run time: its warps take turns until all have exited, and wait for each other at barriers.

Source: PTX ISA, `bar`/`barrier` (16 barriers, each counting threads in complete warps). "Independent Thread Scheduling"
is not modeled: the lanes of a warp run together between branches and reconverge at the post-dominator. A warp that
repeats a wait for the phase of an mbarrier sleeps until it changes. If nothing else can make progress, bulk copies
land, and after that waits return false.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from cutegen.ptx.arithmetic.tensor_core import TensorCore
from cutegen.ptx.machine.blocks import Arrival, Awaited
from cutegen.ptx.machine.bulk import BulkCopies
from cutegen.ptx.machine.executable import Executable
from cutegen.ptx.machine.grid import Shape, in_cta
from cutegen.ptx.machine.launch_control import ClusterQueue
from cutegen.ptx.machine.mbarriers import Mbarrier, Mbarriers
from cutegen.ptx.machine.memory import GlobalMemory, LocalMemory
from cutegen.ptx.machine.policy import TURN_QUESTIONS, Policy, Schedule
from cutegen.ptx.machine.registers import RegisterPool, launch_registers
from cutegen.ptx.machine.report import Printed
from cutegen.ptx.machine.shared import SHARED_BASE, RemoteSmemAccesses, SharedMemory
from cutegen.ptx.machine.special import TIME_PER_READ, Place
from cutegen.ptx.machine.tensor_map import MapsOfLaunch
from cutegen.ptx.machine.warp import Path, Warp
from cutegen.ptx.machine.warpgroup import Parts, Warpgroups
from cutegen.ptx.text.syntax import WARP_LANES, Dim3
from cutegen.ptx.watch.locations import FenceOrder, Fences, orders_of_cta
from cutegen.ptx.watch.predecessor import Predecessor
from cutegen.ptx.watch.semantics import Home
from cutegen.ptx.watch.shadow import Shadow
from cutegen.ptx.watch.traffic import TrafficCounters
from cutegen.ptx.watch.vector_clock import ReleasedKnowledge
from cutegen.ptx.watch.violations import Monitor, ViolationKind

if TYPE_CHECKING:
    from cutegen.ptx.machine.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Settings for running and watching a launch."""

    policy: Policy
    max_steps: int
    raise_on: Collection[ViolationKind]
    tensor_core: TensorCore
    programmatic: frozenset[int] | None = None
    """The parameters whose memory the grid before may use until it is waited for; None if it has ended."""


@dataclass(slots=True, kw_only=True)
class Machine:
    """State that all CTAs of a launch share."""

    executable: Executable
    shape: Shape
    rules: Rules
    memories: Mapping[str, GlobalMemory]
    tensors: MapsOfLaunch
    monitor: Monitor
    traffic: TrafficCounters
    queue: ClusterQueue
    block_runs: list[int]
    steps: int = 0
    nanoseconds: int = 0
    printed: Printed = field(default_factory=Printed)
    predecessor: Predecessor | None = None
    fence_order: FenceOrder = field(default_factory=FenceOrder)

    @property
    def shared_bytes(self) -> int:
        """Static and dynamic shared memory of a CTA."""
        layout = self.executable.layout
        return max(layout.static_shared_bytes, layout.dynamic_shared_offset + self.shape.dynamic_smem_bytes)

    def count_block(self, number: int, site: int, steps: int, cta: Dim3) -> None:
        """A warp begins a block; the step limit ends programs that do not terminate."""
        self.block_runs[number] += 1
        self.steps += steps
        if self.steps > self.rules.max_steps:
            most = self.rules.max_steps
            message = f"the launch ran more than {most} warp instructions; raise max_steps if it is not in a loop"
            self.monitor.report(ViolationKind.STEP_LIMIT, site, message, cta=cta, thread=None)


@dataclass(slots=True)
class _Barrier:
    """A barrier that has not completed, of `expected` threads, and the `first` arrival.

    Also arrived threads, waiting warps, passed-on knowledge and votes.
    """

    expected: int
    first: Arrival
    threads: int = 0
    votes: int = 0
    against: int = 0
    waiting: list[tuple[Warp, Arrival]] = field(default_factory=list)
    told: list[ReleasedKnowledge] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Sleep:
    """A warp's wait for an object that is in `phase`; `site` is the instruction."""

    warp: Warp
    barrier: Awaited
    phase: int
    site: int


class Cta:
    """The CTA of `rank` in its cluster; `place` is its index in the grid."""

    def __init__(self, machine: Machine, cluster: Cluster, rank: int, schedule: Schedule) -> None:
        self.cluster, self.rank, self.place = cluster, rank, machine.shape.grid.place(cluster.number, rank)
        self.memories, self.tensor_core, self.traffic = machine.memories, machine.rules.tensor_core, machine.traffic
        self._machine, self.schedule = machine, schedule
        self.ordering, self.predecessor = cluster.ordering, machine.predecessor
        self.tensors = machine.tensors
        threads, count = machine.shape.threads, self.ordering.warps_per_cta
        self.first_thread = rank * count * WARP_LANES
        orders = orders_of_cta(cluster.fence_order, machine.fence_order)
        self.fences = Fences(self.ordering, Home(cluster.number, rank), orders, schedule.read_among)
        executable = machine.executable
        shadow = Shadow(
            machine.shared_bytes,
            base=in_cta(rank, SHARED_BASE),
            granule_bytes=executable.granule_bytes,
            ordering=self.ordering,
            monitor=machine.monitor,
            sites=executable.sites,
            rank=rank,
        )
        self.shared = SharedMemory(
            machine.shared_bytes,
            shadow,
            machine.traffic,
            executable.semantics,
            executable.layout.shared_ends,
            executable.variables,
            rank,
        )
        self.local = LocalMemory(executable.layout.local_bytes, count * WARP_LANES, machine.monitor)
        self._warps = [self._make_warp(index, count, threads) for index in range(count)]
        self.mbarriers = Mbarriers(self.shared, self.ordering)
        self.bulk = BulkCopies(self.shared, self.mbarriers, self.ordering, schedule)
        self.remote_smem_accesses = RemoteSmemAccesses()
        self.has_ended = False
        parts = Parts(shared=self.shared, ordering=self.ordering, schedule=schedule, tensor_core=self.tensor_core)
        self.warpgroups = Warpgroups(self._warps, parts)
        self.registers = RegisterPool(count, launch_registers(executable.entry, threads))
        self._blocked: set[int] = set()
        self._barriers: dict[int, _Barrier] = {}
        self._asleep: dict[int, _Sleep] = {}
        self._arrivals = 0

    def _make_warp(self, index: int, count: int, threads: int) -> Warp:
        machine = self._machine
        place = Place(
            shape=machine.shape, cta=self.place, warp=index, warps=count, total_smem_bytes=machine.shared_bytes
        )
        return Warp(machine.executable.frame, self, place, min(WARP_LANES, threads - index * WARP_LANES))

    @property
    def is_running(self) -> bool:
        """True if a warp has not exited."""
        return any(warp.stack for warp in self._warps)

    @property
    def happened(self) -> int:
        """Number of events that may wake a waiting warp."""
        return self.mbarriers.events + self._arrivals

    def print(self, text: str) -> None:
        """A thread has printed `text`."""
        self._machine.printed.add(text)

    def nanoseconds(self) -> int:
        """The launch's timer, which advances whenever a warp reads it."""
        self._machine.nanoseconds += TIME_PER_READ
        return self._machine.nanoseconds

    def run_round(self) -> tuple[bool, bool]:
        """Runs every warp that can run once; returns whether there was one, and whether one keeps running."""
        goes_on = False
        self.bulk.land_some()
        self.cluster.tensor.land_some(self.schedule)
        self._asleep = {i: sleep for i, sleep in self._asleep.items() if sleep.barrier.phase == sleep.phase}
        running = [warp for warp in self._warps if warp.stack]
        ready = [warp for warp in running if warp.index not in self._blocked and warp.index not in self._asleep]
        for warp in self.schedule.order(ready):
            stop = self._advance(warp, self.schedule.turn_blocks())
            goes_on |= stop is None and bool(warp.stack)
            if isinstance(stop, Arrival):
                self._arrive(warp, stop)
            elif stop is not None:
                site = self._machine.executable.blocks[warp.stack[-1].block].last - 1
                self._asleep[warp.index] = _Sleep(warp, stop, stop.phase, site)
        return bool(ready), goes_on

    def wake(self) -> bool:
        """Makes the waits for mbarriers return false; False if there are none."""
        waits = {i: sleep for i, sleep in self._asleep.items() if isinstance(sleep.barrier, Mbarrier)}
        for sleep in waits.values():
            sleep.warp.gives_up = True
        self._asleep = {i: sleep for i, sleep in self._asleep.items() if i not in waits}
        return bool(waits)

    def leave(self, warp: Warp) -> None:
        """The active threads of `warp` exit."""
        self.bulk.leave(warp)
        self.warpgroups.leave(warp)
        self.cluster.barrier.leave(warp)
        self.remote_smem_accesses.learn(self.ordering.knowledge_of(warp))
        warp.retire()

    def end(self) -> None:
        """All threads have exited."""
        self.has_ended = True
        self.bulk.finish()
        self.cluster.tensor.finish(self)
        self.remote_smem_accesses.finish()

    def _advance(self, warp: Warp, turn_blocks: int) -> Arrival | Awaited | None:
        """Runs `warp` for some blocks, or until it arrives at a barrier, waits for a phase, or exits."""
        machine, stack = self._machine, warp.stack
        blocks = machine.executable.blocks
        active: Path | None = None
        questions = 0
        for _ in range(turn_blocks):
            path = _next_path(warp)
            if path is None:
                return None
            if path is not active or warp.count == 0:
                mask = path.mask & warp.alive
                warp.set_mask(mask, int(np.count_nonzero(mask)))
            block = blocks[path.block]
            machine.count_block(path.block, block.first, block.last - block.first, self.place)
            for step in block.steps:
                step(warp)
            arrival = block.end(warp, path)
            active = path if stack and stack[-1] is path else None
            if active is not None and (warp.count == 0 or not (path.mask & warp.mask).any()):
                active = None
            questions += block.asks
            if arrival is not None or questions == TURN_QUESTIONS:
                return arrival
        return None

    def _arrive(self, warp: Warp, arrival: Arrival) -> None:
        expected = arrival.threads or len(self._warps) * WARP_LANES
        barrier = self._barriers.setdefault(arrival.barrier, _Barrier(expected, arrival))
        self._check_alike(warp, arrival, expected, barrier)
        barrier.threads += WARP_LANES
        self._arrivals += 1
        barrier.votes += arrival.votes
        barrier.against += arrival.against
        barrier.told.append(self.ordering.arrive(warp))
        if arrival.waits:
            barrier.waiting.append((warp, arrival))
            self._blocked.add(warp.index)
        if barrier.threads >= expected:
            self._complete(arrival.barrier, barrier)

    def _check_alike(self, warp: Warp, arrival: Arrival, expected: int, barrier: _Barrier) -> None:
        """Faults if a barrier's arrivals name unlike counts of threads, or only some of them are a `bar.red`."""
        earlier, message = self.describe(barrier.first.site), ""
        if expected != barrier.expected:
            message = f"waits for {expected} threads here, and for {barrier.expected} at {earlier}"
        elif (arrival.deliver is None) != (barrier.first.deliver is None):
            message = f"is a reduction either here or at {earlier}, not at both"
        if message:
            thread = int(warp.threads()[0])
            self.fault(ViolationKind.BARRIER, arrival.site, thread, f"barrier {arrival.barrier} {message}")

    def _complete(self, number: int, barrier: _Barrier) -> None:
        del self._barriers[number]
        self.ordering.complete(barrier.told, [warp.index for warp, _ in barrier.waiting])
        for warp, arrival in barrier.waiting:
            self._blocked.discard(warp.index)
            if arrival.deliver is not None:
                arrival.deliver(warp, barrier.votes, barrier.against)

    def stuck(self) -> list[tuple[int, Warp, str]]:
        """Lists waits that will never end: the instruction, a warp, and a description."""
        gone = [w.number for w in self._warps if not w.stack]
        found = []
        for sleep in self._asleep.values():
            where = self._machine.monitor.describe(sleep.site)
            line = f"warp {sleep.warp.number} waits for {sleep.barrier.awaited()} ({where})"
            found.append((sleep.site, sleep.warp, line))
        for number, barrier in self._barriers.items():
            if not barrier.waiting:
                continue
            warp, arrival = barrier.waiting[0]
            here = {w.index for w, _ in barrier.waiting}
            elsewhere = [w.number for w in self._warps if w.stack and w.index not in here]
            line = (
                f"barrier {number} waits for {barrier.expected} threads and {barrier.threads} have come; "
                f"warps that exited: {gone}, warps that wait elsewhere: {elsewhere}"
            )
            found.append((arrival.site, warp, line))
        return found

    def describe(self, site: int) -> str:
        """`line 12 'st.shared...'` of an instruction."""
        return self._machine.monitor.describe(site)

    def fault(
        self,
        kind: ViolationKind,
        site: int,
        thread: int,
        message: str,
        address: int | None = None,
        *,
        always: bool = False,
    ) -> None:
        """Reports a violation of one thread of this CTA, numbered as in the cluster."""
        local = thread - self.first_thread
        self._machine.monitor.report(kind, site, message, cta=self.place, thread=local, address=address, always=always)

    def describe_thread(self, cluster: int, thread: int | None, warp: int) -> str:
        """Description of a thread of a cluster, of several of a warp, or of the copies of an agent."""
        if warp >= self.ordering.warps:
            number = self._machine.shape.grid.cta_number(cluster, 0)
            return f"a bulk copy of {'' if len(self.cluster.ctas) == 1 else 'the cluster of '}CTA number {number}"
        rank, local = divmod(warp, self.ordering.warps_per_cta)
        who = f"threads of warp {local}"
        if thread is not None:
            who = f"thread {thread % (self.ordering.warps_per_cta * WARP_LANES)}"
        return f"{who} of CTA number {self._machine.shape.grid.cta_number(cluster, rank)}"


def _next_path(warp: Warp) -> Path | None:
    """The topmost path that has lanes and has not reconverged with the others; None if the warp is done."""
    stack = warp.stack
    while stack:
        path = stack[-1]
        if path.block != path.meet and (path.mask & warp.alive).any():
            return path
        stack.pop()
        if path.call is not None:
            path.call.finish(warp, path.mask & warp.alive)
    return None
