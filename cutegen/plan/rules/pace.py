"""Rule for the pace of copies: clock cycles per k-tile, faster than which a CTA does not request a tile's k-tiles.

Without a pace, the producer warp issues copies as soon as a stage is empty. Some kernels then request more than L2
delivers, and take up to 1.5 times as long as at a pace slightly below the tensor cores' rate
(`docs/hopper_experiments.md`, "The pace of copies"). Kernels that plans select rarely gain, so only a spec or tuning
sets it.
"""

from __future__ import annotations

from cutegen.hardware import Target
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
    (m, n, k), atom = mma.cta_tile, mma.atom
    rate = SM_RATES[target.name].flops_of(atom.instruction, atom.a_dtype.name)
    multiplied = f"; the tensor cores multiply one in {2 * m * n * k / rate:.0f}" if rate else ""
    why = f"a CTA requests a tile's k-tiles no faster than one in so many clock cycles{multiplied}"
    return asked, (Decision.as_given(KEY, f"{asked} cycles", why),)
