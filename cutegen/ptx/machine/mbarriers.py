"""The mbarriers of a CTA: phases, pending arrivals, transactions, and what an observed phase orders.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier". A phase is complete when no
arrival is pending and the transaction count is zero. Its arrivals and the bulk copies that land in it are ordered
before the next accesses of a thread that has observed it complete.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from cutegen.ptx.machine.shared import SharedMemory
from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.watch.ordering import Ordering
from cutegen.ptx.watch.paged import MANY
from cutegen.ptx.watch.shadow import MAX_AGENTS, Access
from cutegen.ptx.watch.vector_clock import NOTHING, Clock, ReleasedKnowledge, join, later
from cutegen.ptx.watch.violations import ViolationKind

OBJECT_BYTES = 8
MAX_COUNT = (1 << 20) - 1
_NEVER = MANY, 0


@dataclass(slots=True, kw_only=True)
class Mbarrier:
    """One mbarrier; `agent` is the column of `Ordering` for copies that land at it."""

    address: int
    agent: int
    expected: int
    pending: int
    memory: Access
    made_by: int
    made_at: int
    copy_agent: int | None = None
    """The column for the `cp.async` that arrive here, which write by the generic proxy; None before the first."""
    is_fenced: bool = False
    published_at: int | None = None
    """The tick of the initializing thread's `fence.mbarrier_init`: threads that have seen it may use the mbarrier."""
    has_visitors: bool = False
    """True if threads of other CTAs have arrived."""
    from_visitors: Clock = field(default_factory=lambda: NOTHING.known)
    """Clock that they passed on at scope cluster."""
    transactions: int = 0
    phase: int = 0
    arrived: ReleasedKnowledge = NOTHING
    """Knowledge passed on in the current phase."""
    released: ReleasedKnowledge = NOTHING
    """Knowledge passed on in the completed phases."""
    arrivals: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Last arrivals of the current phase for each warp: their thread (`MANY` for several), and their tick."""
    arrivals_before: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The same for the completed phases."""

    def settle(self) -> None:
        """Completes the phase if nothing is pending."""
        if self.pending == 0 and self.transactions == 0:
            self.released = join(self.released, self.arrived)
            self.arrivals_before |= self.arrivals
            self.arrivals = {}
            self.arrived, self.pending, self.phase = NOTHING, self.expected, self.phase + 1

    def visited(self, told: ReleasedKnowledge, *, reaches_cluster: bool) -> ReleasedKnowledge:
        """A thread of another CTA arrives with `told`; returns what it passes on to an acquire at scope cta."""
        self.has_visitors = True
        if reaches_cluster:
            self.from_visitors = later(self.from_visitors, told.within_scopes())
        return replace(told, in_scope=NOTHING.known)

    def told(self, *, reaches_cluster: bool) -> ReleasedKnowledge:
        """Knowledge of a thread that has observed the last phase complete, by an acquire at scope cluster or cta."""
        if not self.has_visitors or not reaches_cluster:
            return self.released
        return replace(self.released, in_scope=later(self.released.within_scopes(), self.from_visitors))

    def awaited(self) -> str:
        """Name of this object, for messages."""
        return f"{self} to leave its phase"

    def __str__(self) -> str:
        """Address of the mbarrier, for messages."""
        arrivals = f"{self.expected - self.pending} of {self.expected} arrivals have come"
        return f"the mbarrier at {self.address:#x} (in phase {self.phase}: {arrivals}, tx-count {self.transactions})"


class Mbarriers:
    """The mbarriers of one CTA, by address; `events` counts events that may wake a waiting warp."""

    def __init__(self, shared: SharedMemory, ordering: Ordering) -> None:
        self._shared, self._ordering = shared, ordering
        self._live: dict[int, Mbarrier] = {}
        self._agents: dict[int, int] = {}
        self.events = 0

    def make(self, warp: Warp, site: int, thread: int, address: int, count: int) -> None:
        """`mbarrier.init`."""
        if not 1 <= count <= MAX_COUNT:
            self._fault(warp, site, thread, f"an mbarrier of {count} arrivals; expected 1 to {MAX_COUNT}", address)
        memory = self._shared.reserve(warp, site, np.array([address]), np.array([thread]), OBJECT_BYTES)
        if memory is None:
            return
        if address not in self._agents:
            if self._ordering.known.shape[1] >= MAX_AGENTS:
                self._fault(warp, site, thread, f"more than {len(self._agents)} mbarriers in one CTA", address)
            self._agents[address] = self._ordering.add_agent()
        self._live[address] = Mbarrier(
            address=address,
            agent=self._agents[address],
            expected=count,
            pending=count,
            memory=memory,
            made_by=thread,
            made_at=self._ordering.tick,
        )

    def unmake(self, warp: Warp, site: int, thread: int, address: int) -> None:
        """`mbarrier.inval`."""
        self._shared.shadow.release(self.at(warp, site, [thread], address).memory)
        del self._live[address]

    def at(self, warp: Warp, site: int, threads: list[int], address: int) -> Mbarrier:
        """The mbarrier at `address`, which `threads` may use."""
        barrier = self._live.get(address)
        if barrier is None:
            self._fault(warp, site, threads[0], "no mbarrier is here: mbarrier.init has not been executed", address)
            raise AssertionError("barrier faults end the launch")
        for thread in threads:
            if not self._is_made_for(thread, barrier):
                maker = self._ordering.who(barrier.made_by)
                message = f"use of an mbarrier without a barrier after its mbarrier.init by {maker}"
                warp.cta.fault(ViolationKind.RACE, site, thread, message, address)
        return barrier

    def _is_made_for(self, thread: int, barrier: Mbarrier) -> bool:
        """Return whether the mbarrier's initialization is ordered before the next access of `thread`."""
        ordering, published = self._ordering, barrier.published_at
        if ordering.is_after(thread, barrier.made_by, barrier.made_at):
            return True
        return published is not None and ordering.has_seen(thread, barrier.made_by, published)

    def fence(self, warp: Warp) -> None:
        """`fence.mbarrier_init`: bulk copies may use mbarriers that the active threads have initialized."""
        threads = set(warp.threads().tolist())
        for barrier in self._live.values():
            if barrier.made_by in threads and not barrier.is_fenced:
                barrier.is_fenced, barrier.published_at = True, self._ordering.tick

    def check_fenced(
        self, warp: Warp, site: int, thread: int, barrier: Mbarrier, kind: ViolationKind = ViolationKind.RACE
    ) -> None:
        """A bulk copy will signal `barrier`: its initialization needs a fence, or there is a violation of `kind`."""
        if not barrier.is_fenced and not self._ordering.is_fenced_after(thread, barrier.made_by, barrier.made_at):
            message = "no fence.mbarrier_init or fence.proxy.async between mbarrier.init and the bulk copy that uses it"
            warp.cta.fault(kind, site, thread, message, barrier.address)

    def arrive(
        self,
        warp: Warp,
        site: int,
        thread: int,
        barrier: Mbarrier,
        count: int,
        told: ReleasedKnowledge,
        *,
        own_agent: int | None = None,
    ) -> None:
        """`count` arrivals of `thread`, or of its agent: their own earlier arrivals are no news to them."""
        self.check_phase(warp, site, thread, barrier, own_agent)
        self.count_arrivals(warp, site, thread, barrier, count, told)

    def check_phase(self, warp: Warp, site: int, thread: int, barrier: Mbarrier, own_agent: int | None = None) -> None:
        """An arrival of `thread` will count: it must have seen the phase before complete."""
        index, ordering = warp.index, self._ordering
        who, tick = barrier.arrivals_before.get(index, _NEVER)
        of_own_warp = tick > ordering.known[index, index] and who != thread
        is_early = of_own_warp and not ordering.has_seen_warp(thread, tick)
        if is_early or ordering.is_news(warp, barrier.released, thread, own_agent):
            message = f"an arrival at {barrier} by a thread that has not seen the phase before complete"
            message += f": it may count for either, or more threads arrive than its count of {barrier.expected}"
            self._fault(warp, site, thread, message, barrier.address)

    def count_arrivals(
        self, warp: Warp, site: int, thread: int, barrier: Mbarrier, count: int, told: ReleasedKnowledge
    ) -> None:
        """`count` arrivals that `thread` has caused happen now, and pass on `told`."""
        if not 1 <= count <= barrier.pending:
            self._fault(warp, site, thread, f"{count} arrivals at {barrier}", barrier.address)
        barrier.pending -= count
        barrier.arrived = join(barrier.arrived, told)
        if len(told.known) and told.known[warp.index]:
            alone = barrier.arrivals.get(warp.index, (thread, 0))[0] == thread
            barrier.arrivals[warp.index] = thread if alone else MANY, told.known[warp.index]
        self.events += 1
        barrier.settle()

    def drop(self, warp: Warp, site: int, thread: int, barrier: Mbarrier, count: int) -> None:
        """Expect `count` fewer arrivals from the next phase on."""
        if not 1 <= count <= barrier.pending:
            self._fault(warp, site, thread, f"{count} arrivals dropped at {barrier}", barrier.address)
        barrier.expected -= count

    def agent_of_copies(self, warp: Warp, site: int, thread: int, barrier: Mbarrier) -> int:
        """The agent of the `cp.async` that arrive at `barrier`."""
        if barrier.copy_agent is None:
            if self._ordering.known.shape[1] >= MAX_AGENTS:
                self._fault(warp, site, thread, "more mbarriers in one CTA than are supported", barrier.address)
            barrier.copy_agent = self._ordering.add_agent(is_async=False)
        return barrier.copy_agent

    def await_more(self, warp: Warp, site: int, thread: int, barrier: Mbarrier, count: int) -> None:
        """The current phase waits for `count` more arrivals."""
        barrier.pending += count
        if barrier.pending > MAX_COUNT:
            message = f"{barrier.pending} arrivals pending at {barrier}; at most {MAX_COUNT} are allowed"
            self._fault(warp, site, thread, message, barrier.address)

    def expect(self, warp: Warp, site: int, thread: int, barrier: Mbarrier, size_bytes: int) -> None:
        """Expect `size_bytes` more in this phase."""
        barrier.transactions += size_bytes
        if abs(barrier.transactions) > MAX_COUNT:
            message = f"{size_bytes} bytes expected at {barrier}; the tx-count is at most {MAX_COUNT}"
            self._fault(warp, site, thread, message, barrier.address)

    def land(self, barrier: Mbarrier, size_bytes: int, cause: Clock) -> None:
        """`complete_tx`: an asynchronous copy of `size_bytes` has landed; `cause`: what its issuer had seen."""
        barrier.arrived = join(barrier.arrived, self._ordering.landed(barrier.agent, cause))
        barrier.transactions -= size_bytes
        self.events += 1
        barrier.settle()

    @staticmethod
    def _fault(warp: Warp, site: int, thread: int, message: str, address: int) -> None:
        warp.cta.fault(ViolationKind.BARRIER, site, thread, message, address)
