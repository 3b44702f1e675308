"""The instruction families that a spec can name, one row each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """What its kernels are made of, the first target that has those, and whether kernels can be planned for it."""

    name: str
    instructions: str
    needs: str
    available: bool


FAMILIES: Mapping[str, Family] = {
    row.name: row
    for row in (
        Family("sm80", "mma.sync, ldmatrix, cp.async", "sm_80", available=True),
        Family("simt", "fused multiply-add without tensor cores", "sm_80", available=False),
        Family("sm90", "mma.sync, ldmatrix, bulk tensor copies", "sm_90", available=True),
    )
}
