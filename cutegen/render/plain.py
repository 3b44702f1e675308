"""Fills the template of a kernel fed by plain copies: each constant with its decision as the comment."""

from __future__ import annotations

from typing import Any

from cutegen.plan import GemmPlan
from cutegen.render.constants import Settled, c_constants
from cutegen.render.holes import chain_holes, gemm_context
from cutegen.render.python_text import constant


def context(plan: GemmPlan) -> dict[str, Any]:
    """Return the template's holes."""
    swizzled = {x.name: {"swizzled": x.smem.swizzle is not None} for x in plan.operands}
    context = gemm_context(plan, _settled(plan), "a GEMM without tensor cores")
    return {**context, **chain_holes(plan, indent=4), **swizzled}


def _settled(plan: GemmPlan) -> Settled:
    """Return the constants of each decision on the main loop."""
    threads = plan.tiled_mma.atom_layout
    return {
        "mma.threads": (
            *constant("MMA_THREADS", (threads.shape, threads.stride)),
            f"THREADS = {plan.threads}",
        ),
        "s2r.a": (f"A_S2R_ELEMS = {plan.a.fragment_copy.bits // plan.a.dtype.bits}",),
        "s2r.b": (f"B_S2R_ELEMS = {plan.b.fragment_copy.bits // plan.b.dtype.bits}",),
        "epilogue.smem": c_constants(plan),
        "tile.stages": (f"STAGES = {plan.stages}",) if plan.stages > 1 else (),
    }
