"""Rule for split-K: the number of CTAs that share the K of one tile, and how their sums are added.

Every CTA multiplies its slice of the k-tiles and stores the sums in a workspace; a counter counts the arrivals. Slices
are added in their order, so every run gives the same bits, and C is rounded once, after the epilogue. In kernels whose
threads both copy and multiply, the last CTA of a tile to arrive adds them: no CTA waits. Warpgroups share the work: a
CTA that arrives when all of the tile's CTAs have begun waits for the remaining ones and adds a part of the tile. Those
wait for nothing before they arrive. In a cluster the CTAs wait for each other anyway and add their slices first
(`cluster.py`), each its share: the workspace then holds fewer sums, or none. Atomic additions to C are used only on
request.
"""

from __future__ import annotations

from collections.abc import Iterator

from cutegen.algebra import Extents
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import DTYPES, Instruction
from cutegen.plan.kernel.scheduler import SplitK
from cutegen.plan.schedule.cluster import CLUSTER
from cutegen.plan.schedule.consumers import COOPERATIVE, PINGPONG, pingpong
from cutegen.plan.values.decision import Decision
from cutegen.plan.values.gemm_plan import MmaPlan
from cutegen.spec import GemmSpec
from cutegen.spec.families import family_reading, family_with

SUM_TYPE = "f32"
MOST_SUMS_LEFT = 128
"""Sums of a slice that a thread leaves at once, if it loads them from tensor memory: as many registers."""
VALUES_IN_FLIGHT = 64
SHARED_VALUES_IN_FLIGHT = 256
"""Slices in flight for a part that one of several CTAs adds, when registers are free: each round waits for L2 once."""


def choose_split_k(spec: GemmSpec, mma: MmaPlan, *, shared: bool = False) -> tuple[SplitK | None, tuple[Decision, ...]]:
    """Return the slices that the spec requests, and the decision; neither if it requests none: K is not split.

    The CTAs of a cluster along K add their slices first. With `shared` all of a tile's CTAs add. Raises SpecError if
    atomics are requested and C cannot be added to.
    """
    if spec.schedule.reduction == "atomics":
        _check_atomics(spec)
    slices = spec.schedule.split_k
    if slices is None or slices == 1:
        return None, tuple(_whole(spec))
    if spec.schedule.reduction == "atomics":
        why = (
            "each slice adds its sums to C, which is zeroed before the launch, in order of arrival: the "
            "last bits differ from run to run"
        )
        plan = SplitK(slices, DTYPES[SUM_TYPE], 1, atomics=True)
        return plan, (Decision.as_given("schedule.split_k", f"{slices}, by atomics", why),)
    (m, n, _), clustered = mma.cta_tile, mma.cluster[2]
    values, groups = m * n // (mma.accumulator.threads * clustered), slices // clustered
    most = SHARED_VALUES_IN_FLIGHT * groups // values if shared else VALUES_IN_FLIGHT // values
    slices_in_flight = max(x for x in range(1, groups + 1) if groups % x == 0 and (x == 1 or x <= most))
    sums = mma.atom.c_dtype if mma.atom.c_dtype.is_integer else DTYPES[SUM_TYPE]
    plan = SplitK(slices, sums, slices_in_flight, clustered=clustered, shared=shared and groups > 1)
    if clustered > 1:
        why = _clustered(plan, mma.cta_tile)
        return plan, (Decision.as_given("schedule.split_k", f"{slices}, {clustered} a cluster", why),)
    adds = "every CTA that arrives when all have begun adds a part of" if shared else "the last CTA to arrive adds"
    why = (
        f"each slice writes {plan.slice_bytes(mma.cta_tile):,} bytes of {plan.dtype.name} sums per tile, which "
        f"{adds} in slice order, before the epilogue"
    )
    return plan, (Decision.as_given("schedule.split_k", str(slices), why),)


def _whole(spec: GemmSpec) -> Iterator[Decision]:
    """Decide that K is not split, if the spec says so, and that there are no sums of slices to add."""
    schedule = spec.schedule
    if schedule.split_k is not None:
        yield Decision.as_given("schedule.split_k", "1", "one CTA multiplies all of a tile's K")
    if schedule.reduction is not None:
        why = "K is not split, so there are no slices to add: schedule.split_k makes some"
        yield Decision.as_given("schedule.reduction", schedule.reduction, why)


def _clustered(plan: SplitK, cta_tile: Extents) -> str:
    """Decide where the sums of clustered slices are added."""
    far = plan.far_bytes(cta_tile)
    why = f"each CTA reads {far:,} bytes of {plan.dtype.name} sums from the other CTAs of its cluster"
    if not plan.leaves_sums:
        return f"{why}, and no workspace is needed"
    return (
        f"{why}, and writes {plan.slice_bytes(cta_tile):,} of its share; each of {plan.partials} CTAs that arrives "
        "when all have begun adds a part of those in cluster order, before the epilogue"
    )


def refuse_clusters(spec: GemmSpec, problem: ProblemShape | None) -> None:
    """Raise SpecError if slices are to be added in a cluster and the family has no clusters.

    For a problem, an unsplit K remains possible as the family's best option.
    """
    if spec.schedule.reduction == CLUSTER and _may_have_slices(spec, problem):
        raise spec.error(
            "schedule.reduction",
            found=f'"{CLUSTER}" in a family without clusters',
            expected='"workspace" or "atomics"',
            fix=f'family = "{family_reading("schedule.cluster")}" has clusters',
        )


def refuse_atomics(spec: GemmSpec, problem: ProblemShape | None) -> None:
    """Raise SpecError if warpgroups would add slices to C. For a problem, an unsplit K remains possible."""
    if spec.schedule.reduction == "atomics" and _may_have_slices(spec, problem):
        raise spec.error(
            "schedule.reduction",
            found=f'"atomics" in family "{spec.family}"',
            expected='"workspace" or "cluster": bulk tensor stores do not add to C',
            fix=f'family = "{family_with(Instruction.CP_ASYNC)}" adds to C',
        )


def _may_have_slices(spec: GemmSpec, problem: ProblemShape | None) -> bool:
    """Return whether the spec splits K, or says how slices are added while nothing else settles their number."""
    return problem is None or spec.schedule.slices > 1


def refuse_split_k(spec: GemmSpec, why: str) -> None:
    """Raise SpecError if a spec splits K and its family does not, for the given reason."""
    if spec.schedule.slices > 1:
        found, fix = str(spec.schedule.split_k), f'family = "{family_reading("schedule.reduction")}" splits K'
        raise spec.error("schedule.split_k", found=found, expected=f"1: {why}", fix=fix)


def check_together(spec: GemmSpec) -> None:
    """Raise SpecError if ping-pong warpgroups would have slices."""
    if spec.schedule.slices > 1 and pingpong(spec):
        raise spec.error(
            "schedule.consumers",
            found=f'"{PINGPONG}" with K in {spec.schedule.split_k} slices',
            expected=f'"{COOPERATIVE}": all consumer threads of a tile count its slices together',
            fix="leave one of the two keys out",
        )


def _check_atomics(spec: GemmSpec) -> None:
    """Raise SpecError unless C holds plain sums, and registers are added to it directly."""
    out, steps = spec.problem.c.dtype, spec.epilogue.steps
    if out != SUM_TYPE:
        found, expected = (
            f'"atomics" with C in {out}',
            f"C in {SUM_TYPE}: partial sums must not be rounded",
        )
    elif steps:
        found, expected = (
            f'"atomics" and an epilogue, {steps[0].text}',
            "no epilogue: it would be applied to each partial sum",
        )
    elif spec.epilogue.smem is not False:
        found, expected = (
            '"atomics" with C through shared memory',
            "epilogue.smem = false: sums are added to C from registers",
        )
    else:
        return
    raise spec.error("schedule.reduction", found=found, expected=expected, fix='"workspace" supports all of that')
