"""Order through memory: releases at a location, their acquisition, and the effect of fences on relaxed accesses.

Source: PTX ISA, "Memory Consistency Model": "Observation Order", "Release and Acquire Patterns", "Synchronizes-with". A
write leaves its release at the location, an atomic adds its own to those that are there, a weak write removes them.
A relaxed read acquires at any later fence of the reader; a relaxed write releases what precedes the writer's fences,
each within its own scope: a narrower fence does not cancel a wider one.

`fence.sc` have a total order, in which an earlier one synchronizes with a later one if they are morally strong
("Fence-SC order"). Which is earlier is often a matter of luck, so the fences of an execution order accesses only where
its values leave no other order: a fence comes first if a write after it (in base causality order) has been read before
the other fence. The other way round, the write would follow the read of its value ("Causality", axiom 1).
A strong read may return an older value than the last, unless something that the reader knows of forbids it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cutegen.ptx.text.syntax import WARP_LANES
from cutegen.ptx.watch.actor import Actor
from cutegen.ptx.watch.ordering import Ordering
from cutegen.ptx.watch.semantics import (
    CLUSTER_REACH,
    CTA_REACH,
    GRID_REACH,
    Audience,
    Home,
    Semantics,
    audiences,
    includes,
)
from cutegen.ptx.watch.vector_clock import NO_PAST, Past, join_parts, join_pasts


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """Knowledge released by a thread of CTA `home`, for the threads in its scope.

    `fences` are the `fence.sc` before the write that carries the message; its readers know that these came first.
    """

    past: Past
    reach: int
    home: Home
    fences: Mapping[Audience, Past] = field(default_factory=dict)


@dataclass(slots=True)
class FenceOrder:
    """The total order of all `fence.sc`: each is ordered after what happened before the earlier ones."""

    past: Past = NO_PAST


def orders_of_cta(cluster: FenceOrder, grid: FenceOrder) -> Mapping[int, FenceOrder]:
    """The orders of `fence.sc` in which a CTA takes part, including its own."""
    return {CTA_REACH: FenceOrder(), CLUSTER_REACH: cluster, GRID_REACH: grid}


@dataclass(slots=True)
class Fences:
    """Releases and reads of the threads of one CTA around their fences.

    `orders` are those of `fence.sc` by reach: of the CTA, of its cluster, of the grid. `choose` selects which of the
    writes `first` to `last` a thread reads if it may read any of them.
    """

    ordering: Ordering
    home: Home
    orders: Mapping[int, FenceOrder]
    choose: Callable[[int, int], int]
    _seen_by_sc: dict[int, Past] = field(default_factory=dict)
    _released: dict[int, dict[int, Message]] = field(default_factory=dict)
    """Releases of a thread's fences, by thread and reach, the widest and oldest first."""
    _read: dict[int, dict[tuple[int, int], Message]] = field(default_factory=dict)

    def fence(self, warp: Actor, semantics: Semantics) -> None:
        """The active threads of `warp` execute a fence."""
        threads = warp.threads().tolist()
        for thread in threads:
            if semantics.acquires and thread in self._read:
                self._acquire_read(warp, thread, semantics.reach)
        if semantics.is_sc:
            self._follow_fences(warp, threads, semantics.reach)
            self._join_fences(warp, threads, semantics.reach)
        for thread in threads:
            if semantics.releases:
                self._release(thread, semantics.reach)
        self.ordering.tick += 1

    def _follow_fences(self, warp: Actor, threads: list[int], reach: int) -> None:
        """The `fence.sc` of `threads` come after those that they were shown to come after."""
        groups: dict[int, list[int]] = {}
        for thread in threads:
            groups.setdefault(id(self.ordering.far_of(thread).shown), []).append(thread)
        listeners = audiences(self.home, reach)
        for group in groups.values():
            shown = self.ordering.far_of(group[0]).shown
            before = {audience: shown[audience] for audience in listeners if audience in shown}
            if before:
                past = reduce(join_pasts, before.values())
                told = self.ordering.released_by(Past(past.clocks, past.threads, before))
                self.ordering.observe(warp, told, np.array(group))

    def _join_fences(self, warp: Actor, threads: list[int], reach: int) -> None:
        """The `fence.sc` of `threads` are executed now."""
        order, listeners = self.orders[reach], audiences(self.home, reach)
        for thread in threads:
            past = self.ordering.past_of(thread).accesses()
            order.past = join_pasts(order.past, past)
            self._seen_by_sc[thread] = join_pasts(self._seen_by_sc.get(thread, NO_PAST), order.past)
            self.ordering.note_fences(thread, Past({}, {}, dict.fromkeys(listeners, past)))
        if len(threads) == WARP_LANES:
            order.past = order.past.as_warp(self.home.cluster, warp.index)

    def knows(self, thread: int, event: _Event) -> bool:
        """Return whether `thread` may not read values older than `event`.

        The thread performed the event itself, knows of it, or a `fence.sc` orders them.
        """
        if (event.cluster, event.thread) == (self.home.cluster, thread):
            return True
        tick, who, warp = (np.array([n], np.int64) for n in (event.tick, event.thread, event.thread // WARP_LANES))
        seen = self._seen_by_sc.get(thread, NO_PAST)
        return bool(
            self.ordering.told_of(event.cluster, thread, (tick, who, warp))[0]
            or seen.knows(event.cluster, tick, who, warp)[0]
        )

    def read(self, warp: Actor, thread: int, messages: tuple[Message, ...], semantics: Semantics) -> None:
        """`thread` has read a value of the releases `messages`."""
        if semantics.acquires:
            self._acquire(warp, thread, messages, semantics.reach)
        for message in messages:
            reach = min(message.reach, semantics.reach)
            if message.fences and includes(reach, self.home, message.home):
                self.ordering.note_fences(thread, Past({}, {}, shown=message.fences))
            if message.past is not NO_PAST:
                self._read.setdefault(thread, {})[id(message.past), reach] = Message(message.past, reach, message.home)

    def released_to_cluster(self, thread: int) -> Message | None:
        """Returns the release of the last fence of `thread` that reaches the cluster."""
        wide = [message for reach, message in self._released.get(thread, {}).items() if reach >= CLUSTER_REACH]
        return wide[-1] if wide else None

    def releases(self, thread: int, semantics: Semantics) -> bool:
        """Return whether a strong write of `thread` releases anything, or comes after a `fence.sc`."""
        return semantics.releases or thread in self._released or bool(self.ordering.far_of(thread).fences)

    def write(self, thread: int, semantics: Semantics) -> tuple[Message, ...]:
        """Record what a strong write of `thread` releases, and the `fence.sc` before it."""
        fences = self.ordering.far_of(thread).fences
        if semantics.releases:
            released = Message(self.ordering.past_of(thread), semantics.reach, self.home, fences)
            self.ordering.tick += 1
            return (released,)
        reaching = dict[int, Message]()
        if fences:
            reaching[semantics.reach] = Message(NO_PAST, semantics.reach, self.home, fences)
        for fence in self._released.get(thread, {}).values():
            reach = min(fence.reach, semantics.reach)
            carried = reaching[reach].fences if reach in reaching else {}
            reaching[reach] = Message(fence.past, reach, fence.home, carried)
        return tuple(reaching.values())

    def _release(self, thread: int, reach: int) -> None:
        """A fence releases; it replaces those that reach no farther, which know less."""
        wider = {r: message for r, message in self._released.get(thread, {}).items() if r > reach}
        self._released[thread] = {**wider, reach: Message(self.ordering.past_of(thread), reach, self.home)}

    def _acquire_read(self, warp: Actor, thread: int, reach: int) -> None:
        """A fence acquires what `thread` has read, except the messages beyond its reach: a wider fence may follow."""
        read = self._read.pop(thread)
        self._acquire(warp, thread, read.values(), reach)
        beyond = {k: m for k, m in read.items() if not includes(min(m.reach, reach), self.home, m.home)}
        if beyond:
            self._read[thread] = beyond

    def _acquire(self, warp: Actor, thread: int, messages: Iterable[Message], reach: int) -> None:
        past = NO_PAST
        for message in messages:
            if includes(min(message.reach, reach), self.home, message.home):
                past = join_pasts(past, message.past)
        if past is not NO_PAST:
            self.ordering.acquire(warp, thread, past)


Data: TypeAlias = np.generic
MOST_WRITES, MOST_STALE = 8, 2
"""Number of writes of a location that are kept, and how often in a row a thread may read an old one."""


@dataclass(frozen=True, slots=True, eq=False)
class _Event:
    """A strong access of a thread of a cluster; without a thread for the initial value."""

    cluster: int
    thread: int
    tick: int


@dataclass(frozen=True, slots=True, eq=False)
class _Write:
    """A value of a location, and the releases that a reader of it has read."""

    value: Data | None
    messages: tuple[Message, ...]
    by: _Event | None


@dataclass(slots=True)
class _History:
    """The writes of a location in PTX's coherence order, and those that the threads have read."""

    writes: list[_Write]
    dropped: int = 0
    read: dict[tuple[int, int], tuple[_Event, int]] = field(default_factory=dict)
    stale: dict[tuple[int, int], int] = field(default_factory=dict)

    def oldest_for(self, fences: Fences, thread: int) -> int:
        """The oldest write that `thread` may still read: none before one that it wrote, read or knows of.

        Reads by others that it knows of count as well (PTX ISA, axiom "Coherence").
        """
        least = 0
        for place, write in enumerate(self.writes):
            if write.by is not None and fences.knows(thread, write.by):
                least = place
        for event, place in self.read.values():
            if place - self.dropped > least and fences.knows(thread, event):
                least = place - self.dropped
        return least

    def add(self, write: _Write) -> None:
        """A write that comes after all others."""
        self.writes.append(write)
        if len(self.writes) > MOST_WRITES:
            del self.writes[0]
            self.dropped += 1


class Locations:
    """The locations of one memory that strong operations use, by byte offset."""

    def __init__(self) -> None:
        self._histories: dict[int, _History] = {}

    def read(
        self, fences: Fences, warp: Actor, thread: int, offset: int, semantics: Semantics, value: Data | None = None
    ) -> Data | None:
        """A strong read of `value`; returns an older value if the policy selects one."""
        history = self._histories.setdefault(offset, _History([_Write(value, (), None)]))
        place = len(history.writes) - 1
        if value is not None:
            place = self._choose(fences, history, thread, value)
        write, key = history.writes[place], (fences.home.cluster, thread)
        history.read[key] = _Event(fences.home.cluster, thread, fences.ordering.tick), place + history.dropped
        fences.read(warp, thread, write.messages, semantics)
        return write.value if place < len(history.writes) - 1 else None

    @staticmethod
    def _choose(fences: Fences, history: _History, thread: int, value: Data) -> int:
        newest, key = len(history.writes) - 1, (fences.home.cluster, thread)
        oldest = history.oldest_for(fences, thread)
        usable = all(w.value is not None and w.value.dtype == value.dtype for w in history.writes[oldest:newest])
        if oldest == newest or not usable or history.stale.get(key, 0) >= MOST_STALE:
            history.stale[key] = 0
            return newest
        place = fences.choose(oldest, newest)
        history.stale[key] = history.stale.get(key, 0) + (place < newest)
        return place

    def write(
        self, fences: Fences, thread: int, offset: int, semantics: Semantics, values: tuple[Data, Data] | None = None
    ) -> None:
        """A strong write that replaces the first of `values` by the second: it does not carry earlier releases."""
        before, value = values if values is not None else (None, None)
        history = self._histories.setdefault(offset, _History([_Write(before, (), None)]))
        event = _Event(fences.home.cluster, thread, fences.ordering.tick)
        history.add(_Write(value, fences.write(thread, semantics), event))

    def update(self, fences: Fences, warp: Actor, thread: int, offset: int, semantics: Semantics) -> None:
        """An atomic operation: it reads, and a reader of its result also reads the releases before it."""
        if offset not in self._histories and not fences.releases(thread, semantics):
            return  # there is no release to read and none to leave
        history = self._histories.setdefault(offset, _History([_Write(None, (), None)]))
        messages = history.writes[-1].messages
        fences.read(warp, thread, messages, semantics)
        event = _Event(fences.home.cluster, thread, fences.ordering.tick)
        history.add(_Write(None, _together(messages, fences.write(thread, semantics)), event))

    def forget(self, offsets: npt.NDArray[np.int64]) -> None:
        """Weak writes."""
        for offset in offsets.tolist() if self._histories else ():
            self._histories.pop(offset, None)


def _together(before: tuple[Message, ...], own: tuple[Message, ...]) -> tuple[Message, ...]:
    """Messages of a chain of atomics; those with the same CTA and reach are merged."""
    if not own or not before:
        return own or before
    merged = {(message.home, message.reach): message for message in before}
    for new in own:
        key = new.home, new.reach
        known = merged.pop(key, None)
        if known is not None:
            fences = join_parts(known.fences, new.fences)
            new = Message(join_pasts(known.past, new.past), new.reach, new.home, fences)
        merged[key] = new
    return tuple(merged.values())
