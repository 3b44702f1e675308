"""Bulk copies of a CTA: which are in flight, and when they land.

Source: PTX ISA, `cp.async.bulk`, `cp.async.bulk.tensor`, `st.async`, `cp.async.bulk.commit_group`,
`cp.async.bulk.wait_group`, "Async proxy". The policy decides when a copy lands; the accesses that are allowed meanwhile
do not depend on it. A copy to a CTA, from any CTA of its cluster, lands at an mbarrier there. A store to global memory
lands at the latest when its thread waits for the group, or exits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from cutegen.ptx.machine import tensor_map
from cutegen.ptx.machine.grid import in_cta
from cutegen.ptx.machine.mbarriers import Mbarrier, Mbarriers
from cutegen.ptx.machine.memory import MAX_CLUSTER_CTAS, Addresses, Buffer, Data
from cutegen.ptx.machine.policy import Schedule
from cutegen.ptx.machine.shared import BULK_CHUNK_BYTES, SharedMemory
from cutegen.ptx.machine.warp import TrackedCopy, Warp
from cutegen.ptx.watch.global_shadow import Clash, Flight, GlobalAccess, GlobalShadow
from cutegen.ptx.watch.ordering import Ordering
from cutegen.ptx.watch.paged import Stamps
from cutegen.ptx.watch.shadow import Access
from cutegen.ptx.watch.vector_clock import NOTHING, Clock, join, later
from cutegen.ptx.watch.violations import ViolationKind

# The memory that one bulk copy moves: a box of a tensor, or consecutive bytes, and its place in shared memory.
#
# Source: PTX ISA, `cp.async.bulk`, `cp.async.bulk.tensor`. Both give their bytes in 16-byte chunks, in the order of
# their places in shared memory.


class Region(Protocol):
    """A part of `buffer` and `size_bytes` of shared memory, whose place there is a multiple of `align_bytes`."""

    @property
    def buffer(self) -> Buffer:
        """The buffer in global memory."""

    @property
    def size_bytes(self) -> int:
        """Bytes in shared memory, which are also the transaction bytes of a load."""

    @property
    def address(self) -> int:
        """The first address in shared memory."""

    @property
    def align_bytes(self) -> int:
        """Bytes of which the address in shared memory is a multiple."""

    @property
    def map_address(self) -> int | None:
        """The tensor map in global memory that a copy of the region reads until it is complete, if it does."""

    @property
    def unfenced(self) -> ViolationKind:
        """The finding for a load that signals an mbarrier of its own CTA without a fence after `mbarrier.init`."""

    @property
    def is_padded(self) -> bool:
        """True if chunks of shared memory have padding that global memory lacks: such a region is only loaded."""

    def key(self) -> Hashable:
        """Equal for copies of the same bytes to the same place."""

    def read(self) -> Data:
        """The chunks of global memory now."""

    def write(self, chunks: Data) -> None:
        """Write chunks to global memory."""

    def pieces(self) -> tuple[Addresses, int]:
        """(offsets into the buffer, size) of the equal, aligned pieces of global memory that are accessed."""

    def inside(self) -> npt.NDArray[np.bool_]:
        """Mark the chunks that come from global memory, or go there."""

    def chunks(self, address: int) -> Addresses:
        """The addresses of the chunks in shared memory from `address` on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """One box of a bulk tensor copy: its first coordinates and its address in shared memory.

    The coordinates, innermost first, count items of the tensor's array.
    """

    tensor: tensor_map.BoundTensor
    corner: tuple[int, ...]
    address: int
    align_bytes: int = tensor_map.DESTINATION_ALIGN
    map_address: int | None = None
    """The tensor map in global memory; None if it is a parameter."""
    unfenced: ViolationKind = ViolationKind.RACE

    @property
    def buffer(self) -> Buffer:
        """The tensor's buffer."""
        return self.tensor.buffer

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole box: what lies outside of the tensor counts too."""
        return self.tensor.map.box_bytes

    @property
    def is_padded(self) -> bool:
        """True if its elements are."""
        return self.tensor.map.is_padded

    def key(self) -> Hashable:
        """Equal for copies of the same bytes to the same place."""
        return id(self.tensor), self.corner, self.address

    def read(self) -> Data:
        """The box; zeros outside of the tensor."""
        return self.tensor.read_box(self.corner)

    def write(self, chunks: Data) -> None:
        """Write the part of the box that lies in the tensor."""
        self.tensor.write_box(self.corner, chunks)

    def pieces(self) -> tuple[Addresses, int]:
        """The pieces of the part that lies in the tensor."""
        return self.tensor.pieces(self.corner)

    def inside(self) -> npt.NDArray[np.bool_]:
        """Mark the chunks that overlap the tensor."""
        return self.tensor.chunks_inside(self.corner)

    def chunks(self, address: int) -> Addresses:
        """The chunks' addresses, as the swizzle places them."""
        consecutive, of = _consecutive(address, self.size_bytes), self.tensor.map
        return tensor_map.swizzled(consecutive, of.swizzle_bytes, of.swizzle_atom_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """`size_bytes` consecutive bytes from byte `offset` of `buffer` on."""

    buffer: Buffer
    offset: int
    size_bytes: int
    address: int
    align_bytes: int = BULK_CHUNK_BYTES
    map_address: None = None
    unfenced: ViolationKind = ViolationKind.CONVENTION
    """`cuda::memcpy_async` with a `cuda::barrier` has no fence."""
    is_padded: bool = False

    def key(self) -> Hashable:
        """Equal for copies of the same bytes to the same place."""
        return self.buffer.start + self.offset, self.size_bytes, self.address

    def read(self) -> Data:
        """The bytes."""
        return self._window().copy()

    def write(self, chunks: Data) -> None:
        """Write the bytes."""
        self._window()[:] = chunks

    def _window(self) -> Data:
        return self.buffer.bytes.data[self.offset : self.offset + self.size_bytes].view(f"V{BULK_CHUNK_BYTES}")

    def pieces(self) -> tuple[Addresses, int]:
        """The chunks."""
        return _consecutive(self.offset, self.size_bytes), BULK_CHUNK_BYTES

    def inside(self) -> npt.NDArray[np.bool_]:
        """All chunks are inside."""
        return np.ones(self.size_bytes // BULK_CHUNK_BYTES, bool)

    def chunks(self, address: int) -> Addresses:
        """Consecutive chunks."""
        return _consecutive(address, self.size_bytes)


def _consecutive(first: int, size_bytes: int) -> Addresses:
    return np.arange(first, first + size_bytes, BULK_CHUNK_BYTES, dtype=np.int64)


Combine: TypeAlias = Callable[[Data, Data], Data]


@dataclass(frozen=True, slots=True)
class _Target:
    """A destination of a copy: the copies of its CTA, the address there, and an mbarrier among those of a CTA."""

    copies: BulkCopies
    address: int
    mbarriers: Mbarriers
    barrier: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """A copy in flight to `access`; `read` returns its bytes, `done` is called when they have landed.

    `barrier`, among the `mbarriers` of its CTA, counts the bytes. `cause` is what the issuing thread had seen.
    """

    access: Access | None
    barrier: Mbarrier
    mbarriers: Mbarriers
    size_bytes: int
    read: Callable[[], Data]
    cause: Clock
    done: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arrival:
    """Arrivals of `threads` at `barrier` once `copies` have landed, which are written by `agent`.

    `cause` is what the threads had seen.
    """

    warp: Warp
    site: int
    threads: tuple[int, ...]
    barrier: Mbarrier
    agent: int
    copies: tuple[TrackedCopy, ...]
    cause: Clock

    def land(self) -> None:
        """The copies land, and the threads arrive."""
        seen = replace(NOTHING, seen=self.cause)
        told = reduce(join, [copy.land(self.warp.cta, self.agent) for copy in self.copies], seen)
        count = self.warp.cta.mbarriers.count_arrivals
        count(self.warp, self.site, self.threads[0], self.barrier, len(self.threads), told)


@dataclass(slots=True, kw_only=True)
class _Store:
    """A store of one thread, or of several that issue the same at once; `source` omits bytes that are dropped.

    `combine` gives the new chunks of global memory from those that are there and those that are stored.
    """

    region: Region
    combine: Combine | None
    access: Access
    source: Access | None
    stamps: Stamps | None
    flights: list[tuple[GlobalShadow, Flight]]
    """Accesses that the store may still make to global memory: to its destination, and to the tensor map."""
    landed: bool = False
    is_read: bool = False


class BulkCopies:
    """The bulk copies that one CTA issues to global memory, and those to its shared memory."""

    def __init__(self, shared: SharedMemory, mbarriers: Mbarriers, ordering: Ordering, schedule: Schedule) -> None:
        self._shared, self._mbarriers, self._ordering, self._schedule = shared, mbarriers, ordering, schedule
        self._loads: list[_Load | _Arrival] = []
        self._leaving: list[Access] = []
        self._last_landed: dict[int, tuple[int, Access]] = {}
        self._stores: dict[int, list[tuple[int, _Store]]] = {}
        self._committed: dict[int, int] = {}

    def load(
        self,
        warp: Warp,
        site: int,
        region: Region,
        barrier_address: int,
        mask: int | None = None,
        *,
        to_pairs: bool = False,
    ) -> None:
        """The only active lane of `warp` issues a load that signals the mbarrier at `barrier_address`.

        With `mask` it goes to the same address in each CTA of the cluster whose bit is set. `to_pairs`: the mbarrier
        may be in the other CTA of the destination's pair; that of a multicast is in the CTA of the same parity.
        """
        thread = int(warp.threads()[0])
        targets = self._targets(warp, site, thread, (region.address, barrier_address), mask, to_pairs=to_pairs)
        _count(warp, site, region, len(targets))
        barriers = [target.mbarriers.at(warp, site, [thread], target.barrier) for target in targets]
        agents = [barrier.agent for barrier in barriers]
        for check in (_check_global, _check_map):
            check(warp, site, region, lambda shadow, access: shadow.read_by_agents(access, agents))
        for target, barrier in zip(targets, barriers, strict=True):
            is_own = target.mbarriers is self._mbarriers
            unfenced = region.unfenced if is_own else ViolationKind.RACE
            target.mbarriers.check_fenced(warp, site, thread, barrier, unfenced)
            access = target.copies._chunks_of(warp, site, thread, region, target.address)
            if access is not None:
                target.copies._shared.shadow.begin_load(access)
            target.copies._take(warp, access, (barrier, target.mbarriers), region.size_bytes, region.read)

    def _targets(
        self,
        warp: Warp,
        site: int,
        thread: int,
        addresses: tuple[int, int],
        mask: int | None,
        *,
        to_pairs: bool = False,
    ) -> list[_Target]:
        """The destinations of a copy to the data and the mbarrier at `addresses`, one in each CTA of `mask`."""
        cluster = warp.cta.cluster
        if mask is None:
            (cta, data), (other, barrier) = (cluster.at(warp, site, thread, address) for address in addresses)
            if other is not cta and not (to_pairs and other.rank == cta.rank ^ 1):
                message = f"the data go to CTA {cta.rank} of the cluster and the mbarrier is in CTA {other.rank}"
                warp.cta.fault(ViolationKind.OUT_OF_BOUNDS, site, thread, message, addresses[1], always=True)
            return [_Target(cta.bulk, data, other.mbarriers, barrier)]
        ranks = [rank for rank in range(MAX_CLUSTER_CTAS) if mask >> rank & 1]
        if mask >> len(cluster.ctas):
            message = f"the multicast mask {mask:#x} names CTA {ranks[-1]} of a cluster of {len(cluster.ctas)}"
            warp.cta.fault(ViolationKind.OUT_OF_BOUNDS, site, thread, message, always=True)
        odd = cluster.at(warp, site, thread, addresses[1])[0].rank & 1
        targets = []
        for rank in ranks:
            data, barrier = in_cta(rank, addresses[0]), in_cta((rank & ~1) + odd if to_pairs else rank, addresses[1])
            signaled, _ = cluster.at(warp, site, thread, barrier)
            copies = cluster.peer(warp, site, thread, rank, data).bulk
            targets.append(_Target(copies, data, signaled.mbarriers, barrier))
        return targets

    def _take(
        self,
        warp: Warp,
        access: Access | None,
        signals: tuple[Mbarrier, Mbarriers],
        size_bytes: int,
        read: Callable[[], Data],
        done: Callable[[], None] | None = None,
    ) -> None:
        """A copy that `warp` has issued is in flight to this CTA; `signals` are an mbarrier, and those of its CTA."""
        load = _Load(
            access=access,
            barrier=signals[0],
            mbarriers=signals[1],
            size_bytes=size_bytes,
            read=read,
            cause=self._ordering.seen_by(int(warp.threads()[0])),
            done=done,
        )
        self._loads.append(load)
        if self._schedule.lands_at_once():
            self.land_newest()

    def respond(self, warp: Warp, site: int, addresses: tuple[int, int], octets: Data, mask: int | None) -> None:
        """The only active lane of `warp` causes a chunk to be written, as by a load: to one CTA or those of `mask`."""
        thread = int(warp.threads()[0])
        for target in self._targets(warp, site, thread, addresses, mask):
            barrier = target.mbarriers.at(warp, site, [thread], target.barrier)
            target.mbarriers.check_fenced(warp, site, thread, barrier)
            access = target.copies._shared.chunks(warp, site, thread, np.array([target.address]))
            if access is not None:
                target.copies._shared.shadow.begin_load(access)
            target.copies._take(warp, access, (barrier, target.mbarriers), BULK_CHUNK_BYTES, partial(np.copy, octets))

    def send(self, warp: Warp, site: int, source: int, size_bytes: int, addresses: tuple[int, int]) -> None:
        """The only active lane of `warp` issues a copy of this CTA's bytes from `source` on to `addresses`.

        These are `.shared::cluster` addresses: the destination, and an mbarrier of the same CTA.
        """
        thread = int(warp.threads()[0])
        (to,) = self._targets(warp, site, thread, addresses, None)
        target, barrier = to.copies, to.mbarriers.at(warp, site, [thread], to.barrier)
        to.mbarriers.check_fenced(warp, site, thread, barrier)
        firsts = source, to.address
        places = [np.arange(first, first + size_bytes, BULK_CHUNK_BYTES, dtype=np.int64) for first in firsts]
        origin = self._shared.chunks(warp, site, thread, places[0])
        access = target._shared.chunks(warp, site, thread, places[1])
        if origin is None or access is None:
            return
        stamps = self._shared.shadow.begin_store(origin)
        target._shared.shadow.begin_load(access)
        self._leaving.append(origin)

        def done() -> None:
            self._leaving.remove(origin)
            self._shared.shadow.end_store(origin, stamps, barrier.agent)
            warp.cta.remote_smem_accesses.access(warp, site, thread, source, agent=barrier.agent)

        target._take(warp, access, (barrier, to.mbarriers), size_bytes, partial(self._shared.peek, origin), done)

    def send_values(
        self, warp: Warp, site: int, places: Addresses, barriers: Addresses, size_bytes: int, data: Data
    ) -> None:
        """`st.async` of the active lanes: `data` go to `places`, and `barriers` there count the bytes."""
        threads, groups = warp.threads(), dict[tuple[BulkCopies, int], list[tuple[int, int]]]()
        for i, (thread, *both) in enumerate(zip(threads.tolist(), places.tolist(), barriers.tolist(), strict=True)):
            (to,) = self._targets(warp, site, thread, (both[0], both[1]), None)
            groups.setdefault((to.copies, to.barrier), []).append((i, to.address))
        for (target, barrier_at), lanes in groups.items():
            chosen = [i for i, _ in lanes]
            barrier = target._mbarriers.at(warp, site, threads[chosen].tolist(), barrier_at)
            local = np.array([place for _, place in lanes], np.int64)
            access = target._shared.reserve(warp, site, local, threads[chosen], size_bytes)
            signals = barrier, target._mbarriers
            target._take(warp, access, signals, len(lanes) * size_bytes, partial(np.copy, data[chosen]))

    def arrive_after_copies(
        self, warp: Warp, site: int, threads: tuple[int, ...], address: int, *, counts_up: bool
    ) -> None:
        """`cp.async.mbarrier.arrive` of `threads`, the active ones: they arrive when their cp.async have landed.

        With `counts_up` the phase waits for these arrivals in addition; otherwise they are among those it expects.
        """
        mbarriers = self._mbarriers
        barrier = mbarriers.at(warp, site, list(threads), address)
        if counts_up:
            mbarriers.await_more(warp, site, threads[0], barrier, len(threads))
        else:
            for thread in threads:
                mbarriers.check_phase(warp, site, thread, barrier)
        agent = mbarriers.agent_of_copies(warp, site, threads[0], barrier)
        copies = tuple(warp.track_copies())
        arrival = _Arrival(
            warp=warp,
            site=site,
            threads=threads,
            barrier=barrier,
            agent=agent,
            copies=copies,
            cause=reduce(later, map(self._ordering.seen_by, threads)),
        )
        self._loads.append(arrival)
        if self._schedule.lands_at_once():
            self.land_newest()

    def land_newest(self) -> bool:
        """The load that was issued last lands; False if none is in flight."""
        if self._loads:
            self._land(self._loads.pop())
            return True
        return False

    def land_some(self) -> None:
        """The loads that the policy chooses land."""
        chosen = [self._schedule.lands_now() for _ in self._loads]
        landing = [load for load, lands in zip(self._loads, chosen, strict=True) if lands]
        self._loads = [load for load, lands in zip(self._loads, chosen, strict=True) if not lands]
        for load in landing:
            self._land(load)

    def _land(self, load: _Load | _Arrival) -> None:
        if isinstance(load, _Arrival):
            load.land()
            return
        if load.access is not None:
            self._last_landed[load.barrier.agent] = self._ordering.tick, load.access
            self._shared.land(load.access, load.read(), load.barrier.agent)
        if load.done is not None:
            load.done()
        load.mbarriers.land(load.barrier, load.size_bytes, load.cause)

    def store(self, warp: Warp, site: int, regions: Iterable[Region], combine: Combine | None = None) -> None:
        """The active lanes of `warp` issue one store each; `regions` makes each in turn the only active lane.

        Lanes that store the same bytes to the same place store once, and each is counted; with `combine` each does.
        """
        issued: dict[Hashable, _Store | None] = {}
        for region in regions:
            key = region.key()
            _count(warp, site, region)
            if key not in issued or combine is not None:
                issued[key] = self._issue_store(warp, site, region, combine)
            store, thread = issued[key], int(warp.threads()[0])
            if store is not None:
                self._stores.setdefault(thread, []).append((self._committed.get(thread, 0), store))

    def _issue_store(self, warp: Warp, site: int, region: Region, combine: Combine | None) -> _Store | None:
        buffer, thread = region.buffer, int(warp.threads()[0])
        access = self._chunks_of(warp, site, thread, region, region.address)
        if access is None:
            return None
        if region.is_padded:
            message = "a store of padded elements, which only loads have"
            warp.cta.fault(ViolationKind.OUT_OF_BOUNDS, site, thread, message, always=True)
        if not buffer.writeable:
            warp.cta.fault(ViolationKind.READ_ONLY, site, thread, f"a store to {buffer.name}, which is read-only")
        found = _check_global(warp, site, region, lambda shadow, written: shadow.write(written)[0])
        flights = []
        if found is not None:
            flights.append((found[0], found[0].begin(found[1], writes=True)))
        used = _check_map(warp, site, region, lambda shadow, access: shadow.read(access))
        if used is not None:
            flights.append((used[0], used[0].begin(used[1], writes=False)))
        inside = region.inside()
        source, stamps = None, None
        if inside.any():
            source = replace(access, offsets=access.offsets[inside], threads=access.threads[inside])
            stamps = self._shared.shadow.begin_store(source)
        store = _Store(region=region, combine=combine, access=access, source=source, stamps=stamps, flights=flights)
        if self._schedule.lands_at_once():
            self._write(store)
        return store

    def commit(self, threads: Iterable[int]) -> None:
        """`cp.async.bulk.commit_group` of some threads."""
        for thread in threads:
            self._committed[thread] = self._committed.get(thread, 0) + 1

    def wait(self, threads: Iterable[int], newest: int, *, only_read: bool) -> None:
        """`cp.async.bulk.wait_group`: all groups of some threads except the `newest` are complete.

        With `only_read` they have read shared memory, and may still be writing.
        """
        for thread in threads:
            limit = self._committed.get(thread, 0) - newest
            stores = self._stores.get(thread, [])
            for group, store in stores:
                if group < limit:
                    self._write(store)
                    self._give_back(store, only_read=only_read)
            self._stores[thread] = [(g, store) for g, store in stores if g >= limit or store.flights]

    def _give_back(self, store: _Store, *, only_read: bool) -> None:
        store.is_read = True
        if store.source is not None and store.stamps is not None:
            self._shared.shadow.end_store(store.source, store.stamps)
            store.stamps = None
        for shadow, flight in store.flights if not only_read else ():
            shadow.end(flight)
        store.flights = store.flights if only_read else []

    def leave(self, warp: Warp) -> None:
        """The active threads of `warp` exit: their stores must have read shared memory."""
        for thread in warp.threads().tolist() if self._stores else ():
            for _, store in self._stores.pop(thread, []):
                self._write(store)
                if store.is_read:
                    continue
                message = "the thread exits before a cp.async.bulk.wait_group that covers this copy"
                warp.cta.fault(ViolationKind.ASYNC_COPY, store.access.site, thread, message)

    def finish(self) -> None:
        """The CTA ends: every load must have been waited for, and no read may be in flight."""
        for access in self._leaving[:1]:
            message = "the CTA ends and this copy may still be reading its shared memory"
            access.warp.cta.fault(ViolationKind.ASYNC_COPY, access.site, int(access.threads[0]), message)
        unseen = [load.access for load in self._loads if isinstance(load, _Load) and load.access is not None]
        for agent, (tick, access) in self._last_landed.items():
            if not self._ordering.is_seen(agent, tick):
                unseen.append(access)
        for access in unseen[:1]:
            message = "the CTA ends and nobody has waited for this copy"
            access.warp.cta.fault(ViolationKind.ASYNC_COPY, access.site, int(access.threads[0]), message)

    def _write(self, store: _Store) -> None:
        if not store.landed:
            chunks = self._shared.peek(store.access)
            store.region.write(chunks if store.combine is None else store.combine(store.region.read(), chunks))
            store.landed = True

    def _chunks_of(self, warp: Warp, site: int, thread: int, region: Region, address: int) -> Access | None:
        """The region's chunks in shared memory, if it is at `address` there."""
        if address % region.align_bytes:
            message = f"the place in shared memory is not a multiple of {region.align_bytes} bytes"
            warp.cta.fault(ViolationKind.MISALIGNED, site, thread, message, address)
        return self._shared.chunks(warp, site, thread, region.chunks(address))


def _count(warp: Warp, site: int, region: Region, copies: int = 1) -> None:
    offsets, size = region.pieces()
    warp.cta.traffic.box(site, copies * region.size_bytes, offsets + region.buffer.start, size)


def _check_map(
    warp: Warp, site: int, region: Region, record: Callable[[GlobalShadow, GlobalAccess], Clash | None]
) -> tuple[GlobalShadow, GlobalAccess] | None:
    """Records the use of a tensor map in global memory, which must be visible; returns what was recorded."""
    address = region.map_address
    memory, thread = warp.cta.memories["global"], int(warp.threads()[0])
    buffer = None if address is None else memory.holding(address, tensor_map.TENSOR_MAP_BYTES)
    if address is None or buffer is None or buffer.shadow is None:
        return None
    offsets = tensor_map.words_at(address) - buffer.start + buffer.shadow_offset
    access = _access_of(warp, site, offsets, tensor_map.WORD_BYTES)
    clash = record(buffer.shadow, access)
    if clash is not None:
        who = warp.cta.describe_thread(clash.cluster, clash.thread, clash.warp)
        message = f"use of a tensor map not ordered after the write by {who} ({warp.cta.describe(clash.site)})"
        warp.cta.fault(ViolationKind.RACE, site, thread, message, address)
    warp.cta.tensors.check(warp, site, thread, address, buffer.shadow.writers(access))
    return buffer.shadow, access


def _access_of(warp: Warp, site: int, offsets: Addresses, size_bytes: int) -> GlobalAccess:
    """An access to pieces of an allocation by the only active lane of `warp`."""
    return GlobalAccess(
        cluster=warp.cta.cluster.number,
        warp=warp.index,
        ordering=warp.cta.ordering,
        site=site,
        offsets=offsets,
        threads=np.full(len(offsets), int(warp.threads()[0])),
        size_bytes=size_bytes,
    )


def _check_global(
    warp: Warp, site: int, region: Region, record: Callable[[GlobalShadow, GlobalAccess], Clash | None]
) -> tuple[GlobalShadow, GlobalAccess] | None:
    """Records an access to the region's bytes of global memory; reports another that is not ordered before it.

    Returns what was recorded, unless it is all outside of the tensor.
    """
    buffer, thread = region.buffer, int(warp.threads()[0])
    shadow = buffer.shadow
    offsets, size = region.pieces()
    if shadow is None or not len(offsets):
        return None
    if buffer.is_shared_before:
        warp.cta.memories["global"].check_predecessor(warp, site, offsets[:1] + buffer.start, "bulk copy")
    access = _access_of(warp, site, offsets + buffer.shadow_offset, size)
    clash = record(shadow, access)
    if clash is not None:
        who = warp.cta.describe_thread(clash.cluster, clash.thread, clash.warp)
        message = clash.explain("bulk copy", who, warp.cta.describe(clash.site))
        warp.cta.fault(ViolationKind.RACE, site, thread, message, int(offsets[clash.index]) + buffer.start)
    return shadow, access
