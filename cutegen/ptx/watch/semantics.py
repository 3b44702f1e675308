"""How strong an access or a fence is: its order and its scope.

Source: PTX ISA, "Memory Consistency Model": "Scope", "Release and Acquire Patterns", "Morally Strong Operations". A
weak access has no `Semantics`. Clusters have one CTA here, so that the scope `cluster` reaches as far as `cta`.
"""

from __future__ import annotations

from dataclasses import dataclass

SCOPES = ("cta", "cluster", "gpu", "sys")
_REACH = {"cta": 1, "cluster": 1, "gpu": 2, "sys": 2}
GRID_REACH = 2
"""The reach that includes the threads of other CTAs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Semantics:
    """A strong operation: what it orders besides itself, and how far it reaches."""

    acquires: bool
    releases: bool
    reach: int
    is_sc: bool = False

    @classmethod
    def of(cls, order: str, scope: str) -> Semantics:
        """The semantics that an instruction writes, as `acq_rel` and `gpu`."""
        return cls(
            acquires=order in ("acquire", "acq_rel", "sc"),
            releases=order in ("release", "acq_rel", "sc"),
            reach=_REACH[scope],
            is_sc=order == "sc",
        )


def includes(reach: int, cta: int, other: int) -> bool:
    """Whether an operation of CTA `cta` that has `reach` includes the threads of CTA `other`."""
    return cta == other or reach >= GRID_REACH
