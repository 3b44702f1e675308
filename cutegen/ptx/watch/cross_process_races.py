"""Races between CTAs that ran in different processes: their accesses are compared when all have ended.

Only for entries whose CTAs do not communicate: nothing orders their accesses, so two that conflict are a race.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cutegen.ptx.watch.paged import MANY, Sites, Stamps


@dataclass(frozen=True, slots=True)
class Marks:
    """Granules that were accessed, each once, in ascending order, with the cluster, thread and instruction of each."""

    granules: npt.NDArray[np.int64]
    stamps: Stamps
    sites: Sites

    @classmethod
    def of(cls, granules: npt.NDArray[np.int64], stamps: Stamps, sites: Sites) -> Marks:
        """The marks of accesses, given in any order."""
        unique, first = np.unique(granules, return_index=True)
        return cls(unique, stamps[first], sites[first])


@dataclass(frozen=True, slots=True)
class Touched:
    """Accesses of one process's CTAs to an allocation; a stamp holds the cluster from bit `cluster_shift` on."""

    writes: Marks
    reads: Marks
    granule_bytes: int
    cluster_shift: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossProcessRace:
    """Two accesses of byte `offset` of allocation `allocation`; (cluster number, thread or None, site) of each."""

    allocation: int
    offset: int
    writer: tuple[int, int | None, int]
    other: tuple[int, int | None, int]
    other_wrote: bool


def first_race(processes: Sequence[Sequence[Touched]]) -> CrossProcessRace | None:
    """The first location that one process wrote and another accessed; all `processes` list the same allocations."""
    for i, mine in enumerate(processes):
        for j, theirs in enumerate(processes):
            if i == j:
                continue
            for allocation, (a, b) in enumerate(zip(mine, theirs, strict=True)):
                found = _meet(allocation, a, b.writes, wrote=True) or _meet(allocation, a, b.reads, wrote=False)
                if found is not None:
                    return found
    return None


def _meet(allocation: int, writer: Touched, others: Marks, *, wrote: bool) -> CrossProcessRace | None:
    both, i, j = np.intersect1d(writer.writes.granules, others.granules, assume_unique=True, return_indices=True)
    if not len(both):
        return None
    return CrossProcessRace(
        allocation=allocation,
        offset=int(both[0]) * writer.granule_bytes,
        writer=_who(writer.writes, int(i[0]), writer.cluster_shift),
        other=_who(others, int(j[0]), writer.cluster_shift),
        other_wrote=wrote,
    )


def _who(marks: Marks, index: int, cluster_shift: int) -> tuple[int, int | None, int]:
    stamp = int(marks.stamps[index])
    thread = stamp & MANY
    return (stamp >> cluster_shift) - 1, None if thread == MANY else thread, int(marks.sites[index])
