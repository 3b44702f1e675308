"""Records accesses to a CTA's shared memory, and finds uninitialized reads, races, and copies without a wait.

Accesses are recorded by byte, including those of the cluster's other CTAs.

The shadow records for each granule (the smallest access of the program) its last writer, and its last reader in each
warp. A stamp packs `pending copy | tick | instruction | thread`, so one comparison of the largest stamp proves that
there is no conflict; the slow check runs only if it does not.

Bytes that a bulk copy has written belong to an agent of its mbarrier (see `ordering`), in place of a thread. The bytes
that a bulk store reads, and those of an mbarrier, are reserved until they are released.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from cutegen.ptx.text.syntax import WARP_LANES
from cutegen.ptx.watch.actor import Actor, Proxy, SiteTable
from cutegen.ptx.watch.ordering import Ordering
from cutegen.ptx.watch.paged import MANY, THREAD_BITS, Stamps, owners_of
from cutegen.ptx.watch.semantics import CLUSTER_REACH, CTA_REACH, TOO_NARROW
from cutegen.ptx.watch.violations import Monitor, ViolationKind

_SITE_BITS = 18
_TICK_SHIFT = THREAD_BITS + _SITE_BITS
_PENDING = 1 << 62
_SITE_MASK, _TICK_MASK = (1 << _SITE_BITS) - 1, (1 << (62 - _TICK_SHIFT)) - 1
_COLLECTIVE = ("ldmatrix", "stmatrix")
"""Accesses of a whole warp at once: kernels assume that they are done for all lanes when one lane continues."""
MAX_AGENTS = MANY // WARP_LANES
"""Number of warps and mbarriers of a cluster that a stamp can encode."""
MAX_SITES = 1 << _SITE_BITS
"""Number of instructions that a stamp can encode."""


@dataclass(frozen=True, slots=True)
class Access:
    """An access of some lanes: byte `offsets` into the memory, and the threads that make it."""

    warp: Actor
    site: int
    offsets: npt.NDArray[np.int64]
    threads: npt.NDArray[np.int64]
    size_bytes: int


class Shadow:
    """The shadow of the shared memory of the CTA of `rank` in its cluster; `base` is its first address."""

    def __init__(
        self,
        size_bytes: int,
        *,
        base: int,
        granule_bytes: int,
        ordering: Ordering,
        monitor: Monitor,
        sites: SiteTable,
        rank: int,
    ) -> None:
        granules = -(-size_bytes // granule_bytes)
        self._base, self._granule_bytes, self._rank = base, granule_bytes, rank
        self._writes: Stamps = np.zeros(granules, np.int64)
        first = rank * ordering.warps_per_cta
        self._own = range(first, first + ordering.warps_per_cta)
        self._reads: Stamps = np.zeros((len(self._own), granules), np.int64)
        self._visitor_reads: dict[int, Stamps] = {}
        self._agent_reads: dict[int, Stamps] = {}
        self._lent: Stamps | None = None
        self._strong: Stamps | None = None
        self._ordering, self._monitor, self._sites = ordering, monitor, sites
        self._has_strong = bool((sites.reach > 0).any())

    def read(self, access: Access) -> None:
        """Checks and records a read."""
        granules = self._granules(access)
        self._check_written(access, granules)
        self._remember_readers(access, granules)

    def _check_written(self, access: Access, granules: npt.NDArray[np.int64]) -> None:
        writes = self._writes[granules]
        if writes.min() == 0 and access.warp.unwritten is not None:
            lanes = access.threads - access.warp.thread0
            access.warp.unwritten[lanes] |= np.repeat(writes == 0, self._granule_bytes, axis=1)
        elif writes.min() == 0:
            index = int(np.argmin(writes.min(axis=1)))
            message = f"{access.size_bytes}-byte read of shared memory that was never written"
            self.report(ViolationKind.UNINITIALIZED, access, index, message)
        self._check_writes(access, writes, "read")
        self._check_strong(access, granules, "read")

    def _check_writes(self, access: Access, writes: Stamps, what: str) -> None:
        if self._may_race(access, writes):
            self._find_race(access, writes, writes & MANY, (writes & MANY) // WARP_LANES, what, "write")

    def _check_strong(self, access: Access, granules: npt.NDArray[np.int64], what: str) -> None:
        """Atomics and ordered writes do not replace the weak write before them."""
        if self._strong is not None:
            self._check_writes(access, self._strong[granules], what)

    def write(self, access: Access) -> bool:
        """Checks and records a write; True if two of its lanes wrote the same granule."""
        return self._write(access, 0)

    def begin_copy(self, access: Access) -> None:
        """No access is allowed to the bytes: a cp.async or st.async to them is in flight, or they are an mbarrier."""
        self._write(access, _PENDING)

    def begin_load(self, access: Access) -> None:
        """A bulk copy to the bytes is issued: no access is allowed until `land`."""
        self._check_fence(access)
        self._write(access, _PENDING)
        self._check_fence_after_reads(access)

    def land(self, access: Access, agent: int) -> None:
        """The bytes of a bulk copy have landed: written by `agent`, which only its mbarrier orders."""
        owner = np.array([agent * WARP_LANES])
        self._writes[self._granules(access)] = self._stamps(replace(access, threads=owner))

    def begin_store(self, access: Access) -> Stamps:
        """A bulk copy from the bytes is issued: they may not be written until `end_store`, which takes the result."""
        granules = self._granules(access)
        self._check_written(access, granules)
        self._check_fence(access)
        if self._lent is None:
            self._lent = np.zeros_like(self._writes)
        stamps = self._stamps(access)
        self._lent[granules] = stamps
        return stamps

    def end_store(self, access: Access, stamps: Stamps, agent: int | None = None) -> None:
        """The bulk copy of `access` has read the bytes, and its thread knows: they count as read by that thread.

        With `agent` they count as read by it: the mbarrier of the copy orders them.
        """
        granules = self._granules(access)
        assert self._lent is not None
        self._lent[granules] = np.where(self._lent[granules] == stamps, 0, self._lent[granules])
        if agent is None:
            self._remember_readers(access, granules)
        else:
            self._note_agent_read(access, granules, agent)

    def read_by_agent(self, access: Access, warps: Sequence[Actor], agent: int, thread: int | None = None) -> None:
        """The tensor core begins to read the bytes for all of `warps`, or one `thread`; a writer must know `agent`."""
        granules = self._granules(access)
        stamps = np.unique(self._writes[granules])
        ticks, agents = stamps >> _TICK_SHIFT, (stamps & MANY) // WARP_LANES
        surely = stamps[0] > 0 and stamps[-1] < _PENDING and self._strong is None
        for warp in warps:
            if not (surely and self._ordering.surely_precede(warp.index, ticks, agents)):
                of_warp = replace(access, warp=warp)
                self._check_written(of_warp, granules)
                self._check_fence(replace(of_warp, threads=np.full(1, warp.thread0 if thread is None else thread)))
        issuer = warps[0].thread0 if thread is None else thread
        self._note_agent_read(replace(access, threads=np.full(1, issuer)), granules, agent)

    def _note_agent_read(self, access: Access, granules: npt.NDArray[np.int64], agent: int) -> None:
        if agent not in self._agent_reads:
            self._agent_reads[agent] = np.zeros_like(self._writes)
        self._agent_reads[agent][granules] = self._stamps(access)

    def release(self, access: Access) -> None:
        """The bytes of an mbarrier are ordinary memory again, uninitialized."""
        self._writes[self._granules(access)] = 0

    def end_copy(self, access: Access) -> None:
        """The copied bytes have landed: from now on they are like an ordinary write of the thread that waited."""
        self._writes[self._granules(access)] = self._stamps(access)

    def _write(self, access: Access, flag: int) -> bool:
        granules = self._granules(access)
        writes, reads = self._writes[granules], self._reads[:, granules]
        self._check_writes(access, writes, "write")
        if self._may_race(access, reads):
            for row in np.flatnonzero(reads.any(axis=(1, 2))).tolist():
                self._check_reads(access, self._own[row], reads[row])
        for visitor, of_visitor in self._visitor_reads.items():
            self._check_reads(access, visitor, of_visitor[granules])
        for agent, of_agent in self._agent_reads.items():
            stamps = of_agent[granules]
            if self._may_race(access, stamps):
                self._find_race(access, stamps, np.full_like(stamps, -1), np.full_like(stamps, agent), "write", "read")
        self._check_strong(access, granules, "write")
        if self._lent is not None:
            self._check_lent(access, self._lent[granules])
        if self._sites.reach[access.site] > 0:
            return self._note_strong(access, granules, writes)
        mine = self._stamps(access) | flag
        self._writes[granules] = mine
        return bool((self._writes[granules] != mine).any())

    def _check_reads(self, access: Access, reader: int, stamps: Stamps) -> None:
        """Checks a write against the reads of warp `reader`."""
        owners = owners_of(stamps, reader)
        self._find_race(access, stamps, owners, np.full_like(stamps, reader), "write", "read")

    def _note_strong(self, access: Access, granules: npt.NDArray[np.int64], writes: Stamps) -> bool:
        mine = np.broadcast_to(self._stamps(access), granules.shape)
        if self._strong is None:
            self._strong = np.zeros_like(self._writes)
        self._strong[granules] = mine
        self._writes[granules] = np.where(writes == 0, mine, writes)
        return False

    def _check_lent(self, access: Access, stamps: Stamps) -> None:
        if stamps.any():
            index, piece = (int(i) for i in np.argwhere(stamps)[0])
            who, place = self._who(int(stamps[index, piece]))
            message = f"write of bytes that the bulk copy of {who} ({place}) may still be reading"
            self.report(ViolationKind.ASYNC_COPY, access, index, message, piece)

    def _check_fence(self, access: Access) -> None:
        """Require a proxy fence between ordinary writes of bytes and an access by an agent of the async proxy."""
        agent = self._sites.agents[access.site]
        if agent.proxy is not Proxy.ASYNC:
            return
        writes = self._writes[self._granules(access)]
        ticks = np.where(writes >= _PENDING, 0, writes >> _TICK_SHIFT)
        fenced = self._ordering.is_fenced(int(access.threads[0]), ticks, writes & MANY)
        if not fenced.all():
            index, piece = (int(i) for i in np.argwhere(~fenced)[0])
            who, place = self._who(int(writes[index, piece]))
            message = f"no fence.proxy.async between the write by {who} ({place}) and this {agent.noun}"
            self.report(ViolationKind.RACE, access, index, message, piece)

    def _check_fence_after_reads(self, access: Access) -> None:
        """Note a missing proxy fence between ordinary reads and a bulk copy onto their bytes, which kernels omit."""
        thread, granules = int(access.threads[0]), self._granules(access)
        noun = self._sites.agents[access.site].noun
        for reader, reads in (*zip(self._own, self._reads, strict=True), *self._visitor_reads.items()):
            stamps = reads[granules]
            if not stamps.any():
                continue
            ticks, owners = stamps >> _TICK_SHIFT & _TICK_MASK, np.full(stamps.shape, reader * WARP_LANES)
            owners = np.where(stamps & MANY == MANY, owners, stamps & MANY)
            unfenced = (stamps != 0) & ~self._ordering.is_fenced(thread, ticks, owners)
            if unfenced.any():
                index, piece = (int(i) for i in np.argwhere(unfenced)[0])
                place = self._monitor.describe(int(stamps[index, piece]) >> THREAD_BITS & _SITE_MASK)
                who = self._ordering.who_of_warp(reader)
                message = f"no fence.proxy.async between the read by {who} ({place}) and this {noun}"
                self.report(ViolationKind.CONVENTION, access, index, message, piece)
                return

    def _who(self, stamp: int) -> tuple[str, str]:
        """(thread, instruction) of a stamp."""
        return self._ordering.who(stamp & MANY), self._monitor.describe(stamp >> THREAD_BITS & _SITE_MASK)

    def _granules(self, access: Access) -> npt.NDArray[np.int64]:
        count = max(1, access.size_bytes // self._granule_bytes)
        return (access.offsets // self._granule_bytes)[:, None] + np.arange(count)

    def _stamps(self, access: Access) -> Stamps:
        tick = (self._ordering.tick & _TICK_MASK) << _TICK_SHIFT
        return (tick | access.site << THREAD_BITS | access.threads)[:, None]

    def _remember_readers(self, access: Access, granules: npt.NDArray[np.int64]) -> None:
        """Mark a granule that several threads of a warp read in one tick as read by several."""
        reads = self._reads_of(access.warp.index)
        before = reads[granules]
        mine = self._stamps(access)  # [lane, 1]
        reads[granules] = mine
        by_many = reads[granules] != mine
        if before.max() >> _TICK_SHIFT >= self._ordering.tick:
            same_tick = before >> _TICK_SHIFT == mine >> _TICK_SHIFT
            by_many |= same_tick & (before & MANY != mine & MANY)
        if by_many.any():
            reads[granules[by_many]] |= MANY

    def _reads_of(self, reader: int) -> Stamps:
        """Returns the stamps of the reads of a warp of the cluster."""
        if reader in self._own:
            own: Stamps = self._reads[reader - self._own.start]
            return own
        if reader not in self._visitor_reads:
            self._visitor_reads[reader] = np.zeros_like(self._writes)
        return self._visitor_reads[reader]

    def _may_race(self, access: Access, stamps: Stamps) -> bool:
        """False if all of `stamps` are definitely ordered before the access's warp."""
        ordering = self._ordering
        watched = ordering.lanes_arrived_alone or ordering.has_narrow_scopes
        return watched or bool(stamps.max() >> _TICK_SHIFT >= ordering.bounds[access.warp.index])

    def _find_race(
        self,
        access: Access,
        stamps: Stamps,
        owners: npt.NDArray[np.int64],
        warps: npt.NDArray[np.int64],
        what: str,
        earlier: str,
    ) -> None:
        """Searches `stamps` of `earlier` accesses for one by another thread that no barrier orders before this one."""
        known = self._ordering.knows(access.warp.index, access.threads, warps)
        ticks = stamps >> _TICK_SHIFT & _TICK_MASK
        unordered = ticks > known
        pending = stamps >= _PENDING
        if not (unordered | pending).any():
            if self._ordering.lanes_arrived_alone:
                self._find_alone(access, stamps, (ticks, owners, warps), what, earlier)
            if self._ordering.has_narrow_scopes and (what, earlier) == ("read", "write"):
                self._find_out_of_scope(access, stamps, (ticks, owners, warps))
            return
        sites = stamps >> THREAD_BITS & _SITE_MASK
        race = unordered & (owners != access.threads[:, None])
        if self._has_strong:
            race &= ~self._morally_strong(access, sites, warps)
        race &= ~self._told_of_threads(access, (ticks, owners, warps), race)
        found = np.argwhere(race | pending)
        if len(found):
            index, piece = (int(i) for i in found[0])
            warp = int(warps[index, piece])
            kind, message = self._explain(int(stamps[index, piece]), warp, what, earlier)
            self.report(kind, access, index, message, piece)

    def _morally_strong(
        self, access: Access, sites: npt.NDArray[np.int64], warps: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        mine = access.warp.index // self._ordering.warps_per_cta
        needed = np.where(warps // self._ordering.warps_per_cta == mine, CTA_REACH, CLUSTER_REACH)
        return self._sites.morally_strong(access.site, sites, needed)

    def _told_of_threads(
        self, access: Access, earlier: tuple[Stamps, Stamps, Stamps], suspect: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        """Marks accesses that a thread has acquired: a release covers one thread, not its warp."""
        told = np.zeros(suspect.shape, bool)
        ordering = self._ordering
        for row in np.flatnonzero(suspect.any(axis=1)).tolist():
            thread = int(access.threads[row])
            far = ordering.far_of_warp(access.warp.index) if thread == MANY else ordering.far_of(thread)
            told[row] = far.knows(ordering.cluster, earlier[0][row], earlier[1][row], earlier[2][row])
        return told

    def _find_alone(
        self, access: Access, stamps: Stamps, earlier: tuple[Stamps, Stamps, Stamps], what: str, kind_of_earlier: str
    ) -> None:
        """Searches for `earlier` accesses that a lane of their warp passed on without being ordered after them."""
        alone = self._ordering.stands_alone(access.warp.index, access.threads, earlier)
        alone &= stamps < _PENDING
        if not alone.any():
            return
        index, piece = (int(i) for i in np.argwhere(alone)[0])
        stamp = int(stamps[index, piece])
        site = stamp >> THREAD_BITS & _SITE_MASK
        warp, place = int(earlier[2][index, piece]), self._monitor.describe(site)
        message = (
            f"{what} after the {kind_of_earlier} by lanes of {self._ordering.who_of_warp(warp)} ({place}), "
            "for which another lane arrived"
        )
        collective = self._monitor.opcode(site).startswith(_COLLECTIVE)
        kind = ViolationKind.CONVENTION if collective else ViolationKind.RACE
        self.report(kind, access, index, f"{message} without a bar.warp.sync between", piece)

    def _find_out_of_scope(self, access: Access, stamps: Stamps, earlier: tuple[Stamps, Stamps, Stamps]) -> None:
        """Searches for writes of another CTA that too narrow scopes pass on. Those of reads only free the bytes."""
        ticks, owners, warps = earlier
        found = self._ordering.is_out_of_scope(access.warp.index, access.threads, ticks, warps)
        found &= (owners != access.threads[:, None]) & (stamps < _PENDING)
        if self._has_strong:
            found &= ~self._morally_strong(access, stamps >> THREAD_BITS & _SITE_MASK, warps)
        if found.any():
            index, piece = (int(i) for i in np.argwhere(found)[0])
            stamp = int(stamps[index, piece])
            who, place = self._who(stamp)
            if int(warps[index, piece]) >= self._ordering.warps:
                who = f"the {self._sites.agents[stamp >> THREAD_BITS & _SITE_MASK].noun}"
            message = f"read after the write by {who} ({place}), {TOO_NARROW}"
            self.report(ViolationKind.RACE, access, index, message, piece)

    def _explain(self, stamp: int, warp: int, what: str, earlier: str) -> tuple[ViolationKind, str]:
        """Explain the conflict of an access with the `earlier` one of `stamp`."""
        number, site = stamp & MANY, stamp >> THREAD_BITS & _SITE_MASK
        who = self._ordering.who(number) if number != MANY else f"several threads of {self._ordering.who_of_warp(warp)}"
        place, agent = self._monitor.describe(site), self._sites.agents.get(site)
        if agent is None or (warp < self._ordering.warps and stamp < _PENDING):
            return ViolationKind.RACE, f"{what} without a barrier after the {earlier} by {who} ({place})"
        told = agent.early if warp >= self._ordering.warps else agent.pending
        did = "wrote" if earlier == "write" else "read"
        return agent.kind, told.format(what=what, noun=agent.noun, did=did, who=who, place=place)

    def report(self, kind: ViolationKind, access: Access, index: int, message: str, piece: int = 0) -> None:
        """Reports a violation of the access's lane `index`, at its granule `piece`."""
        warp, thread = access.warp, int(access.threads[index % len(access.threads)])
        address = self._base + int(access.offsets[index]) + piece * self._granule_bytes
        thread = (thread if thread != MANY else int(warp.threads()[0])) - warp.cta.first_thread
        if warp.cta.rank != self._rank:
            message += f", in the shared memory of the cluster's CTA {self._rank}"
        self._monitor.report(kind, access.site, message, cta=warp.cta.place, thread=thread, address=address)
