"""Who wrote each byte of global memory in this launch.

Finds writes that another thread makes or reads without an order.

Threads of different CTAs are never ordered, unless the kernel orders them with atomics on global memory; then only
threads of one CTA are compared. A stamp packs `CTA | tick | thread`, as in `shared`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cutegen.ptx.watch.actor import Actor

_THREAD_BITS, _TICK_BITS = 12, 32
_CTA_SHIFT = _THREAD_BITS + _TICK_BITS
_MAX_CTAS = 1 << 18
_THREAD_MASK, _TICK_MASK = (1 << _THREAD_BITS) - 1, (1 << _TICK_BITS) - 1


@dataclass(slots=True)
class WriterLog:
    """The last writers of one buffer, for each granule of `granule_bytes`; made when the first write comes."""

    size_bytes: int
    granule_bytes: int
    compares_ctas: bool
    _stamps: npt.NDArray[np.int64] | None = field(default=None)

    def race(self, warp: Actor, offsets: npt.NDArray[np.int64], size_bytes: int) -> tuple[int, int, int] | None:
        """(index of the access, CTA and thread that wrote) of an access that is not ordered after an earlier write."""
        if self._stamps is None:
            return None
        stamps = self._stamps[self._granules(offsets, size_bytes)]
        if not stamps.any():
            return None
        mine = (self._cta(warp) | warp.threads())[:, None]
        same_cta = stamps >> _CTA_SHIFT == mine >> _CTA_SHIFT
        other_thread = stamps & _THREAD_MASK != mine & _THREAD_MASK
        ticks = stamps >> _THREAD_BITS & _TICK_MASK
        writer_warp = np.minimum((stamps & _THREAD_MASK) >> 5, len(warp.cta.ordering.bounds) - 1)
        unordered = ticks > warp.cta.ordering.known[warp.index][writer_warp]
        bad = same_cta & other_thread & unordered
        if self.compares_ctas:
            bad |= ~same_cta & (stamps != 0)
        found = np.argwhere(bad)
        if not len(found):
            return None
        stamp = int(stamps[tuple(found[0])])
        return int(found[0][0]), (stamp >> _CTA_SHIFT) - 1, stamp & _THREAD_MASK

    def note(self, warp: Actor, offsets: npt.NDArray[np.int64], size_bytes: int) -> bool:
        """Remembers a write of the active lanes; True where two of them wrote the same granule."""
        if self._stamps is None:
            self._stamps = np.zeros(-(-self.size_bytes // self.granule_bytes) + 1, np.int64)
        stamp = self._cta(warp) | warp.cta.ordering.tick << _THREAD_BITS
        granules, mine = self._granules(offsets, size_bytes), (stamp | warp.threads())[:, None]
        self._stamps[granules] = mine
        return bool((self._stamps[granules] != mine).any())

    @staticmethod
    def _cta(warp: Actor) -> int:
        """The CTA's part of a stamp; numbers repeat in grids too large to be run here anyway."""
        return (warp.cta.number % _MAX_CTAS + 1) << _CTA_SHIFT

    def _granules(self, offsets: npt.NDArray[np.int64], size_bytes: int) -> npt.NDArray[np.int64]:
        count = max(1, size_bytes // self.granule_bytes)
        return (offsets // self.granule_bytes)[:, None] + np.arange(count)
