"""Rule for clusters: how many CTAs along M and along N are scheduled together and share what they copy.

CTAs of tiles side by side along N want the same rows of A, those along M the same of B. In a cluster each copies a part
to all of them (multicast), so that L2 is read once. Every CTA then waits for the slowest, which gains where L2 is what
limits and costs elsewhere: which of the two, measurements say.
"""

from __future__ import annotations

from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.spec import GemmSpec
from cutegen.support.words import extents

ALONE = (1, 1)


def choose_cluster(spec: GemmSpec) -> Choice[tuple[int, int]]:
    """CTAs along M and N; each alone, where the spec says nothing."""
    asked = spec.schedule.cluster
    if asked is not None:
        return Choice(asked, Decision("schedule.cluster", extents(asked), "given", given=True))
    why = "each CTA copies what it multiplies, and waits for no other"
    rejected = (Rejected("2x1", "reads B from L2 once for two tiles, but either CTA waits for the other's copies"),)
    return Choice(ALONE, Decision("schedule.cluster", extents(ALONE), why, rejected=rejected))
