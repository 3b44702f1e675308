"""Stamps of a long buffer of which only some pages are ever accessed."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

_PAGE_BITS = 12
_PAGE = 1 << _PAGE_BITS
_WARP_PAGE_BITS = 10
_WARP_PAGE = 1 << _WARP_PAGE_BITS
THREAD_BITS = 15
MANY = (1 << THREAD_BITS) - 1
"""Stands for a thread in the low bits of a stamp: several threads of one warp."""


Granules = npt.NDArray[np.int64]
Stamps = npt.NDArray[np.int64]
Sites = npt.NDArray[np.int32]


def several(warp: int) -> int:
    """In place of the number of a thread: several threads of `warp`."""
    return -1 - warp


def owners_of(stamps: Stamps, warps: npt.NDArray[np.int64] | int) -> npt.NDArray[np.int64]:
    """The threads of stamps of `warps`, or `several`."""
    return np.where(stamps & MANY == MANY, -1 - warps, stamps & MANY)


class PagedStamps:
    """A stamp and an instruction for each granule that was written; zero for others.

    Only pages with a write take memory: the extent of a matrix may be much larger than its elements. `_pages` maps each
    page of the buffer to its page of `_stamps`; page 0 of these stays zero, for pages without a write.
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

    def written(self) -> tuple[Granules, Stamps, Sites]:
        """All granules that have a stamp, with their stamps and instructions."""
        owners = np.flatnonzero(self._pages)
        granules = (owners[:, None] << _PAGE_BITS) + np.arange(_PAGE)
        stamps, sites = self.at(granules)
        return granules[stamps != 0], stamps[stamps != 0], sites[stamps != 0]

    def put(self, granules: Granules, stamps: Stamps, site: int) -> Stamps:
        """Writes stamps and returns the stored values, which differ if granules repeat."""
        self._add_pages(granules >> _PAGE_BITS)
        places = self._places(granules)
        self._stamps[places] = stamps
        self._sites[places] = site
        return self._stamps[places]

    def _add_pages(self, touched: Granules) -> None:
        """Allocates stamps for each accessed page."""
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
        """Return the positions of the stamps of `granules`."""
        first: Granules = self._pages[granules >> _PAGE_BITS].astype(np.int64) << _PAGE_BITS
        return first | (granules & (_PAGE - 1))


@dataclass(frozen=True, slots=True)
class _Page:
    """The stamps of one warp in a page of granules; the last place is for granules of other pages."""

    stamps: Stamps = field(default_factory=lambda: np.zeros(_WARP_PAGE + 1, np.int64))
    sites: Sites = field(default_factory=lambda: np.zeros(_WARP_PAGE + 1, np.int32))


class WarpPages:
    """A stamp and an instruction for each granule and each warp that accessed it."""

    def __init__(self) -> None:
        self._pages: dict[int, dict[tuple[int, int], _Page]] = {}

    def put(self, warp: tuple[int, int], granules: Granules, stamps: Stamps, site: int, *, since: int) -> None:
        """Records accesses of `warp` (its CTA, its number).

        A granule that several of its threads have accessed unordered (after stamp `since`) is marked as such.
        """
        pages = granules >> _WARP_PAGE_BITS
        for number in np.unique(pages).tolist():
            page = self._pages.setdefault(number, {}).setdefault(warp, _Page())
            places = np.where(pages == number, granules & (_WARP_PAGE - 1), _WARP_PAGE)
            before = page.stamps[places]
            page.stamps[places] = stamps
            by_many = (page.stamps[places] != stamps) | ((before > since) & (before & MANY != stamps & MANY))
            page.stamps[places[by_many]] |= MANY
            page.sites[places] = site
            page.stamps[_WARP_PAGE] = 0

    def touched(self) -> Iterator[tuple[Granules, Stamps, Sites]]:
        """The granules of each page that a warp accessed, with its stamps and their instructions."""
        for number, of_warps in self._pages.items():
            for page in of_warps.values():
                places = np.flatnonzero(page.stamps)
                yield places + (number << _WARP_PAGE_BITS), page.stamps[places], page.sites[places]

    def at(self, granules: Granules) -> Iterator[tuple[int, Stamps, Sites]]:
        """(number of a warp, its stamps, their instructions), in the shape of `granules`, for warps that have any."""
        if not self._pages:
            return
        pages = granules >> _WARP_PAGE_BITS
        for number in np.unique(pages).tolist():
            places = np.where(pages == number, granules & (_WARP_PAGE - 1), _WARP_PAGE)
            for (_, warp), page in self._pages.get(number, {}).items():
                stamps = page.stamps[places]
                if stamps.any():
                    yield warp, stamps, page.sites[places]
