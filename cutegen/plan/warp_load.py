"""One warp's load of fragments, lane by lane, as people look at it."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.algebra import TiledMma
from cutegen.arch import LdmatrixAtom, ldmatrix_trace
from cutegen.plan.access import Coordinates, by_warp, fragment_loads
from cutegen.plan.gemm_plan import OperandPlan


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
    op, atom, bits = operand.operand, operand.s2r.atom, operand.dtype.bits
    if isinstance(atom, LdmatrixAtom):
        trace = ldmatrix_trace(tiled_mma, op, operand.smem.layout_of_one_stage, atom, bits, operand.s2r.order)
        received = by_warp(trace.destination_coords)[0, warp]
        return WarpLoad(trace.source_coords[0, warp, : atom.rows, 0], received, access_bytes=16)
    received = by_warp(fragment_loads(tiled_mma, op, operand.tile, operand.s2r.bits // bits))[0, warp]
    return WarpLoad(received[:, 0], received, operand.s2r.bits // 8)
