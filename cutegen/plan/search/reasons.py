"""Reasons of decisions for a problem: the predicted time, and that of the rejected alternatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from cutegen.algebra import Extents
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS, SM_RATES, Instruction, Target
from cutegen.plan import swapped
from cutegen.plan.rules.cluster import ALONE
from cutegen.plan.rules.consumers import WHY as WHY_CONSUMERS
from cutegen.plan.search.options import Option, cluster_text, tile_is_open
from cutegen.plan.search.tile_model import Estimate
from cutegen.plan.values.decision import Decision, Rejected
from cutegen.spec import GemmSpec
from cutegen.support.words import extents, plural

SHOWN_DIGITS = 3


def decisions(
    spec: GemmSpec, target: Target, problem: ProblemShape, option: Option, ranked: Sequence[Option]
) -> Mapping[str, Decision]:
    """Return the decisions that `option` makes on keys that `spec` leaves open, by key; `ranked` are all options."""
    found = (
        *(_tile(spec, target, problem, option, ranked) if tile_is_open(spec) else ()),
        *(_slices(target, problem, option, ranked) if spec.schedule.split_k is None else ()),
        *(_warpgroups(spec, problem, option, ranked) if option.candidate.schedules else ()),
    )
    return {decision.key: decision for decision in found}


def _tile(
    spec: GemmSpec, target: Target, problem: ProblemShape, option: Option, ranked: Sequence[Option]
) -> Iterator[Decision]:
    """Yield the decisions on the tile, its warps and its stages. Every other tile is named in its best form."""
    candidate = option.candidate
    (m, n, _), (warps_m, warps_n, _) = candidate.cta, candidate.atom_layout
    fetched = f"{m * n // (m + n)} multiply-adds per element fetched"
    why = f"the tile with the lowest predicted time for the problem; {fetched}"
    how = foretold(target)
    rejected = tuple(
        Rejected(str(other), f"{microseconds(other.estimate)} {how}, bound by {other.estimate.bound}")
        for other in _best_of_others(option, ranked, lambda other: other.candidate.tile)
    )
    gpu = GPUS[target.name]
    for_problem = f"{problem} on {gpu}: {microseconds(option.estimate)} {how}, bound by {option.estimate.bound}"
    yield Decision("tile.cta", extents(candidate.cta), why, rejected=rejected, for_problem=for_problem)
    why = f"comes with the tile; warp tiles of {m // warps_m} x {n // warps_n}"
    yield Decision("mma.atom_layout", extents(candidate.atom_layout), why)
    if spec.tile.stages is None:
        yield Decision("tile.stages", str(candidate.stages), "comes with the tile")


def _slices(target: Target, problem: ProblemShape, option: Option, ranked: Sequence[Option]) -> Iterator[Decision]:
    candidate = option.candidate
    (m, n, k), gpu, how = candidate.cta, GPUS[target.name], foretold(target)
    multiplied = swapped.shape_multiplied(problem) if candidate.swap else problem
    tiles = -(-multiplied.m // m) * -(-multiplied.n // n) * problem.batch
    for_problem = (
        f"{plural(tiles, 'tile')} of {plural(-(-problem.k // k), 'k-tile')} on {gpu}: "
        f"{microseconds(option.estimate)} {how}"
    )
    alike = [other for other in ranked if replace(other.candidate, cluster=candidate.cluster) == candidate]
    rejected = tuple(
        Rejected(plural(other.slices, "slice"), f"{microseconds(other.estimate)} {how}")
        for other in _best_of_others(option, alike, lambda other: other.slices)
    )
    why = "the slices with the lowest predicted time for the problem"
    yield Decision("schedule.split_k", str(option.slices), why, rejected=rejected, for_problem=for_problem)


def _warpgroups(spec: GemmSpec, problem: ProblemShape, option: Option, ranked: Sequence[Option]) -> Iterator[Decision]:
    """Return the decisions on the consumers' schedule, the cluster, and whether A and B are swapped."""
    candidate, schedule = option.candidate, spec.schedule
    assert candidate.consumers is not None
    if schedule.consumers is None:
        rejected = _rejected(option, ranked, lambda other: other.candidate.consumers or "")
        yield Decision("schedule.consumers", candidate.consumers, WHY_CONSUMERS[candidate.consumers], rejected=rejected)
    if schedule.cluster is None:
        rejected = _rejected(option, ranked, lambda other: cluster_text(other.candidate.cluster))
        why = _why_cluster(candidate.cluster)
        yield Decision("schedule.cluster", cluster_text(candidate.cluster), why, rejected=rejected)
    if schedule.swap is None and candidate.swap:
        rejected = _rejected(option, ranked, lambda other: str(other.candidate.swap).lower())
        yield swapped.decide(problem, rejected)


def _why_cluster(cluster: Extents) -> str:
    if cluster == ALONE:
        return "each CTA copies its own operands, and waits for no other"
    if cluster[2] > 1:
        return "CTAs of one tile add its slices of K through distributed shared memory"
    shared = " and ".join(name for name, ctas in zip("BA", cluster, strict=False) if ctas > 1)
    return f"adjacent CTAs read {shared} from L2 once, and wait for each other's copies"


def _rejected(option: Option, ranked: Sequence[Option], value: Callable[[Option], str]) -> tuple[Rejected, ...]:
    """Return the other values of a key, each with its fastest option."""
    return tuple(
        Rejected(value(other), f"at best {other}: {microseconds(other.estimate)} predicted")
        for other in _best_of_others(option, ranked, value)
    )


def _best_of_others(option: Option, ranked: Sequence[Option], value: Callable[[Option], object]) -> list[Option]:
    """Return the fastest option of each value other than that of `option`, fastest first."""
    found: dict[object, Option] = {}
    for other in ranked:
        found.setdefault(value(other), other)
    found.pop(value(option), None)
    return list(found.values())


def foretold(target: Target) -> str:
    """Return the word for times on the target's GPU: "estimated" if no model was fitted to kernels measured on it.

    >>> from cutegen.hardware import TARGETS
    >>> [foretold(TARGETS[name]) for name in ("sm_90", "sm_80", "sm_100")]
    ['predicted', 'estimated', 'estimated at an assumed rate']
    """
    if GPUS[target.name].fitted:
        return "predicted"
    known = SM_RATES[target.name].flops.get(Instruction.MMA_SYNC) is not None
    return "estimated" if known else "estimated at an assumed rate"


def microseconds(estimated: Estimate) -> str:
    """Format a predicted time with three digits, or as whole microseconds.

    >>> microseconds(Estimate(12.345, "device memory")), microseconds(Estimate(2345.6, "tensor cores"))
    ('12.3 us', '2,346 us')
    """
    return f"{estimated.us:,.{SHOWN_DIGITS}g} us" if estimated.us < 1000 else f"{estimated.us:,.0f} us"
