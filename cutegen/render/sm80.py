"""What the `sm80` template writes down: every constant of the kernel, each with its decision as the comment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cutegen.arch import CpAsyncAtom, LdmatrixAtom
from cutegen.plan import GemmPlan
from cutegen.plan.gemm_plan import FragmentCopy, OperandPlan
from cutegen.render.holes import gemm_context, layout_constants, vector_constants


def context(plan: GemmPlan) -> dict[str, Any]:
    """The template's holes."""
    return {
        **gemm_context(plan, settled(plan), "a tensor-core GEMM"),
        "loads": loads(plan),
        "a": _operand_holes(plan.a),
        "b": _operand_holes(plan.b),
    }


@dataclass(frozen=True, slots=True)
class OperandHoles:
    """What the template's text, not its constants, needs of A or B."""

    swizzled: bool
    cache: str
    ldmatrix: bool


def _operand_holes(operand: OperandPlan) -> OperandHoles:
    """The choices that are spelled as code rather than as a constant."""
    return OperandHoles(
        swizzled=operand.smem.swizzle is not None,
        cache="GLOBAL" if _bypasses_l1(operand) else "ALWAYS",
        ldmatrix=isinstance(operand.s2r.atom, LdmatrixAtom),
    )


def _bypasses_l1(operand: OperandPlan) -> bool:
    return isinstance(operand.g2s.atom, CpAsyncAtom) and operand.g2s.atom.op == "cp.async.cg"


def loads(plan: GemmPlan) -> str:
    """What brings the fragments, in words."""
    kinds = {"ldmatrix" if isinstance(x.s2r.atom, LdmatrixAtom) else "plain loads" for x in (plan.a, plan.b)}
    return " and ".join(sorted(kinds))


def settled(plan: GemmPlan) -> dict[str, tuple[str, ...]]:
    """The constants that each decision on the main loop becomes."""
    return {
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
        "smem.a": layout_constants("A_SMEM", plan.a.smem),
        "smem.b": layout_constants("B_SMEM", plan.b.smem),
        "tile.stages": (
            f"STAGES = {plan.stages}",
            f"SMEM_B_OFFSET_BYTES = {plan.smem_b_offset_bytes}",
            f"SMEM_BYTES = {plan.smem_bytes}",
        ),
    }


def _operand_constants(operand: OperandPlan) -> tuple[str, ...]:
    x = operand.name.upper()
    return (
        f"{x}_DTYPE = cutlass.{operand.dtype.dsl_name}",
        f"{x}_MAJOR = {operand.major_mode}  # {operand.major} is contiguous in ({', '.join(operand.modes)})",
        f"{x}_CACHE = nvvm.LoadCacheModifierKind.{'CG' if _bypasses_l1(operand) else 'CA'}",
        f"{x}_ALIGN_ELEMS = {operand.align_bytes // operand.dtype.bytes}",
        *vector_constants(f"{x}_G2S", operand.g2s),
    )


def _s2r_constants(prefix: str, copy: FragmentCopy) -> tuple[str, ...]:
    if copy.matrices is None:
        return (f"{prefix}_S2R_BITS = {copy.bits}",)
    return (f"{prefix}_TRANSPOSE, {prefix}_MATRICES = {copy.transpose}, {copy.matrices}",)
