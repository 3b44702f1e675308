"""Rule for the pace of copies: clock cycles per k-tile, faster than which a CTA does not request a tile's k-tiles.

Without a pace, the producer warp issues copies as soon as a stage is empty. Some kernels then request more than L2
delivers, and take up to 1.5 times as long as at a pace slightly below the tensor cores' rate
(`docs/hopper_experiments.md`, "The pace of copies"). Kernels that plans select rarely gain, so only a spec or tuning
sets it.
"""

from __future__ import annotations

import math

from cutegen.algebra import Extents
from cutegen.hardware import Instruction, Target
from cutegen.hardware.rates import SM_RATES
from cutegen.plan.values.decision import Decision
from cutegen.plan.values.mma import MmaPlan
from cutegen.spec import GemmSpec

KEY = "schedule.pace"


def choose_pace(spec: GemmSpec, target: Target, mma: MmaPlan) -> tuple[int, tuple[Decision, ...]]:
    """Return the cycles per k-tile that the spec requests, 0 for none, and the decision if the key is given."""
    asked = spec.schedule.pace
    if asked is None:
        return 0, ()
    if asked == 0:
        return 0, (Decision.as_given(KEY, "none", "a stage is filled as soon as it is empty"),)
    cycles = tensor_cycles(target, mma.atom.instruction, mma.atom.a_dtype.name, mma.cta_tile)
    multiplied = "" if cycles is None else f"; the tensor cores multiply one in {cycles:.0f}"
    why = f"a CTA requests a tile's k-tiles no faster than one in so many clock cycles{multiplied}"
    return asked, (Decision.as_given(KEY, f"{asked} cycles", why),)


def tensor_cycles(target: Target, instruction: Instruction, operands: str, cta_tile: Extents) -> float | None:
    """Return the cycles in which the tensor cores multiply a k-tile, M x N x K; None if their rate is not known."""
    flops = SM_RATES[target.name].flops_of(instruction, operands)
    return None if flops is None else 2 * math.prod(cta_tile) / flops
