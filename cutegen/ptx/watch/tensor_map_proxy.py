"""Order between writes of tensor maps in memory and the copies that use them, which read them by another proxy.

Source: PTX ISA, "Memory Consistency Model": "Proxies", `fence.proxy.tensormap`, `tensormap.cp_fenceproxy`. A write is
visible to a copy if the writer has released it to the tensormap proxy, and the thread that issues the copy, or one
before it, has acquired the map since.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cutegen.ptx.text.syntax import WARP_LANES
from cutegen.ptx.watch.actor import Actor
from cutegen.ptx.watch.ordering import Ordering

Writer = tuple[int, int, int]
"""The cluster, thread and tick of a write."""


@dataclass(frozen=True, slots=True)
class _Acquired:
    cluster: int
    thread: int
    tick: int
    octets: bytes


class TensorMapProxy:
    """Releases by thread, and what threads have acquired, by the map's address."""

    def __init__(self) -> None:
        self._released: dict[tuple[int, int], int] = {}
        self._acquired: dict[int, list[_Acquired]] = {}

    def release(self, warp: Actor, ordering: Ordering) -> None:
        """The active threads of `warp` have released all that they wrote."""
        for thread in warp.threads().tolist():
            self._released[ordering.cluster, thread] = ordering.tick
        ordering.tick += 1

    def acquire(self, thread: int, ordering: Ordering, address: int, octets: bytes) -> None:
        """`thread` acquires the map at `address`, which has these bytes."""
        event = _Acquired(ordering.cluster, thread, ordering.tick, octets)
        earlier = self._acquired.get(address, [])
        kept = [one for one in earlier if (one.cluster, one.thread) != (event.cluster, event.thread)]
        self._acquired[address] = [*kept, event]
        ordering.tick += 1

    def missing(
        self, thread: int, ordering: Ordering, address: int, octets: bytes, writers: Sequence[Writer]
    ) -> str | None:
        """The step missing between the writes of a map by `writers` and its use by `thread`; None if nothing is."""
        if not writers:
            return None
        if any(self._released.get((cluster, writer), -1) < tick for cluster, writer, tick in writers):
            return "release: a tensormap.cp_fenceproxy or a fence.proxy.tensormap::generic.release by the writer"
        for event in self._acquired.get(address, []):
            is_later = all(tick <= event.tick for cluster, _, tick in writers if cluster == event.cluster)
            if is_later and event.octets == octets and self._precedes(event, thread, ordering):
                return None
        return "acquire: a fence.proxy.tensormap::generic.acquire of this map after the write"

    @staticmethod
    def _precedes(event: _Acquired, thread: int, ordering: Ordering) -> bool:
        if event.cluster == ordering.cluster and ordering.is_after(thread, event.thread, event.tick):
            return True
        stamp = (np.array([event.tick]), np.array([event.thread]), np.array([event.thread // WARP_LANES]))
        return bool(ordering.told_of(event.cluster, thread, stamp)[0])
