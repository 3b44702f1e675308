"""Byte-addressed buffers, and the global memory that a launch can reach.

A buffer is read and written through windows: overlapping numpy views of the same bytes, one for each access size,
indexed by byte offset. Every access is checked against the buffer's bounds and the access's natural alignment first.
Source: PTX ISA, "State Spaces" and "Generic Addressing".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cutegen.ptx.machine.frame import POISON_BYTE
from cutegen.ptx.machine.grid import CTA_WINDOW_BYTES
from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.watch.global_shadow import Clash, Flights, GlobalAccess, GlobalShadow
from cutegen.ptx.watch.semantics import Semantics
from cutegen.ptx.watch.traffic import TrafficCounters
from cutegen.ptx.watch.violations import Monitor, ViolationKind

Addresses: TypeAlias = npt.NDArray[np.int64]
Data: TypeAlias = npt.NDArray[Any]

ALLOCATION_STRIDE = 1 << 36
SHARED_WINDOW = 0x7F00_0000_0000
LOCAL_WINDOW = 0x7E00_0000_0000
PARAM_WINDOW = 0x7D00_0000_0000
WINDOW_BYTES = 1 << 24
MAX_CLUSTER_CTAS = 16
"""CTAs per cluster on sm_90, for kernels that request more than the 8 that every GPU with clusters supports."""
SHARED_WINDOW_BYTES = MAX_CLUSTER_CTAS * CTA_WINDOW_BYTES
"""Generic addresses that `.shared::cluster` occupies."""


def data_dtype(size_bytes: int) -> np.dtype[Any]:
    """The dtype of one access: unsigned up to 8 bytes, opaque bytes beyond."""
    return np.dtype(f"u{size_bytes}" if size_bytes <= 8 else f"V{size_bytes}")


@dataclass(slots=True)
class Bytes:
    """A range of bytes with a window for each access size."""

    data: npt.NDArray[np.uint8]
    _windows: dict[int, Data] = field(default_factory=dict)

    def window(self, size_bytes: int) -> Data:
        """The view whose element `i` is the `size_bytes` bytes from offset `i`."""
        window = self._windows.get(size_bytes)
        if window is None:
            count = max(0, len(self.data) - size_bytes + 1)
            window = np.ndarray((count,), data_dtype(size_bytes), buffer=self.data, strides=(1,))
            self._windows[size_bytes] = window
        return window


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """Bytes that a kernel sees at the global address `start`."""

    name: str
    start: int
    writeable: bool
    bytes: Bytes
    shadow: GlobalShadow | None = None
    is_shared_before: bool = False
    """True if the grid before a programmatic launch may use the bytes."""
    shadow_offset: int = 0
    """Offset of the buffer in the allocation of `shadow`."""

    @property
    def end(self) -> int:
        """The first address after the buffer."""
        return self.start + len(self.bytes.data)


def poison(count: int, size_bytes: int) -> Data:
    """Return the value of a faulty read: all bits one, a NaN in every float format."""
    return np.full(count * size_bytes, POISON_BYTE, np.uint8).view(data_dtype(size_bytes))


def lost_write(window: Data, offsets: Addresses, data: Data) -> int | None:
    """The index of a lane whose bytes another lane of the same instruction replaced, or None."""
    pairs = enumerate(zip(offsets.tolist(), data, strict=True))
    return next((i for i, (offset, item) in pairs if window[offset].tobytes() != item.tobytes()), None)


class GlobalMemory:
    """The buffers of a launch; performs accesses of one warp's active lanes."""

    def __init__(
        self, buffers: list[Buffer], monitor: Monitor, traffic: TrafficCounters, semantics: Mapping[int, Semantics]
    ) -> None:
        self._semantics = semantics
        self._buffers = sorted(buffers, key=lambda buffer: buffer.start)
        self._recent = self._buffers[:1]
        self._has_predecessor = any(buffer.is_shared_before for buffer in buffers)
        self._monitor, self._traffic = monitor, traffic

    def read(
        self, warp: Warp, site: int, addresses: Addresses, size_bytes: int, flights: Flights | None = None
    ) -> Data:
        """`size_bytes` bytes for each address; poison if an access is faulty and the launch continues.

        `flights`: the bytes are read until these end, not only now.
        """
        self._traffic.device(site, addresses, size_bytes)
        buffer = self._covering(addresses, size_bytes)
        if self._has_predecessor and not self.check_predecessor(warp, site, addresses, "read"):
            return poison(len(addresses), size_bytes)
        if buffer is not None:
            offsets = addresses - buffer.start
            if buffer.shadow is not None:
                access = self._access(warp, site, buffer, offsets, size_bytes)
                self._watch_read(buffer.shadow, access, warp, buffer, flights)
                if site in self._semantics:
                    return self._read_strong(buffer.shadow, access, warp, buffer.bytes.window(size_bytes)[offsets])
            return buffer.bytes.window(size_bytes)[offsets]
        data = poison(len(addresses), size_bytes)
        for i, address in enumerate(addresses.tolist()):
            found = self._checked(warp, site, i, address, size_bytes, writes=False)
            if found is not None:
                data[i] = found.bytes.window(size_bytes)[address - found.start]
                if found.shadow is not None:
                    lane = self._access(warp, site, found, np.array([address - found.start]), size_bytes, i)
                    self._watch_read(found.shadow, lane, warp, found, flights)
                    if site in self._semantics:
                        data[i : i + 1] = self._read_strong(found.shadow, lane, warp, data[i : i + 1])
        return data

    def write(self, warp: Warp, site: int, addresses: Addresses, size_bytes: int, data: Data) -> None:
        """Writes `size_bytes` bytes at each address; faulty writes are omitted if the launch continues."""
        self._traffic.device(site, addresses, size_bytes)
        if self._has_predecessor:
            self.check_predecessor(warp, site, addresses, "write")
        buffer = self._covering(addresses, size_bytes)
        if buffer is not None and buffer.writeable:
            self._write_to(warp, site, buffer, addresses - buffer.start, size_bytes, data)
            return
        for i, address in enumerate(addresses.tolist()):
            found = self._checked(warp, site, i, address, size_bytes, writes=True)
            if found is not None:
                window, at = found.bytes.window(size_bytes), address - found.start
                before = window[at : at + 1].copy()
                window[at] = data[i]
                if found.shadow is not None:
                    lane = self._access(warp, site, found, np.array([address - found.start]), size_bytes, i)
                    self._watch_write(found.shadow, lane, warp, found, before, data[i : i + 1])

    def _write_to(self, warp: Warp, site: int, buffer: Buffer, offsets: Addresses, size_bytes: int, data: Data) -> None:
        window = buffer.bytes.window(size_bytes)
        before = window[offsets] if site in self._semantics else data
        window[offsets] = data
        if buffer.shadow is None:
            return
        access = self._access(warp, site, buffer, offsets, size_bytes)
        if self._watch_write(buffer.shadow, access, warp, buffer, before, data) and site not in self._semantics:
            lost = lost_write(window, offsets, data)
            if lost is not None:
                message = "two lanes of one instruction write different values to the same bytes"
                self._report_race(warp, access, buffer, lost, message)

    @staticmethod
    def _access(
        warp: Warp, site: int, buffer: Buffer, offsets: Addresses, size_bytes: int, lane_index: int | None = None
    ) -> GlobalAccess:
        """The access of the active lanes, or of one of them, to the allocation that `buffer` is in."""
        threads = warp.threads()
        return GlobalAccess(
            cluster=warp.cta.cluster.number,
            warp=warp.index,
            ordering=warp.cta.ordering,
            site=site,
            offsets=offsets + buffer.shadow_offset if buffer.shadow_offset else offsets,
            threads=threads if lane_index is None else threads[lane_index : lane_index + 1],
            size_bytes=size_bytes,
        )

    def _watch_read(
        self, shadow: GlobalShadow, access: GlobalAccess, warp: Warp, buffer: Buffer, flights: Flights | None
    ) -> None:
        clash = shadow.read(access)
        if flights is not None and shadow.is_writeable:
            flights.add(shadow, shadow.begin(access, writes=False))
        if clash is not None:
            self._report_clash(warp, access, buffer, clash, "read")

    def _read_strong(self, shadow: GlobalShadow, access: GlobalAccess, warp: Warp, data: Data) -> Data:
        """Return the values of strong reads if the last values are `data`."""
        found, semantics = data.copy(), self._semantics[access.site]
        for i, (thread, offset) in enumerate(zip(access.threads.tolist(), access.offsets.tolist(), strict=True)):
            older = shadow.locations.read(warp.cta.fences, warp, thread, offset, semantics, data[i])
            if older is not None:
                found[i] = older
        return found

    def _watch_write(
        self, shadow: GlobalShadow, access: GlobalAccess, warp: Warp, buffer: Buffer, before: Data, data: Data
    ) -> bool:
        """Records `data` in place of `before`; True if two lanes wrote the same bytes."""
        clash, meets = shadow.write(access)
        if clash is not None:
            self._report_clash(warp, access, buffer, clash, "write")
        semantics = self._semantics.get(access.site)
        if semantics is None:
            shadow.locations.forget(access.offsets)
        else:
            lanes = zip(access.threads.tolist(), access.offsets.tolist(), zip(before, data, strict=True), strict=True)
            for thread, offset, values in lanes:
                shadow.locations.write(warp.cta.fences, thread, offset, semantics, values)
        return meets

    def _report_clash(self, warp: Warp, access: GlobalAccess, buffer: Buffer, clash: Clash, what: str) -> None:
        who = warp.cta.describe_thread(clash.cluster, clash.thread, clash.warp)
        message = clash.explain(what, who, self._monitor.describe(clash.site))
        self._report_race(warp, access, buffer, clash.index, message, clash.offset - int(access.offsets[clash.index]))

    def _report_race(
        self, warp: Warp, access: GlobalAccess, buffer: Buffer, index: int, message: str, piece: int = 0
    ) -> None:
        thread = int(access.threads[index]) - warp.cta.first_thread
        address = int(access.offsets[index]) - buffer.shadow_offset + buffer.start + piece
        place = warp.cta.place
        self._monitor.report(ViolationKind.RACE, access.site, message, cta=place, thread=thread, address=address)

    def begin_atomics(self, warp: Warp, site: int, addresses: Addresses, size_bytes: int) -> None:
        """The active lanes are about to make atomic accesses, each by `element`."""
        if self._has_predecessor:
            self.check_predecessor(warp, site, addresses, "atomic access")
        buffer = self._covering(addresses, size_bytes)
        if buffer is not None and buffer.shadow is not None:
            self._watch_atomics(warp, buffer, self._access(warp, site, buffer, addresses - buffer.start, size_bytes))
            return
        for i, address in enumerate(addresses.tolist() if buffer is None else ()):
            found = self._covering(addresses[i : i + 1], size_bytes)
            if found is not None and found.shadow is not None:
                lane = self._access(warp, site, found, np.array([address - found.start]), size_bytes, i)
                self._watch_atomics(warp, found, lane)

    def _watch_atomics(self, warp: Warp, buffer: Buffer, access: GlobalAccess) -> None:
        clash = None if buffer.shadow is None else buffer.shadow.write(access)[0]
        if clash is not None:
            self._report_clash(warp, access, buffer, clash, "atomic access")

    def element(self, warp: Warp, site: int, lane_index: int, address: int, size_bytes: int) -> tuple[Data, int] | None:
        """The window and offset of one lane's atomic access, or None if it is faulty."""
        found = self._checked(warp, site, lane_index, address, size_bytes, writes=True)
        if found is None:
            return None
        if found.shadow is not None:
            thread, offset = warp.thread0 + int(warp.lanes()[lane_index]), address - found.start + found.shadow_offset
            found.shadow.locations.update(warp.cta.fences, warp, thread, offset, self._semantics[site])
        return found.bytes.window(size_bytes), address - found.start

    def check_predecessor(self, warp: Warp, site: int, addresses: Addresses, what: str) -> bool:
        """Report an access by a thread for which the grid before a programmatic launch may still run; True if none."""
        shared = [(buffer.start, buffer.end) for buffer in self._buffers if buffer.is_shared_before]
        inside = [bool(((addresses >= start) & (addresses < end)).any()) for start, end in shared]
        predecessor = warp.cta.predecessor
        if predecessor is None or not any(inside):
            return True
        thread = predecessor.first_uninformed(warp, warp.cta.ordering)
        if thread is None:
            return True
        may = "write" if what == "read" else "read or write"
        message = f"{what} of global memory that the grid before may still {may}: no griddepcontrol.wait comes first"
        warp.cta.fault(ViolationKind.RACE, site, thread, message, int(addresses[0]))
        return False

    def span(self, warp: Warp, site: int, address: int, size_bytes: int, *, writes: bool) -> Buffer | None:
        """The buffer of `size_bytes` consecutive bytes that one thread accesses; None if none has them: a fault."""
        buffer = self.holding(address, size_bytes)
        if buffer is not None:
            return buffer
        access, thread = f"{size_bytes}-byte {'write' if writes else 'read'}", int(warp.threads()[0])
        warp.cta.fault(ViolationKind.OUT_OF_BOUNDS, site, thread, f"{access} {self._nearest(address)}", address)
        return None

    def holding(self, address: int, size_bytes: int) -> Buffer | None:
        """The buffer that has `size_bytes` consecutive bytes; None if none has."""
        both = (b for b in self._buffers if b.start <= address and address + size_bytes <= b.end)
        return next(both, None)

    def _covering(self, addresses: Addresses, size_bytes: int) -> Buffer | None:
        """The buffer that holds all the addresses, aligned; None if there is none."""
        low, high = int(addresses.min()), int(addresses.max()) + size_bytes
        if int(np.bitwise_or.reduce(addresses)) & (size_bytes - 1):
            return None
        for buffers in (self._recent, self._buffers):
            for buffer in buffers:
                if buffer.start <= low and high <= buffer.end:
                    self._recent = [buffer]
                    return buffer
        return None

    def _checked(
        self, warp: Warp, site: int, lane_index: int, address: int, size_bytes: int, *, writes: bool
    ) -> Buffer | None:
        access = f"{size_bytes}-byte {'write' if writes else 'read'}"

        def report(kind: ViolationKind, message: str) -> None:
            thread = int(warp.threads()[lane_index]) - warp.cta.first_thread
            self._monitor.report(kind, site, message, cta=warp.cta.place, thread=thread, address=address)

        if address % size_bytes:
            report(ViolationKind.MISALIGNED, f"{access} at an address that is {address % size_bytes} past a multiple")
            return None
        for buffer in self._buffers:
            if buffer.start <= address and address + size_bytes <= buffer.end:
                if writes and not buffer.writeable:
                    report(ViolationKind.READ_ONLY, f"{access} to {buffer.name}, which is read-only")
                    return None
                return buffer
        report(ViolationKind.OUT_OF_BOUNDS, f"{access} {self._nearest(address)}")
        return None

    def _nearest(self, address: int) -> str:
        if not self._buffers:
            return "but the launch has no buffers"
        buffer = min(self._buffers, key=lambda b: max(b.start - address, address - b.end))
        size = len(buffer.bytes.data)
        return f"at byte {address - buffer.start} of {buffer.name}, which has {size} bytes"


class LocalMemory:
    """The local memory of a CTA's threads: an address refers to different bytes in each. It grows with their frames."""

    def __init__(self, size_bytes: int, threads: int, monitor: Monitor) -> None:
        self._size, self._threads = size_bytes, threads
        self._bytes = Bytes(np.full(threads * size_bytes, POISON_BYTE, np.uint8))
        self._written = np.zeros(threads * size_bytes, bool)
        self._monitor = monitor

    def read(self, warp: Warp, site: int, addresses: Addresses, size_bytes: int, *, is_checked: bool = True) -> Data:
        """`size_bytes` bytes of each active thread's own memory; bytes that nobody wrote are faults if `is_checked`."""
        good, offsets = self._offsets(warp, site, addresses, size_bytes)
        data = poison(len(addresses), size_bytes)
        data[good] = self._bytes.window(size_bytes)[offsets]
        written = self._written[offsets[:, None] + np.arange(size_bytes)]
        if is_checked and not written.all() and warp.unwritten is not None:
            warp.unwritten[warp.lanes()[good]] |= ~written
        elif is_checked and not written.all():
            index = int(np.flatnonzero(good)[np.argmin(written.all(axis=1))])
            message = f"{size_bytes}-byte read of local memory that was never written"
            self._report(ViolationKind.UNINITIALIZED, warp, site, addresses, index, message)
        return data

    def write(self, warp: Warp, site: int, addresses: Addresses, size_bytes: int, data: Data) -> None:
        """Writes `size_bytes` bytes of each active thread's own memory."""
        good, offsets = self._offsets(warp, site, addresses, size_bytes)
        self._bytes.window(size_bytes)[offsets] = data[good]
        self._written[offsets[:, None] + np.arange(size_bytes)] = True

    def element(self, warp: Warp, site: int, lane_index: int, address: int, size_bytes: int) -> tuple[Data, int] | None:
        """The window and offset of one lane's atomic access, or None if it is faulty."""
        thread = int(warp.threads()[lane_index]) - warp.cta.first_thread
        if address % size_bytes or not 0 <= address <= self._size - size_bytes:
            message = f"{size_bytes}-byte atomic access to {self._size} bytes of local memory"
            self._report(ViolationKind.OUT_OF_BOUNDS, warp, site, np.array([address]), 0, message)
            return None
        return self._bytes.window(size_bytes), thread * self._size + address

    def forget(self, warp: Warp, lanes: Addresses, addresses: Addresses, size_bytes: int) -> None:
        """Some `lanes` of `warp` have stored undefined values: the bytes count as not written."""
        threads = warp.thread0 + lanes - warp.cta.first_thread
        self._written[(threads * self._size + addresses)[:, None] + np.arange(size_bytes)] = False

    def begin_frame(self, threads: Addresses, bases: Addresses, size_bytes: int) -> None:
        """Bytes from `bases` on, of threads numbered in the CTA, are a new frame: nobody has written them."""
        self._grow(int(bases.max()) + size_bytes)
        places = (threads * self._size + bases)[:, None] + np.arange(size_bytes)
        self._bytes.data[places], self._written[places] = POISON_BYTE, False

    def copy(self, threads: Addresses, source: Addresses, target: Addresses, size_bytes: int) -> None:
        """Copies bytes of each of `threads`, written or not."""
        first, step = threads * self._size, np.arange(size_bytes)
        of, to = (first + source)[:, None] + step, (first + target)[:, None] + step
        self._bytes.data[to], self._written[to] = self._bytes.data[of], self._written[of]

    def _grow(self, size_bytes: int) -> None:
        if size_bytes <= self._size:
            return
        size = max(size_bytes, 2 * self._size)
        data, written = np.full((self._threads, size), POISON_BYTE, np.uint8), np.zeros((self._threads, size), bool)
        data[:, : self._size] = self._bytes.data.reshape(self._threads, self._size)
        written[:, : self._size] = self._written.reshape(self._threads, self._size)
        self._size, self._bytes, self._written = size, Bytes(data.reshape(-1)), written.reshape(-1)

    def _offsets(
        self, warp: Warp, site: int, addresses: Addresses, size_bytes: int
    ) -> tuple[npt.NDArray[np.bool_], Addresses]:
        inside = (addresses >= 0) & (addresses <= self._size - size_bytes)
        aligned = addresses % size_bytes == 0
        if not inside.all():
            message = f"{size_bytes}-byte access to {self._size} bytes of local memory"
            self._report(ViolationKind.OUT_OF_BOUNDS, warp, site, addresses, int(np.argmin(inside)), message)
        if not aligned.all():
            message = f"{size_bytes}-byte access to local memory"
            self._report(ViolationKind.MISALIGNED, warp, site, addresses, int(np.argmin(aligned)), message)
        good = inside & aligned
        return good, ((warp.threads() - warp.cta.first_thread) * self._size + addresses)[good]

    def _report(
        self, kind: ViolationKind, warp: Warp, site: int, addresses: Addresses, index: int, message: str
    ) -> None:
        thread, address = int(warp.threads()[index]) - warp.cta.first_thread, int(addresses[index])
        self._monitor.report(kind, site, message, cta=warp.cta.place, thread=thread, address=address)
