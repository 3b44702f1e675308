"""Strength of an access or a fence: its order and its scope.

Source: PTX ISA, "Memory Consistency Model": "Scope", "Release and Acquire Patterns", "Morally Strong Operations". A
weak access has no `Semantics`.
"""

from dataclasses import dataclass
from typing import Self, TypeAlias

SCOPES = ("cta", "cluster", "gpu", "sys")
_REACH = {"cta": 1, "cluster": 2, "gpu": 3, "sys": 3}
Audience: TypeAlias = tuple[int, int, int]
"""The threads that a scope includes: its reach, and the numbers of their cluster and of their CTA there (-1: any)."""
CTA_REACH, CLUSTER_REACH, GRID_REACH = 1, 2, 3
"""The reaches that include the threads of the same CTA, of the same cluster, and all."""
TOO_NARROW = "which mbarriers pass on at scope cta: it takes .release.cluster and .acquire.cluster"
"""Said of an access after that of another CTA."""


@dataclass(frozen=True, slots=True)
class Home:
    """The CTA of a thread: the number of its cluster, and its rank there."""

    cluster: int
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Semantics:
    """A strong operation: the other accesses that it orders, and the reach of its scope."""

    acquires: bool
    releases: bool
    reach: int
    is_sc: bool = False

    @classmethod
    def of(cls, order: str, scope: str) -> Self:
        """The semantics that an instruction specifies, such as `acq_rel` and `gpu`."""
        return cls(
            acquires=order in ("acquire", "acq_rel", "sc"),
            releases=order in ("release", "acq_rel", "sc"),
            reach=_REACH[scope],
            is_sc=order == "sc",
        )


def includes(reach: int, home: Home, other: Home) -> bool:
    """Return whether an operation of CTA `home` with `reach` includes the threads of CTA `other`.

    >>> includes(CLUSTER_REACH, Home(3, 0), Home(3, 1)), includes(CLUSTER_REACH, Home(3, 0), Home(4, 0))
    (True, False)
    """
    if home.cluster != other.cluster:
        return reach >= GRID_REACH
    return reach >= CLUSTER_REACH or home.rank == other.rank


def audiences(home: Home, reach: int) -> tuple[Audience, ...]:
    """The threads of each scope up to `reach` of an operation of CTA `home`.

    Two operations are in each other's scope if they have one of these in common.

    >>> audiences(Home(3, 1), CLUSTER_REACH)
    ((1, 3, 1), (2, 3, -1))
    """
    every = (CTA_REACH, home.cluster, home.rank), (CLUSTER_REACH, home.cluster, -1), (GRID_REACH, -1, -1)
    return every[:reach]
