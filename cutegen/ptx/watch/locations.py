"""Order through memory: what a release at a location lets those know who acquire it, and what fences make of the rest.

Source: PTX ISA, "Memory Consistency Model": "Observation Order", "Release and Acquire Patterns", "Synchronizes-with". A
write leaves its release at the location, an atomic adds its own to those it finds there, a weak write takes them away.
A relaxed read acquires at the reader's next fence; a relaxed write releases what came before the writer's last fence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cutegen.ptx.watch.actor import Actor
from cutegen.ptx.watch.ordering import Ordering
from cutegen.ptx.watch.past import NO_PAST, Past, join_pasts
from cutegen.ptx.watch.semantics import Semantics, includes


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """What happened before a release of CTA `cta`, for those whom its scope includes."""

    past: Past
    reach: int
    cta: int


@dataclass(slots=True)
class Fences:
    """What the threads of one CTA have released and read around their fences."""

    ordering: Ordering
    cta: int
    _released: dict[int, Message] = field(default_factory=dict)
    _read: dict[int, dict[tuple[int, int], Message]] = field(default_factory=dict)

    def fence(self, warp: Actor, semantics: Semantics) -> None:
        """The active threads of `warp` execute a fence."""
        for thread in warp.threads().tolist():
            if semantics.acquires:
                self._acquire(warp, thread, self._read.pop(thread, {}).values(), semantics.reach)
            if semantics.releases:
                self._released[thread] = Message(self.ordering.past_of(thread), semantics.reach, self.cta)
        self.ordering.tick += 1

    def read(self, warp: Actor, thread: int, messages: tuple[Message, ...], semantics: Semantics) -> None:
        """`thread` has read what the releases `messages` wrote."""
        if semantics.acquires:
            self._acquire(warp, thread, messages, semantics.reach)
        for message in messages:
            seen = Message(message.past, min(message.reach, semantics.reach), message.cta)
            self._read.setdefault(thread, {})[id(seen.past), seen.reach] = seen

    def write(self, thread: int, semantics: Semantics) -> tuple[Message, ...]:
        """What a strong write of `thread` releases."""
        if semantics.releases:
            released = Message(self.ordering.past_of(thread), semantics.reach, self.cta)
            self.ordering.tick += 1
            return (released,)
        fence = self._released.get(thread)
        return () if fence is None else (Message(fence.past, min(fence.reach, semantics.reach), fence.cta),)

    def _acquire(self, warp: Actor, thread: int, messages: Iterable[Message], reach: int) -> None:
        past = NO_PAST
        for message in messages:
            if includes(min(message.reach, reach), self.cta, message.cta):
                past = join_pasts(past, message.past)
        if past is not NO_PAST:
            self.ordering.acquire(warp, thread, past)


class Locations:
    """The releases that wait at the locations of one memory, by byte offset."""

    def __init__(self) -> None:
        self._messages: dict[int, tuple[Message, ...]] = {}

    def read(self, fences: Fences, warp: Actor, thread: int, offset: int, semantics: Semantics) -> None:
        """A strong read."""
        fences.read(warp, thread, self._messages.get(offset, ()), semantics)

    def write(self, fences: Fences, thread: int, offset: int, semantics: Semantics) -> None:
        """A strong write: what was released before it can no longer be read."""
        self._messages[offset] = fences.write(thread, semantics)

    def update(self, fences: Fences, warp: Actor, thread: int, offset: int, semantics: Semantics) -> None:
        """An atomic operation: it reads, and whoever reads what it writes reads what was before it as well."""
        messages = self._messages.get(offset, ())
        fences.read(warp, thread, messages, semantics)
        self._messages[offset] = _together(messages, fences.write(thread, semantics))

    def forget(self, offsets: npt.NDArray[np.int64]) -> None:
        """Weak writes."""
        for offset in offsets.tolist() if self._messages else ():
            self._messages.pop(offset, None)


def _together(before: tuple[Message, ...], own: tuple[Message, ...]) -> tuple[Message, ...]:
    """Messages of a chain of atomics; those of one CTA and reach become one."""
    if not own or not before:
        return own or before
    new = own[0]
    for message in before:
        if (message.cta, message.reach) == (new.cta, new.reach):
            new = Message(join_pasts(message.past, new.past), new.reach, new.cta)
    return (*(m for m in before if (m.cta, m.reach) != (new.cta, new.reach)), new)
