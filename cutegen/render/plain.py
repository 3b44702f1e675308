"""Fills the template of a kernel fed by plain copies: each constant with its decision as the comment."""

from __future__ import annotations

from typing import Any

from cutegen.plan import GemmPlan
from cutegen.render.constants import Settled, c_constants, operand_constants, tile_constants
from cutegen.render.holes import gemm_context
from cutegen.render.python_text import constant


def context(plan: GemmPlan) -> dict[str, Any]:
    """Return the template's holes."""
    swizzled = {x.name: {"swizzled": x.smem.swizzle is not None} for x in (plan.a, plan.b)}
    return {**gemm_context(plan, _settled(plan), "a GEMM without tensor cores"), **swizzled}


def _settled(plan: GemmPlan) -> Settled:
    """Return the constants of each decision on the main loop."""
    threads = plan.tiled_mma.atom_layout
    return {
        "tile.cta": (f"CTA_M, CTA_N, CTA_K = {', '.join(map(str, plan.cta_tile))}",),
        "mma.threads": (
            *constant("MMA_THREADS", (threads.shape, threads.stride)),
            f"THREADS = {plan.threads}",
        ),
        "g2s.a": operand_constants(plan.a),
        "g2s.b": operand_constants(plan.b),
        "s2r.a": (f"A_S2R_ELEMS = {plan.a.fragment_copy.bits // plan.a.dtype.bits}",),
        "s2r.b": (f"B_S2R_ELEMS = {plan.b.fragment_copy.bits // plan.b.dtype.bits}",),
        "smem.a": tile_constants("A_SMEM", plan.a.smem, plan.a.g2s, plan.stages),
        "smem.b": tile_constants("B_SMEM", plan.b.smem, plan.b.g2s, plan.stages),
        "epilogue.smem": c_constants(plan),
        "tile.stages": (f"STAGES = {plan.stages}",) if plan.stages > 1 else (),
    }
