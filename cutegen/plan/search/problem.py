"""Chooses the tile, its warps and stages, and the slices of K for a problem by predicted time, before the rules run.

Only open keys are chosen. The family's rules then run on the spec with these keys filled in; a tile that they refuse is
skipped for the next best. The family provides the candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from cutegen.contract.problem import ProblemShape
from cutegen.errors import SpecError
from cutegen.hardware import Target
from cutegen.plan.gemm_plan import GemmPlan
from cutegen.plan.search.options import Candidate, Option, reduction_in, tile_is_open
from cutegen.plan.search.reasons import decisions
from cutegen.plan.values.decision import Decision
from cutegen.spec import GemmSpec, Mma, Schedule, Tile


@dataclass(frozen=True, slots=True)
class Settled:
    """A spec with every key filled in that the problem decides, and these decisions by key.

    `fits` is true if shared memory holds its stages, and registers hold the sums of warpgroups.
    """

    spec: GemmSpec
    predicted_us: float
    fits: bool
    decisions: Callable[[], Mapping[str, Decision]]


def first_that_holds(spec: GemmSpec, settled: Iterable[Settled], decide: Callable[[GemmSpec], GemmPlan]) -> GemmPlan:
    """Return the plan of the first settled spec that the rules accept; of `spec` itself if they refuse them all.

    Raises SpecError if that is refused too.
    """
    refused: set[tuple[Tile, Mma, Schedule]] = set()
    for one in _as_far_as_they_come(settled):
        key = (one.spec.tile, one.spec.mma, replace(one.spec.schedule, split_k=None))  # whatever its slices
        if key in refused or not one.fits:
            continue
        try:
            plan = decide(one.spec)
        except SpecError:
            refused.add(key)
            continue
        # The plan belongs to `spec`, which left open what the problem decided.
        settled_by = one.decisions()
        return replace(plan, spec=spec, decisions=tuple(settled_by.get(x.key, x) for x in plan.decisions))
    return decide(spec)


def _as_far_as_they_come(settled: Iterable[Settled]) -> Iterator[Settled]:
    """End a search at a spec that the rules refuse: they then report the same error as without a problem."""
    with suppress(SpecError):
        yield from settled


def settle(
    spec: GemmSpec,
    target: Target,
    problem: ProblemShape,
    options: Iterable[Option],
    fits: Callable[[Candidate], bool],
) -> Iterator[Settled]:
    """Return specs with the open keys filled in, the fastest for `problem` first."""
    ranked = sorted(options, key=lambda option: (option.estimate.us, option.slices))
    for option in ranked:
        yield Settled(
            spec=_filled(spec, option),
            predicted_us=option.estimate.us,
            fits=fits(option.candidate),
            decisions=partial(decisions, spec, target, problem, option, ranked),
        )


def _filled(spec: GemmSpec, option: Option) -> GemmSpec:
    candidate, schedule = option.candidate, replace(spec.schedule, split_k=option.slices)
    if candidate.schedules:
        m, n, k = candidate.cluster
        schedule = replace(
            schedule,
            consumers=candidate.consumers,
            cluster=(m, n) if k == 1 else (m, n, k),
            swap=candidate.swap or schedule.swap,
            reduction=reduction_in(candidate.cluster) if option.slices > 1 else schedule.reduction,
        )
    return replace(
        spec,
        tile=Tile(candidate.cta, spec.tile.stages or (candidate.stages if tile_is_open(spec) else None)),
        mma=replace(spec.mma, atom_layout=candidate.atom_layout) if tile_is_open(spec) else spec.mma,
        schedule=schedule,
    )
