"""Instructions of a main loop as often as the PTX text holds them."""

from __future__ import annotations

from cutegen.algebra import Extents, TiledMma
from cutegen.hardware import MmaAtom, Target
from cutegen.plan.loop import Loop
from cutegen.plan.values.gemm_plan import OperandPlan, step_opcodes


def written_instructions(
    loop: Loop,
    operands: tuple[OperandPlan, OperandPlan],
    atom: MmaAtom,
    tiled_mma: TiledMma,
    cta_tile: Extents,
    target: Target,
) -> dict[str, int]:
    """Opcodes of the main loop as often as the PTX text holds them."""
    return loop.written(lambda step: step_opcodes(step, operands, atom, tiled_mma, cta_tile, target))
