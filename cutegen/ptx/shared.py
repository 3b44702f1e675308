"""Shared memory of a CTA, with a shadow that proves every access: initialised, in bounds, aligned, free of races.

The shadow remembers for each granule (the smallest access the program makes) who wrote it last, and for each warp who
read it last. A stamp packs `pending copy | tick | instruction | thread`, so that one comparison of the largest stamp
tells that all is well; only then does the slow look begin. A cp.async marks its granules pending from its issue to
the wait that covers it, and any access to them in between is reported.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cutegen.ptx.frame import POISON_BYTE
from cutegen.ptx.memory import Addresses, Bytes, Data, lost_write, poison
from cutegen.ptx.ordering import Ordering
from cutegen.ptx.traffic import TrafficCounters
from cutegen.ptx.violations import Monitor, ViolationKind
from cutegen.ptx.warp import Warp

SHARED_BASE = 1024
"""The first shared address: from sm_80 on the first KiB of each CTA is the system's, and 0 stays invalid."""

_THREAD_BITS, _SITE_BITS = 12, 20
_TICK_SHIFT = _THREAD_BITS + _SITE_BITS
_MANY = (1 << _THREAD_BITS) - 1
_PENDING = 1 << 62
_TICK_MASK = (1 << (62 - _TICK_SHIFT)) - 1
Stamps = npt.NDArray[np.int64]


class SharedMemory:
    """The shared memory of one CTA; addresses begin at `SHARED_BASE`."""

    def __init__(
        self,
        size_bytes: int,
        *,
        granule_bytes: int,
        ordering: Ordering,
        monitor: Monitor,
        traffic: TrafficCounters,
        atomic_sites: npt.NDArray[np.bool_],
    ) -> None:
        self._size, self._granule = size_bytes, granule_bytes
        self._bytes = Bytes(np.full(size_bytes, POISON_BYTE, np.uint8))
        granules = -(-size_bytes // granule_bytes)
        self._writes: Stamps = np.zeros(granules, np.int64)
        self._reads: Stamps = np.zeros((len(ordering.bounds), granules), np.int64)
        self._ordering, self._monitor, self._traffic = ordering, monitor, traffic
        self._atomic_sites = atomic_sites

    def read(
        self, warp: Warp, site: int, addresses: Addresses, size_bytes: int, *, lanes: Addresses | None = None
    ) -> Data:
        """`size_bytes` bytes for each address.

        `lanes`: which lanes gave them, for a collective read by the whole warp.
        """
        self._traffic.shared(site, addresses, warp.lanes() if lanes is None else lanes, size_bytes)
        offsets = self._offsets(warp, site, addresses, size_bytes)
        if offsets is None:
            return poison(len(addresses), size_bytes)
        threads = warp.threads() if lanes is None else np.full(len(offsets), _MANY)
        self._note_read(warp, site, offsets, threads, size_bytes)
        return self._bytes.window(size_bytes)[offsets]

    def write(self, warp: Warp, site: int, addresses: Addresses, size_bytes: int, data: Data) -> None:
        """Writes `size_bytes` bytes at each address."""
        self._traffic.shared(site, addresses, warp.lanes(), size_bytes)
        offsets = self._offsets(warp, site, addresses, size_bytes)
        if offsets is None:
            return
        window = self._bytes.window(size_bytes)
        window[offsets] = data
        if self._note_write(warp, site, offsets, warp.threads(), size_bytes):
            self._check_same_data(warp, site, offsets, window, data)

    def element(self, warp: Warp, site: int, lane_index: int, address: int, size_bytes: int) -> tuple[Data, int] | None:
        """The window and offset of one lane's atomic access, or None where it is faulty."""
        offsets = self._offsets(warp, site, np.array([address]), size_bytes, lane_index)
        if offsets is None:
            return None
        thread = warp.threads()[lane_index : lane_index + 1]
        self._note_read(warp, site, offsets, thread, size_bytes)
        self._note_write(warp, site, offsets, thread, size_bytes)
        return self._bytes.window(size_bytes), int(offsets[0])

    def begin_copy(self, warp: Warp, site: int, addresses: Addresses, size_bytes: int) -> Addresses | None:
        """A cp.async to `addresses` is issued: its bytes belong to nobody until `end_copy`. Returns what that takes."""
        self._traffic.shared(site, addresses, warp.lanes(), size_bytes)
        offsets = self._offsets(warp, site, addresses, size_bytes)
        if offsets is not None:
            self._note_write(warp, site, offsets, warp.threads(), size_bytes, flag=_PENDING)
        return offsets

    def end_copy(self, site: int, offsets: Addresses, threads: Addresses, size_bytes: int, data: Data) -> None:
        """The bytes of a cp.async land: from now on they are like an ordinary write of the thread that waited."""
        self._bytes.window(size_bytes)[offsets] = data
        granules = self._granules(offsets, size_bytes)
        self._writes[granules] = (self._stamp(site) | threads)[:, None]

    def _stamp(self, site: int) -> int:
        return (self._ordering.tick & _TICK_MASK) << _TICK_SHIFT | site << _THREAD_BITS

    def _granules(self, offsets: Addresses, size_bytes: int) -> Addresses:
        count = max(1, size_bytes // self._granule)
        return (offsets // self._granule)[:, None] + np.arange(count)

    def _note_read(self, warp: Warp, site: int, offsets: Addresses, threads: Addresses, size_bytes: int) -> None:
        granules = self._granules(offsets, size_bytes)
        writes = self._writes[granules]
        if writes.min() == 0:
            index = int(np.argmin(writes.min(axis=1)))
            message = f"{size_bytes}-byte read of shared memory that was never written"
            self._report(ViolationKind.UNINITIALISED, warp, site, int(threads[index]), int(offsets[index]), message)
        if writes.max() >> _TICK_SHIFT >= self._ordering.bounds[warp.index]:
            self._find_race(warp, site, offsets, threads[:, None], writes, writes & _MANY, "read")
        self._record_read(warp, self._stamp(site), granules, threads[:, None])

    def _record_read(self, warp: Warp, stamp: int, granules: Addresses, threads: Addresses) -> None:
        """Remembers the readers; a granule that several threads read in one tick is marked as read by many."""
        reads = self._reads[warp.index]
        before = reads[granules]
        mine = np.broadcast_to(stamp | threads, granules.shape)
        reads[granules] = mine
        shared_now = reads[granules] != mine
        if before.max() >= stamp >> _TICK_SHIFT << _TICK_SHIFT:
            same_tick = before >> _TICK_SHIFT == stamp >> _TICK_SHIFT
            shared_now |= same_tick & (before & _MANY != mine & _MANY)
        if shared_now.any():
            reads[granules[shared_now]] |= _MANY

    def _note_write(
        self, warp: Warp, site: int, offsets: Addresses, threads: Addresses, size_bytes: int, flag: int = 0
    ) -> bool:
        """Checks and remembers a write; True where two lanes wrote the same granule."""
        granules = self._granules(offsets, size_bytes)
        writes, reads = self._writes[granules], self._reads[:, granules]
        bound = self._ordering.bounds[warp.index]
        mine = threads[:, None]
        if writes.max() >> _TICK_SHIFT >= bound:
            self._find_race(warp, site, offsets, mine, writes, writes & _MANY, "write")
        if reads.max() >> _TICK_SHIFT >= bound:
            for reader, stamps in enumerate(reads):
                owners = np.where(stamps & _MANY == _MANY, reader * 32 + 32 * _MANY, stamps & _MANY)
                self._find_race(warp, site, offsets, mine, stamps, owners, "write", reader=reader)
        stamp = self._stamp(site) | flag
        self._writes[granules] = stamp | mine
        return bool((self._writes[granules] != stamp | mine).any())

    def _find_race(
        self,
        warp: Warp,
        site: int,
        offsets: Addresses,
        threads: Addresses,
        stamps: Stamps,
        owners: Addresses,
        access: str,
        reader: int | None = None,
    ) -> None:
        """Looks for an earlier access in `stamps` by another thread that no barrier orders before this one."""
        pending = stamps >= _PENDING
        ticks = stamps >> _TICK_SHIFT & _TICK_MASK
        earlier_warp: Any = np.minimum(owners >> 5, len(self._ordering.bounds) - 1) if reader is None else reader
        unordered = ticks > self._ordering.known[warp.index][earlier_warp]
        sites = stamps >> _THREAD_BITS & ((1 << _SITE_BITS) - 1)
        race = unordered & (owners != threads) & ~(self._atomic_sites[sites] & self._atomic_sites[site])
        found = np.argwhere(race | pending)
        if len(found):
            index, piece = (int(x) for x in found[0])
            stamp, thread = int(stamps[index, piece]), int(threads[index, 0])
            self._report_race(warp, site, stamp, thread, int(offsets[index]) + piece * self._granule, access, reader)

    def _report_race(
        self, warp: Warp, site: int, stamp: int, thread: int, offset: int, access: str, reader: int | None
    ) -> None:
        number = stamp & _MANY
        other = (
            f"thread {number}"
            if number != _MANY
            else f"several threads of warp {warp.index if reader is None else reader}"
        )
        place = self._monitor.describe(stamp >> _THREAD_BITS & ((1 << _SITE_BITS) - 1))
        if stamp >= _PENDING:
            message = f"{access} of bytes that the cp.async of {other} ({place}) has not been waited for"
            self._report(ViolationKind.ASYNC_COPY, warp, site, thread, offset, message)
        else:
            earlier = "write" if reader is None else "read"
            message = f"{access} without a barrier after the {earlier} by {other} ({place})"
            self._report(ViolationKind.RACE, warp, site, thread, offset, message)

    def _check_same_data(self, warp: Warp, site: int, offsets: Addresses, window: Data, data: Data) -> None:
        lost = lost_write(window, offsets, data)
        if lost is not None:
            message = "two lanes of one instruction write different values to the same bytes"
            thread = int(warp.threads()[lost])
            self._report(ViolationKind.RACE, warp, site, thread, int(offsets[lost]), message)

    def _offsets(
        self, warp: Warp, site: int, addresses: Addresses, size_bytes: int, lane_index: int = 0
    ) -> Addresses | None:
        """Offsets in the memory, or None where an access is out of bounds or misaligned and the launch goes on."""
        offsets = addresses - SHARED_BASE
        misaligned = int(np.bitwise_or.reduce(offsets)) & (size_bytes - 1)
        outside = int(offsets.min()) < 0 or int(offsets.max()) > self._size - size_bytes
        if not (misaligned or outside):
            return offsets
        bad = (offsets < 0) | (offsets > self._size - size_bytes) if outside else offsets % size_bytes != 0
        kind = ViolationKind.OUT_OF_BOUNDS if outside else ViolationKind.MISALIGNED
        index = int(np.argmax(bad))
        message = f"{size_bytes}-byte access to the {self._size} bytes of shared memory from {SHARED_BASE:#x}"
        thread = int(warp.threads()[min(index + lane_index, len(warp.threads()) - 1)])
        self._report(kind, warp, site, thread, int(offsets[index]), message)
        return None

    def _report(self, kind: ViolationKind, warp: Warp, site: int, thread: int, offset: int, message: str) -> None:
        one = thread if thread != _MANY else int(warp.threads()[0])
        self._monitor.report(kind, site, message, cta=warp.cta.place, thread=one, address=offset + SHARED_BASE)
