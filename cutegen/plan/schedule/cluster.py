"""Rules for CTAs that work together: clusters, the slices of K that share a tile, and tiles that one takes over."""

from collections.abc import Iterator

from cutegen.algebra import Extents
from cutegen.contract.problem import ProblemShape
from cutegen.errors import SpecError
from cutegen.hardware import DTYPES, Instruction, MmaAtom
from cutegen.hardware.units import MAX_CLUSTER_CTAS, SECTOR_BYTES
from cutegen.plan.kernel.scheduler import SplitK
from cutegen.plan.schedule.consumers import COOPERATIVE, PINGPONG, pingpong
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.gemm_plan import MmaPlan
from cutegen.spec import GemmSpec
from cutegen.spec.families import family_reading, family_with
from cutegen.support.words import extents, plural

# Rule for clusters: how many CTAs along M, N and K are scheduled together, and share copies or sums.
#
# CTAs of adjacent tiles along N read the same rows of A, those along M the same rows of B. In a cluster each CTA copies
# a part to all of them (multicast), so L2 is read once. Every CTA waits for the slowest, which pays off only if L2 is
# the limit; measurements decide.
#
# CTAs along K multiply slices of one tile. Each stores its sums in its own shared memory and adds a share of the tile
# from the memory of all: they read each other's sums in parallel, not slice by slice through L2.


ALONE = (1, 1, 1)
CLUSTER = "cluster"
NARROWEST_PART = 8
"""Columns of the narrowest wgmma, and so of a share of the sums that a warpgroup holds."""


def choose_cluster(spec: GemmSpec, cta_tile: Extents, atom: MmaAtom, warpgroups: int) -> Choice[Extents]:
    """Return the CTAs along M, N and K; no cluster by default. Raises SpecError for impossible clusters."""
    asked = spec.schedule.cluster
    m, n = (asked or ALONE)[:2]
    along_k = asked[2] if asked is not None and len(asked) == 3 else None
    _check(spec, n, along_k)
    if not _adds(spec, along_k):
        if asked is not None:
            return Choice((m, n, 1), Decision.as_given("schedule.cluster", extents((m, n))))
        why = "each CTA copies its own operands, and waits for no other"
        rejected = (Rejected("2x1", "reads B from L2 once for two tiles, but each CTA waits for the other's copies"),)
        return Choice(ALONE, Decision("schedule.cluster", extents(ALONE[:2]), why, rejected=rejected))
    # Columns of 64 sums that a warpgroup holds, those of several atoms one after the other.
    slices, columns = spec.schedule.slices, cta_tile[0] * cta_tile[1] // (warpgroups * atom.shape_mnk[0])
    if along_k is not None:
        if columns % (along_k * NARROWEST_PART):
            raise _uneven(spec, along_k, columns // NARROWEST_PART)
        chosen = (m, n, along_k)
        return Choice(chosen, Decision("schedule.cluster", extents(chosen), _why(along_k, slices), given=True))
    hinders = dict(_hinders(spec, atom, columns, m * n))
    k = max((k for k, why in hinders.items() if not why), default=None)
    if k is None:
        raise spec.error(
            "schedule.reduction",
            found=f'"cluster" with {plural(slices, "slice")} of K; ' + "; ".join(f"{k}: {hinders[k]}" for k in hinders),
            expected="slices that 2, 4 or 8 CTAs of a cluster divide evenly",
            fix='another schedule.split_k, or reduction = "workspace"',
        )
    others = tuple(Rejected(extents((m, n, other)), why or _FEWER) for other, why in hinders.items() if other != k)
    why = f"the most that divide {plural(slices, 'slice')} evenly; {_why(k, slices)}"
    return Choice((m, n, k), Decision("schedule.cluster", extents((m, n, k)), why, rejected=others))


_FEWER = "more sums would go through the workspace"


def _adds(spec: GemmSpec, along_k: int | None) -> bool:
    """Return whether the CTAs of a cluster add slices."""
    if spec.schedule.slices == 1:
        return False
    return spec.schedule.reduction == CLUSTER or (along_k or 1) > 1


def _why(k: int, slices: int) -> str:
    then = "nothing is left to add" if k == slices else f"{slices // k} such shares are added in the workspace"
    return f"each of {k} CTAs adds 1/{k} of the tile from the shared memory of all, its own slice first; {then}"


def _hinders(spec: GemmSpec, atom: MmaAtom, held: int, ctas: int) -> Iterator[tuple[int, str]]:
    """Return why so many CTAs along K are impossible or do not pay off; nothing if they do."""
    c, columns = spec.problem.c, atom.shape_mnk[1]
    least = NARROWEST_PART if c.major == "m" else max(NARROWEST_PART, SECTOR_BYTES // DTYPES[c.dtype].bytes)
    widths = [width for width in range(least, columns + 1, NARROWEST_PART) if columns % width == 0]
    for k in (2, 4, 8):
        if spec.schedule.slices % k:
            yield k, f"{spec.schedule.split_k} slices are not a multiple of {k}"
        elif k * ctas > MAX_CLUSTER_CTAS:
            yield k, f"{k * ctas} CTAs, of at most {MAX_CLUSTER_CTAS}"
        elif not any(held % (k * width) == 0 for width in widths):
            yield k, f"less than a sector of a row of C in 1/{k} of what a warpgroup multiplies"
        else:
            yield k, ""


def _check(spec: GemmSpec, n: int, along_k: int | None) -> None:
    """Raise SpecError if the slices of K and the cluster do not match."""
    slices, reduction, asked = spec.schedule.slices, spec.schedule.reduction, spec.schedule.cluster
    if asked is None:
        return
    if slices > 1 and n > 1:
        raise spec.error(
            "schedule.cluster",
            found=f"{extents(asked)} with K in {slices} slices",
            expected="1 along N: apart from tiles along M, the CTAs of a cluster are slices of K",
            fix=f"schedule.cluster = [{n}, 1], or leave one of the two keys out",
        )
    if along_k is None:
        return
    if along_k > 1 and slices % along_k:
        raise spec.error(
            "schedule.cluster",
            found=f"{extents(asked)} with K in {plural(slices, 'slice')}",
            expected=f"a divisor of {slices} along K" if slices > 1 else "1 along K: schedule.split_k makes the slices",
            fix=f"schedule.split_k = {-(-slices // along_k) * along_k}",
        )
    if (along_k > 1 and reduction not in (None, CLUSTER)) or (along_k == 1 and slices > 1 and reduction == CLUSTER):
        raise spec.error(
            "schedule.cluster",
            found=f'{extents(asked)} with reduction = "{reduction}"',
            expected='slices along K of a cluster if and only if reduction = "cluster"',
            fix="leave one of the two keys out",
        )


def _uneven(spec: GemmSpec, k: int, pieces: int) -> SpecError:
    return spec.error(
        "schedule.cluster",
        found=f"{k} along K, and {plural(pieces, 'column')} of 64 x {NARROWEST_PART} sums in a warpgroup",
        expected=f"a divisor of {pieces}: every warpgroup adds its share",
        fix="a smaller cluster, or a wider tile.cta",
    )


# Rule for split-K: the number of CTAs that share the K of one tile, and how their sums are added.
#
# Every CTA multiplies its slice of the k-tiles and stores the sums in a workspace; a counter counts the arrivals.
# Slices are added in their order, so every run gives the same bits, and C is rounded once, after the epilogue. In
# kernels whose threads both copy and multiply, the last CTA of a tile to arrive adds them: no CTA waits. Warpgroups
# share the work: a CTA that arrives when all of the tile's CTAs have begun waits for the remaining ones and adds a part
# of the tile. Those wait for nothing before they arrive. In a cluster the CTAs wait for each other anyway and add their
# slices first (above), each its share: the workspace then holds fewer sums, or none. Atomic additions to C are
# used only on request.


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


# Rule for tiles that CTAs take over from others which have not started: what a kernel of them cannot have.


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
