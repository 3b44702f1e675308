"""What the template of the `sm80` family writes down: every constant of the kernel, each with its decision as the comment."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

from cutegen.algebra import Layout, inner_layout
from cutegen.arch import CpAsyncAtom, LdmatrixAtom
from cutegen.plan import Decision, GemmPlan
from cutegen.plan.gemm_plan import OperandPlan, SmemTile, VectorCopy

COMMENT_WIDTH = 118


@dataclass(frozen=True, slots=True)
class Constants:
    """A few lines of the header that one decision settles."""

    comment: tuple[str, ...]
    code: tuple[str, ...]


def context(plan: GemmPlan) -> dict[str, Any]:
    """The template's holes."""
    return {
        "plan": plan,
        "name": plan.spec.name or "unnamed",
        "title": f"{plan.kernel_name}: {plan.spec.description or 'a tensor-core GEMM'}",
        "groups": [Constants(_comment(decision), code) for decision, code in _settled(plan)],
        "loads": _loads(plan),
        "a": operand_holes(plan.a),
        "b": operand_holes(plan.b),
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
    s2r_op: str
    torch_dtype: str


def operand_holes(operand: OperandPlan) -> OperandHoles:
    """The choices that are spelled as code rather than as a constant."""
    atom = operand.s2r.atom
    if isinstance(atom, LdmatrixAtom):
        op = f"warp.LdMatrix8x8x16bOp({atom.transpose}, {atom.matrices}), {operand.name.upper()}_DTYPE"
    else:
        op = f"CopyUniversalOp(), {operand.name.upper()}_DTYPE, num_bits_per_copy={operand.s2r.bits}"
    return OperandHoles(
        swizzled=operand.smem.swizzle is not None,
        k_major=operand.major == "k",
        cache="GLOBAL" if _bypasses_l1(operand) else "ALWAYS",
        s2r_op=op,
        torch_dtype=operand.dtype.torch_name,
    )


def _bypasses_l1(operand: OperandPlan) -> bool:
    return isinstance(operand.g2s.atom, CpAsyncAtom) and operand.g2s.atom.op == "cp.async.cg"


def _loads(plan: GemmPlan) -> str:
    kinds = {"ldmatrix" if isinstance(x.s2r.atom, LdmatrixAtom) else "plain loads" for x in (plan.a, plan.b)}
    return " and ".join(sorted(kinds))


def _tolerance(plan: GemmPlan) -> float:
    """Relative error that the self-check of 520 products allows: rounding of C, and of every sum where it is kept in 16 bits."""
    rounding = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24}
    kept = rounding[plan.atom.c_dtype.name]
    return float(f"{2 * rounding[plan.epilogue.dtype.name] + 8 * kept:.1e}")


def _comment(decision: Decision) -> tuple[str, ...]:
    text = f"{decision.key}: {decision.chosen} ({decision.why})"
    return tuple(textwrap.wrap(text, COMMENT_WIDTH - 2, break_long_words=False, break_on_hyphens=False))


def _settled(plan: GemmPlan) -> list[tuple[Decision, tuple[str, ...]]]:
    """Each decision that becomes constants, in the plan's order."""
    code = {
        "tile.cta": (f"CTA_M, CTA_N, CTA_K = {', '.join(map(str, plan.cta_tile))}",),
        "mma.atom": (
            f"MMA_SHAPE = {plan.atom.shape_mnk}",
            f"ACCUMULATOR_DTYPE = cutlass.{plan.atom.c_dtype.dsl_name}",
        ),
        "mma.atom_layout": (f"MMA_ATOM_LAYOUT = {_atom_layout(plan)}", f"THREADS = {plan.threads}"),
        "mma.permutation": (
            f"MMA_PERMUTATION = {plan.tiled_mma.tile_mnk}",
            f"K_BLOCKS, ATOMS_PER_BLOCK = {plan.k_blocks}, {plan.tiled_mma.tile_mnk[2] // plan.atom.shape_mnk[2]}",
        ),
        "g2s.a": _operand_constants(plan.a),
        "g2s.b": _operand_constants(plan.b),
        "smem.a": _smem_constants(plan.a),
        "smem.b": _smem_constants(plan.b),
        "tile.stages": (
            f"STAGES = {plan.stages}",
            f"SMEM_B_OFFSET_BYTES = {plan.smem_b_offset_bytes}",
            f"SMEM_BYTES = {plan.smem_bytes}",
        ),
        "epilogue.smem": _epilogue_constants(plan),
        "schedule.raster": (f"RASTER_GROUP = {plan.raster.group}",),
    }
    return [(decision, code[decision.key]) for decision in plan.decisions if decision.key in code]


def _atom_layout(plan: GemmPlan) -> tuple[int, ...]:
    _, m, n, k = plan.tiled_mma.thr_layout_vmnk.shape
    return m, n, k


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
        f"{prefix}_THREADS = {_shape_stride(copy.threads)}",
        f"{prefix}_VALUES = {copy.values.shape}",
    )


def _shape_stride(layout: Layout) -> str:
    return f"({layout.shape}, {layout.stride})"


def _smem_constants(operand: OperandPlan) -> tuple[str, ...]:
    return _layout_constants(f"{operand.name.upper()}_SMEM", operand.smem)


def _layout_constants(prefix: str, smem: SmemTile) -> tuple[str, ...]:
    inner = inner_layout(smem.layout)
    swizzle = (
        (f"{prefix}_SWIZZLE = {(smem.swizzle.bits, smem.swizzle.base, smem.swizzle.shift)}",) if smem.swizzle else ()
    )
    return (f"{prefix}_SHAPE = {inner.shape}", f"{prefix}_STRIDE = {inner.stride}", *swizzle)


def _epilogue_constants(plan: GemmPlan) -> tuple[str, ...]:
    epilogue = plan.epilogue
    common = (
        f"C_DTYPE = cutlass.{epilogue.dtype.dsl_name}",
        f"C_ALIGN_ELEMS = {epilogue.align_bytes // epilogue.dtype.bytes}",
    )
    if epilogue.smem is None or epilogue.store is None:
        return common
    return (*common, *_layout_constants("C_SMEM", epilogue.smem), *_vector_constants("C_STORE", epilogue.store))
