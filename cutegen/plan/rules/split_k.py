"""Rule for split-K: over how many CTAs the K of one tile is spread, and how their sums come together.

Every CTA multiplies its slice of the k-tiles and leaves the sums in a workspace, and a counter tells who has. Slices
are added in their order, so that every run gives the same bits, and C is rounded once, behind the epilogue. Threads
that copy and multiply leave that to the last of a tile's CTAs to arrive: nobody waits for anybody. Warpgroups share it:
a CTA that arrives when all of the tile's have begun waits for those behind it, which wait for nobody before they
arrive, and adds a part of the tile. In a cluster the CTAs wait for each other anyhow, and a tile's slices are added
there first (`cluster.py`), each CTA its share: then the workspace has fewer sums, or none. Atomic additions to C are
for who asks for them.
"""

from __future__ import annotations

from collections.abc import Iterator

from cutegen.algebra import Extents
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import DTYPES
from cutegen.plan.rules.cluster import CLUSTER
from cutegen.plan.rules.consumers import COOPERATIVE, PINGPONG, pingpong
from cutegen.plan.values.decision import Decision
from cutegen.plan.values.gemm_plan import SplitPlan
from cutegen.plan.values.mma import MmaPlan
from cutegen.spec import GemmSpec

SUM_TYPE = "f32"
VALUES_IN_FLIGHT = 64
SHARED_VALUES_IN_FLIGHT = 256
"""Of a part that one of several CTAs adds, whose tile's sums no longer fill registers: each round waits for L2 once."""


def choose_split_k(
    spec: GemmSpec, mma: MmaPlan, *, shared: bool = False
) -> tuple[SplitPlan | None, tuple[Decision, ...]]:
    """As many slices as the spec asks for, and the decision; neither where it says nothing: K then stays whole.

    The CTAs of a cluster that lie along K add theirs first. With `shared` all of a tile's CTAs add.
    Raises SpecError where atomics are asked for and C cannot be added to.
    """
    if spec.schedule.reduction == "atomics":
        _check_atomics(spec)
    slices = spec.schedule.split_k
    if slices is None or slices == 1:
        return None, tuple(_whole(spec))
    if spec.schedule.reduction == "atomics":
        why = (
            "given; each slice adds its sums to C, which is set to 0 before the launch, in the order of arrival: the "
            "last bits differ from run to run"
        )
        plan = SplitPlan(slices, DTYPES[SUM_TYPE], 1, atomics=True)
        return plan, (Decision("schedule.split_k", f"{slices}, by atomics", why, given=True),)
    (m, n, _), clustered = mma.cta_tile, mma.cluster[2]
    values, groups = m * n // (mma.tiled_mma.threads * clustered), slices // clustered
    most = SHARED_VALUES_IN_FLIGHT * groups // values if shared else VALUES_IN_FLIGHT // values
    slices_in_flight = max(x for x in range(1, groups + 1) if groups % x == 0 and (x == 1 or x <= most))
    sums = mma.atom.c_dtype if mma.atom.c_dtype.is_integer else DTYPES[SUM_TYPE]
    plan = SplitPlan(slices, sums, slices_in_flight, clustered=clustered, shared=shared and groups > 1)
    if clustered > 1:
        why = _clustered(plan, mma.cta_tile)
        return plan, (Decision("schedule.split_k", f"{slices}, {clustered} a cluster", why, given=True),)
    adds = "every CTA that finds all begun adds a part of" if shared else "the last CTA to arrive adds"
    why = (
        f"given; each slice leaves {plan.slice_bytes(mma.cta_tile):,} bytes of {plan.dtype.name} sums a tile, which "
        f"{adds} in the slices' order, before the epilogue"
    )
    return plan, (Decision("schedule.split_k", str(slices), why, given=True),)


def _whole(spec: GemmSpec) -> Iterator[Decision]:
    """Decide that K is whole, where the spec says so, and that nothing is to be done with sums of slices."""
    schedule = spec.schedule
    if schedule.split_k is not None:
        yield Decision("schedule.split_k", "1", "given; one CTA multiplies all of a tile's K", given=True)
    if schedule.reduction is not None:
        why = "given; K is whole, so that there are no slices to add: schedule.split_k makes some"
        yield Decision("schedule.reduction", schedule.reduction, why, given=True)


def _clustered(plan: SplitPlan, cta_tile: Extents) -> str:
    """Decide where the sums of clustered slices are added."""
    far = plan.far_bytes(cta_tile)
    why = f"given; each CTA reads {far:,} bytes of {plan.dtype.name} sums out of its cluster's other CTAs"
    if not plan.leaves_sums:
        return f"{why}, and no workspace is needed"
    return (
        f"{why}, and leaves {plan.slice_bytes(cta_tile):,} of its share; each of {plan.groups} CTAs that finds "
        "all begun adds a part of those in the clusters' order, before the epilogue"
    )


def refuse_clusters(spec: GemmSpec, problem: ProblemShape | None) -> None:
    """Raise SpecError where slices are to be added in a cluster and the family has none.

    For a problem K may stay whole instead, as the family's best way to do it.
    """
    if spec.schedule.reduction == CLUSTER and _may_have_slices(spec, problem):
        raise spec.error(
            "schedule.reduction",
            found=f'"{CLUSTER}" in a family without clusters',
            expected='"workspace" or "atomics"',
            fix='family = "sm90" has clusters',
        )


def refuse_atomics(spec: GemmSpec, problem: ProblemShape | None) -> None:
    """Raise SpecError where slices are to be added to C by warpgroups. For a problem K may stay whole instead."""
    if spec.schedule.reduction == "atomics" and _may_have_slices(spec, problem):
        raise spec.error(
            "schedule.reduction",
            found=f'"atomics" in family "{spec.family}"',
            expected='"workspace" or "cluster": bulk tensor stores leave C whole',
            fix='family = "sm80" adds to C',
        )


def _may_have_slices(spec: GemmSpec, problem: ProblemShape | None) -> bool:
    """Return whether the spec makes slices, or says how they are added where nothing else settles how many."""
    return problem is None or (spec.schedule.split_k or 1) > 1


def refuse_split_k(spec: GemmSpec, why: str) -> None:
    """Raise SpecError where a spec splits K and its family, for the reason given, does not."""
    if (spec.schedule.split_k or 1) > 1:
        found, fix = str(spec.schedule.split_k), 'family = "sm80" splits K'
        raise spec.error("schedule.split_k", found=found, expected=f"1: {why}", fix=fix)


def check_together(spec: GemmSpec) -> None:
    """Raise SpecError where warpgroups would take turns at a slice."""
    if (spec.schedule.split_k or 1) > 1 and pingpong(spec):
        raise spec.error(
            "schedule.consumers",
            found=f'"{PINGPONG}" with K in {spec.schedule.split_k} slices',
            expected=f'"{COOPERATIVE}": all threads that multiply a tile count its slices together',
            fix="leave one of the two keys out",
        )


def _check_atomics(spec: GemmSpec) -> None:
    """Parts of a sum may be added to C where C holds sums and nothing else, and no shared memory stands between."""
    out, steps = spec.problem.c.dtype, spec.epilogue.steps
    if out != SUM_TYPE:
        found, expected = (
            f'"atomics" with C in {out}',
            f"C in {SUM_TYPE}: no part of a sum is to be rounded",
        )
    elif steps:
        found, expected = f'"atomics" and an epilogue, {steps[0].text}', "no epilogue: each part of a sum would meet it"
    elif spec.epilogue.smem is not False:
        found, expected = '"atomics" with C through shared memory', "epilogue.smem = false: registers are added to C"
    else:
        return
    raise spec.error("schedule.reduction", found=found, expected=expected, fix='"workspace" does all of that')
