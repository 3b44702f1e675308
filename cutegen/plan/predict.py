"""Instructions that a plan's main loop has: those of a step on a k-tile, and as often as the PTX text holds them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from cutegen.algebra import TiledMma, size
from cutegen.arch import MmaAtom
from cutegen.plan.gemm_plan import OperandPlan
from cutegen.plan.loop import Action, Loop, Step

CtaTile = tuple[int, int, int]


def step_opcodes(
    step: Step, operands: Iterable[OperandPlan], atom: MmaAtom, tiled_mma: TiledMma, cta_tile: CtaTile
) -> Counter[str]:
    """What each thread that takes part issues for a step on a whole k-tile; what a warp issues together counts once."""
    counts: Counter[str] = Counter()
    for x in operands:
        counts += x.g2s.opcodes(step, x.tile, x.dtype)
        counts += x.s2r.opcodes(step, x.operand, x.tile, x.dtype, tiled_mma)
    if step.action is Action.MULTIPLY:
        (m, n, k), (atom_m, atom_n, atom_k) = cta_tile, atom.shape_mnk
        atoms = tiled_mma.threads // size(atom.thr_id)
        counts[atom.ptx] += m * n * k // (atoms * atom_m * atom_n * atom_k)
    return counts


def written_instructions(
    loop: Loop, operands: tuple[OperandPlan, OperandPlan], atom: MmaAtom, tiled_mma: TiledMma, cta_tile: CtaTile
) -> dict[str, int]:
    """Opcodes of the main loop as often as the PTX text holds them."""
    return loop.written(lambda step: step_opcodes(step, operands, atom, tiled_mma, cta_tile))
