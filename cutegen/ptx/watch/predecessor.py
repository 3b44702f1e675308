"""The grid before a programmatic dependent launch: until it is waited for, it may still read and write memory.

Source: PTX ISA, `griddepcontrol`; CUDA C++ Programming Guide, "Programmatic Dependent Launch". What it wrote is visible
to a thread that has executed `griddepcontrol.wait`, and to every thread that is ordered after one that has.
"""

import numpy as np

from cutegen.ptx.text.syntax import WARP_LANES
from cutegen.ptx.watch.actor import Actor
from cutegen.ptx.watch.ordering import Ordering


class Predecessor:
    """The threads of a launch that know that the grid before it has ended."""

    def __init__(self) -> None:
        self._waits: dict[tuple[int, int], tuple[int, int]] = {}
        """A thread that has waited, and the tick, by cluster and warp."""
        self._informed: set[tuple[int, int]] = set()

    def wait(self, warp: Actor, ordering: Ordering) -> None:
        """The active threads of `warp` execute `griddepcontrol.wait`."""
        threads = warp.threads().tolist()
        self._waits.setdefault((ordering.cluster, warp.index), (threads[0], ordering.tick))
        self._informed.update((ordering.cluster, thread) for thread in threads)

    def first_uninformed(self, warp: Actor, ordering: Ordering) -> int | None:
        """The first active thread of `warp` for which the grid before may still run; None if there is none."""
        for thread in warp.threads().tolist():
            if (ordering.cluster, thread) not in self._informed:
                if not self._is_informed(thread, ordering):
                    return int(thread)
                self._informed.add((ordering.cluster, thread))
        return None

    def _is_informed(self, thread: int, ordering: Ordering) -> bool:
        for (cluster, _), (waiter, tick) in self._waits.items():
            if cluster == ordering.cluster and ordering.is_after(thread, waiter, tick):
                return True
            stamp = (np.array([tick]), np.array([waiter]), np.array([waiter // WARP_LANES]))
            if ordering.told_of(cluster, thread, stamp)[0]:
                return True
        return False
