"""Fills the template of a kernel fed by bulk tensor copies: each constant with its decision as the comment."""

from collections.abc import Iterable, Sequence
from typing import Any

from cutegen.contract.launch import FACTORS, RESULT_FACTORS
from cutegen.plan import GemmPlan
from cutegen.plan.kernel.pipeline import AB, C_STORE, MMA, PRODUCER, SLICES, TURN, Barrier, Pipeline
from cutegen.plan.operands.staging import SWIZZLE_PERIOD_BYTES
from cutegen.render import epilogue, holes
from cutegen.render.constants import ConstantsByDecision, c_constants, mma_constants
from cutegen.render.groups import batches_of
from cutegen.render.scheduler import order_parts, persistent_holes, persistent_parts
from cutegen.render.tensors import TensorHoles
from cutegen.spec import STORE


def context(plan: GemmPlan) -> dict[str, Any]:
    """Return the template's holes."""
    common = holes.gemm_context(plan, _settled(plan), "a tensor-core GEMM fed by bulk tensor copies")
    return {
        **common,
        **holes.fragment_context(plan),
        **holes.chain_holes(plan, indent=12),
        **pipeline_holes(plan),
        **persistent_holes(plan),
        "parts": _text_parts(plan),
        "imports": [
            f"from cutlass import {holes.numerics(plan)}",
            *holes.mma_imports(plan),
            "from cutlass.cute.nvgpu import cpasync, warp",
        ],
        **plain_holes(plain_tensors(plan, common["tensors"])),
    }


def _text_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts of the kernel's text, in the order of their functions."""
    by = "vectors" if plan.epilogue.major == "n" else "elements"
    boxes = "pipelines/c_tile.py.j2", f"epilogues/tile_by_{by}.py.j2"
    return (
        *epilogue.math_functions(plan),
        *holes.mma_functions(plan),
        *order_parts(plan),
        *epilogue.tensor_functions(plan),
        *(("functions/tensors.py.j2#matrix_of_batch", *tensor_parts(plan)) if _unmapped(plan) else ()),
        *(("epilogues/tile_coordinates.py.j2",) if _unmapped(plan) else ()),
        "functions/ldmatrix_boxes.py.j2#swizzled",
        "functions/boxes.py.j2#tensor_map_coordinates",
        "functions/ldmatrix_boxes.py.j2#bulk_partition",
        "functions/boxes.py.j2#next_stage",
        "functions/boxes.py.j2#copy_k_tile",
        *persistent_parts(plan),
        "roles/producer_and_mma.py.j2",
        "roles/producer_of_all.py.j2",
        *register_parts(plan),
        "pipelines/copied_stages.py.j2",
        "pipelines/k_tiles.py.j2",
        "roles/mma_warps.py.j2",
        *holes.fragment_parts(plan),
        *holes.value_parts(plan),
        *(boxes if plan.epilogue.smem else ("epilogues/tile_from_registers.py.j2",)),
        *holes.host_parts(plan),
    )


def register_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the part by which the roles exchange registers, if they do."""
    return ("roles/reallocated_registers.py.j2",) if plan.loop.role(MMA).registers is not None else ()


def tensor_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts of tensors that threads access without a tensor map, tile by tile."""
    read = any(x.name != STORE and len(x.modes) == 2 for x in plan.epilogue.fusion.tensors)
    whole = ("epilogues/whole_tile_test.py.j2",) if read or epilogue.stores_registers(plan) else ()
    return ("epilogues/tile_tensors.py.j2", *whole)


def _unmapped(plan: GemmPlan) -> bool:
    """Return whether threads access any tensor without a tensor map."""
    return len(plan.launch.maps) < len(plan.launch.tensors)


def pipeline_holes(plan: GemmPlan) -> dict[str, Any]:
    """Return the holes of a kernel's pipelines, and of the tensor maps that its host side makes."""
    return {
        **{name: plan.loop.pipeline(name) for name in (AB, TURN, C_STORE, SLICES)},
        "makes": "makes the tensor maps, and " if plan.launch.maps else "",
        "in_any_cta": ", in any CTA that received them," if plan.mma.shares_copies else "",
        "masks": "",
        "copy_options": {"a": "", "b": ""},
        "arrive_of_factors": "full",
        "batch_of": batches_of(plan),
        "shared_by": {"a": "", "b": ""},
    }


def plain_tensors(plan: GemmPlan, tensors: Iterable[TensorHoles]) -> list[TensorHoles]:
    """Return the tensors that threads access element by element of C, without a tensor map."""
    mapped = {*(each.name for each in plan.launch.maps), *FACTORS, RESULT_FACTORS}
    return [tensor for tensor in tensors if tensor.name not in mapped]


def plain_holes(tensors: Sequence[TensorHoles]) -> dict[str, list[TensorHoles]]:
    """Return those of `plain_tensors` that threads address, unlike vectors that warps hold, and the matrices."""
    return {
        "plain_tensors": [x for x in tensors if not x.firsts],
        "plain_matrices": [x for x in tensors if not x.along],
    }


def _settled(plan: GemmPlan) -> ConstantsByDecision:
    """Return the constants of each decision on the main loop."""
    return {
        **fed_by_boxes(plan),
        **mma_constants(plan, threads=f"MMA_WARPS, THREADS = {plan.mma.role.warps}, {plan.threads}"),
        "epilogue.smem": c_constants(plan),
    }


def fed_by_boxes(plan: GemmPlan) -> ConstantsByDecision:
    """Return the constants of the stages that a producer warp fills, and of its registers."""
    ab, mma, producer = ab_pipeline(plan), plan.loop.role(MMA), plan.loop.role(PRODUCER)
    settled: ConstantsByDecision = {
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
