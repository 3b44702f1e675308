"""Order of a cluster's accesses: clocks of each warp for every other warp, and for the copies of each mbarrier.

The warps of a cluster's CTAs are numbered one CTA after the other, by rank, and so are their threads.
Ticks only grow. `known[a, u]` is the last tick of agent `u` whose accesses are ordered before the next access of warp
`a`. An agent is a warp, or (from column `warps` on) the bulk copies that land at one mbarrier: its phases follow each
other, so one clock is enough for them. Arriving at a barrier ends a tick; a warp that waits there learns what all
warps knew on arrival (vector clocks, as in Flanagan and Freund, "FastTrack: efficient and precise dynamic race
detection", at the granularity of warps). `known[a, a]` orders the lanes of one warp, which run independently of each
other until a `bar.warp.sync` or a barrier. If only some lanes of a warp wait, only they learn (`_by_lane`).

`fenced` is the same for paths through a `fence.proxy.async`: only these make ordinary writes visible to bulk copies
(PTX ISA, "Memory Consistency Model", "Proxy-preserved base causality order").

`in_scope` is `known` without what releases and acquires pass on whose scope does not include the other side: an arrival
at another CTA's mbarrier at scope cta. It is kept from the first of these on.

`seen` is what has definitely happened, visible or not: a relaxed arrival at a cluster's barrier passes on only this,
and a bulk copy passes it on from its issuer to the CTA where it lands. It tells if a CTA has started, and if an
mbarrier's phase is over. It is kept only for clusters.
"""

from collections.abc import Iterable
from functools import reduce

import numpy as np
import numpy.typing as npt

from cutegen.ptx.text.syntax import WARP_LANES
from cutegen.ptx.watch.actor import Actor
from cutegen.ptx.watch.paged import several
from cutegen.ptx.watch.vector_clock import (
    NO_PAST,
    NO_TICKS,
    NOTHING,
    Clock,
    Past,
    ReleasedKnowledge,
    join,
    join_pasts,
    later,
    ticks_of,
)

_NO_THREADS = np.zeros(0, np.int64)


class Ordering:
    """The clocks of cluster number `cluster`, of `ctas` CTAs of `warps` warps each."""

    def __init__(self, warps: int, cluster: int, ctas: int, *, keeps_seen: bool) -> None:
        self.warps_per_cta, self.cluster, self._ctas = warps, cluster, ctas
        warps *= ctas
        self.warps = warps
        self._seen = np.zeros((warps, warps), np.int64) if keeps_seen else None
        self._far = [NO_PAST] * warps
        self.known = np.zeros((warps, warps), np.int64)
        self._fenced = np.zeros((warps, warps), np.int64)
        self._strict = np.zeros((warps, warps), np.int64)
        self._in_scope: npt.NDArray[np.int64] | None = None
        """`known` without what too narrow scopes pass on; None if there is no such thing."""
        self.has_narrow_scopes = False
        self.lanes_arrived_alone = False
        self._lane_fences = np.zeros(warps * WARP_LANES, np.int64)
        self._by_lane: dict[int, ReleasedKnowledge] = {}
        self._fences_of_lane: dict[int, Past] = {}
        """Knowledge of single lanes from `fence.sc`: it orders no access before a later one (see `locations`)."""
        self._is_async = np.zeros(warps, bool)
        """The agents whose writes are in the async proxy: accesses there need no fence after them."""
        self.tick = 1
        self.bounds = [1] * warps
        """First tick of each warp that may contain unordered accesses: a quick test before `known` is used."""

    def add_agent(self, *, is_async: bool = True) -> int:
        """Add an agent and return its column; it has no unordered accesses before the current tick."""
        before = self.tick - 1
        self.known = np.pad(self.known, ((0, 0), (0, 1)), constant_values=before)
        self._fenced = np.pad(self._fenced, ((0, 0), (0, 1)), constant_values=before)
        self._is_async = np.append(self._is_async, is_async)
        if self._in_scope is not None:
            self._in_scope = np.pad(self._in_scope, ((0, 0), (0, 1)), constant_values=before)
        if self._seen is not None:
            self._seen = np.pad(self._seen, ((0, 0), (0, 1)), constant_values=before)
        return self.known.shape[1] - 1

    @property
    def agents(self) -> int:
        """Number of agents, warps included."""
        return self.known.shape[1]

    def learn_of_agent(self, warp: int, agent: int, tick: int) -> None:
        """`warp` has waited for the accesses of `agent` up to `tick`."""
        self.known[warp, agent] = max(int(self.known[warp, agent]), tick)
        if self._in_scope is not None:
            self._in_scope[warp, agent] = max(int(self._in_scope[warp, agent]), tick)
        self.bounds[warp] = int(self.known[warp].min()) + 1

    def surely_precede(self, warp: int, ticks: Clock, agents: npt.NDArray[np.int64]) -> bool:
        """True if accesses of `agents` at `ticks` precede the next async-proxy accesses of all lanes of `warp`.

        A quick test: False is inconclusive.
        """
        if (ticks > self.known[warp][agents]).any():
            return False
        generic = ~self._is_async[agents]
        if not generic.any():
            return True
        if self._in_scope is not None and self.is_out_of_scope(warp, _NO_THREADS, ticks, agents).any():
            return False
        return not self.lanes_arrived_alone and bool((ticks[generic] <= self._fenced[warp][agents[generic]]).all())

    def landed(self, agent: int, cause: Clock) -> ReleasedKnowledge:
        """A bulk copy of `agent` has landed; returns what its mbarrier passes on. `cause`: what its issuer had seen."""
        known = np.zeros(agent + 1, np.int64)
        known[agent] = self.tick
        self.tick += 1
        return ReleasedKnowledge(known, NO_TICKS, NO_TICKS, NO_PAST, cause)

    def committed(self, thread: int, agent: int) -> ReleasedKnowledge:
        """Returns what the completion of all that `thread` has issued to `agent` passes on.

        The accesses of the agent up to now, and those of other agents that they came after.
        """
        clocks = [later(self._known_by(thread), np.zeros(self.agents, np.int64))]
        if self._in_scope is not None:
            within = self._by_lane.get(thread, NOTHING).within_scopes()
            clocks.append(later(self._in_scope[thread // WARP_LANES], within))
        for clock in clocks:
            clock[: self.warps], clock[agent] = 0, self.tick
        return ReleasedKnowledge(clocks[0], NO_TICKS, NO_TICKS, NO_PAST, self.seen_by(thread), *clocks[1:])

    def seen_by(self, thread: int) -> Clock:
        """Returns the last tick of each agent that `thread` has seen; empty if this is not tracked."""
        if self._seen is None:
            return NO_TICKS
        warp = thread // WARP_LANES
        seen: Clock = self._seen[warp].copy()
        if thread in self._by_lane:
            told = self._by_lane[thread]
            seen = later(seen, later(told.seen, told.known))
        seen[warp] = self.tick
        return seen

    def has_begun(self, thread: int, rank: int) -> bool:
        """Return whether `thread` has seen anything happen in the CTA of `rank`."""
        first = rank * self.warps_per_cta
        return bool(self.seen_by(thread)[first : first + self.warps_per_cta].any())

    def has_seen(self, thread: int, other: int, tick: int) -> bool:
        """Return whether `thread` has seen tick `tick` of thread `other`."""
        seen = self.seen_by(thread)
        return len(seen) > 0 and bool(seen[other // WARP_LANES] >= tick)

    def who(self, thread: int) -> str:
        """`thread 5`, with its CTA if the cluster has several."""
        local = thread % (self.warps_per_cta * WARP_LANES)
        return f"thread {local}" + self._whose(thread // WARP_LANES)

    def who_of_warp(self, warp: int) -> str:
        """`warp 2`, with its CTA if the cluster has several."""
        return f"warp {warp % self.warps_per_cta}" + self._whose(warp)

    def _whose(self, warp: int) -> str:
        return "" if self._ctas == 1 else f" of the cluster's CTA {warp // self.warps_per_cta}"

    def arrive(self, warp: Actor) -> ReleasedKnowledge:
        """`warp` arrives at a barrier; returns what its arrival passes on.

        One lane arrives for its warp, as kernels assume; by PTX (`strict`) it arrives only for itself.
        """
        index, threads = warp.index, warp.threads()
        far = self._far_of_lanes(index, threads) if self._fences_of_lane else self._far[index]
        strict = self._strict[index].copy()
        if len(threads) == int(np.count_nonzero(warp.alive)):
            strict[index] = self.tick
        else:
            self.lanes_arrived_alone = True
            far = join_pasts(far, Past({}, {(self.cluster, thread): self.tick for thread in threads.tolist()}))
        known, fenced = self.known[index].copy(), self._fenced[index].copy()
        fences = self._lane_fences[warp.thread0 : warp.thread0 + WARP_LANES][warp.alive]
        known[index], fenced[index] = self.tick, max(int(fenced[index]), int(fences.min(initial=self.tick)))
        seen = self._seen_of(index)
        self.tick += 1
        lanes = [self._by_lane[t] for t in threads.tolist() if t in self._by_lane] if self._by_lane else []
        in_scope = None
        if self._in_scope is not None:
            in_scope = self._in_scope[index].copy()
            in_scope[index] = known[index]
        return reduce(join, lanes, ReleasedKnowledge(known, fenced, strict, far, seen, in_scope))

    def arrive_relaxed(self, warp: Actor) -> ReleasedKnowledge:
        """`warp` arrives without a release: passes on its arrival and what it had seen, but not its accesses."""
        seen = self._seen_of(warp.index)
        for thread in warp.threads().tolist() if len(seen) else ():
            seen = later(seen, self.seen_by(thread))
        self.tick += 1
        return ReleasedKnowledge(NO_TICKS, NO_TICKS, NO_TICKS, NO_PAST, seen)

    def _seen_of(self, warp: int) -> Clock:
        """Returns the last tick of each agent that all lanes of `warp` have seen; its own up to now."""
        if self._seen is None:
            return NO_TICKS
        seen: Clock = self._seen[warp].copy()
        seen[warp] = self.tick
        return seen

    def complete(self, told: Iterable[ReleasedKnowledge], waiting: list[int]) -> None:
        """A barrier is complete: the warps that wait there learn everything that was passed on."""
        joined = reduce(join, told)
        for warp in waiting:
            self._learn(warp, joined)
            self._share_among_lanes(warp)

    def observe(self, warp: Actor, told: ReleasedKnowledge, threads: npt.NDArray[np.int64]) -> None:
        """`threads` of `warp` have observed a phase complete."""
        if len(threads) == int(np.count_nonzero(warp.alive)):
            self._learn(warp.index, told)
            return
        for thread in threads.tolist():
            self._by_lane[thread] = join(self._by_lane.get(thread, NOTHING), told)
        if told.in_scope is not None and self._in_scope is None:
            self._learn_in_scope(warp.index, ReleasedKnowledge(told.known, NO_TICKS, NO_TICKS, in_scope=NO_TICKS))

    def is_news(self, warp: Actor, told: ReleasedKnowledge, thread: int, own_agent: int | None = None) -> bool:
        """True if `told` orders accesses that `thread` does not know of: they happened elsewhere, perhaps later.

        `own_agent` is an agent whose accesses it issued.
        """
        known = later(self.known[warp.index], self._by_lane.get(thread, NOTHING).known)
        if self._seen is not None:
            known = later(known, self.seen_by(thread))
        news = told.known > known[: len(told.known)]
        if len(news):
            news[warp.index] = False
            if own_agent is not None and own_agent < len(news):
                news[own_agent] = False
        return bool(news.any())

    def warp_sync(self, warp: Actor) -> None:
        """The active lanes of `warp` have synchronized with each other."""
        threads, everybody = warp.threads(), int(np.count_nonzero(warp.alive))
        if len(threads) == everybody:
            self._learn(warp.index, self.arrive(warp))
            self._share_among_lanes(warp.index)
            return
        told = self._told_among(warp.index, threads)
        for thread in threads.tolist():
            self._by_lane[thread] = told
        self.tick += 1

    def _told_among(self, warp: int, threads: npt.NDArray[np.int64]) -> ReleasedKnowledge:
        """Pass on among `threads`, some lanes of `warp`, their accesses and what each of them knows.

        Accesses that several lanes have made without a trace of who they were count as theirs.
        """
        members = {(self.cluster, thread): self.tick for thread in (*threads.tolist(), several(warp))}
        far = join_pasts(self._far_of_lanes(warp, threads), Past({}, members))
        lanes = (self._by_lane[thread] for thread in threads.tolist() if thread in self._by_lane)
        return reduce(join, lanes, ReleasedKnowledge(NO_TICKS, NO_TICKS, NO_TICKS, far))

    def proxy_fence(self, warp: Actor) -> None:
        """The active lanes of `warp` execute `fence.proxy.async`: it covers their writes and those they know of."""
        index = warp.index
        self._lane_fences[warp.threads()] = self.tick
        self._fenced[index] = np.maximum(self._fenced[index], self.known[index])
        for thread in warp.threads().tolist():
            if thread in self._by_lane:
                told = self._by_lane[thread]
                fenced = told.known.copy() if len(told.known) else np.zeros(self.agents, np.int64)
                fenced[index] = max(int(fenced[index]), told.far.threads.get((self.cluster, several(index)), 0))
                self._by_lane[thread] = join(told, ReleasedKnowledge(NO_TICKS, fenced, NO_TICKS))
        self.tick += 1

    def knows(self, warp: int, threads: npt.NDArray[np.int64], agents: npt.NDArray[np.int64]) -> Clock:
        """The last ordered tick of `agents` (one row for each of `threads`, or one for all)."""
        known: Clock = self.known[warp][agents]
        if self._by_lane:
            for thread in set(threads.tolist()) & self._by_lane.keys():
                rows = threads == thread
                own = later(self._by_lane[thread].known, np.zeros(self.known.shape[1], np.int64))
                known[rows] = np.maximum(known[rows], own[agents[rows]])
        return known

    def stands_alone(
        self, warp: int, threads: npt.NDArray[np.int64], stamps: tuple[Clock, Clock, Clock]
    ) -> npt.NDArray[np.bool_]:
        """Mark accesses that `warp` knows of through another lane than theirs, without synchronization between the two.

        `stamps` are the ticks, threads and warps of the accesses, one row for each of `threads`.
        """
        ticks, owners, warps = stamps
        alone = (ticks > self._strict[warp][np.minimum(warps, self.warps - 1)]) & (warps < self.warps)
        alone &= owners != threads[:, None]
        for thread in np.unique(threads[alone.any(axis=1)]).tolist():
            rows = threads == thread
            told = self._by_lane.get(thread, NOTHING)
            strict = later(told.strict, np.zeros(self.warps, np.int64))
            alone[rows] &= ticks[rows] > strict[np.minimum(warps[rows], self.warps - 1)]
            far = self.far_of(thread) if thread // WARP_LANES == warp else self._far[warp]
            alone[rows] &= ~far.knows(self.cluster, ticks[rows], owners[rows], warps[rows])
        return np.asarray(alone)

    def is_fenced(self, thread: int, ticks: Clock, owners: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Mark writes of `owners` at `ticks` that a proxy fence separates from the next access of `thread`."""
        fenced = self._fenced[thread // WARP_LANES]
        if thread in self._by_lane:
            fenced = later(fenced, self._by_lane[thread].fenced)
        writers = owners // WARP_LANES
        by_copy = self._is_async[writers]
        on_the_way = ticks <= fenced[writers]
        by_itself = (owners == thread) & (ticks <= self._lane_fences[thread])
        return np.asarray(by_copy | on_the_way | by_itself)

    def is_after(self, thread: int, writer: int, tick: int) -> bool:
        """True if tick `tick` of thread `writer` is ordered before the next access of `thread`."""
        if thread == writer or tick <= self.known[thread // WARP_LANES, writer // WARP_LANES]:
            return True
        told = self._by_lane.get(thread, NOTHING).known
        return len(told) > 0 and tick <= int(told[writer // WARP_LANES])

    def has_seen_warp(self, thread: int, tick: int) -> bool:
        """True if `thread` has seen that all lanes of its own warp were past tick `tick`, which may not be visible."""
        warp, told = thread // WARP_LANES, self._by_lane.get(thread, NOTHING)
        seen = later(told.seen, told.known)
        of_warp = 0 if self._seen is None else int(self._seen[warp, warp])
        return tick <= max(of_warp, int(self.known[warp, warp]), int(seen[warp]) if len(seen) else 0)

    def is_fenced_after(self, thread: int, writer: int, tick: int) -> bool:
        """True if a proxy fence separates tick `tick` of thread `writer` from the next access of `thread`."""
        return bool(self.is_fenced(thread, np.array([tick]), np.array([writer]))[0])

    def is_seen(self, agent: int, tick: int) -> bool:
        """True if some warp or lane knows of tick `tick` of `agent`."""
        lanes = (told.known for told in self._by_lane.values())
        return bool(self.known[:, agent].max() >= tick) or any(len(k) > agent and k[agent] >= tick for k in lanes)

    def past_of(self, thread: int) -> Past:
        """Return what happened before the next tick of `thread`: its own accesses, and those that it knows of."""
        own = Past({self.cluster: self._known_by(thread)}, {(self.cluster, thread): self.tick})
        return join_pasts(self.far_of(thread), own)

    def acquire(self, warp: Actor, thread: int, past: Past) -> None:
        """`thread` of `warp` has acquired what happened in `past`."""
        self.observe(warp, self.released_by(past), np.array([thread]))

    def released_by(self, past: Past) -> ReleasedKnowledge:
        """Converts `past` to what a later release passes on."""
        known = past.clocks.get(self.cluster, NOTHING.known)
        return ReleasedKnowledge(known, NO_TICKS, known[: self.warps], past.without(self.cluster))

    def knowledge_of(self, warp: Actor) -> tuple[Clock, Clock]:
        """Returns the last ticks of each agent that the active threads of `warp` together know of, and have seen."""
        known, seen = self.known[warp.index].copy(), self._seen_of(warp.index)
        for thread in warp.threads().tolist():
            if thread in self._by_lane:
                told = self._by_lane[thread]
                known, seen = later(known, told.known), later(seen, later(told.seen, told.known))
        return known, seen

    def far_of(self, thread: int) -> Past:
        """Return what `thread` knows of other clusters, of single threads, and of `fence.sc`."""
        far = self._far[thread // WARP_LANES]
        if thread in self._fences_of_lane:
            far = join_pasts(far, self._fences_of_lane[thread])
        return join_pasts(far, self._by_lane[thread].far) if thread in self._by_lane else far

    def note_fences(self, thread: int, past: Past) -> None:
        """`thread` has executed the `fence.sc` of `past`, or was shown that they came before."""
        self._fences_of_lane[thread] = join_pasts(self._fences_of_lane.get(thread, NO_PAST), past)

    def _far_of_lanes(self, warp: int, threads: npt.NDArray[np.int64]) -> Past:
        """The warp's knowledge of other clusters and of single threads, and its `threads` of `fence.sc`."""
        lanes = (self._fences_of_lane[thread] for thread in threads.tolist() if thread in self._fences_of_lane)
        far = reduce(join_pasts, lanes, self._far[warp])
        return far if len(threads) < WARP_LANES else far.with_whole_warp(self.cluster, warp)

    def far_of_warp(self, warp: int) -> Past:
        """Returns the past that all lanes of `warp` know of other clusters, and of single threads."""
        return self._far[warp]

    def _known_by(self, thread: int) -> Clock:
        known: Clock = self.known[thread // WARP_LANES]
        return later(known, self._by_lane[thread].known) if thread in self._by_lane else known.copy()

    def synced_tick(self, warp: int) -> int:
        """The last tick up to which all lanes of `warp` are ordered before the next access of each of them.

        Copies of an agent are not told apart.
        """
        return int(self.known[warp, warp]) if warp < self.warps else self.tick

    def lanes_agree(self, warp: int) -> bool:
        """True if all lanes of `warp` have the same knowledge."""
        return not any(thread // WARP_LANES == warp for thread in self._by_lane)

    def told_of(self, cluster: int, thread: int, stamps: tuple[Clock, Clock, Clock]) -> npt.NDArray[np.bool_]:
        """Mark accesses of `cluster` that `thread` knows of; `stamps` are their ticks, threads and warps."""
        ticks, threads, warps = stamps
        told = self.far_of(thread).knows(cluster, ticks, threads, warps)
        if cluster != self.cluster:
            return told
        return np.asarray(told | (ticks <= ticks_of(self._known_by(thread), warps)))

    def is_out_of_scope(
        self, warp: int, threads: npt.NDArray[np.int64], ticks: Clock, agents: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Mark accesses of `agents` at `ticks` that only too narrow scopes order before the next one of `threads`.

        The threads are of `warp`, one for each row; the accesses are known to be ordered.
        """
        if self._in_scope is None:
            return np.zeros(ticks.shape, bool)
        known = self._in_scope[warp][agents]
        for thread in set(threads.tolist()) & self._by_lane.keys():
            rows, told = threads == thread, self._by_lane[thread].within_scopes()
            known[rows] = np.maximum(known[rows], ticks_of(told, agents[rows]) if len(told) else 0)
        return np.asarray(ticks > known)

    def _learn_in_scope(self, warp: int, told: ReleasedKnowledge) -> None:
        within = told.within_scopes()
        if self._in_scope is None:
            if len(within) == len(told.known) and (within >= told.known).all():
                return
            self._in_scope, self.has_narrow_scopes = self.known.copy(), True
        self._in_scope[warp] = later(self._in_scope[warp], within)

    def _learn(self, warp: int, told: ReleasedKnowledge) -> None:
        if told.in_scope is not None or self._in_scope is not None:
            self._learn_in_scope(warp, told)
        self.known[warp] = later(self.known[warp], told.known)
        self._fenced[warp] = later(self._fenced[warp], told.fenced)
        self._strict[warp] = later(self._strict[warp], told.strict)
        self._far[warp] = join_pasts(self._far[warp], told.far)
        if self._seen is not None:
            self._seen[warp] = later(self._seen[warp], later(told.seen, told.known))
        self.bounds[warp] = int(self.known[warp].min()) + 1

    def _share_among_lanes(self, warp: int) -> None:
        """Drop the knowledge of single lanes of `warp`: the warp as a whole has it now."""
        first = warp * WARP_LANES
        self._by_lane = {t: told for t, told in self._by_lane.items() if not first <= t < first + WARP_LANES}
        if self._fences_of_lane:
            lanes = self._fences_of_lane.items()
            self._fences_of_lane = {t: past for t, past in lanes if not first <= t < first + WARP_LANES}
