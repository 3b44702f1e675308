"""Rule for the consumer warpgroups: together on one tile (cooperative), or each on a tile of its own (ping-pong).

After CUTLASS's kernels of the same names. In ping-pong one warpgroup stores its tile while the other multiplies the
next one. Cooperative warpgroups have a larger tile, which needs fewer bytes from L2 per multiplication.
"""

from __future__ import annotations

from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.spec import GemmSpec

COOPERATIVE, PINGPONG = "cooperative", "pingpong"
WHY = {
    COOPERATIVE: "one tile at a time, which may be larger: fewer bytes from L2 per multiplication",
    PINGPONG: "each of two warpgroups has its own tile: one stores while the other multiplies",
}
"""Reasons, with and without a problem: kernels whose comments differ are compiled and cached twice."""


def pingpong(spec: GemmSpec) -> bool:
    """Return whether each of two warpgroups has a tile of its own."""
    return spec.schedule.consumers == PINGPONG


def choose_consumers(spec: GemmSpec) -> Choice[bool]:
    """Return whether they take turns; by default they are cooperative."""
    if spec.schedule.consumers is not None:
        asked = spec.schedule.consumers
        return Choice(pingpong(spec), Decision.as_given("schedule.consumers", asked))
    other = Rejected(PINGPONG, "overlaps the epilogue with the other warpgroup's tile, but tiles are half as large")
    return Choice(False, Decision("schedule.consumers", COOPERATIVE, WHY[COOPERATIVE], rejected=(other,)))
