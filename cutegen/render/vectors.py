"""Fills the template of a kernel fed by vector copies: each constant with its decision as the comment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cutegen.plan import GemmPlan
from cutegen.plan.values.path import OperandPath
from cutegen.render.constants import Settled, c_constants, mma_constants
from cutegen.render.holes import chain_holes, fragment_context, gemm_context

LONGEST_LOADS = len("plain loads")
"""Length up to which the fragments' loads leave room for the copies in the docstring's first line."""


def context(plan: GemmPlan) -> dict[str, Any]:
    """Return the template's holes."""
    a, b = _operand_holes(plan.a), _operand_holes(plan.b)
    common = {**gemm_context(plan, settled(plan), "a tensor-core GEMM"), **fragment_context(plan)}
    through_registers = tuple(x for x in (a, b) if x.through_registers)
    dialects = {"cute_nvgpu": common["mma"].own, "nvvm": plan.asynchronous or common["adds_slices"]}
    return {
        **common,
        **chain_holes(plan, indent=8 if common["adds_slices"] else 4),
        "by_warpgroups": False,
        "sum_threads": "THREADS",
        "slices_left": "SPLIT_K",
        "loads": loads(plan),
        "copies": _copies(plan, in_a_line=len(loads(plan)) > LONGEST_LOADS),
        "dialects": ", ".join(name for name, used in dialects.items() if used),
        "nvgpu": _nvgpu_imports(plan),
        "a": a,
        "b": b,
        "operands": (a, b),
        "through_registers": through_registers,
        "held": ", ".join(f"{x.share}r{x.title}" for x in through_registers),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandHoles:
    """Holes in the template's text, not its constants, for A or B.

    `title` is its part of a CuTe name, as in sA; `share` is the prefix of a thread's partition for copying, as in tAsA.
    """

    name: str
    title: str
    share: str
    extents: str
    swizzled: bool
    g2s_op: str
    through_registers: bool


def _operand_holes(operand: OperandPath) -> OperandHoles:
    """The selections that the template writes as code, not as a constant."""
    cache = "GLOBAL" if operand.g2s.bypasses_l1 else "ALWAYS"
    plain = operand.g2s.through_registers
    return OperandHoles(
        name=operand.name,
        title=operand.operand,
        share=f"t{operand.operand}",
        extents=f"({', '.join(operand.modes)})",
        swizzled=operand.smem.swizzle is not None,
        g2s_op="CopyUniversalOp()" if plain else f"cpasync.CopyG2SOp(LoadCacheMode.{cache})",
        through_registers=plain,
    )


def loads(plan: GemmPlan) -> str:
    """Return the name of the fragments' loads for the docstring."""
    return " and ".join(sorted({x.s2r.words for x in plan.operands}))


def _copies(plan: GemmPlan, *, in_a_line: bool) -> str:
    """Return what the copies to shared memory do for the docstring: the end of its first line and the next."""
    match [x.g2s.through_registers for x in plan.operands]:
        case [False, False]:
            first, second = "a cp.async", "pipeline keeps"
        case [True, True]:
            first, second = "plain copies", "through registers keep"
        case _:
            first, second = "cp.async and", "plain copies keep"
    return f"\nwhich {first} {second} filled.\n" if in_a_line else f" which {first}\n{second} filled. "


def _nvgpu_imports(plan: GemmPlan) -> str:
    """Return the names to import from the DSL's NVIDIA atoms."""
    operands = plan.operands
    plain = plan.through_registers or plan.epilogue.smem or not all(x.s2r.by_ldmatrix for x in operands)
    names = ["CopyUniversalOp"] * bool(plain) + ["LoadCacheMode", "cpasync"] * plan.asynchronous + ["warp"]
    return ", ".join(names)


def settled(plan: GemmPlan, *, multiplies: bool = True) -> Settled:
    """Return the constants of each decision on the main loop, or only on its loads if nothing `multiplies`."""
    return {
        **mma_constants(plan, threads=f"THREADS = {plan.threads}", multiplies=multiplies),
        "tile.stages": _stages(plan) if multiplies else (f"STAGES = {plan.stages}",),
        "epilogue.smem": c_constants(plan),
    }


def _stages(plan: GemmPlan) -> tuple[str, ...]:
    """Return the number of stages, and the k-tiles per turn of the main loop; nothing if there is one stage."""
    if plan.stages == 1:
        return ()
    if plan.loop.k_tiles_per_turn == plan.stages:
        turn = "K_TILES_PER_TURN = STAGES  # so each k-tile's stage is a constant"
    else:
        turn = f"K_TILES_PER_TURN = {plan.loop.k_tiles_per_turn}  # each is held in registers"
    return f"STAGES = {plan.stages}", turn
