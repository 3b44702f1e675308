"""`barrier.cluster`: all threads of a cluster arrive, and wait for each other.

Source: PTX ISA, `barrier.cluster`. A thread that has exited counts as arrived. A thread that arrives twice without a
wait in between, or waits without having arrived, is undefined in PTX. A relaxed arrival passes on only itself, and
what the thread's last `fence.acq_rel.cluster` released.
"""

import numpy as np
import numpy.typing as npt

from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.text.syntax import WARP_LANES
from cutegen.ptx.watch.ordering import Ordering
from cutegen.ptx.watch.vector_clock import NOTHING, ReleasedKnowledge, join
from cutegen.ptx.watch.violations import ViolationKind

_NONE = -1


class ClusterBarrier:
    """The barrier of one cluster; `threads` are a CTA's, numbered from 0."""

    def __init__(self, ordering: Ordering, threads: npt.NDArray[np.int64], ctas: int) -> None:
        size = ordering.warps * WARP_LANES
        self.phase = 0
        self._ordering = ordering
        self._missing = np.zeros(size, bool)
        """Threads whose arrival the current phase waits for."""
        self._alive = np.zeros(size, bool)
        for rank in range(ctas):
            self._alive[threads + rank * ordering.warps_per_cta * WARP_LANES] = True
        self._missing[:] = self._alive
        self._arrived_in = np.full(size, _NONE)
        """The phase in which each thread arrived, for threads that have not waited since."""
        self._told: ReleasedKnowledge = NOTHING
        self._released: ReleasedKnowledge = NOTHING

    def arrive(self, warp: Warp, site: int, *, relaxed: bool) -> None:
        """The active threads of `warp` arrive."""
        threads = warp.threads()
        again = threads[self._arrived_in[threads] != _NONE]
        if len(again):
            message = "barrier.cluster.arrive twice without a barrier.cluster.wait between"
            warp.cta.fault(ViolationKind.BARRIER, site, int(again[0]), message, always=True)
        told = self._relaxed(warp) if relaxed else self._ordering.arrive(warp)
        self._told = join(self._told, told)
        self._arrived_in[threads] = self.phase
        self._missing[threads] = False
        self._settle()

    def _relaxed(self, warp: Warp) -> ReleasedKnowledge:
        """A relaxed arrival passes on only itself, and what an earlier fence of scope cluster released."""
        told = self._ordering.arrive_relaxed(warp)
        for thread in warp.threads().tolist():
            message = warp.cta.fences.released_to_cluster(thread)
            if message is not None:
                told = join(told, self._ordering.released_by(message.past))
        return told

    def wait(self, warp: Warp, site: int) -> bool:
        """The active threads of `warp` wait; False if they must continue to wait."""
        threads = warp.threads()
        phases = self._arrived_in[threads]
        if (phases == _NONE).any():
            message = "barrier.cluster.wait without a barrier.cluster.arrive before"
            thread = int(threads[np.argmin(phases)])
            warp.cta.fault(ViolationKind.BARRIER, site, thread, message, always=True)
        if (phases == self.phase).any():
            return False
        self._arrived_in[threads] = _NONE
        self._ordering.observe(warp, self._released, threads)
        return True

    def leave(self, warp: Warp) -> None:
        """The active threads of `warp` exit."""
        self._alive[warp.threads()] = False
        self._missing[warp.threads()] = False
        self._settle()

    def _settle(self) -> None:
        if not self._missing.any():
            self._released, self._told = self._told, NOTHING
            self._missing[:] = self._alive
            self.phase += 1

    def awaited(self) -> str:
        """Name of the barrier, for messages."""
        missing = np.flatnonzero(self._missing)
        first = f", {self._ordering.who(int(missing[0]))} the first" if len(missing) else ""
        return f"barrier.cluster (in phase {self.phase}: {len(missing)} threads have yet to arrive{first})"
