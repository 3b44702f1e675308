"""Shared memory of a CTA: its bytes, the checks of every access to them, and the cost of the accesses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cutegen.ptx.machine.frame import POISON_BYTE
from cutegen.ptx.machine.grid import CTA_WINDOW_BYTES, in_cta
from cutegen.ptx.machine.memory import MAX_CLUSTER_CTAS, Addresses, Bytes, Data, lost_write, poison
from cutegen.ptx.machine.special import RESERVED_SMEM_BYTES
from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.watch.locations import Locations
from cutegen.ptx.watch.paged import MANY
from cutegen.ptx.watch.semantics import Semantics
from cutegen.ptx.watch.shadow import Access, Shadow
from cutegen.ptx.watch.traffic import TrafficCounters
from cutegen.ptx.watch.vector_clock import NOTHING, Clock, later
from cutegen.ptx.watch.violations import ViolationKind

SHARED_BASE = RESERVED_SMEM_BYTES
"""The first shared address: from sm_80 on the first KiB of each CTA is reserved by the system, and 0 stays invalid."""

BULK_CHUNK_BYTES = 16
"""Size of the chunks that bulk copies and their swizzles move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """A variable in shared memory, from byte `start` on; without `size_bytes` it is the dynamic memory, to its end."""

    name: str
    start: int
    size_bytes: int | None

    def misses(self, offsets: npt.NDArray[np.int64], size_bytes: int) -> npt.NDArray[np.bool_]:
        """Mark accesses of `size_bytes` at `offsets` that are not within it."""
        below = offsets < self.start
        if self.size_bytes is None:
            return below
        return np.asarray(below | (offsets + size_bytes > self.start + self.size_bytes))


class SharedMemory:
    """The shared memory of the CTA of `rank` in its cluster; its addresses begin at `SHARED_BASE` of that CTA."""

    def __init__(
        self,
        size_bytes: int,
        shadow: Shadow,
        traffic: TrafficCounters,
        semantics: Mapping[int, Semantics],
        ends: tuple[int, ...],
        variables: Mapping[int, Extent],
        rank: int,
    ) -> None:
        self._variables = variables
        """Variable that an instruction may access, if others lie next to it."""
        self._rank, self._start = rank, in_cta(rank, SHARED_BASE)
        self._size, self._semantics, self._locations = size_bytes, semantics, Locations()
        self._ends = np.array([end for end in ends if end < size_bytes], np.int64)
        self._bytes = Bytes(np.full(size_bytes, POISON_BYTE, np.uint8))
        self.shadow, self._traffic = shadow, traffic

    def read(
        self, warp: Warp, site: int, addresses: Addresses, size_bytes: int, *, givers: Addresses | None = None
    ) -> Data:
        """`size_bytes` bytes for each address. `givers`: the lanes that provide addresses, for a read by all lanes."""
        lanes = warp.lanes() if givers is None else givers
        self._traffic.shared(site, addresses, lanes, size_bytes, merges=givers is None)
        threads = warp.threads() if givers is None else np.full(len(addresses), MANY)
        access = self._access(warp, site, addresses, threads, size_bytes)
        if access is None:
            return poison(len(addresses), size_bytes)
        self.shadow.read(access)
        if site in self._semantics:
            for thread, offset in zip(threads.tolist(), access.offsets.tolist(), strict=True):
                self._locations.read(warp.cta.fences, warp, thread, offset, self._semantics[site])
        return self._bytes.window(size_bytes)[access.offsets]

    def write(self, warp: Warp, site: int, addresses: Addresses, size_bytes: int, data: Data) -> None:
        """Writes `size_bytes` bytes at each address."""
        self._traffic.shared(site, addresses, warp.lanes(), size_bytes)
        access = self._access(warp, site, addresses, warp.threads(), size_bytes)
        if access is None:
            return
        window = self._bytes.window(size_bytes)
        window[access.offsets] = data
        lost = None
        if self.shadow.write(access):
            lost = lost_write(window, access.offsets, data)
        if lost is not None and site not in self._semantics:
            message = "two lanes of one instruction write different values to the same bytes"
            self.shadow.report(ViolationKind.RACE, access, lost, message)
        if site not in self._semantics:
            self._locations.forget(access.offsets)
            return
        for thread, offset in zip(access.threads.tolist(), access.offsets.tolist(), strict=True):
            self._locations.write(warp.cta.fences, thread, offset, self._semantics[site])

    def element(self, warp: Warp, site: int, lane_index: int, address: int, size_bytes: int) -> tuple[Data, int] | None:
        """The window and offset of one lane's atomic access, or None if it is faulty."""
        thread = warp.threads()[lane_index : lane_index + 1]
        access = self._access(warp, site, np.array([address]), thread, size_bytes)
        if access is None:
            return None
        self.shadow.read(access)
        self.shadow.write(access)
        offset, semantics = int(access.offsets[0]), self._semantics[site]
        self._locations.update(warp.cta.fences, warp, int(thread[0]), offset, semantics)
        return self._bytes.window(size_bytes), int(access.offsets[0])

    def begin_copy(self, warp: Warp, site: int, addresses: Addresses, size_bytes: int) -> Access | None:
        """A cp.async to `addresses` is issued; returns the argument of `end_copy`, or None if it is faulty."""
        self._traffic.shared(site, addresses, warp.lanes(), size_bytes)
        return self.reserve(warp, site, addresses, warp.threads(), size_bytes)

    def reserve(
        self, warp: Warp, site: int, addresses: Addresses, threads: Addresses, size_bytes: int
    ) -> Access | None:
        """Nothing may access the bytes until they have landed, or are released; None if they are faulty."""
        access = self._access(warp, site, addresses, threads, size_bytes)
        if access is not None:
            self.shadow.begin_copy(access)
        return access

    def end_copy(self, access: Access, data: Data) -> None:
        """The bytes of a cp.async land."""
        self._bytes.window(access.size_bytes)[access.offsets] = data
        self.shadow.end_copy(access)

    def chunks(self, warp: Warp, site: int, thread: int, addresses: Addresses) -> Access | None:
        """The access of a bulk copy by `thread` to 16-byte chunks, or None if it is faulty."""
        return self._access(warp, site, addresses, np.full(len(addresses), thread), BULK_CHUNK_BYTES)

    def land(self, access: Access, data: Data, agent: int) -> None:
        """The bytes of a bulk copy land, written by `agent`."""
        self._bytes.window(access.size_bytes)[access.offsets] = data
        self.shadow.land(access, agent)

    def peek(self, access: Access) -> Data:
        """Return the current source bytes of a bulk copy."""
        return self._bytes.window(access.size_bytes)[access.offsets]

    def begin_tensor_core_read(
        self, warps: Sequence[Warp], site: int, addresses: Addresses, agent: int, thread: int | None = None
    ) -> None:
        """The tensor core begins to read 16-byte chunks for some warps, or one `thread`; to writers it is `agent`.

        The addresses, of descriptors, are those in the CTA, without its rank.
        """
        if not len(addresses):
            return
        self._traffic.chunks(site, BULK_CHUNK_BYTES * len(addresses))
        threads = np.full(len(addresses), MANY if thread is None else thread)
        access = self._access(warps[0], site, addresses + in_cta(self._rank, 0), threads, BULK_CHUNK_BYTES)
        if access is not None:
            self.shadow.read_by_agent(access, warps, agent, thread)

    def tensor_core_peek(self, addresses: Addresses) -> Data:
        """The current chunks at `addresses`, in their shape; out-of-bounds addresses have been reported."""
        last = self._size - BULK_CHUNK_BYTES
        if last < 0:
            return poison(addresses.size, BULK_CHUNK_BYTES).reshape(addresses.shape)
        found: Data = self._bytes.window(BULK_CHUNK_BYTES)[(addresses - SHARED_BASE).clip(0, last)]
        return found

    def _access(
        self, warp: Warp, site: int, addresses: Addresses, threads: Addresses, size_bytes: int
    ) -> Access | None:
        """The access, or None if it is out of bounds or misaligned and the launch continues."""
        access = Access(warp, site, addresses - self._start, threads, size_bytes)
        offsets, last = access.offsets, self._size - size_bytes
        if int(offsets.min()) < 0 or int(offsets.max()) > last:
            self._refuse(ViolationKind.OUT_OF_BOUNDS, access, (offsets < 0) | (offsets > last))
            return None
        if int(np.bitwise_or.reduce(offsets)) & (size_bytes - 1):
            self._refuse(ViolationKind.MISALIGNED, access, offsets % size_bytes != 0)
            return None
        if len(self._ends):
            across = np.searchsorted(self._ends, offsets, "right") != np.searchsorted(
                self._ends, offsets + size_bytes - 1, "right"
            )
            if across.any():
                self._refuse(ViolationKind.OUT_OF_BOUNDS, access, across, "that runs past the end of a variable, in ")
                return None
        variable = self._variables.get(site)
        if variable is not None:
            misses = variable.misses(offsets, size_bytes)
            if misses.any():
                self._refuse_neighbor(access, variable, misses)
                return None
        return access

    def _refuse_neighbor(self, access: Access, variable: Extent, misses: npt.NDArray[np.bool_]) -> None:
        index = int(np.argmax(misses))
        place = int(access.offsets[index]) - variable.start
        size = "the dynamic memory" if variable.size_bytes is None else f"which has {variable.size_bytes} bytes"
        message = f"{access.size_bytes}-byte access at byte {place} of {variable.name}, {size}, hits another variable"
        self.shadow.report(ViolationKind.OUT_OF_BOUNDS, access, index, message)

    def _refuse(self, kind: ViolationKind, access: Access, faulty: npt.NDArray[np.bool_], which: str = "to ") -> None:
        what = f"{access.size_bytes}-byte access {which}the {self._size} bytes of shared memory from {self._start:#x}"
        index = int(np.argmax(faulty))
        window = (int(access.offsets[index]) + self._start) // CTA_WINDOW_BYTES
        if window != self._rank and 0 <= window < MAX_CLUSTER_CTAS:
            what += "; an address of another CTA of the cluster needs .shared::cluster"
        self.shadow.report(kind, access, index, what)


# Accesses of a cluster's other CTAs to a CTA's shared memory: they must complete before the CTA's last exit.
#
# Source: PTX ISA, "State Spaces: Shared State Space": shared memory has the lifetime of its CTA. The check compares the
# clocks of the visitors with what the CTA's own threads knew of them at their exit, not the interleaving that occurred.


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
