"""Which accesses of a CTA are ordered: clocks of each warp for every other warp, and for what lands at each mbarrier.

Ticks only grow. `known[a, u]` is the last tick of agent `u` whose accesses are ordered before what warp `a` does now;
an agent is a warp, or (from column `warps` on) the bulk copies that land at one mbarrier: its phases follow each other,
so one clock is enough for them. Arriving at a barrier ends a tick; who waits there learns what everyone knew on arrival
(vector clocks, as in Flanagan and Freund, "FastTrack: efficient and precise dynamic race detection", at the granularity
of warps). `known[a, a]` orders the lanes of one warp, which run independently of each other until a `bar.warp.sync` or
a barrier. What only some lanes of a warp have waited for, only they know (`_by_lane`).

`fenced` is the same for ways that lead through a `fence.proxy.async`: bulk copies see ordinary writes only then (PTX
ISA, "Memory Consistency Model", "Proxy-preserved base causality order").
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cutegen.ptx.watch.actor import Actor

Clock: TypeAlias = npt.NDArray[np.int64]
_LANES = 32


@dataclass(frozen=True, slots=True)
class Told:
    """What an arrival lets others know: the last ordered tick of each agent, and of those ways with a proxy fence."""

    known: Clock
    fenced: Clock


NOTHING = Told(np.zeros(0, np.int64), np.zeros(0, np.int64))


def _later(a: Clock, b: Clock) -> Clock:
    """The later of two clocks; one made before an agent was added knows nothing of it."""
    if len(a) < len(b):
        a, b = b, a
    joined = a.copy()
    np.maximum(joined[: len(b)], b, out=joined[: len(b)])
    return joined


def join(a: Told, b: Told) -> Told:
    """All that either tells."""
    return Told(_later(a.known, b.known), _later(a.fenced, b.fenced))


class Ordering:
    """The clocks of one CTA."""

    def __init__(self, warps: int) -> None:
        self.warps = warps
        self.known = np.zeros((warps, warps), np.int64)
        self._fenced = np.zeros((warps, warps), np.int64)
        self._lane_fences = np.zeros(warps * _LANES, np.int64)
        self._by_lane: dict[int, Told] = {}
        self.tick = 1
        self.bounds = [1] * warps
        """For each warp the first tick of which something may be unordered: a quick test before `known` is asked."""

    def add_agent(self) -> int:
        """The column of one more agent; nothing it has done is unordered yet."""
        self.known = np.pad(self.known, ((0, 0), (0, 1)), constant_values=self.tick)
        return self.known.shape[1] - 1

    def landed(self, agent: int) -> Told:
        """A bulk copy of `agent` has landed: what its mbarrier lets others know."""
        known = np.zeros(agent + 1, np.int64)
        known[agent] = self.tick
        self.tick += 1
        return Told(known, NOTHING.fenced)

    def arrive(self, warp: Actor) -> Told:
        """`warp` arrives at a barrier: what its arrival lets others know. One lane arrives for all of them."""
        index = warp.index
        known, fenced = self.known[index].copy(), self._fenced[index].copy()
        fences = self._lane_fences[warp.thread0 : warp.thread0 + _LANES][warp.alive]
        known[index], fenced[index] = self.tick, max(int(fenced[index]), int(fences.min(initial=self.tick)))
        self.tick += 1
        lanes = [self._by_lane[t] for t in warp.threads().tolist() if t in self._by_lane] if self._by_lane else []
        return reduce(join, lanes, Told(known, fenced))

    def complete(self, told: Iterable[Told], waiting: list[int]) -> None:
        """A barrier is complete: the warps that wait there learn all that was told."""
        joined = reduce(join, told)
        for warp in waiting:
            self._learn(warp, joined)
            self._share_among_lanes(warp)

    def observe(self, warp: Actor, told: Told, threads: npt.NDArray[np.int64]) -> None:
        """`threads` of `warp` have seen a phase complete."""
        if len(threads) == int(np.count_nonzero(warp.alive)):
            self._learn(warp.index, told)
            return
        for thread in threads.tolist():
            self._by_lane[thread] = join(self._by_lane.get(thread, NOTHING), told)

    def is_news(self, warp: Actor, told: Told, thread: int) -> bool:
        """True where `told` orders what `thread` does not know of: it happened elsewhere, and so perhaps later."""
        known = _later(self.known[warp.index], self._by_lane.get(thread, NOTHING).known)[: len(told.known)]
        news = told.known > known
        if len(news):
            news[warp.index] = False
        return bool(news.any())

    def warp_sync(self, warp: Actor) -> None:
        """The lanes of `warp` have synchronised with each other."""
        self._learn(warp.index, self.arrive(warp))
        self._share_among_lanes(warp.index)

    def proxy_fence(self, warp: Actor) -> None:
        """The active lanes of `warp` execute `fence.proxy.async`: it links what they wrote, and what they know of."""
        index = warp.index
        self._lane_fences[warp.threads()] = self.tick
        self._fenced[index] = np.maximum(self._fenced[index], self.known[index, : self.warps])
        for thread in warp.threads().tolist():
            if thread in self._by_lane:
                known = self._by_lane[thread].known
                self._by_lane[thread] = join(self._by_lane[thread], Told(known, known[: self.warps]))
        self.tick += 1

    def knows(self, warp: int, threads: npt.NDArray[np.int64], agents: npt.NDArray[np.int64]) -> Clock:
        """The last ordered tick of `agents` (one row for each of `threads`, or one for all)."""
        known: Clock = self.known[warp][agents]
        if self._by_lane:
            for thread in set(threads.tolist()) & self._by_lane.keys():
                rows = threads == thread
                own = _later(self._by_lane[thread].known, np.zeros(self.known.shape[1], np.int64))
                known[rows] = np.maximum(known[rows], own[agents[rows]])
        return known

    def is_fenced(self, thread: int, ticks: Clock, owners: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Where a proxy fence stands between the writes of threads `owners` at `ticks` and what `thread` does now."""
        fenced = self._fenced[thread // _LANES]
        if thread in self._by_lane:
            fenced = _later(fenced, self._by_lane[thread].fenced)
        writers = owners // _LANES
        by_copy = writers >= self.warps
        on_the_way = ticks <= fenced[np.minimum(writers, self.warps - 1)]
        by_itself = (owners == thread) & (ticks <= self._lane_fences[thread])
        return np.asarray(by_copy | on_the_way | by_itself)

    def is_after(self, thread: int, writer: int, tick: int) -> bool:
        """True where what thread `writer` did at `tick` is ordered before what `thread` does now."""
        if thread == writer or tick <= self.known[thread // _LANES, writer // _LANES]:
            return True
        told = self._by_lane.get(thread, NOTHING).known
        return len(told) > 0 and tick <= int(told[writer // _LANES])

    def is_fenced_after(self, thread: int, writer: int, tick: int) -> bool:
        """True where a proxy fence stands between what thread `writer` did at `tick` and what `thread` does now."""
        return bool(self.is_fenced(thread, np.array([tick]), np.array([writer]))[0])

    def is_seen(self, agent: int, tick: int) -> bool:
        """True where some warp or lane knows of what `agent` did at `tick`."""
        lanes = (told.known for told in self._by_lane.values())
        return bool(self.known[:, agent].max() >= tick) or any(len(k) > agent and k[agent] >= tick for k in lanes)

    def _learn(self, warp: int, told: Told) -> None:
        self.known[warp] = _later(self.known[warp], told.known)
        self._fenced[warp] = _later(self._fenced[warp], told.fenced)
        self.bounds[warp] = int(self.known[warp].min()) + 1

    def _share_among_lanes(self, warp: int) -> None:
        """What single lanes of `warp` knew has become what it knows."""
        first = warp * _LANES
        self._by_lane = {t: told for t, told in self._by_lane.items() if not first <= t < first + _LANES}
