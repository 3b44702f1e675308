"""Accesses of a cluster's other CTAs to a CTA's shared memory: they must complete before the CTA's last exit.

Source: PTX ISA, "State Spaces: Shared State Space": shared memory has the lifetime of its CTA. The check compares the
clocks of the visitors with what the CTA's own threads knew of them at their exit, not the interleaving that occurred.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.watch.released_knowledge import NOTHING
from cutegen.ptx.watch.vector_clock import Clock, later
from cutegen.ptx.watch.violations import ViolationKind


@dataclass(frozen=True, slots=True)
class _Visit:
    tick: int
    warp: Warp
    site: int
    thread: int
    address: int


@dataclass(slots=True)
class RemoteSmemAccesses:
    """The last visit of each agent: a warp of another CTA, or the copies of an mbarrier that read this memory."""

    _accesses: dict[int, _Visit] = field(default_factory=dict)
    _arrivals: dict[int, _Visit] = field(default_factory=dict)
    _known: Clock = field(default_factory=lambda: NOTHING.known)
    _seen: Clock = field(default_factory=lambda: NOTHING.seen)

    def access(self, warp: Warp, site: int, thread: int, address: int, *, agent: int | None = None) -> None:
        """`thread` of `warp` reads or writes here now; with `agent`, the copies of an mbarrier do so instead."""
        visit = _Visit(warp.cta.ordering.tick, warp, site, thread, address)
        self._accesses[warp.index if agent is None else agent] = visit

    def arrival(self, warp: Warp, site: int, thread: int, address: int, tick: int) -> None:
        """`thread` of `warp` arrives at an mbarrier here, in `tick`."""
        self._arrivals[warp.index] = _Visit(tick, warp, site, thread, address)

    def learn(self, knowledge: tuple[Clock, Clock]) -> None:
        """Threads of the CTA exit with this knowledge."""
        self._known, self._seen = later(self._known, knowledge[0]), later(self._seen, knowledge[1])

    def finish(self) -> None:
        """The CTA's last thread has exited."""
        for visits, clock, what in (
            (self._accesses, self._known, "access to"),
            (self._arrivals, self._seen, "arrival at an mbarrier in"),
        ):
            for agent, visit in visits.items():
                if agent >= len(clock) or clock[agent] < visit.tick:
                    _report(visit, what)


def _report(visit: _Visit, what: str) -> None:
    message = f"{what} the shared memory of another CTA of the cluster that may have exited: nothing orders it before"
    visit.warp.cta.fault(ViolationKind.RACE, visit.site, visit.thread, message, visit.address)
