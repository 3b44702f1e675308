"""Rule for tiles that CTAs take over from others which have not started: what a kernel of them cannot have."""

from __future__ import annotations

from cutegen.plan.values.decision import Decision
from cutegen.plan.values.gemm_plan import MmaPlan
from cutegen.spec import GemmSpec
from cutegen.support.words import extents

KEY, DYNAMIC = "schedule.tiles", "dynamic"
_WHY = {
    "static": "each CTA computes every so many-th tile",
    DYNAMIC: "a launch has a CTA for each tile; those that run cancel others that have not started, and compute their "
    "tiles, so that none has more left to do than others",
}


def is_dynamic(spec: GemmSpec) -> bool:
    """Return whether CTAs take over tiles."""
    return spec.schedule.tiles == DYNAMIC


def check_dynamic(spec: GemmSpec, mma: MmaPlan) -> None:
    """Raise SpecError for groups, slices of K and clusters, whose CTAs do not each have a tile of their own."""
    reasons = (
        (spec.problem.groups is not None, "groups", "only the device knows how many tiles, and so CTAs, groups have"),
        (spec.schedule.slices > 1, "schedule.split_k", "the CTAs of a tile wait for each other"),
        (mma.cluster != (1, 1, 1), f"clusters of {extents(mma.cluster[:2])}", "a CTA asks for tiles for itself alone"),
    )
    for has, what, why in reasons:
        if has:
            raise spec.error(KEY, found=f'"{DYNAMIC}" with {what}', expected=f'"static": {why}', fix=f"leave {KEY} out")


def decide_tiles(spec: GemmSpec) -> tuple[Decision, ...]:
    """Return the decision on the origin of tiles, if the spec has one."""
    asked = spec.schedule.tiles
    return () if asked is None else (Decision.as_given(KEY, asked, _WHY[asked]),)
