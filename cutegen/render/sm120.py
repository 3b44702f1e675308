"""What the `sm120` template writes down: every constant of the kernel, each with its decision as the comment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from cutegen.algebra import inner_layout
from cutegen.plan import GemmPlan
from cutegen.plan.gemm_plan import OperandPlan, SmemTile
from cutegen.plan.launch import gemm_parameters
from cutegen.plan.sm120 import Sm120Plan
from cutegen.plan.sm120.memory import SMEM_ALIGN_BYTES
from cutegen.plan.values.copies import BulkTensorCopy
from cutegen.render.holes import (
    TensorHoles,
    fragment_constants,
    gemm_context,
    mma_constants,
    parameter_holes,
    stride_holes,
)
from cutegen.render.python_text import constant

MULTIPROCESSORS = "multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count"


def context(plan: GemmPlan) -> dict[str, Any]:
    """The template's holes."""
    assert isinstance(plan, Sm120Plan)
    launch = plan.launch
    context = gemm_context(plan, _settled(plan), "a tensor-core GEMM fed by bulk tensor copies")
    tensors = {tensor.name: tensor for tensor in context["tensors"]}
    plain = [tensor for name, tensor in tensors.items() if name not in {each.name for each in launch.maps}]
    host, check = gemm_parameters(launch.tensors, launch.scalars), context["self_check"]
    return {
        **context,
        "plain_tensors": plain,
        # The host makes the maps, so it is given the matrices themselves.
        "host_parameters": [parameter_holes(x) for x in host],
        "host_strides": [stride_holes(x) for x in host if x.type == "i64"],
        "maps": [_map_holes(tensors[each.name]) for each in launch.maps],
        "launch_template": "sm120_launch.py.j2",
        "launch_numbers": "Int32(1), Int32(1)",
        "launch_arguments": "1, multiprocessors",
        "self_check": replace(check, operands=(*check.operands, MULTIPROCESSORS)),
    }


@dataclass(frozen=True, slots=True)
class MapHoles:
    """A tensor map that the host makes: of which tensor, for which copy, and which tile it is cut into."""

    tensor: TensorHoles
    op: str
    tile: str


def _map_holes(tensor: TensorHoles) -> MapHoles:
    tile = {"a": "(CTA_M, CTA_K)", "b": "(CTA_N, CTA_K)", "c": "(CTA_M, CTA_N)"}[tensor.name]
    return MapHoles(tensor, "CopyBulkTensorTileS2GOp" if tensor.name == "c" else "CopyBulkTensorTileG2SOp", tile)


def _settled(plan: Sm120Plan) -> dict[str, tuple[str, ...]]:
    """The constants that each decision on the main loop becomes."""
    stage_bytes = (plan.a.smem.bytes + plan.b.smem.bytes) // plan.stages
    settled = {
        **mma_constants(plan, threads=f"MMA_WARPS, THREADS = {plan.tiled_mma.threads // 32}, {plan.threads}"),
        "g2s.a": _operand_constants(plan.a),
        "g2s.b": _operand_constants(plan.b),
        "s2r.a": fragment_constants("A", plan.a.s2r),
        "s2r.b": fragment_constants("B", plan.b.s2r),
        "smem.a": _box_constants("A", plan.a.smem, plan.a.g2s),
        "smem.b": _box_constants("B", plan.b.smem, plan.b.g2s),
        "tile.stages": (
            f"STAGES, STAGE_BYTES = {plan.stages}, {stage_bytes}",
            f"SMEM_B_OFFSET_BYTES = {plan.smem_b_offset_bytes}",
            f"SMEM_BARRIERS_OFFSET_BYTES = {plan.smem_barriers_offset_bytes}",
            f"SMEM_BYTES, SMEM_ALIGN_BYTES = {plan.smem_bytes}, {SMEM_ALIGN_BYTES}",
        ),
        "epilogue.smem": _c_constants(plan),
    }
    if plan.registers.reallocated:
        split = plan.registers
        settled["schedule.registers"] = (f"MMA_REGISTERS, PRODUCER_REGISTERS = {split.mma}, {split.producer}",)
    return settled


def _operand_constants(operand: OperandPlan) -> tuple[str, ...]:
    x = operand.name.upper()
    return (
        f"{x}_DTYPE = cutlass.{operand.dtype.dsl_name}",
        f"{x}_MAJOR = {operand.major_mode}  # {operand.major} is contiguous in ({', '.join(operand.modes)})",
        f"{x}_ALIGN_ELEMS = {operand.align_bytes // operand.dtype.bytes}",
    )


def _box_constants(x: str, smem: SmemTile, copy: object) -> tuple[str, ...]:
    assert isinstance(copy, BulkTensorCopy)
    inner = inner_layout(smem.layout)
    return (
        *constant(f"{x}_SMEM_SHAPE", inner.shape),
        *constant(f"{x}_SMEM_STRIDE", inner.stride),
        f"{x}_SMEM_SWIZZLE_BITS = {copy.swizzle_bits}",
    )


def _c_constants(plan: Sm120Plan) -> tuple[str, ...]:
    epilogue = plan.epilogue
    common = (
        f"C_DTYPE = cutlass.{epilogue.dtype.dsl_name}",
        f"C_MAJOR = {epilogue.major_mode}  # {epilogue.major} is contiguous in (m, n)",
        f"C_ALIGN_ELEMS = {epilogue.align_bytes // epilogue.dtype.bytes}",
    )
    if epilogue.smem is None:
        return common
    return (
        *common,
        *_box_constants("C", epilogue.smem, epilogue.store),
        f"SMEM_C_OFFSET_BYTES = {plan.smem_c_offset_bytes}",
    )
