"""Fills the template of a kernel that multiplies by `tcgen05.mma`: each constant with its decision as the comment."""

from __future__ import annotations

from typing import Any

from cutegen.algebra import inner_layout, offsets_2d
from cutegen.hardware.gmma_layouts import VECTOR_BYTES
from cutegen.hardware.tcgen05_atoms import columns_allocated, instruction_descriptor
from cutegen.plan import GemmPlan
from cutegen.plan.kernel.pipeline import Pipeline
from cutegen.plan.mainloop.tensor_memory import ACCUMULATOR, EPILOGUE
from cutegen.plan.values.path import OperandPath
from cutegen.render import epilogue
from cutegen.render.bulk import fed_by_boxes, pipeline_holes
from cutegen.render.constants import ConstantsByDecision, c_constants
from cutegen.render.holes import chain_holes, gemm_context, host_parts, numerics
from cutegen.render.scheduler import order_parts, persistent_holes, persistent_parts
from cutegen.render.tensors import tensor_holes
from cutegen.render.warpgroup import part_constants, stored_parts, tensors_beside, to_shared

LARGEST_LOAD = 128
"""Registers that one `tcgen05.ld` fills at most."""


def context(plan: GemmPlan) -> dict[str, Any]:
    """Return the template's holes."""
    common = gemm_context(plan, _settled(plan), "a tcgen05 GEMM fed by bulk tensor copies")
    return {
        **common,
        **chain_holes(plan, 12, deeper=4, part=""),
        **pipeline_holes(plan),
        **persistent_holes(plan),
        "accumulator": _accumulator(plan),
        "mma_ptx": plan.atom.ptx,
        "drain": _drain(plan),
        "parts": _text_parts(plan),
        "imports": [
            f"from cutlass import {numerics(plan)}",
            "from cutlass._mlir.dialects import llvm",
            "from cutlass.cute.nvgpu import cpasync",
        ],
        "plain_tensors": tensors_beside(plan, common["tensors"]),
        "slots": " * 2",
        "to_shared": to_shared(plan.epilogue),
    }


def _text_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts of the kernel's text, in the order of their functions."""
    unmapped = bool(tensors_beside(plan, (tensor_holes(x) for x in plan.launch.tensors)))
    return (
        *epilogue.math_functions(plan),
        *order_parts(plan),
        *epilogue.tensor_functions(plan),
        *(("functions/tensors.py.j2#matrix_of_batch",) if unmapped else ()),
        *persistent_parts(plan),
        "functions/wgmma.py.j2#shared_tile",
        "functions/boxes.py.j2#tensor_map_coordinates",
        "functions/wgmma.py.j2#bulk_partition",
        "functions/boxes.py.j2#next_stage",
        "functions/boxes.py.j2#copy_k_tile",
        "functions/tcgen05.py.j2#tensor_memory",
        "functions/tcgen05.py.j2#order",
        "functions/tcgen05.py.j2#multiply",
        "functions/tcgen05.py.j2#load_sums",
        "roles/producer_mma_epilogue.py.j2",
        "roles/producer_of_tiles.py.j2",
        "roles/mma_warp.py.j2",
        "roles/epilogue_warps.py.j2",
        "pipelines/described_stages.py.j2",
        "pipelines/boxes_of_matrices.py.j2",
        "pipelines/c_of_matrices.py.j2",
        "pipelines/k_tiles.py.j2",
        "pipelines/accumulator.py.j2",
        "epilogues/drained.py.j2",
        *stored_parts(plan),
        *host_parts(plan),
    )


def _accumulator(plan: GemmPlan) -> Pipeline:
    """Return the pipeline of tensor memory."""
    found = plan.loop.pipeline(ACCUMULATOR)
    assert found is not None
    return found


def _drain(plan: GemmPlan) -> dict[str, Any]:
    """Return the instruction that loads a part's row of sums, and its registers: 16-bit sums share them."""
    assert plan.epilogue.part is not None
    sums = plan.mma.accumulator
    registers = sums.registers_of(plan.epilogue.part[1])
    pack = ".pack::16b" if sums.dtype.bits == 16 else ""
    return {"ptx": f"{sums.drain}.x{registers}{pack}.b32", "registers": registers}


def _settled(plan: GemmPlan) -> ConstantsByDecision:
    """Return the constants of each decision on the main loop."""
    sums, a, b = plan.mma.accumulator, plan.a, plan.b
    instruction = instruction_descriptor(plan.atom, a.major_mode, b.major_mode).encode()
    allocated = columns_allocated(sums.buffers * sums.tile[1])
    drains = plan.loop.role(EPILOGUE).warps
    return {
        **fed_by_boxes(plan),
        "mma.atom": (
            f"K_BLOCKS, INSTRUCTION_DESCRIPTOR = {plan.mma.k_blocks}, {instruction:#x}",
            f"ACCUMULATOR_DTYPE = cutlass.{plan.atom.c_dtype.dsl_name}",
            f"PRODUCER_WARP, MMA_WARP, THREADS = {drains}, {drains + 1}, {plan.threads}",
        ),
        "mma.accumulator": (f"BUFFERS, COLUMNS = {sums.buffers}, {allocated}  # columns of tensor memory",),
        "descriptor.a": _descriptors(plan, a),
        "descriptor.b": _descriptors(plan, b),
        "epilogue.smem": (*part_constants(plan), *c_constants(plan)),
    }


def _descriptors(plan: GemmPlan, x: OperandPath) -> tuple[str, ...]:
    """Return an operand's descriptor at address 0, and the steps to its k-blocks and stages, in units of 16 bytes."""
    first = x.s2r.by_source(copied=lambda _: None, described=lambda found: found.first, read=lambda _: None)
    assert first is not None
    unswizzled = offsets_2d(inner_layout(x.smem.layout_of_one_stage))[0, :: plan.atom.shape_mnk[2]]
    steps = tuple(int(offset) * x.dtype.bytes // VECTOR_BYTES for offset in unswizzled)
    name, stage = x.name.upper(), x.smem.bytes // plan.stages // VECTOR_BYTES
    return (
        f"{name}_DESCRIPTOR = {first.encode():#018x}",
        f"{name}_STEPS, {name}_STAGE_STEP = {steps}, {stage}  # of 16 bytes, to k-blocks and stages",
    )
