"""Past of an event: the last ordered ticks of each agent of each cluster, and of single threads.

A vector clock over clusters (Fidge, "Timestamps in message-passing systems that preserve the partial ordering";
Flanagan and Freund, "FastTrack"), kept sparse: it omits clusters without known ticks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Clock: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Past:
    """Accesses up to ticks `clocks[cluster][agent]` of agents and `threads[cluster, thread]` of threads are ordered."""

    clocks: Mapping[int, Clock]
    threads: Mapping[tuple[int, int], int]

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
        return Past({number: clock for number, clock in self.clocks.items() if number != cluster}, self.threads)


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
    return Past(clocks, threads)
