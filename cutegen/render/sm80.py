"""What the `sm80` template writes down: every constant of the kernel, each with its decision as the comment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cutegen.arch import CpAsyncAtom, LdmatrixAtom
from cutegen.plan import GemmPlan
from cutegen.plan.gemm_plan import OperandPlan, VectorCopy
from cutegen.render.holes import fragment_constants, gemm_context, layout_constants, mma_constants, vector_constants


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
        **mma_constants(plan, threads=f"THREADS = {plan.threads}"),
        "g2s.a": _operand_constants(plan.a),
        "g2s.b": _operand_constants(plan.b),
        "s2r.a": fragment_constants("A", plan.a.s2r),
        "s2r.b": fragment_constants("B", plan.b.s2r),
        "smem.a": layout_constants("A_SMEM", plan.a.smem),
        "smem.b": layout_constants("B_SMEM", plan.b.smem),
        "tile.stages": (
            f"STAGES = {plan.stages}",
            f"SMEM_B_OFFSET_BYTES = {plan.smem_b_offset_bytes}",
            f"SMEM_BYTES = {plan.smem_bytes}",
        ),
    }


def _operand_constants(operand: OperandPlan) -> tuple[str, ...]:
    x, copy = operand.name.upper(), operand.g2s
    assert isinstance(copy, VectorCopy)
    return (
        f"{x}_DTYPE = cutlass.{operand.dtype.dsl_name}",
        f"{x}_MAJOR = {operand.major_mode}  # {operand.major} is contiguous in ({', '.join(operand.modes)})",
        f"{x}_CACHE = nvvm.LoadCacheModifierKind.{'CG' if _bypasses_l1(operand) else 'CA'}",
        f"{x}_ALIGN_ELEMS = {operand.align_bytes // operand.dtype.bytes}",
        *vector_constants(f"{x}_G2S", copy),
    )
