"""The state of one warp: registers, active lanes, the paths that it still has to follow, copies in flight."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from cutegen.ptx.machine.frame import Frame
from cutegen.ptx.machine.special import Place
from cutegen.ptx.machine.tensor_memory import TensorLoads, TensorStores
from cutegen.ptx.text.syntax import WARP_LANES
from cutegen.ptx.watch.async_registers import AsyncRegisters
from cutegen.ptx.watch.global_shadow import Flights
from cutegen.ptx.watch.shadow import Access
from cutegen.ptx.watch.vector_clock import NOTHING, Clock, Past, ReleasedKnowledge

if TYPE_CHECKING:
    from cutegen.ptx.machine.cta import Cta

Mask: TypeAlias = npt.NDArray[np.bool_]
LANES = np.arange(WARP_LANES)


class Call(Protocol):
    """A call of a function that has not returned."""

    def finish(self, warp: Warp, mask: Mask) -> None:
        """The lanes of `mask` have returned."""


@dataclass(slots=True, eq=False)
class Path:
    """Lanes `mask` are about to run block `block`; they reconverge at block `meet` (None: at the exit).

    `call`: they are in a function, which they have called together and leave at `meet`.
    """

    block: int
    mask: Mask
    meet: int | None
    call: Call | None = None


@dataclass(slots=True)
class _Copy:
    """A cp.async of some lanes that has not landed; `group` counts each lane's commits before it."""

    access: Access
    lanes: npt.NDArray[np.int64]
    group: npt.NDArray[np.int64]
    data: npt.NDArray[Any]
    flights: Flights

    def part(self, keep: Mask) -> _Copy:
        """The copy of some of its lanes."""
        access = replace(self.access, offsets=self.access.offsets[keep], threads=self.access.threads[keep])
        return _Copy(access, self.lanes[keep], self.group[keep], self.data[keep], self.flights)


@dataclass(slots=True, eq=False)
class TrackedCopy:
    """A cp.async of some lanes that an mbarrier waits for; `told` is what its landing passes on, once it has landed."""

    copy: _Copy
    told: ReleasedKnowledge | None = None

    def is_news(self, known: Clock) -> bool:
        """True unless it has landed and its threads, or a warp with the clock `known`, have waited for it."""
        if self.told is None:
            return True
        return len(self.told.known) > 0 and bool(self.told.known[-1] > known[len(self.told.known) - 1])

    def end(self, warp: Warp, threads: npt.NDArray[np.int64]) -> None:
        """`threads` have waited for their group of copies: they know of these bytes, others only by the mbarrier."""
        ordering = warp.cta.ordering
        if self.told is not None:
            ordering.observe(warp, self.told, threads)
            return
        warp.cta.shared.end_copy(self.copy.access, self.copy.data)
        self.copy.flights.land(len(self.copy.lanes))
        written = {(ordering.cluster, thread): ordering.tick for thread in self.copy.access.threads.tolist()}
        self.told = replace(NOTHING, far=Past({}, written))
        ordering.tick += 1

    def land(self, cta: Cta, agent: int) -> ReleasedKnowledge:
        """The bytes are there, written by `agent`, unless they landed before; returns what that passes on."""
        if self.told is None:
            cta.shared.land(self.copy.access, self.copy.data, agent)
            self.copy.flights.land(len(self.copy.lanes))
            self.told = cta.ordering.landed(agent, NOTHING.seen)
        return self.told


class Warp:
    """32 lanes that run together."""

    def __init__(self, frame: Frame, cta: Cta, place: Place, lanes: int) -> None:
        self.cta, self.number = cta, place.warp
        """Its number in the CTA."""
        self.index = cta.first_thread // WARP_LANES + place.warp
        self.thread0 = self.index * WARP_LANES
        self.files = frame.allocate(place)
        self.cells = frame.views(self.files)
        self.alive: Mask = lanes > LANES
        self.watched, self._exits = frame.watched, frame.exits
        self.undefined = frame.undefined(self.alive)
        """The registers with undefined lanes."""
        self.unwritten: npt.NDArray[np.bool_] | None = None
        """Bytes that each lane has read although nobody wrote them, while a load notes them in place of a report."""
        self.is_whole = lanes == WARP_LANES
        self.held = AsyncRegisters(frame.rows[32] if frame.held_rows else 0)
        """The registers that the warp's `wgmma` instructions hold."""
        self.loads = TensorLoads(frame.rows[32] if frame.filled_rows else 0, self.files[32])
        """Its loads from tensor memory."""
        self.stores = TensorStores()
        self.stack = [Path(0, self.alive.copy(), None)]
        self.set_mask(self.alive.copy(), lanes)
        self.gives_up = False
        """True if nothing else can make progress: the next wait for an mbarrier returns false instead of waiting."""
        self.refused: set[int] = set()
        """The waits for mbarriers that last returned false."""
        self.satisfied: set[int] = set()
        """Threads for which the wait that the warp sleeps in is over."""
        self._copies: list[_Copy] = []
        self._tracked: list[TrackedCopy] = []
        """Copies that an mbarrier waits for; a wait for their groups covers them too."""
        self._committed = np.zeros(WARP_LANES, np.int64)

    def set_mask(self, mask: Mask, count: int) -> None:
        """Makes the `count` lanes of `mask` the active lanes."""
        self.mask, self.count, self.full = mask, count, count == WARP_LANES
        self._lanes: npt.NDArray[np.int64] | None = None

    @contextmanager
    def narrowed(self, mask: Mask) -> Iterator[None]:
        """Makes the lanes of `mask` the only active lanes, temporarily."""
        saved = self.mask, self.count
        self.set_mask(mask, int(np.count_nonzero(mask)))
        try:
            yield
        finally:
            self.set_mask(*saved)

    def lanes(self) -> npt.NDArray[np.int64]:
        """Numbers of the active lanes."""
        if self.full:
            return LANES
        if self._lanes is None:
            self._lanes = np.flatnonzero(self.mask)
        return self._lanes

    def threads(self) -> npt.NDArray[np.int64]:
        """Numbers of the active threads in the cluster."""
        return self.lanes() + self.thread0

    def put(self, cell: int, value: npt.NDArray[Any]) -> None:
        """Writes `value` (32 lanes) to a cell, in the active lanes."""
        if self.full:
            self.cells[cell][:] = value
        else:
            np.copyto(self.cells[cell], value, where=self.mask, casting="unsafe")

    def put_active(self, cell: int, values: npt.NDArray[Any]) -> None:
        """Writes one value for each active lane to a cell."""
        if self.full:
            self.cells[cell][:] = values
        else:
            self.cells[cell][self.mask] = values

    def addresses(self, cell: int, offset: int) -> npt.NDArray[np.int64]:
        """Addresses of the active lanes: a cell plus a constant; 32-bit addresses wrap."""
        base = self.cells[cell].astype(np.int64)
        if not self.full:
            base = base[self.mask]
        if not offset:
            return base
        return base + offset & 0xFFFFFFFF if self.cells[cell].dtype.itemsize == 4 else base + offset

    def leaving(self) -> Mask:
        """The lanes that have nothing left to do but to exit: a `.sync` instruction does not wait for them."""
        seen, leaving = np.zeros(WARP_LANES, bool), np.zeros(WARP_LANES, bool)
        for path in reversed(self.stack):
            if path.block in self._exits:
                leaving |= path.mask & ~seen
            seen |= path.mask
        return leaving & self.alive & ~self.mask

    def retire(self) -> None:
        """The active lanes exit."""
        self.alive = self.alive & ~self.mask

    def issue_copy(self, access: Access, data: npt.NDArray[Any], flights: Flights) -> None:
        """Queues a cp.async of the active lanes."""
        lanes = self.lanes()
        self._copies.append(_Copy(access, lanes, self._committed[lanes], data, flights))

    def commit_copies(self) -> None:
        """`cp.async.commit_group`: the copies of the active lanes since their last commit become one group."""
        self._committed[self.lanes()] += 1

    def track_copies(self) -> list[TrackedCopy]:
        """All cp.async of the active lanes so far, which an mbarrier waits for from now on."""
        kept, known = list[_Copy](), self.cta.ordering.known[self.index]
        for copy in self._copies:
            mine = self.mask[copy.lanes]
            if mine.any():
                self._tracked.append(TrackedCopy(copy if mine.all() else copy.part(mine)))
            if not mine.all():
                kept.append(copy.part(~mine) if mine.any() else copy)
        self._copies = kept
        self._tracked = [each for each in self._tracked if each.is_news(known)]
        return [each for each in self._tracked if self.mask[each.copy.lanes].any()]

    def wait_copies(self, newest: int | None) -> None:
        """All except the `newest` groups of the active lanes land now; None: everything, committed or not."""
        waits = self.mask
        limit = self._committed - newest if newest is not None else self._committed + 1
        kept: list[_Copy] = []
        for copy in self._copies:
            lands = waits[copy.lanes] & (copy.group < limit[copy.lanes])
            if lands.any():
                done = copy if lands.all() else copy.part(lands)
                self.cta.shared.end_copy(done.access, done.data)
                done.flights.land(len(done.lanes))
            if not lands.all():
                kept.append(copy.part(~lands) if lands.any() else copy)
        self._copies = kept
        for tracked in self._tracked:
            lanes = tracked.copy.lanes
            covered = lanes[waits[lanes] & (tracked.copy.group < limit[lanes])]
            if len(covered):
                tracked.end(self, covered + self.thread0)
