"""Rule for the warpgroups that multiply: together on one tile, or each on a tile of its own, taking turns.

After CUTLASS's kernels of the same names. In turns one warpgroup brings out its tile while the other multiplies the
next one; together they have a larger tile, which takes less from L2 for each multiplication.
"""

from __future__ import annotations

from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.spec import GemmSpec

COOPERATIVE, PINGPONG = "cooperative", "pingpong"


def pingpong(spec: GemmSpec) -> bool:
    """Return whether each of two warpgroups has a tile of its own."""
    return spec.schedule.consumers == PINGPONG


def choose_consumers(spec: GemmSpec) -> Choice[bool]:
    """Return whether they take turns; together, where the spec says nothing."""
    if spec.schedule.consumers is not None:
        asked = spec.schedule.consumers
        return Choice(pingpong(spec), Decision("schedule.consumers", asked, "given", given=True))
    why = "the warpgroups share a tile: twice the tile for the same registers, so that an element fetched is used more"
    other = Rejected(PINGPONG, "hides the epilogue behind the other warpgroup's tile, which is half as large")
    return Choice(False, Decision("schedule.consumers", COOPERATIVE, why, rejected=(other,)))
