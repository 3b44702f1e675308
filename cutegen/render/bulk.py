"""Fills the template of a kernel fed by bulk tensor copies: each constant with its decision as the comment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cutegen.hardware.units import WARP
from cutegen.plan import GemmPlan
from cutegen.plan.rules.bulk_memory import SWIZZLE_PERIOD_BYTES
from cutegen.plan.values.path import stage_bytes
from cutegen.render.constants import Settled, c_constants, mma_constants
from cutegen.render.holes import TensorHoles, chain_holes, fragment_context, gemm_context


def context(plan: GemmPlan) -> dict[str, Any]:
    """Return the template's holes."""
    context = gemm_context(plan, _settled(plan), "a tensor-core GEMM fed by bulk tensor copies")
    return {
        **context,
        **fragment_context(plan),
        **chain_holes(plan, indent=12),
        "plain_tensors": plain_tensors(plan, context["tensors"]),
    }


def plain_tensors(plan: GemmPlan, tensors: Iterable[TensorHoles]) -> list[TensorHoles]:
    """Return the tensors that threads access directly, without a tensor map."""
    mapped = {each.name for each in plan.launch.maps}
    return [tensor for tensor in tensors if tensor.name not in mapped]


def _settled(plan: GemmPlan) -> Settled:
    """Return the constants of each decision on the main loop."""
    return {
        **fed_by_boxes(plan),
        **mma_constants(plan, threads=f"MMA_WARPS, THREADS = {plan.tiled_mma.threads // WARP}, {plan.threads}"),
        "epilogue.smem": c_constants(plan),
    }


def fed_by_boxes(plan: GemmPlan) -> Settled:
    """Return the constants of the stages that a producer warp fills, and of its registers."""
    of_a_stage = stage_bytes(plan.operands, plan.stages)
    settled: Settled = {
        "tile.stages": (
            f"STAGES, STAGE_BYTES = {plan.stages}, {of_a_stage}",
            f"SMEM_ALIGN_BYTES = {SWIZZLE_PERIOD_BYTES}",
        ),
    }
    if (split := plan.registers) is not None and split.reallocated:
        settled["schedule.registers"] = (f"MMA_REGISTERS, PRODUCER_REGISTERS = {split.mma}, {split.producer}",)
    return settled
