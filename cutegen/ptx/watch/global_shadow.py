"""Records which threads wrote and read each byte of a buffer in global memory, and finds unordered accesses.

For each granule (the smallest access of the entry) the shadow keeps the last weak write, and for every warp the last
read and the last strong write. `Ordering` decides if they happen before the current access of a warp, in whatever CTA.
Two unordered accesses, at least one of them a write, are a race unless they are morally strong: atomic or ordered, of
one size, and each in the other's scope (PTX ISA, "Memory Consistency Model"). Reads are only queued until the first
write to the buffer.

A stamp packs `cluster + 1 | tick | thread`; the instruction is stored next to it. Threads are numbered in their
cluster. What a bulk load reads is stamped with the agent of its mbarrier (see `ordering`), in place of a warp: only a
wait for the mbarrier orders it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from cutegen.ptx.text.syntax import WARP_LANES
from cutegen.ptx.watch.actor import SiteTable
from cutegen.ptx.watch.locations import Locations
from cutegen.ptx.watch.ordering import Ordering
from cutegen.ptx.watch.paged import MANY, THREAD_BITS, PagedStamps, Sites, Stamps, WarpPages, owners_of
from cutegen.ptx.watch.semantics import CLUSTER_REACH, CTA_REACH, GRID_REACH, TOO_NARROW

_TICK_BITS = 29
_CLUSTER_SHIFT = THREAD_BITS + _TICK_BITS
_MAX_CLUSTERS = 1 << (62 - _CLUSTER_SHIFT)
_TICK_MASK = (1 << _TICK_BITS) - 1
_GRID = np.array([GRID_REACH])
MOST_QUEUED = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalAccess:
    """An access of some threads of a warp: byte `offsets` into the buffer."""

    cluster: int
    warp: int
    ordering: Ordering
    site: int
    offsets: npt.NDArray[np.int64]
    threads: npt.NDArray[np.int64]
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Clash:
    """An earlier access that is not ordered before a lane's: `index` of the lane, byte `offset` in the buffer."""

    index: int
    offset: int
    cluster: int
    warp: int
    thread: int | None
    site: int
    wrote: bool
    in_flight: bool = False
    is_out_of_scope: bool = False
    """True if something orders them, but passes it on at scope cta to another CTA."""

    def explain(self, what: str, who: str, place: str) -> str:
        """The conflict of an access, `what`, with the earlier one by `who` at `place`."""
        if self.in_flight:
            does = "writing" if self.wrote else "reading"
            return f"{what} of bytes that the copy by {who} ({place}) may still be {does}"
        earlier = f"the {'write' if self.wrote else 'read'} by {who} ({place})"
        if self.is_out_of_scope:
            return f"{what} of global memory after {earlier}, {TOO_NARROW}"
        return f"{what} of global memory not ordered after {earlier}"


@dataclass(frozen=True, slots=True, eq=False)
class Flight:
    """A copy in flight after its instruction: its source may not be written, its destination may not be accessed."""

    access: GlobalAccess
    granules: npt.NDArray[np.int64]
    writes: bool


class GlobalShadow:
    """The shadow of one buffer."""

    def __init__(self, size_bytes: int, granule_bytes: int, table: SiteTable) -> None:
        self.locations = Locations()
        self.is_writeable = False
        """False for memory that no access may write: it is not watched."""
        self._granule_bytes, self._table = granule_bytes, table
        self._granule_count = -(-size_bytes // granule_bytes) + 1
        self._writes: PagedStamps | None = None
        self._queue: list[tuple[GlobalAccess, int]] = []
        self._weak_reads, self._strong_reads, self._strong_writes = WarpPages(), WarpPages(), WarpPages()
        self._flights: list[Flight] = []

    def read(self, access: GlobalAccess) -> Clash | None:
        """Records a read and returns the first write that it is not ordered after."""
        if not self.is_writeable:
            return None
        if self._writes is None:
            self._queue_read(access)
            return None
        granules = self._granules(access)
        clash = self._after_any_write(access, granules)
        self._note_read(access, access.ordering.tick, granules)
        return clash

    def read_by_agents(self, access: GlobalAccess, agents: Sequence[int]) -> Clash | None:
        """The same for a bulk load that the thread of `access` issues: to writers it is each of `agents`."""
        if not self.is_writeable:
            return None
        threads = np.zeros_like(access.threads)
        reads = [replace(access, warp=agent, threads=threads + agent * WARP_LANES) for agent in agents]
        if self._writes is None:
            for read in reads:
                self._queue_read(read)
            return None
        granules = self._granules(access)
        clash = self._after_any_write(access, granules)
        for read in reads:
            self._note_read(read, access.ordering.tick, granules)
        return clash

    def write(self, access: GlobalAccess) -> tuple[Clash | None, bool]:
        """Records a write; returns an access that it races with, and whether two of its lanes wrote one granule."""
        granules = self._granules(access)
        if self._writes is None:
            self._writes = PagedStamps(self._granule_count)
            self._settle()
        clash = (
            self._during_flights(access, granules, writes=True)
            or self._after_writes(access, granules)
            or self._after_pages(access, self._strong_writes, granules, wrote=True)
            or self._after_pages(access, self._weak_reads, granules, wrote=False)
            or self._after_pages(access, self._strong_reads, granules, wrote=False)
        )
        if self._table.reach[access.site] > 0:
            self._note(self._strong_writes, access, access.ordering.tick, granules)
            return clash, False
        mine = self._stamp(access, access.ordering.tick)
        return clash, bool((self._writes.put(granules, mine, access.site) != mine).any())

    def writers(self, access: GlobalAccess) -> list[tuple[int, int, int]]:
        """(cluster, thread, tick) of the last weak writes of the bytes in this launch."""
        if self._writes is None:
            return []
        stamps = np.unique(self._writes.at(self._granules(access))[0])
        found = [int(stamp) for stamp in stamps.tolist() if stamp]
        return [((s >> _CLUSTER_SHIFT) - 1, s & MANY, s >> THREAD_BITS & _TICK_MASK) for s in found]

    def touched(self) -> Touched:
        """All writes and reads, of every CTA."""
        if not self.is_writeable:
            return Touched(_marks(()), _marks(()), self._granule_bytes, _CLUSTER_SHIFT)
        self._settle()
        writes = () if self._writes is None else (self._writes.written(),)
        reads = (*self._weak_reads.touched(), *self._strong_reads.touched())
        return Touched(_marks(writes), _marks(reads), self._granule_bytes, _CLUSTER_SHIFT)

    def begin(self, access: GlobalAccess, *, writes: bool) -> Flight:
        """A copy of the bytes, which was just recorded as a read or a write, is in flight until `end`."""
        flight = Flight(access, self._granules(access), writes)
        self._flights.append(flight)
        return flight

    def end(self, flight: Flight) -> None:
        """The threads of the copy know that it is complete: it now counts as their access."""
        self._flights.remove(flight)
        if not flight.writes:
            self.read(flight.access)
        elif self._table.reach[flight.access.site] > 0:
            self._note(self._strong_writes, flight.access, flight.access.ordering.tick, flight.granules)
        elif self._writes is not None:
            stamp = self._stamp(flight.access, flight.access.ordering.tick)
            self._writes.put(flight.granules, stamp, flight.access.site)

    def _during_flights(self, access: GlobalAccess, granules: npt.NDArray[np.int64], *, writes: bool) -> Clash | None:
        """A copy in flight that conflicts with the access."""
        for flight in self._flights:
            meets = np.isin(granules, flight.granules) if writes or flight.writes else None
            if self._table.morally_strong(access.site, np.array([flight.access.site]), _GRID)[0]:
                continue
            if meets is not None and meets.any():
                index, piece = (int(i) for i in np.argwhere(meets)[0])
                earlier = flight.access
                return Clash(
                    index=index,
                    offset=int(access.offsets[index]) + piece * self._granule_bytes,
                    cluster=earlier.cluster,
                    warp=earlier.warp,
                    thread=int(earlier.threads[0]),
                    site=earlier.site,
                    wrote=flight.writes,
                    in_flight=True,
                )
        return None

    def _queue_read(self, access: GlobalAccess) -> None:
        self._queue.append((access, access.ordering.tick))
        if len(self._queue) > MOST_QUEUED:
            self._settle()

    def _settle(self) -> None:
        """Files the queued reads by page."""
        for access, tick in self._queue:
            self._note_read(access, tick, self._granules(access))
        self._queue = []

    def _after_any_write(self, access: GlobalAccess, granules: npt.NDArray[np.int64]) -> Clash | None:
        return (
            self._during_flights(access, granules, writes=False)
            or self._after_writes(access, granules)
            or self._after_pages(access, self._strong_writes, granules, wrote=True)
        )

    def _after_writes(self, access: GlobalAccess, granules: npt.NDArray[np.int64]) -> Clash | None:
        assert self._writes is not None
        stamps, sites = self._writes.at(granules)
        if not stamps.any():
            return None
        warps = (stamps & MANY) // WARP_LANES
        return self._find(access, stamps, warps, sites, wrote=True)

    def _after_pages(
        self, access: GlobalAccess, pages: WarpPages, granules: npt.NDArray[np.int64], *, wrote: bool
    ) -> Clash | None:
        for warp, stamps, sites in pages.at(granules):
            clash = self._find(access, stamps, np.full(stamps.shape, warp), sites, wrote=wrote)
            if clash is not None:
                return clash
        return None

    def _find(
        self, access: GlobalAccess, stamps: Stamps, warps: npt.NDArray[np.int64], sites: Sites, *, wrote: bool
    ) -> Clash | None:
        """The first of `stamps` (accesses, pieces) that is not ordered before the access."""
        mine = self._cluster(access)
        same_cluster = stamps >> _CLUSTER_SHIFT == mine
        owners = owners_of(stamps, warps)
        suspect = (stamps != 0) & ~(same_cluster & (owners == access.threads[:, None]))
        constant = (stamps != 0) & (self._table.expects_constant[sites] | self._table.expects_constant[access.site])
        if constant.any():
            return self._clash(access, constant, (stamps, warps, sites), wrote=wrote)
        if not suspect.any():
            return None
        ticks = stamps >> THREAD_BITS & _TICK_MASK
        if same_cluster[suspect].all():
            known = access.ordering.knows(access.warp, access.threads, np.minimum(warps, access.ordering.agents - 1))
            narrow = suspect & (ticks <= known)
            suspect &= ticks > known
            if not suspect.any():
                if not wrote or not access.ordering.has_narrow_scopes:
                    return None
                narrow &= access.ordering.is_out_of_scope(
                    access.warp, access.threads, ticks, np.minimum(warps, access.ordering.agents - 1)
                )
                narrow &= ~self._morally_strong(access, sites, same_cluster, warps)
                if not narrow.any():
                    return None
                return replace(self._clash(access, narrow, (stamps, warps, sites), wrote=True), is_out_of_scope=True)
        suspect &= ~self._morally_strong(access, sites, same_cluster, warps)
        rows = [slice(None)] if access.ordering.lanes_agree(access.warp) else range(len(stamps))
        for row in rows:
            suspect[row] &= ~_told(
                access, row, stamps[row] >> _CLUSTER_SHIFT, (ticks[row], owners[row], warps[row]), suspect[row]
            )
        if not suspect.any():
            return None
        return self._clash(access, suspect, (stamps, warps, sites), wrote=wrote)

    def _clash(
        self,
        access: GlobalAccess,
        found: npt.NDArray[np.bool_],
        earlier: tuple[Stamps, npt.NDArray[np.int64], Sites],
        *,
        wrote: bool,
    ) -> Clash:
        stamps, warps, sites = earlier
        index, piece = (int(i) for i in np.argwhere(found)[0])
        owner = int(stamps[index, piece] & MANY)
        return Clash(
            index=index,
            offset=int(access.offsets[index]) + piece * self._granule_bytes,
            cluster=int(stamps[index, piece] >> _CLUSTER_SHIFT) - 1,
            warp=int(warps[index, piece]),
            thread=None if owner == MANY else owner,
            site=int(sites[index, piece]),
            wrote=wrote,
        )

    def _morally_strong(
        self, access: GlobalAccess, sites: Sites, same_cluster: npt.NDArray[np.bool_], warps: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        per_cta = access.ordering.warps_per_cta
        near = np.where(warps // per_cta == access.warp // per_cta, CTA_REACH, CLUSTER_REACH)
        return self._table.morally_strong(access.site, sites, np.where(same_cluster, near, GRID_REACH))

    def _note(self, pages: WarpPages, access: GlobalAccess, tick: int, granules: npt.NDArray[np.int64]) -> None:
        known = access.ordering.synced_tick(access.warp) << THREAD_BITS | self._cluster(access) << _CLUSTER_SHIFT
        pages.put((access.cluster, access.warp), granules, self._stamp(access, tick), access.site, since=known + MANY)

    def _note_read(self, access: GlobalAccess, tick: int, granules: npt.NDArray[np.int64]) -> None:
        is_strong = self._table.reach[access.site] > 0
        self._note(self._strong_reads if is_strong else self._weak_reads, access, tick, granules)

    def _stamp(self, access: GlobalAccess, tick: int) -> Stamps:
        """One column: the stamp of each thread."""
        return (self._cluster(access) << _CLUSTER_SHIFT | (tick & _TICK_MASK) << THREAD_BITS | access.threads)[:, None]

    @staticmethod
    def _cluster(access: GlobalAccess) -> int:
        """The cluster's part of a stamp; numbers repeat in grids too large to be run here anyway."""
        return access.cluster % (_MAX_CLUSTERS - 1) + 1

    def _granules(self, access: GlobalAccess) -> npt.NDArray[np.int64]:
        count = max(1, access.size_bytes // self._granule_bytes)
        return (access.offsets // self._granule_bytes)[:, None] + np.arange(count)


@dataclass(slots=True)
class Flights:
    """Sources of a cp.async until the last of its `lanes` has waited for it."""

    lanes: int
    _held: list[tuple[GlobalShadow, Flight]] = field(default_factory=list)

    def add(self, shadow: GlobalShadow, flight: Flight) -> None:
        """Add a piece of the copy."""
        self._held.append((shadow, flight))

    def land(self, lanes: int) -> None:
        """`lanes` of the copy have landed."""
        self.lanes -= lanes
        if self.lanes <= 0:
            for shadow, flight in self._held:
                shadow.end(flight)
            self._held = []


def _marks(parts: Sequence[tuple[npt.NDArray[np.int64], Stamps, Sites]]) -> Marks:
    """The marks of several lists of granules, stamps and sites."""
    nothing = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int32))
    granules, stamps, sites = (np.concatenate(column) for column in zip(nothing, *parts, strict=True))
    return Marks.of(granules, stamps, sites)


def _told(
    access: GlobalAccess,
    row: slice | int,
    clusters: Stamps,
    stamps: tuple[Stamps, Stamps, Stamps],
    suspect: npt.NDArray[np.bool_],
) -> npt.NDArray[np.bool_]:
    """Mark the `suspect` accesses that the threads of `row`, which have the same knowledge, have acquired."""
    thread = int(access.threads[row if isinstance(row, int) else 0])
    told = np.zeros(suspect.shape, bool)
    for number in np.unique(clusters[suspect]).tolist():
        told |= (clusters == number) & access.ordering.told_of(number - 1, thread, stamps)
    return told


# Races between CTAs that ran in different processes: their accesses are compared when all have ended.
#
# Only for entries whose CTAs do not communicate: nothing orders their accesses, so two that conflict are a race.


@dataclass(frozen=True, slots=True)
class Marks:
    """Granules that were accessed, each once, in ascending order, with the cluster, thread and instruction of each."""

    granules: npt.NDArray[np.int64]
    stamps: Stamps
    sites: Sites

    @classmethod
    def of(cls, granules: npt.NDArray[np.int64], stamps: Stamps, sites: Sites) -> Marks:
        """The marks of accesses, given in any order."""
        unique, first = np.unique(granules, return_index=True)
        return cls(unique, stamps[first], sites[first])


@dataclass(frozen=True, slots=True)
class Touched:
    """Accesses of one process's CTAs to an allocation; a stamp holds the cluster from bit `cluster_shift` on."""

    writes: Marks
    reads: Marks
    granule_bytes: int
    cluster_shift: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossProcessRace:
    """Two accesses of byte `offset` of allocation `allocation`; (cluster number, thread or None, site) of each."""

    allocation: int
    offset: int
    writer: tuple[int, int | None, int]
    other: tuple[int, int | None, int]
    other_wrote: bool


def first_race(processes: Sequence[Sequence[Touched]]) -> CrossProcessRace | None:
    """The first location that one process wrote and another accessed; all `processes` list the same allocations."""
    for i, mine in enumerate(processes):
        for j, theirs in enumerate(processes):
            if i == j:
                continue
            for allocation, (a, b) in enumerate(zip(mine, theirs, strict=True)):
                found = _meet(allocation, a, b.writes, wrote=True) or _meet(allocation, a, b.reads, wrote=False)
                if found is not None:
                    return found
    return None


def _meet(allocation: int, writer: Touched, others: Marks, *, wrote: bool) -> CrossProcessRace | None:
    both, i, j = np.intersect1d(writer.writes.granules, others.granules, assume_unique=True, return_indices=True)
    if not len(both):
        return None
    return CrossProcessRace(
        allocation=allocation,
        offset=int(both[0]) * writer.granule_bytes,
        writer=_who(writer.writes, int(i[0]), writer.cluster_shift),
        other=_who(others, int(j[0]), writer.cluster_shift),
        other_wrote=wrote,
    )


def _who(marks: Marks, index: int, cluster_shift: int) -> tuple[int, int | None, int]:
    stamp = int(marks.stamps[index])
    thread = stamp & MANY
    return (stamp >> cluster_shift) - 1, None if thread == MANY else thread, int(marks.sites[index])
