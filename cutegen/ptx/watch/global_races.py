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
_PAGE_BITS = 12
_PAGE = 1 << _PAGE_BITS
_THREAD_MASK, _TICK_MASK = (1 << _THREAD_BITS) - 1, (1 << _TICK_BITS) - 1


@dataclass(slots=True)
class WriterLog:
    """The last writers of one buffer, for each granule of `granule_bytes`; made when the first write comes.

    Only pages with a write in them have stamps: a matrix may reach much further than its elements take room. `_pages`
    has for each page of the buffer its page of `_stamps`, of which page 0 stays zeros, for those without a write.
    """

    size_bytes: int
    granule_bytes: int
    compares_ctas: bool
    _pages: npt.NDArray[np.int32] | None = field(default=None)
    _used: int = field(default=1)
    _stamps: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(_PAGE, np.int64))

    def race(self, warp: Actor, offsets: npt.NDArray[np.int64], size_bytes: int) -> tuple[int, int, int] | None:
        """(index of the access, CTA and thread that wrote) of an access that is not ordered after an earlier write."""
        if self._pages is None:
            return None
        stamps = self._stamps[self._places(self._pages, self._granules(offsets, size_bytes))]
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
        if self._pages is None:
            granules_in_all = -(-self.size_bytes // self.granule_bytes)
            self._pages = np.zeros(granules_in_all // _PAGE + 1, np.int32)
        stamp = self._cta(warp) | warp.cta.ordering.tick << _THREAD_BITS
        granules, mine = self._granules(offsets, size_bytes), (stamp | warp.threads())[:, None]
        self._add_pages(self._pages, granules >> _PAGE_BITS)
        places = self._places(self._pages, granules)
        self._stamps[places] = mine
        return bool((self._stamps[places] != mine).any())

    def _add_pages(self, pages: npt.NDArray[np.int32], touched: npt.NDArray[np.int64]) -> None:
        """Gives each touched page stamps of its own."""
        if pages[touched].all():
            return
        new = np.unique(touched[pages[touched] == 0])
        pages[new] = np.arange(self._used, self._used + len(new))
        self._used += len(new)
        if len(self._stamps) < self._used * _PAGE:
            larger = np.zeros(2 * self._used * _PAGE, np.int64)
            larger[: len(self._stamps)] = self._stamps
            self._stamps = larger

    @staticmethod
    def _places(pages: npt.NDArray[np.int32], granules: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Where the stamps of `granules` lie."""
        first: npt.NDArray[np.int64] = pages[granules >> _PAGE_BITS].astype(np.int64) << _PAGE_BITS
        return first | (granules & (_PAGE - 1))

    @staticmethod
    def _cta(warp: Actor) -> int:
        """The CTA's part of a stamp; numbers repeat in grids too large to be run here anyway."""
        return (warp.cta.number % _MAX_CTAS + 1) << _CTA_SHIFT

    def _granules(self, offsets: npt.NDArray[np.int64], size_bytes: int) -> npt.NDArray[np.int64]:
        count = max(1, size_bytes // self.granule_bytes)
        return (offsets // self.granule_bytes)[:, None] + np.arange(count)
