"""Fills the template of a kernel that multiplies by `tcgen05.mma`: each constant with its decision as the comment."""

from __future__ import annotations

from typing import Any

from cutegen.algebra import inner_layout, offsets_2d
from cutegen.hardware.factor_atoms import ATOM_ROWS, COPY, PER_WORD
from cutegen.hardware.gmma_layouts import VECTOR_BYTES
from cutegen.hardware.tcgen05_atoms import columns_allocated, instruction_descriptor, kind_of
from cutegen.plan import GemmPlan
from cutegen.plan.kernel.pipeline import Pipeline
from cutegen.plan.mainloop.tensor_memory import ACCUMULATOR, EPILOGUE
from cutegen.plan.values.fragments import CopiedToTmem
from cutegen.plan.values.path import OperandPath
from cutegen.render import epilogue
from cutegen.render.bulk import fed_by_boxes, pipeline_holes
from cutegen.render.constants import ConstantsByDecision, c_constants
from cutegen.render.epilogue import constants_of
from cutegen.render.factors import factor_holes, factors_of, scales
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
        **_factor_holes(plan),
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
        *_factor_parts(plan),
        "functions/tcgen05.py.j2#tensor_memory",
        "functions/tcgen05.py.j2#order",
        f"functions/tcgen05.py.j2#{'multiply_scaled' if scales(plan) else 'multiply'}",
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


def _factor_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts of factors, if there are any: their copies, and the columns at which tiles begin."""
    if not scales(plan):
        return ()
    columns = ("pipelines/columns_of_tiles.py.j2",) if _begins_within_atoms(plan) else ()
    return ("pipelines/factors.py.j2", "pipelines/factors_in_tensor_memory.py.j2", *columns)


def _begins_within_atoms(plan: GemmPlan) -> bool:
    """Return whether tiles of B may begin within an atom of factors."""
    return plan.cta_tile[1] % ATOM_ROWS != 0


def _factor_holes(plan: GemmPlan) -> dict[str, Any]:
    """Return the holes of factors in tensor memory."""
    first = " + first_column" if _begins_within_atoms(plan) else ""
    return {
        **factor_holes(plan),
        "to_tmem": COPY,
        "factor_columns": f", factors_a, factors_b{first}" if scales(plan) else "",
    }


def _in_tensor_memory(x: OperandPath) -> CopiedToTmem:
    """Return the copies of factors to tensor memory."""
    copy = x.s2r.by_source(copied=lambda _: None, described=lambda _: None, read=lambda _: None, to_tmem=lambda x: x)
    assert copy is not None
    return copy


def _factor_constants(plan: GemmPlan) -> ConstantsByDecision:
    """Return where the factors of a k-tile are: descriptors of their atoms, and columns of tensor memory."""
    settled: ConstantsByDecision = {}
    kind = kind_of(plan.atom)
    for x in factors_of(plan):
        copy, name = _in_tensor_memory(x), constants_of(x.name)
        atoms_of_rows, stage = x.tile[0], x.smem.bytes // plan.stages // VECTOR_BYTES
        # A k-block reads words of an atom, or of the one that its factors begin in.
        assert kind.block_k is not None
        of_instruction = plan.atom.shape_mnk[2] // kind.block_k
        firsts = [block * of_instruction for block in range(plan.mma.k_blocks)]
        columns = tuple(first // PER_WORD * atoms_of_rows * copy.atom_columns for first in firsts)
        steps = tuple(int(step) for step in offsets_2d(copy.atoms).ravel())
        settled[f"s2r.{x.name}"] = (
            f"{name}_TILE = {x.tile}",
            f"{name}_DESCRIPTOR = {copy.first.encode():#018x}",
            f"{name}_STEPS, {name}_STAGE_STEP = {steps}, {stage}  # of 16 bytes, to atoms and stages",
            f"FACTORS_{x.operand} = {columns}  # columns from a stage's first to those of k-blocks",
        )
    if settled:
        ids = tuple(block * of_instruction % PER_WORD for block in range(plan.mma.k_blocks))
        of_stage = sum(_in_tensor_memory(x).columns for x in factors_of(plan))
        begin = plan.mma.accumulator.buffers * plan.mma.accumulator.tile[1]
        settled["s2r.scale_b"] = (
            *settled["s2r.scale_b"],
            f"FACTORS_COLUMN, STAGE_COLUMNS, FACTOR_IDS = {begin}, {of_stage}, {ids}",
            f"SCALE_B_COLUMN = {_in_tensor_memory(factors_of(plan)[0]).columns}  # of a stage",
        )
    return settled


def _allocated(plan: GemmPlan) -> int:
    """Return the columns of tensor memory that a CTA allocates: those of sums, and of the factors of each stage."""
    sums = plan.mma.accumulator
    factors = sum(_in_tensor_memory(x).columns for x in factors_of(plan))
    return columns_allocated(sums.buffers * sums.tile[1] + plan.stages * factors)


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
    allocated = _allocated(plan)
    drains = plan.loop.role(EPILOGUE).warps
    return {
        **fed_by_boxes(plan),
        "mma.atom": (
            f"K_BLOCKS, INSTRUCTION_DESCRIPTOR = {plan.mma.k_blocks}, 0x{instruction:X}",
            f"ACCUMULATOR_DTYPE = cutlass.{plan.atom.c_dtype.dsl_name}",
            f"PRODUCER_WARP, MMA_WARP, THREADS = {drains}, {drains + 1}, {plan.threads}",
        ),
        "mma.accumulator": (f"BUFFERS, COLUMNS = {sums.buffers}, {allocated}  # columns of tensor memory",),
        "descriptor.a": _descriptors(plan, a),
        "descriptor.b": _descriptors(plan, b),
        **_factor_constants(plan),
        "epilogue.smem": (*part_constants(plan), *c_constants(plan)),
    }


def _descriptors(plan: GemmPlan, x: OperandPath) -> tuple[str, ...]:
    """Return an operand's descriptor at address 0, and the steps to its k-blocks and stages, in units of 16 bytes."""
    first = x.s2r.by_source(
        copied=lambda _: None, described=lambda found: found.first, read=lambda _: None, to_tmem=lambda _: None
    )
    assert first is not None
    unswizzled = offsets_2d(inner_layout(x.smem.layout_of_one_stage))[0, :: plan.atom.shape_mnk[2]]
    steps = tuple(int(offset) * x.dtype.bytes // VECTOR_BYTES for offset in unswizzled)
    name, stage = x.name.upper(), x.smem.bytes // plan.stages // VECTOR_BYTES
    return (
        f"{name}_DESCRIPTOR = {first.encode():#018x}",
        f"{name}_STEPS, {name}_STAGE_STEP = {steps}, {stage}  # of 16 bytes, to k-blocks and stages",
    )
