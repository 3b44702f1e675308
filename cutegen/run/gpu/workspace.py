"""Additional device memory of a launch that splits K: the slices' sums and the tiles' counters.

Launches on one stream run one after the other, so they share that stream's memory; a kernel restores its counters. A
launch captured into a graph may be replayed on any stream at any time. It gets memory of its own, which the graph
allocates and frees, and counters that no other graph has. The counters are zeroed once, when they are assigned: a
memset node would take longer than many kernels. A graph that allocates memory exists once and runs once at a time (CUDA
Programming Guide, "Graph Memory Nodes"), and so do its launches on one stream.
"""

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from cutegen.contract.launch import Workspace
from cutegen.run.call.cached_calls import Launch
from cutegen.run.call.memory_overlap import Placed
from cutegen.run.driver import Driver
from cutegen.run.gpu.raw_driver import raw_driver

MOST_STREAMS = 32
LEGACY_STREAMS = (0, 1)
"""Handles of the default stream, NULL and CU_STREAM_LEGACY: CUDA Driver API, "Stream synchronization behavior"."""
_LEGACY_STREAM_ID = -1
COUNTER_BYTES = 4
WORD_BYTES = 4
COUNTERS_AT_ONCE = 1 << 14
"""Block size for counters of captured launches, which are kept: a graph may live as long as its process."""


@dataclass(slots=True)
class _Held:
    """Memory shared by one stream's launches: addresses (None before the first) and sizes."""

    sums: int | None = None
    sums_bytes: int = 0
    counters: int | None = None
    count: int = 0


@dataclass(frozen=True, slots=True)
class _Captured:
    """The counters of a capture's launches on one stream, which run one after the other."""

    capture: int
    counters: int
    count: int


class Workspaces:
    """The workspaces of one GPU, for all kernels and threads of the process: kept per stream, grown, reused."""

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self.lock = threading.Lock()
        self.generation = 0
        """Changes whenever memory is allocated or freed, and so identifies earlier assignments."""
        self._driver, self._raw, self._context = driver, raw_driver(driver), driver.primary_context(ordinal)
        self._context_address = int(self._context)
        self._held: dict[int, _Held] = {}
        self._answer = ctypes.c_ulonglong()
        self._answer_at = ctypes.addressof(self._answer)
        self._captures: dict[int, _Captured] = {}
        self._zeroed, self._left = 0, 0

    def launch(self, stream: int, wanted: Workspace, launch: Callable[[tuple[int, int]], object]) -> None:
        """Call `launch` with the addresses of sums and counters for a launch on `stream`. Raises DeviceError.

        The lock is held meanwhile, so no other thread can reallocate for a larger launch. The handles of the default
        streams refer to the current context, which must therefore be the GPU's.
        """
        with self.lock:
            status = self._raw.get_current_context(self._answer_at)
            if status == 0 and self._answer.value == self._context_address:
                self._launch(stream, wanted, launch)
            else:
                with self._driver.current(self._context):
                    self._launch(stream, wanted, launch)

    def _launch(self, stream: int, wanted: Workspace, launch: Callable[[tuple[int, int]], object]) -> None:
        if stream in LEGACY_STREAMS:  # one for all threads, and it cannot be captured: the driver need not be asked
            stream_id = _LEGACY_STREAM_ID
        elif self._asked("cuStreamIsCapturing", self._raw.is_capturing, stream):
            self._launch_captured(stream, wanted, launch)
            return
        else:
            # Handles are reused for other streams, and one handle means each thread's own stream; ids are unique.
            stream_id = self._asked("cuStreamGetId", self._raw.stream_id, stream)
        held = self._held.get(stream_id)
        if held is None or held.sums_bytes < wanted.sums_bytes or held.count < wanted.counters:
            self.generation += 1
            held = self._of(stream_id)
            self._grow(held, stream, wanted)
        assert held.sums is not None
        assert held.counters is not None
        launch((held.sums, held.counters))

    def _asked(self, name: str, function: Callable[[int, int], int], stream: int) -> int:
        """Return the driver's information about a stream."""
        self._answer.value = 0
        status = function(stream, self._answer_at)
        if status:
            raise self._driver.failure(name, self._driver.api.CUresult(status))
        return self._answer.value

    def _launch_captured(self, stream: int, wanted: Workspace, launch: Callable[[tuple[int, int]], object]) -> None:
        """Add graph nodes around the launch that allocate and free memory."""
        counters = self._counters_of_capture(stream, wanted.counters)
        address = int(self._driver.call("cuMemAllocAsync", wanted.sums_bytes, stream))
        launch((address, counters))
        self._driver.call("cuMemFreeAsync", address, stream)

    def _counters_of_capture(self, stream: int, count: int) -> int:
        """Return counters of the current capture on a stream, the same for its next launch there."""
        capture = self._driver.capture(stream)
        known = self._captures.get(stream)
        if known is None or known.capture != capture or known.count < count:
            if len(self._captures) >= MOST_STREAMS:
                self._captures.clear()  # captures still in progress get other counters for their next launches
            known = self._captures[stream] = _Captured(capture, self._zeros(count), count)
        return known.counters

    def _zeros(self, count: int) -> int:
        """Return zeroed counters, assigned only once."""
        if count > self._left:
            made = max(count, COUNTERS_AT_ONCE)
            self._zeroed, self._left = self._driver.zeros(COUNTER_BYTES * made), made
        address = self._zeroed
        self._zeroed, self._left = address + COUNTER_BYTES * count, self._left - count
        return address

    def _of(self, stream_id: int) -> _Held:
        if stream_id not in self._held and len(self._held) >= MOST_STREAMS:
            # The oldest: its stream may be gone, so nothing can be ordered on it.
            oldest = self._held.pop(next(iter(self._held)))
            with self._driver.relaxed_capture():
                self._driver.call("cuCtxSynchronize")
                for address in (oldest.sums, oldest.counters):
                    self._driver.call("cuMemFree", address)
        return self._held.setdefault(stream_id, _Held())

    def _grow(self, held: _Held, stream: int, wanted: Workspace) -> None:
        if held.sums_bytes < wanted.sums_bytes:
            held.sums = self._replaced(held.sums, wanted.sums_bytes, stream)
            held.sums_bytes = wanted.sums_bytes
        if held.count < wanted.counters:
            held.counters = self._replaced(held.counters, COUNTER_BYTES * wanted.counters, stream)
            self._driver.call("cuMemsetD32Async", held.counters, 0, wanted.counters, stream)
            held.count = wanted.counters

    def _replaced(self, address: int | None, size_bytes: int, stream: int) -> int:
        """Allocate new memory; free the old when the stream's launches so far are done with it."""
        new = int(self._driver.call("cuMemAllocAsync", size_bytes, stream))
        if address is not None:
            self._driver.call("cuMemFreeAsync", address, stream)
        return new


@cache
def workspaces(driver: Driver, ordinal: int) -> Workspaces:
    """Return the process's workspaces on a GPU."""
    return Workspaces(driver, ordinal)


class WorkspaceLaunch:
    """A launch of a kernel whose last two addresses are the sums and the counters.

    On the default stream it skips the lookup as long as no workspace has moved since the last launch: a small call's
    host time is counted in microseconds.
    """

    __slots__ = ("_generation", "_launch", "_wanted", "_workspace", "_workspaces")

    def __init__(self, launch: Launch, held: Workspaces, wanted: Workspace) -> None:
        self._launch, self._workspaces, self._wanted = launch, held, wanted
        self._workspace: tuple[int, int] = (0, 0)  # the default stream's
        self._generation: int | None = None  # of the assignment; None for never

    def __call__(self, addresses: tuple[int, ...], scalars: tuple[float, ...], stream: int) -> None:
        """Launch on the addresses of the tensors, asynchronously. Raises DeviceError."""
        workspaces = self._workspaces
        if stream in LEGACY_STREAMS:
            with workspaces.lock:
                if self._generation == workspaces.generation:
                    self._launch((*addresses, *self._workspace), scalars, stream)
                    return

        def launch(workspace: tuple[int, int]) -> None:
            if stream in LEGACY_STREAMS:
                self._workspace, self._generation = workspace, workspaces.generation
            self._launch((*addresses, *workspace), scalars, stream)

        workspaces.launch(stream, self._wanted, launch)


class ClearedLaunch:
    """A launch of a kernel that adds to C: C's elements are set to 0 on the stream first."""

    __slots__ = ("_context", "_driver", "_index", "_launch", "_result")

    def __init__(self, launch: Launch, driver: Driver, context: object, result: Placed, index: int) -> None:
        self._launch, self._driver, self._context = launch, driver, context
        self._result, self._index = result, index  # C's address is the `index`-th of a launch

    def __call__(self, addresses: tuple[int, ...], scalars: tuple[float, ...], stream: int) -> None:
        """Launch on the addresses of the tensors, asynchronously. Raises DeviceError."""
        placed, width = self._result, self._result.row_bytes // WORD_BYTES
        pitch_bytes = max(placed.pitch_bytes, placed.row_bytes)
        with self._driver.current(self._context):
            for index in range(placed.batch):
                address = addresses[self._index] + index * placed.batch_pitch_bytes
                self._driver.call("cuMemsetD2D32Async", address, pitch_bytes, 0, width, placed.rows, stream)
        self._launch(addresses, scalars, stream)
