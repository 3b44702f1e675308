"""Which accesses of a CTA's warps are ordered by barriers: a clock for each pair of warps.

Ticks only grow. `known[a, u]` is the last tick of warp `u` whose accesses are ordered before what warp `a` does now.
Arriving at a barrier ends a tick; who waits there learns what everyone knew on arrival (vector clocks, as in Flanagan
and Freund, "FastTrack: efficient and precise dynamic race detection", at the granularity of warps). `known[a, a]`
orders the lanes of one warp, which run independently of each other until a `bar.warp.sync` or a barrier (PTX ISA,
"Memory Consistency Model").
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class Ordering:
    """The clocks of one CTA."""

    def __init__(self, warps: int) -> None:
        self.known = np.zeros((warps, warps), np.int64)
        self.tick = 1
        self.bounds = [1] * warps
        """For each warp the first tick of which something may be unordered: a quick test before `known` is asked."""

    def arrive(self, warp: int) -> npt.NDArray[np.int64]:
        """`warp` arrives at a barrier: what its arrival lets others know."""
        told: npt.NDArray[np.int64] = self.known[warp].copy()
        told[warp] = self.tick
        self.tick += 1
        return told

    def complete(self, told: list[npt.NDArray[np.int64]], waiting: list[int]) -> None:
        """A barrier is complete: the warps that wait there learn all that was told."""
        joined = np.max(told, axis=0)
        for warp in waiting:
            self._learn(warp, np.maximum(self.known[warp], joined))

    def warp_sync(self, warp: int) -> None:
        """The lanes of `warp` have synchronised with each other."""
        self._learn(warp, self.arrive(warp))

    def _learn(self, warp: int, known: npt.NDArray[np.int64]) -> None:
        self.known[warp] = known
        self.bounds[warp] = int(known.min()) + 1
