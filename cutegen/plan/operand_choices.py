"""What rules settled for A or B: its copies, and the shared layout that suits both of them best."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.algebra import Layout, TiledMma, ldmatrix_trace
from cutegen.arch import LdmatrixAtom
from cutegen.plan.access import by_warp, fragment_loads, vectors
from cutegen.plan.decision import Choice
from cutegen.plan.gemm_plan import FragmentCopy, OperandPlan, VectorCopy
from cutegen.plan.operand import OperandTile
from cutegen.plan.smem import Access, SmemRanking, choose_smem, lay_out
from cutegen.spec import MODES


@dataclass(frozen=True, slots=True)
class OperandChoices:
    """All that is settled for A or B before the number of stages is, which depends on a stage's bytes."""

    tile: OperandTile
    g2s: Choice[VectorCopy]
    s2r: Choice[FragmentCopy]
    smem: Choice[SmemRanking]

    def plan(self, stages: int) -> OperandPlan:
        """The operand's part of the plan."""
        x = self.tile
        return OperandPlan(
            name=x.name,
            operand=x.operand,
            dtype=x.dtype,
            modes=MODES[x.name],
            major=x.major,
            align_bytes=x.align_bytes,
            tile=x.extents,
            g2s=self.g2s.value,
            smem=lay_out(self.smem.value, x.extents, stages),
            s2r=self.s2r.value,
        )


def choose_layout(
    x: OperandTile, g2s: Choice[VectorCopy], s2r: Choice[FragmentCopy], tiled_mma: TiledMma
) -> OperandChoices:
    """The shared layout for the two copies.

    A layout that the spec writes down limits the copies; else the copies come first and the layout is ranked for them.
    """
    write = Access(by_warp(vectors(g2s.value.threads, g2s.value.values, x.extents)[..., 0]), g2s.value.bits // 8)
    return OperandChoices(x, g2s, s2r, choose_smem(x, write, fragment_access(x, s2r.value, tiled_mma)))


def fragment_access(x: OperandTile, s2r: FragmentCopy, tiled_mma: TiledMma) -> Access:
    """Which addresses the lanes of each fragment load have: of an ldmatrix, 8 lanes for each matrix."""
    if isinstance(s2r.atom, LdmatrixAtom):
        trace = ldmatrix_trace(tiled_mma, x.operand, Layout(x.extents), s2r.atom, x.dtype.bits)
        return Access(trace.source_coords[:, :, : 8 * s2r.atom.matrices, 0], 16)
    loads = fragment_loads(tiled_mma, x.operand, x.extents, s2r.bits // x.dtype.bits)
    return Access(by_warp(loads[..., 0]), s2r.bits // 8)
