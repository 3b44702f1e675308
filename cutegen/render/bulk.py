"""Fills the template of a kernel fed by bulk tensor copies: each constant with its decision as the comment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cutegen.plan import GemmPlan
from cutegen.plan.kernel.pipeline import AB, C_STORE, SLICES, TURN, Barrier, Pipeline
from cutegen.plan.kernel.role import MMA, PRODUCER
from cutegen.plan.rules.bulk_memory import SWIZZLE_PERIOD_BYTES
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
        **role_context(plan),
    }


def role_context(plan: GemmPlan) -> dict[str, Any]:
    """Return the pipelines of a kernel with a producer by name, and whether roles have registers of their own."""
    pipelines = {name: plan.loop.pipeline(name) for name in (AB, TURN, C_STORE, SLICES)}
    return {**pipelines, "reallocates": plan.loop.role(MMA).registers is not None}


def plain_tensors(plan: GemmPlan, tensors: Iterable[TensorHoles]) -> list[TensorHoles]:
    """Return the tensors that threads access directly, without a tensor map."""
    mapped = {each.name for each in plan.launch.maps}
    return [tensor for tensor in tensors if tensor.name not in mapped]


def _settled(plan: GemmPlan) -> Settled:
    """Return the constants of each decision on the main loop."""
    return {
        **fed_by_boxes(plan),
        **mma_constants(plan, threads=f"MMA_WARPS, THREADS = {plan.mma.role.warps}, {plan.threads}"),
        "epilogue.smem": c_constants(plan),
    }


def fed_by_boxes(plan: GemmPlan) -> Settled:
    """Return the constants of the stages that a producer warp fills, and of its registers."""
    ab, mma, producer = ab_pipeline(plan), plan.loop.role(MMA), plan.loop.role(PRODUCER)
    settled: Settled = {
        "tile.stages": (
            f"STAGES, STAGE_BYTES = {ab.stages}, {ab.payload_bytes}",
            f"SMEM_ALIGN_BYTES = {SWIZZLE_PERIOD_BYTES}",
        ),
    }
    if mma.registers is not None:
        settled["schedule.registers"] = (f"MMA_REGISTERS, PRODUCER_REGISTERS = {mma.registers}, {producer.registers}",)
    return settled


def ab_pipeline(plan: GemmPlan) -> Pipeline:
    """Return the pipeline of the k-tiles."""
    ab = plan.loop.pipeline(AB)
    assert ab is not None
    return ab


def empty_barrier(plan: GemmPlan) -> Barrier:
    """Return the barrier at which warps that have read a stage arrive."""
    empty = ab_pipeline(plan).empty
    assert empty is not None
    return empty
