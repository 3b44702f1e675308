"""Fills the template of a kernel fed by copies of threads: each constant with its decision as the comment."""

from typing import Any

from cutegen.plan import GemmPlan
from cutegen.render import epilogue, holes
from cutegen.render.bulk import pipeline_holes
from cutegen.render.constants import ConstantsByDecision, c_constants, mma_constants
from cutegen.render.holes import chain_holes, gemm_context, host_parts
from cutegen.render.pairs import pair_constants, tensors_of_pairs
from cutegen.render.python_text import constant
from cutegen.render.scheduler import grid_holes, grid_parts, order_parts, persistent_holes

# Fills the template of a kernel fed by vector copies: each constant with its decision as the comment.


LONGEST_LOADS = len("plain loads")
"""Length up to which the fragments' loads leave room for the copies in the docstring's first line."""


def vectors_context(plan: GemmPlan) -> dict[str, Any]:
    """Return the template's holes."""
    operands = holes.operand_holes(plan)
    through_registers = [x for x in operands if x.through_registers]
    adds = plan.split_k is not None and plan.split_k.leaves_sums
    common = holes.gemm_context(plan, settled(plan), "a tensor-core GEMM")
    return {
        **common,
        **holes.fragment_context(plan),
        **holes.chain_holes(plan, indent=8 if adds else 4),
        "tensors": tensors_of_pairs(plan, common["tensors"]),
        "parts": _text_parts(plan),
        "imports": [
            f"from cutlass import {holes.numerics(plan)}",
            *holes.mma_imports(plan, *(("nvvm",) if plan.asynchronous or adds else ())),
            f"from cutlass.cute.nvgpu import {_nvgpu_imports(plan)}",
        ],
        **place_holes(plan),
        "loads": loads(plan),
        "copies": _copies(plan, in_a_line=len(loads(plan)) > LONGEST_LOADS),
        "fills_zero": "cute.recast_tensor(target, Int32).fill(0)" if plan.a.dtype.name == "tf32" else "target.fill(0)",
        "fetches": {
            "first": [x.fetch("stage", "stage", "False") for x in operands],
            "whole": [x.fetch("fetched", "free", "True") for x in operands],
            "edge": [x.fetch("fetched", "free", "False") for x in operands],
            "only": [x.fetch("k_tile", "0", "whole == 1") for x in operands],
        },
        "through_registers": through_registers,
        "held": ", ".join(f"{x.share}r{x.title}" for x in through_registers),
    }


def _text_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts of the kernel's text, in the order of their functions."""
    one_stage, held = plan.stages == 1, bool(plan.through_registers)
    copies = {"copy_g2s": plan.asynchronous, "load_g2r": held}
    return (
        *epilogue.math_functions(plan),
        *holes.mma_functions(plan),
        *order_parts(plan),
        *(f"functions/vector_copies.py.j2#{name}" for name, used in copies.items() if used),
        *epilogue.tensor_functions(plan),
        "functions/tensors.py.j2#matrix_of_batch",
        *grid_parts(plan),
        "roles/every_thread.py.j2",
        "mainloops/stages.py.j2",
        "mainloops/vector_copies.py.j2",
        *(("mainloops/cp_async.py.j2",) if plan.asynchronous else ()),
        *((f"mainloops/held{'' if one_stage else '_while_multiplied'}.py.j2",) if held else ()),
        *holes.fragment_parts(plan),
        f"mainloops/{'one_stage' if one_stage else 'multistage'}.py.j2",
        *stored_parts(plan),
        *holes.host_parts(plan),
    )


def stored_parts(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts of the epilogue of a kernel whose threads store C after the main loop."""
    smem = plan.epilogue.smem
    staged = "epilogues/staged.py.j2", *(("epilogues/swizzled_c.py.j2",) if smem and smem.swizzle else ())
    direct = () if plan.launch.adds_to_result else ("epilogues/direct.py.j2",)
    return ("epilogues/whole_tile.py.j2", *holes.value_parts(plan), *(staged if smem else direct))


def place_holes(plan: GemmPlan) -> dict[str, Any]:
    """Return the holes of a kernel whose threads all do the same, whatever gives its CTAs their tiles."""
    return {**pipeline_holes(plan), **persistent_holes(plan), **grid_holes(plan)}


def loads(plan: GemmPlan) -> str:
    """Return the name of the fragments' loads for the docstring."""
    return " and ".join(sorted({x.s2r.words for x in plan.operands}))


def _copies(plan: GemmPlan, *, in_a_line: bool) -> str:
    """Return what the copies to shared memory do for the docstring: the end of its first line and the next."""
    if not plan.through_registers:
        first, second = "a cp.async", "pipeline keeps"
    elif plan.asynchronous:
        first, second = "cp.async and", "plain copies keep"
    else:
        first, second = "plain copies", "through registers keep"
    return f"\nwhich {first} {second} filled.\n" if in_a_line else f" which {first}\n{second} filled. "


def _nvgpu_imports(plan: GemmPlan) -> str:
    """Return the names to import from the DSL's NVIDIA atoms."""
    operands = plan.operands
    plain = plan.through_registers or plan.epilogue.smem or not all(x.s2r.by_ldmatrix for x in operands)
    names = ["CopyUniversalOp"] * bool(plain) + ["LoadCacheMode", "cpasync"] * plan.asynchronous + ["warp"]
    return ", ".join(names)


def settled(plan: GemmPlan, *, multiplies: bool = True) -> ConstantsByDecision:
    """Return the constants of each decision on the main loop, or only on its loads if nothing `multiplies`."""
    return {
        **mma_constants(plan, threads=f"THREADS = {plan.threads}", multiplies=multiplies),
        "tile.stages": _stages(plan) if multiplies else (f"STAGES = {plan.stages}",),
        "epilogue.pairs": pair_constants(plan.epilogue.fusion.pairs),
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


# Fills the template of a kernel fed by plain copies: each constant with its decision as the comment.


def plain_context(plan: GemmPlan) -> dict[str, Any]:
    """Return the template's holes."""
    loop = "fma_one_stage" if plan.stages == 1 else "fma_two_stages"
    parts = (
        *epilogue.math_functions(plan),
        *order_parts(plan),
        "mma/fma.py.j2",
        *epilogue.tensor_functions(plan),
        "functions/tensors.py.j2#matrix_of_batch",
        *grid_parts(plan),
        "roles/every_thread.py.j2",
        "mainloops/stages.py.j2",
        f"mainloops/{loop}.py.j2",
        *stored_parts(plan),
        *host_parts(plan),
    )
    return {
        **gemm_context(plan, _settled(plan), "a GEMM without tensor cores"),
        **chain_holes(plan, indent=4),
        **place_holes(plan),
        "parts": parts,
        "imports": [
            "from cutlass import Float32, Int32, Int64",
            "from cutlass.cute.nvgpu import CopyUniversalOp, MmaUniversalOp",
        ],
    }


def _settled(plan: GemmPlan) -> ConstantsByDecision:
    """Return the constants of each decision on the main loop."""
    threads = plan.tiled_mma.atom_layout
    return {
        "mma.threads": (
            *constant("MMA_THREADS", (threads.shape, threads.stride)),
            f"THREADS = {plan.threads}",
        ),
        "s2r.a": (f"A_S2R_ELEMS = {plan.a.fragment_copy.bits // plan.a.dtype.bits}",),
        "s2r.b": (f"B_S2R_ELEMS = {plan.b.fragment_copy.bits // plan.b.dtype.bits}",),
        "epilogue.smem": c_constants(plan),
        "tile.stages": (f"STAGES = {plan.stages}",) if plan.stages > 1 else (),
    }
