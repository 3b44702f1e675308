"""What the template of a kernel whose warpgroups multiply writes down: each constant with its decision."""

from __future__ import annotations

from typing import Any

from cutegen.hardware import DType
from cutegen.hardware.units import WARP, WARPGROUP
from cutegen.plan import GemmPlan
from cutegen.plan.values.gemm_plan import EpiloguePlan, OperandPlan
from cutegen.render.bulk import c_constants, fed_by_boxes, plain_tensors
from cutegen.render.epilogue import kernel_lines
from cutegen.render.holes import gemm_context


def context(plan: GemmPlan) -> dict[str, Any]:
    """The template's holes."""
    common = gemm_context(plan, _settled(plan), "a wgmma GEMM fed by bulk tensor copies")
    return {
        **common,
        "steps": kernel_lines(plan.epilogue.fusion, part=""),
        "plain_tensors": plain_tensors(plan, common["tensors"]),
        "operation": _operation(plan),
        "stmatrix": plan.epilogue.stmatrix is not None,
        "to_shared": _to_shared(plan.epilogue),
    }


def _to_shared(epilogue: EpiloguePlan) -> tuple[str, ...]:
    """The lines that bring a part of C from registers to its place in shared memory."""
    place = "tRsC[None, None, None, slot]"
    if epilogue.stmatrix is not None:
        return (f"cute.copy(r2s_c, thr_r2s.retile(tCrD), {place})",)
    if epilogue.major == "n":
        return (f"cute.autovec_copy(tCrD, {place})",)
    return ("for i in cutlass.range_constexpr(cute.size(tCrD)):", f"    {place}[i] = tCrD[i]")


def _operation(plan: GemmPlan) -> str:
    """The DSL's operation, of a shape that the kernel calls `shape`; 16-bit operands have one type, others two."""
    majors = ", ".join(_major(x) for x in (plan.a, plan.b))
    name, types = _of_types(plan.atom.a_dtype)
    return f"warpgroup.{name}({types}, ACCUMULATOR_DTYPE, shape, warpgroup.OperandSource.SMEM, {majors})"


def _of_types(element: DType) -> tuple[str, str]:
    if element.bits == 16:
        return "MmaF16BF16Op", "A_DTYPE"
    return "MmaI8Op" if element.is_integer else "MmaF8Op", "A_DTYPE, B_DTYPE"


def _major(operand: OperandPlan) -> str:
    return f"OperandMajorMode.{'K' if operand.major == 'k' else 'MN'}"


def _settled(plan: GemmPlan) -> dict[str, tuple[str, ...]]:
    """The constants that each decision on the main loop becomes."""
    threads = f"MMA_WARPS, THREADS = {plan.tiled_mma.threads // WARP}, {plan.threads}"
    return {
        **fed_by_boxes(plan),
        "tile.cta": (f"CTA_M, CTA_N, CTA_K = {', '.join(map(str, plan.cta_tile))}",),
        "mma.atom": (
            f"MMA_SHAPE, K_BLOCKS = {plan.atom.shape_mnk}, {plan.k_blocks}",
            f"ACCUMULATOR_DTYPE = cutlass.{plan.atom.c_dtype.dsl_name}",
        ),
        "mma.atom_layout": (f"MMA_ATOM_LAYOUT = {plan.tiled_mma.atom_layout.shape}", threads),
        "epilogue.smem": (*_part_constants(plan), *c_constants(plan)),
    }


def _part_constants(plan: GemmPlan) -> tuple[str, ...]:
    """The parts of a warpgroup's sums, in the order of its registers: along N first."""
    assert plan.epilogue.part is not None
    (m, n), (cta_m, _, _), (_, columns, _) = plan.epilogue.part, plan.cta_tile, plan.atom.shape_mnk
    rows = cta_m // (plan.atom.shape_mnk[0] * plan.tiled_mma.atom_layout.shape[0])
    store = plan.epilogue.stmatrix
    return (
        f"PART_M, PART_N = {m}, {n}  # of C, from one warpgroup at a time",
        f"PARTS, PARTS_N, PART_VALUES = {rows * columns // n}, {columns // n}, {m * n // WARPGROUP}",
        *(() if store is None else (f"C_TRANSPOSE, C_MATRICES = {store.transpose}, {store.matrices}",)),
    )
