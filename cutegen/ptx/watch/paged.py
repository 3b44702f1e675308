"""Stamps of a long buffer of which only some pages are ever written."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_PAGE_BITS = 12
_PAGE = 1 << _PAGE_BITS

Granules = npt.NDArray[np.int64]
Stamps = npt.NDArray[np.int64]
Sites = npt.NDArray[np.int32]


class PagedStamps:
    """A stamp and an instruction for each granule that was written; zero for others.

    Only pages with a write in them have room: a matrix may reach much further than its elements take. `_pages` has for
    each page of the buffer its page of `_stamps`, of which page 0 stays zeros, for those without a write.
    """

    def __init__(self, granules: int) -> None:
        self._pages = np.zeros(granules // _PAGE + 1, np.int32)
        self._used = 1
        self._stamps: Stamps = np.zeros(_PAGE, np.int64)
        self._sites: Sites = np.zeros(_PAGE, np.int32)

    def at(self, granules: Granules) -> tuple[Stamps, Sites]:
        """The stamps and instructions of `granules`."""
        places = self._places(granules)
        return self._stamps[places], self._sites[places]

    def put(self, granules: Granules, stamps: Stamps, site: int) -> Stamps:
        """Writes them; what stands there then, which differs where granules repeat."""
        self._add_pages(granules >> _PAGE_BITS)
        places = self._places(granules)
        self._stamps[places] = stamps
        self._sites[places] = site
        return self._stamps[places]

    def _add_pages(self, touched: Granules) -> None:
        """Gives each touched page stamps of its own."""
        if self._pages[touched].all():
            return
        new = np.unique(touched[self._pages[touched] == 0])
        self._pages[new] = np.arange(self._used, self._used + len(new))
        self._used += len(new)
        if len(self._stamps) < self._used * _PAGE:
            more = 2 * self._used * _PAGE - len(self._stamps)
            self._stamps = np.concatenate([self._stamps, np.zeros(more, np.int64)])
            self._sites = np.concatenate([self._sites, np.zeros(more, np.int32)])

    def _places(self, granules: Granules) -> Granules:
        """Where the stamps of `granules` lie."""
        first: Granules = self._pages[granules >> _PAGE_BITS].astype(np.int64) << _PAGE_BITS
        return first | (granules & (_PAGE - 1))
