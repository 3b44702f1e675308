"""One warp's load of fragments, lane by lane, as people look at it."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.algebra import TiledMma
from cutegen.plan.geometry.access import Coordinates
from cutegen.plan.values.gemm_plan import OperandPlan


@dataclass(frozen=True, slots=True, eq=False)
class WarpLoad:
    """One load of fragments by one warp, in column-major coordinates of the operand's tile.

    `addressed` [lane] is what each address points at, for as many lanes as address something; `access_bytes` lie there.
    `received` [lane, value] is what comes to each register.
    """

    addressed: Coordinates
    received: Coordinates
    access_bytes: int


def first_fragment_load(tiled_mma: TiledMma, operand: OperandPlan, warp: int) -> WarpLoad:
    """The first `ldmatrix`, or plain load, with which `warp` fills its fragments of an operand."""
    loads = operand.fragment_copy.table(operand.operand, operand.tile, operand.dtype, tiled_mma)
    return WarpLoad(loads.addressed[0, warp], loads.received[0, warp], loads.access_bytes)
