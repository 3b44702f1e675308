"""Fills the template of a kernel fed by plain copies: each constant with its decision as the comment."""

from __future__ import annotations

from typing import Any

from cutegen.plan import GemmPlan
from cutegen.render import epilogue
from cutegen.render.constants import ConstantsByDecision, c_constants
from cutegen.render.holes import chain_holes, gemm_context, host_parts
from cutegen.render.python_text import constant
from cutegen.render.scheduler import grid_parts, order_parts
from cutegen.render.vectors import place_holes, stored_parts


def context(plan: GemmPlan) -> dict[str, Any]:
    """Return the template's holes."""
    loop = "fma_one_stage" if plan.stages == 1 else "fma_two_stages"
    parts = (
        *epilogue.math_functions(plan),
        *order_parts(plan),
        "mma/fma.py.j2",
        *epilogue.tensor_functions(plan),
        "functions/tensors.py.j2#matrix_of_batch",
        *grid_parts(plan),
        "roles/every_thread.py.j2",
        "mainloops/stages.py.j2",
        f"mainloops/{loop}.py.j2",
        *stored_parts(plan),
        *host_parts(plan),
    )
    return {
        **gemm_context(plan, _settled(plan), "a GEMM without tensor cores"),
        **chain_holes(plan, indent=4),
        **place_holes(plan),
        "parts": parts,
        "imports": [
            "from cutlass import Float32, Int32, Int64",
            "from cutlass.cute.nvgpu import CopyUniversalOp, MmaUniversalOp",
        ],
    }


def _settled(plan: GemmPlan) -> ConstantsByDecision:
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
