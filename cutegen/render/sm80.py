"""What the `sm80` template writes down: every constant of the kernel, each with its decision as the comment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cutegen.algebra import inner_layout
from cutegen.arch import CpAsyncAtom, LdmatrixAtom
from cutegen.plan import Decision, GemmPlan
from cutegen.plan.gemm_plan import FragmentCopy, OperandPlan, SmemTile, VectorCopy
from cutegen.render.python_text import comment, constant, docstring


@dataclass(frozen=True, slots=True)
class Constants:
    """A few lines of the header that one decision settles."""

    comment: tuple[str, ...]
    code: tuple[str, ...]


def context(plan: GemmPlan) -> dict[str, Any]:
    """The template's holes."""
    return {
        "plan": plan,
        "title": docstring(f"{plan.kernel_name}: {plan.spec.description or 'a tensor-core GEMM'}"),
        "constants": [Constants(comment(f"{x.key}: {x.chosen} ({x.why})"), code) for x, code in _settled(plan)],
        "loads": _loads(plan),
        "a": _operand_holes(plan.a),
        "b": _operand_holes(plan.b),
        "c_staged": plan.epilogue.smem is not None,
        "c_swizzled": plan.epilogue.smem is not None and plan.epilogue.smem.swizzle is not None,
        "c_row_major": plan.epilogue.major == "n",
        "c_torch_dtype": plan.epilogue.dtype.torch_name,
        "tolerance": _tolerance(plan),
    }


@dataclass(frozen=True, slots=True)
class OperandHoles:
    """What the template's text, not its constants, needs of A or B."""

    swizzled: bool
    k_major: bool
    cache: str
    ldmatrix: bool
    torch_dtype: str


def _operand_holes(operand: OperandPlan) -> OperandHoles:
    """The choices that are spelled as code rather than as a constant."""
    return OperandHoles(
        swizzled=operand.smem.swizzle is not None,
        k_major=operand.major == "k",
        cache="GLOBAL" if _bypasses_l1(operand) else "ALWAYS",
        ldmatrix=isinstance(operand.s2r.atom, LdmatrixAtom),
        torch_dtype=operand.dtype.torch_name,
    )


def _bypasses_l1(operand: OperandPlan) -> bool:
    return isinstance(operand.g2s.atom, CpAsyncAtom) and operand.g2s.atom.op == "cp.async.cg"


def _loads(plan: GemmPlan) -> str:
    kinds = {"ldmatrix" if isinstance(x.s2r.atom, LdmatrixAtom) else "plain loads" for x in (plan.a, plan.b)}
    return " and ".join(sorted(kinds))


def _tolerance(plan: GemmPlan) -> float:
    """Relative error that the self-check allows: C is rounded, and so is each of 520 sums where they are 16-bit."""
    rounding = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24}
    kept = rounding[plan.atom.c_dtype.name]
    return float(f"{2 * rounding[plan.epilogue.dtype.name] + 8 * kept:.1e}")


def _settled(plan: GemmPlan) -> list[tuple[Decision, tuple[str, ...]]]:
    """Each decision that becomes constants, in the plan's order."""
    code = {
        "tile.cta": (f"CTA_M, CTA_N, CTA_K = {', '.join(map(str, plan.cta_tile))}",),
        "mma.atom": (
            f"MMA_SHAPE = {plan.atom.shape_mnk}",
            f"ACCUMULATOR_DTYPE = cutlass.{plan.atom.c_dtype.dsl_name}",
        ),
        "mma.atom_layout": (f"MMA_ATOM_LAYOUT = {plan.tiled_mma.atom_layout.shape}", f"THREADS = {plan.threads}"),
        "mma.permutation": (
            f"MMA_PERMUTATION = {plan.tiled_mma.tile_mnk}",
            f"K_BLOCKS, ATOMS_PER_BLOCK = {plan.k_blocks}, {plan.tiled_mma.tile_mnk[2] // plan.atom.shape_mnk[2]}",
        ),
        "g2s.a": _operand_constants(plan.a),
        "g2s.b": _operand_constants(plan.b),
        "s2r.a": _s2r_constants("A", plan.a.s2r),
        "s2r.b": _s2r_constants("B", plan.b.s2r),
        "smem.a": _layout_constants("A_SMEM", plan.a.smem),
        "smem.b": _layout_constants("B_SMEM", plan.b.smem),
        "tile.stages": (
            f"STAGES = {plan.stages}",
            f"SMEM_B_OFFSET_BYTES = {plan.smem_b_offset_bytes}",
            f"SMEM_BYTES = {plan.smem_bytes}",
        ),
        "epilogue.smem": _epilogue_constants(plan),
        "schedule.raster": (f"RASTER_GROUP = {plan.raster.group}",),
    }
    return [(decision, code[decision.key]) for decision in plan.decisions]


def _operand_constants(operand: OperandPlan) -> tuple[str, ...]:
    x = operand.name.upper()
    return (
        f"{x}_DTYPE = cutlass.{operand.dtype.dsl_name}",
        f"{x}_MAJOR = {operand.major_mode}  # {operand.major} is contiguous in ({', '.join(operand.modes)})",
        f"{x}_CACHE = nvvm.LoadCacheModifierKind.{'CG' if _bypasses_l1(operand) else 'CA'}",
        f"{x}_ALIGN_ELEMS = {operand.align_bytes // operand.dtype.bytes}",
        *_vector_constants(f"{x}_G2S", operand.g2s),
    )


def _vector_constants(prefix: str, copy: VectorCopy) -> tuple[str, ...]:
    return (
        f"{prefix}_BITS = {copy.bits}",
        *constant(f"{prefix}_THREADS", (copy.threads.shape, copy.threads.stride)),
        f"{prefix}_VALUES = {copy.values.shape}",
    )


def _s2r_constants(prefix: str, copy: FragmentCopy) -> tuple[str, ...]:
    if copy.matrices is None:
        return (f"{prefix}_S2R_BITS = {copy.bits}",)
    return (f"{prefix}_TRANSPOSE, {prefix}_MATRICES = {copy.transpose}, {copy.matrices}",)


def _layout_constants(prefix: str, smem: SmemTile) -> tuple[str, ...]:
    inner, swizzle = inner_layout(smem.layout), smem.swizzle
    lines = (*constant(f"{prefix}_SHAPE", inner.shape), *constant(f"{prefix}_STRIDE", inner.stride))
    if swizzle is None:
        return lines
    return (*lines, *constant(f"{prefix}_SWIZZLE", (swizzle.bits, swizzle.base, swizzle.shift)))


def _epilogue_constants(plan: GemmPlan) -> tuple[str, ...]:
    epilogue = plan.epilogue
    common = (
        f"C_DTYPE = cutlass.{epilogue.dtype.dsl_name}",
        f"C_ALIGN_ELEMS = {epilogue.align_bytes // epilogue.dtype.bytes}",
    )
    if epilogue.smem is None or epilogue.store is None:
        return common
    return (*common, *_layout_constants("C_SMEM", epilogue.smem), *_vector_constants("C_STORE", epilogue.store))
