"""Past of an event: the last ordered ticks of each agent and of single threads, and what of it is passed on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cutegen.ptx.text.syntax import WARP_LANES
from cutegen.ptx.watch.semantics import Audience

# Past of an event: the last ordered ticks of each agent of each cluster, and of single threads.
#
# A vector clock over clusters (Fidge, "Timestamps in message-passing systems that preserve the partial ordering";
# Flanagan and Freund, "FastTrack"), kept sparse: it omits clusters without known ticks.


Clock: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Past:
    """Accesses up to ticks `clocks[cluster][agent]` of agents and `threads[cluster, thread]` of threads are ordered.

    `fences` has what precedes the `fence.sc` of this past, by the audience of the fences. `shown` has what precedes
    those that do not belong to it, but that come before a write whose value was read in it.
    """

    clocks: Mapping[int, Clock]
    threads: Mapping[tuple[int, int], int]
    fences: Mapping[Audience, Past] = field(default_factory=dict)
    shown: Mapping[Audience, Past] = field(default_factory=dict)

    def knows(self, cluster: int, ticks: Clock, threads: Clock, warps: Clock) -> npt.NDArray[np.bool_]:
        """Mark accesses of `threads` of `cluster`, in `warps`, at `ticks` that this past contains."""
        clock = self.clocks.get(cluster)
        if clock is None and not self.threads:
            return np.zeros(ticks.shape, bool)
        known = np.zeros(ticks.shape, bool) if clock is None else ticks <= ticks_of(clock, warps)
        for (other, thread), tick in self.threads.items():
            if other == cluster:
                known |= (threads == thread) & (ticks <= tick)
        return np.asarray(known)

    def without(self, cluster: int) -> Past:
        """The past without the clocks of the warps of `cluster`."""
        if cluster not in self.clocks:
            return self
        return replace(self, clocks={number: clock for number, clock in self.clocks.items() if number != cluster})

    def accesses(self) -> Past:
        """The past without its `fence.sc`."""
        return Past(self.clocks, self.threads) if self.fences or self.shown else self

    def with_whole_warp(self, cluster: int, warp: int) -> Past:
        """The past, in which the lanes of `warp` of `cluster` have executed their `fence.sc` as one."""
        return replace(self, fences={a: past.as_warp(cluster, warp) for a, past in self.fences.items()})

    def as_warp(self, cluster: int, warp: int) -> Past:
        """The past, in which threads that are all lanes of `warp` are this warp."""
        lanes = {(cluster, thread) for thread in range(warp * WARP_LANES, (warp + 1) * WARP_LANES)}
        clock = self.clocks.get(cluster)
        if clock is None or not lanes <= self.threads.keys():
            return self
        clock = clock.copy()
        clock[warp] = max(int(clock[warp]), min(self.threads[lane] for lane in lanes))
        threads = {key: tick for key, tick in self.threads.items() if key not in lanes or tick > clock[warp]}
        return replace(self, clocks={**self.clocks, cluster: clock}, threads=threads)


NO_PAST = Past(MappingProxyType({}), MappingProxyType({}))


def ticks_of(clock: Clock, agents: npt.NDArray[np.int64]) -> Clock:
    """The ticks of `agents` in a clock; 0 for those that were added after it was made."""
    return np.where(agents < len(clock), clock[np.minimum(agents, len(clock) - 1)], 0)


def later(a: Clock, b: Clock) -> Clock:
    """The later of two clocks; a clock made before an agent was added has no tick of it."""
    if len(a) < len(b):
        a, b = b, a
    joined = a.copy()
    np.maximum(joined[: len(b)], b, out=joined[: len(b)])
    return joined


def join_pasts(a: Past, b: Past) -> Past:
    """The union of both pasts."""
    if a is b or b is NO_PAST:
        return a
    if a is NO_PAST:
        return b
    clocks = dict(a.clocks)
    for cta, clock in b.clocks.items():
        clocks[cta] = later(clocks[cta], clock) if cta in clocks else clock
    threads = dict(a.threads)
    for key, tick in b.threads.items():
        threads[key] = max(tick, threads.get(key, 0))
    fences = join_parts(a.fences, b.fences) if b.fences else a.fences
    shown = join_parts(a.shown, b.shown) if b.shown else a.shown
    return Past(clocks, threads, fences, shown)


def join_parts(a: Mapping[Audience, Past], b: Mapping[Audience, Past]) -> Mapping[Audience, Past]:
    """The union of both, by audience; one of the two itself if that is all there is."""
    if not b or a is b:
        return a
    if not a:
        return b
    return {**a, **{audience: join_pasts(a.get(audience, NO_PAST), past) for audience, past in b.items()}}


# Clocks that an arrival, a release or a copy that lands passes on to those that wait for it, see `ordering`.


NO_TICKS: Clock = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class ReleasedKnowledge:
    """Knowledge that an arrival passes on: each agent's last ordered tick, and its last one before a proxy fence."""

    known: Clock
    fenced: Clock
    strict: Clock
    """Like `known`, but a lane that arrives alone covers only itself, not its warp."""
    far: Past = NO_PAST
    """Ordered accesses of other clusters, and of single threads."""
    seen: Clock = field(default_factory=lambda: NO_TICKS)
    """The last tick of each agent that has definitely happened, visible or not."""
    in_scope: Clock | None = None
    """`known`, without what a release or an acquire passes on that does not include the other side; None: all of it."""

    def within_scopes(self) -> Clock:
        """Knowledge passed on by releases and acquires that include each other."""
        return self.known if self.in_scope is None else self.in_scope


NOTHING = ReleasedKnowledge(NO_TICKS, NO_TICKS, NO_TICKS)


def join(a: ReleasedKnowledge, b: ReleasedKnowledge) -> ReleasedKnowledge:
    """The union of both."""
    strict, seen = later(a.strict, b.strict), later(a.seen, b.seen)
    in_scope = None
    if a.in_scope is not None or b.in_scope is not None:
        in_scope = later(a.within_scopes(), b.within_scopes())
    return ReleasedKnowledge(
        later(a.known, b.known), later(a.fenced, b.fenced), strict, join_pasts(a.far, b.far), seen, in_scope
    )
