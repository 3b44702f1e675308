"""Runs one CTA: its warps take turns until all have exited, and wait for each other at barriers.

Source: PTX ISA, "Independent Thread Scheduling" is left aside (the lanes of a warp run together between branches and
meet again at the post-dominator), `bar`/`barrier` (16 barriers, each counting threads by whole warps). A warp that
asks again for the phase of an mbarrier sleeps until it changes; where nothing else can go on, bulk copies land, and
after that waits come back false.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from cutegen.ptx.arithmetic.tensor_core import TensorCore
from cutegen.ptx.machine.blocks import Arrival, Awaited
from cutegen.ptx.machine.bulk import BulkCopies
from cutegen.ptx.machine.executable import Executable
from cutegen.ptx.machine.mbarriers import Mbarriers
from cutegen.ptx.machine.memory import PARAM_WINDOW, GlobalMemory, LocalMemory
from cutegen.ptx.machine.policy import Schedule
from cutegen.ptx.machine.shared import SHARED_BASE, SharedMemory
from cutegen.ptx.machine.special import Place
from cutegen.ptx.machine.tensor_map import BoundTensor
from cutegen.ptx.machine.warp import Mask, Path, Warp
from cutegen.ptx.machine.warpgroup import Parts, Warpgroups
from cutegen.ptx.text.types import WARP_LANES, Dim3
from cutegen.ptx.watch.locations import FenceOrder, Fences
from cutegen.ptx.watch.ordering import Ordering, Told
from cutegen.ptx.watch.shadow import Shadow
from cutegen.ptx.watch.traffic import TrafficCounters
from cutegen.ptx.watch.violations import Monitor, ViolationKind

MAX_ROUNDS_IN_VAIN = 3
"""How often all waits may come back false without anything happening, before it counts as a deadlock."""


@dataclass(slots=True, kw_only=True)
class Machine:
    """What all CTAs of a launch share."""

    executable: Executable
    grid: Dim3
    block: Dim3
    dynamic_smem_bytes: int
    memories: Mapping[str, GlobalMemory]
    tensors: Mapping[int, BoundTensor]
    monitor: Monitor
    traffic: TrafficCounters
    tensor_core: TensorCore
    max_steps: int
    block_runs: list[int]
    steps: int = 0
    fence_order: FenceOrder = field(default_factory=FenceOrder)

    @property
    def shared_bytes(self) -> int:
        """Static and dynamic shared memory of a CTA."""
        layout = self.executable.layout
        return max(layout.static_shared_bytes, layout.dynamic_shared_offset + self.dynamic_smem_bytes)

    def count_block(self, number: int, site: int, steps: int, cta: Dim3) -> None:
        """A warp begins a block; the step limit ends programs that do not end themselves."""
        self.block_runs[number] += 1
        self.steps += steps
        if self.steps > self.max_steps:
            message = (
                f"the launch ran more than {self.max_steps} warp instructions; raise max_steps if it is not in a loop"
            )
            self.monitor.report(ViolationKind.STEP_LIMIT, site, message, cta=cta, thread=None)


@dataclass(slots=True)
class _Barrier:
    """A barrier that has not completed: how many threads have come, who waits, what was told and voted."""

    threads: int = 0
    votes: int = 0
    waiting: list[tuple[Warp, Arrival]] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Sleep:
    """A warp's wait for an mbarrier (or its warpgroup) that is in `phase`; `site` is the instruction."""

    warp: Warp
    barrier: Awaited
    phase: int
    site: int


class Cta:
    """One CTA; `place` is its index in the grid."""

    def __init__(self, machine: Machine, place: Dim3, schedule: Schedule) -> None:
        self.place, self.memories, self.tensor_core = place, machine.memories, machine.tensor_core
        self.traffic = machine.traffic
        self.number = place[0] + machine.grid[0] * (place[1] + machine.grid[1] * place[2])
        self._machine, self._schedule = machine, schedule
        x, y, z = machine.block
        threads = x * y * z
        count = -(-threads // WARP_LANES)
        self.ordering = Ordering(count, self.number)
        self.fences = Fences(self.ordering, self.number, machine.fence_order, schedule.read_among)
        executable = machine.executable
        shadow = Shadow(
            machine.shared_bytes,
            base=SHARED_BASE,
            granule_bytes=executable.granule_bytes,
            ordering=self.ordering,
            monitor=machine.monitor,
            strong_sites=executable.sites.reach > 0,
        )
        self.shared = SharedMemory(
            machine.shared_bytes, shadow, machine.traffic, executable.semantics, executable.layout.shared_ends
        )
        self._warps = [self._make_warp(index, count, threads) for index in range(count)]
        self.mbarriers = Mbarriers(self.shared, self.ordering)
        self.bulk = BulkCopies(self.shared, self.mbarriers, self.ordering, schedule)
        parts = Parts(shared=self.shared, ordering=self.ordering, schedule=schedule, tensor_core=self.tensor_core)
        self.warpgroups = Warpgroups(self._warps, parts)
        self._blocked: set[int] = set()
        self._barriers: dict[int, _Barrier] = {}
        self._asleep: dict[int, _Sleep] = {}
        self._arrivals, self._rounds_in_vain, self._events_before = 0, 0, -1

    def _make_warp(self, index: int, count: int, threads: int) -> Warp:
        machine = self._machine
        place = Place(
            grid=machine.grid,
            block=machine.block,
            cta=self.place,
            warp=index,
            warps=count,
            dynamic_smem_bytes=machine.dynamic_smem_bytes,
            total_smem_bytes=machine.shared_bytes,
        )
        local = LocalMemory(machine.executable.layout.local_bytes, machine.monitor)
        return Warp(machine.executable.frame, self, place, min(WARP_LANES, threads - index * WARP_LANES), local)

    def turns(self) -> Iterator[None]:
        """Runs all warps to their exit; where one goes on and on, other CTAs may run in between.

        Raises:
            ExecutionFault: undefined behaviour that the launch raises on.
        """
        running = self._warps
        while running:
            goes_on = False
            self.bulk.land_some()
            self._asleep = {i: sleep for i, sleep in self._asleep.items() if sleep.barrier.phase == sleep.phase}
            ready = [warp for warp in running if warp.index not in self._blocked and warp.index not in self._asleep]
            if not ready and not self.bulk.land_newest() and not self._wake_in_vain():
                self._deadlock()
            for warp in self._schedule.order(ready):
                stop = self._advance(warp, self._schedule.turn_blocks())
                goes_on |= stop is None and bool(warp.stack)
                if isinstance(stop, Arrival):
                    self._arrive(warp, stop)
                elif stop is not None:
                    site = self._machine.executable.blocks[warp.stack[-1].block].last - 1
                    self._asleep[warp.index] = _Sleep(warp, stop, stop.phase, site)
            running = [warp for warp in running if warp.stack]
            if goes_on:
                yield
        self.bulk.finish()

    def _wake_in_vain(self) -> bool:
        """Lets all waits for mbarriers come back false; False where that has led to nothing before."""
        happened = self.mbarriers.events + self._arrivals
        self._rounds_in_vain = self._rounds_in_vain + 1 if happened == self._events_before else 0
        self._events_before = happened
        for sleep in self._asleep.values():
            sleep.warp.gives_up = True
        woken = bool(self._asleep) and self._rounds_in_vain < MAX_ROUNDS_IN_VAIN
        if woken:
            self._asleep = {}
        return woken

    def _advance(self, warp: Warp, turn_blocks: int) -> Arrival | Awaited | None:
        """Runs `warp` for some blocks, or until it arrives at a barrier, waits for an mbarrier, or exits."""
        machine, stack = self._machine, warp.stack
        blocks = machine.executable.blocks
        active: Path | None = None
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
            if arrival is not None:
                return arrival
        return None

    def _arrive(self, warp: Warp, arrival: Arrival) -> None:
        barrier = self._barriers.setdefault(arrival.barrier, _Barrier())
        barrier.threads += WARP_LANES
        self._arrivals += 1
        barrier.votes += arrival.votes
        barrier.told.append(self.ordering.arrive(warp))
        if arrival.waits:
            barrier.waiting.append((warp, arrival))
            self._blocked.add(warp.index)
        expected = arrival.threads or len(self._warps) * WARP_LANES
        if barrier.threads >= expected:
            self._complete(arrival.barrier, barrier)

    def _complete(self, number: int, barrier: _Barrier) -> None:
        del self._barriers[number]
        self.ordering.complete(barrier.told, [warp.index for warp, _ in barrier.waiting])
        x, y, z = self._machine.block
        for warp, arrival in barrier.waiting:
            self._blocked.discard(warp.index)
            if arrival.deliver is not None:
                arrival.deliver(warp, barrier.votes, arrival.threads or x * y * z)

    def _deadlock(self) -> None:
        """Every warp that still runs waits at a barrier or for an mbarrier, and nobody will complete it."""
        gone = [w.index for w in self._warps if not w.stack]
        lines, first = [], None
        for sleep in self._asleep.values():
            first = first or (sleep.site, sleep.warp)
            where = self._machine.monitor.describe(sleep.site)
            lines.append(f"warp {sleep.warp.index} waits for {sleep.barrier.awaited()} ({where})")
        for number, barrier in self._barriers.items():
            if not barrier.waiting:
                continue
            warp, arrival = barrier.waiting[0]
            first = first or (arrival.site, warp)
            expected = arrival.threads or len(self._warps) * WARP_LANES
            here = {w.index for w, _ in barrier.waiting}
            elsewhere = [w.index for w in self._warps if w.stack and w.index not in here]
            lines.append(
                f"barrier {number} waits for {expected} threads and {barrier.threads} have come; "
                f"warps that exited: {gone}, warps that wait elsewhere: {elsewhere}"
            )
        assert first is not None, "a warp that cannot go on waits for something"
        self.fault(ViolationKind.BARRIER, first[0], first[1].thread0, "; ".join(lines))

    def tensor_at(self, site: int, thread: int, address: int, rank: int) -> BoundTensor:
        """The tensor of the tensor map at the generic `address`, which must have `rank` modes."""
        tensor = self._machine.tensors.get(address - PARAM_WINDOW)
        if tensor is None:
            message = "no tensor map is here; only those among the kernel's parameters are supported"
            self.fault(ViolationKind.OUT_OF_BOUNDS, site, thread, message, address, always=True)
            raise AssertionError("this fault ends the launch")
        if len(tensor.map.extents) != rank:
            message = f"{rank} coordinates for a tensor map of {len(tensor.map.extents)} modes"
            self.fault(ViolationKind.OUT_OF_BOUNDS, site, thread, message, always=True)
        return tensor

    def describe(self, site: int) -> str:
        """`line 12 'st.shared...'` of an instruction."""
        return self._machine.monitor.describe(site)

    def elect(self, lanes: list[int]) -> int:
        """The lane that `elect.sync` chooses."""
        return self._schedule.elect(lanes)

    def is_patient(self) -> bool:
        """Whether a wait for an mbarrier goes on waiting."""
        return self._schedule.is_patient()

    def order_ways(self, ways: list[tuple[int, Mask]]) -> list[tuple[int, Mask]]:
        """The sides of a divergent branch; the last one runs first."""
        return self._schedule.order(ways)

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
        """Reports a violation of one thread of this CTA."""
        self._machine.monitor.report(kind, site, message, cta=self.place, thread=thread, address=address, always=always)


def _next_path(warp: Warp) -> Path | None:
    """The path on top of the stack that has lanes and has not met the others; None where the warp is done."""
    stack = warp.stack
    while stack:
        path = stack[-1]
        if path.block != path.meet and (path.mask & warp.alive).any():
            return path
        stack.pop()
    return None
