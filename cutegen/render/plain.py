"""What the template of a kernel fed by plain copies writes down: each constant with its decision as the comment."""

from __future__ import annotations

from typing import Any

from cutegen.plan import GemmPlan
from cutegen.plan.gemm_plan import OperandPlan
from cutegen.plan.values.copies import VectorCopy
from cutegen.render.holes import gemm_context, layout_constants, vector_constants
from cutegen.render.python_text import constant


def context(plan: GemmPlan) -> dict[str, Any]:
    """The template's holes."""
    return {
        **gemm_context(plan, _settled(plan), "a GEMM without tensor cores"),
        "a_swizzled": plan.a.smem.swizzle is not None,
        "b_swizzled": plan.b.smem.swizzle is not None,
    }


def _settled(plan: GemmPlan) -> dict[str, tuple[str, ...]]:
    """The constants that each decision on the main loop becomes."""
    threads = plan.tiled_mma.atom_layout
    return {
        "tile.cta": (f"CTA_M, CTA_N, CTA_K = {', '.join(map(str, plan.cta_tile))}",),
        "mma.threads": (
            *constant("MMA_THREADS", (threads.shape, threads.stride)),
            f"THREADS = {plan.threads}",
        ),
        "g2s.a": _operand_constants(plan.a),
        "g2s.b": _operand_constants(plan.b),
        "s2r.a": (f"A_S2R_ELEMS = {plan.a.s2r.bits // plan.a.dtype.bits}",),
        "s2r.b": (f"B_S2R_ELEMS = {plan.b.s2r.bits // plan.b.dtype.bits}",),
        "smem.a": layout_constants("A_SMEM", plan.a.smem),
        "smem.b": layout_constants("B_SMEM", plan.b.smem),
        "tile.stages": (
            *((f"STAGES = {plan.stages}",) if plan.stages > 1 else ()),
            f"SMEM_B_OFFSET_BYTES = {plan.smem_b_offset_bytes}",
            f"SMEM_BYTES = {plan.smem_bytes}",
        ),
    }


def _operand_constants(operand: OperandPlan) -> tuple[str, ...]:
    assert isinstance(operand.g2s, VectorCopy)
    x = operand.name.upper()
    return (
        f"{x}_DTYPE = cutlass.{operand.dtype.dsl_name}",
        f"{x}_ALIGN_ELEMS = {operand.align_bytes // operand.dtype.bytes}",
        *vector_constants(f"{x}_G2S", operand.g2s),
    )
