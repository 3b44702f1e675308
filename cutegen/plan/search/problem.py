"""What a problem settles before the rules run: the tile, its warps and stages, and the slices of K, by predicted time.

Only what the spec leaves open is settled. The family's rules then run on the spec with these keys filled in, so that a
tile which they refuse is passed over for the next best. What is compared is the family's too: its `candidates.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from cutegen.contract.problem import ProblemShape
from cutegen.errors import SpecError
from cutegen.hardware import GPUS, SM_RATES, Instruction, Target
from cutegen.plan.gemm_plan import GemmPlan
from cutegen.plan.rules.pipeline import DOUBLE_BUFFERED
from cutegen.plan.search.tile_model import Estimate, ModelConstants, Work, estimate
from cutegen.plan.values.decision import Decision, Rejected
from cutegen.spec import GemmSpec, Mma, Tile
from cutegen.support.words import extents, plural

SHOWN_DIGITS = 3
UNKNOWN_MMA_FLOPS = 4096.0
"""A cycle and multiprocessor, where no source says: as on sm_90, about, which only ranks tiles against each other."""

Plan = TypeVar("Plan", bound=GemmPlan)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A CTA tile, its warps along M, N and K, or what else multiplies, and its stages."""

    cta: tuple[int, int, int]
    atom_layout: tuple[int, int, int]
    stages: int
    atoms_are: str = "warps"

    def __str__(self) -> str:
        m, n, k = self.cta
        warps_m, warps_n, _ = self.atom_layout
        return f"{m}x{n}x{k}, {warps_m}x{warps_n} {self.atoms_are}, {self.stages} stages"


@dataclass(frozen=True, slots=True)
class Option:
    """A candidate, and what the model is told of it."""

    candidate: Candidate
    work: Work


@dataclass(frozen=True, slots=True)
class _Ranked:
    """An option, and what the model says of it."""

    candidate: Candidate
    slices: int
    estimate: Estimate

    def __str__(self) -> str:
        return f"{self.candidate}, {plural(self.slices, 'slice')} of K" if self.slices > 1 else str(self.candidate)


@dataclass(frozen=True, slots=True)
class Settled:
    """A spec with nothing left open that the problem settles, and the decisions that did so, by their keys.

    `fits` says whether shared memory holds the elements of its stages.
    """

    spec: GemmSpec
    predicted_us: float
    fits: bool
    decisions: Callable[[], Mapping[str, Decision]]


def tile_is_open(spec: GemmSpec) -> bool:
    """Whether the spec leaves the tile and its warps to the problem."""
    return spec.tile.cta is None and spec.mma.atom_layout is None and spec.mma.permutation is None


def for_elements(candidates: Iterable[Candidate], element_bytes: int) -> Iterator[Candidate]:
    """Rows written for 2-byte elements: rows of shared memory are 128 or 256 bytes whatever the type."""
    for row in candidates:
        m, n, k = row.cta
        yield replace(row, cta=(m, n, k * 2 // element_bytes))


def with_stages(
    spec: GemmSpec, candidates: Iterable[Candidate], most: Callable[[tuple[int, int, int]], int]
) -> Iterator[Candidate]:
    """Each with the stages that the spec gives, else as many as fit; `most` says how many fit of a CTA tile."""
    for row in candidates:
        if spec.tile.stages is not None:
            yield replace(row, stages=spec.tile.stages)
        elif (stages := min(row.stages, most(row.cta))) >= DOUBLE_BUFFERED:
            yield replace(row, stages=stages)


def mma_flops(spec: GemmSpec, target: Target, by: Instruction = Instruction.MMA_SYNC) -> float:
    """Operations of a multiprocessor in a cycle on the spec's operands, `by` what multiplies."""
    return SM_RATES[target.name].flops_of(by, spec.problem.a.dtype) or UNKNOWN_MMA_FLOPS


def first_that_holds(spec: GemmSpec, settled: Iterable[Settled], decide: Callable[[GemmSpec], Plan]) -> Plan:
    """The plan of the first settled spec that the rules do not refuse; of `spec` itself where they refuse them all.

    Raises SpecError where that is refused too.
    """
    refused: set[tuple[Tile, Mma]] = set()
    for one in settled:
        key = (one.spec.tile, one.spec.mma)  # whatever its slices
        if key in refused or not one.fits:
            continue
        try:
            plan = decide(one.spec)
        except SpecError:
            refused.add(key)
            continue
        # The plan is one of `spec`, which left open what the problem settled.
        settled_by = one.decisions()
        return replace(plan, spec=spec, decisions=tuple(settled_by.get(x.key, x) for x in plan.decisions))
    return decide(spec)


def settle(
    spec: GemmSpec,
    target: Target,
    problem: ProblemShape,
    options: Iterable[Option],
    constants: ModelConstants,
    fits: Callable[[Candidate], bool],
) -> Iterator[Settled]:
    """Specs with the open keys filled in, the fastest for `problem` first."""
    gpu = GPUS[target.name]
    ranked = sorted(
        (_Ranked(x.candidate, x.work.slices, estimate(x.work, problem, gpu, constants)) for x in options),
        key=lambda option: (option.estimate.us, option.slices),
    )
    for option in ranked:
        yield Settled(
            spec=_filled(spec, option),
            predicted_us=option.estimate.us,
            fits=fits(option.candidate),
            decisions=partial(_decisions, spec, target, problem, option, ranked),
        )


def _filled(spec: GemmSpec, option: _Ranked) -> GemmSpec:
    candidate = option.candidate
    return replace(
        spec,
        tile=Tile(candidate.cta, spec.tile.stages or (candidate.stages if tile_is_open(spec) else None)),
        mma=Mma(spec.mma.atom, candidate.atom_layout, spec.mma.permutation) if tile_is_open(spec) else spec.mma,
        schedule=replace(spec.schedule, split_k=option.slices),
    )


def _decisions(
    spec: GemmSpec, target: Target, problem: ProblemShape, option: _Ranked, ranked: list[_Ranked]
) -> dict[str, Decision]:
    decisions = (
        *(_tile_decisions(spec, target, problem, option, ranked) if tile_is_open(spec) else ()),
        *(_split_decisions(target, problem, option, ranked) if spec.schedule.split_k is None else ()),
    )
    return {decision.key: decision for decision in decisions}


def _tile_decisions(
    spec: GemmSpec, target: Target, problem: ProblemShape, option: _Ranked, ranked: list[_Ranked]
) -> Iterator[Decision]:
    """The tile is chosen; warps and stages come with it. Of every other tile its best number of slices is named."""
    candidate = option.candidate
    (m, n, _), (warps_m, warps_n, _) = candidate.cta, candidate.atom_layout
    fetched = f"{m * n // (m + n)} multiply-adds for each element fetched"
    why = f"for a problem, the tile of the least predicted time; {fetched}"
    best_of_others = {other.candidate: other for other in reversed(ranked) if other.candidate != candidate}
    rejected = tuple(
        Rejected(str(other), f"{_microseconds(other.estimate)} predicted, bound by {other.estimate.bound}")
        for other in sorted(best_of_others.values(), key=lambda other: other.estimate.us)
    )
    gpu = GPUS[target.name]
    for_problem = f"{problem} on {gpu}: {_microseconds(option.estimate)} predicted, bound by {option.estimate.bound}"
    yield Decision("tile.cta", extents(candidate.cta), why, rejected=rejected, for_problem=for_problem)
    why = f"comes with the tile; warp tiles of {m // warps_m} x {n // warps_n}"
    yield Decision("mma.atom_layout", extents(candidate.atom_layout), why)
    if spec.tile.stages is None:
        yield Decision("tile.stages", str(candidate.stages), "comes with the tile")


def _split_decisions(
    target: Target, problem: ProblemShape, option: _Ranked, ranked: list[_Ranked]
) -> Iterator[Decision]:
    m, n, k = option.candidate.cta
    tiles = -(-problem.m // m) * -(-problem.n // n) * problem.batch
    gpu = GPUS[target.name]
    for_problem = (
        f"{plural(tiles, 'tile')} of {plural(-(-problem.k // k), 'k-tile')} on {gpu}: "
        f"{_microseconds(option.estimate)} predicted"
    )
    rejected = tuple(
        Rejected(plural(other.slices, "slice"), f"{_microseconds(other.estimate)} predicted")
        for other in ranked
        if other.candidate == option.candidate and other.slices != option.slices
    )
    why = "for a problem, the slices of the least predicted time"
    yield Decision("schedule.split_k", str(option.slices), why, rejected=rejected, for_problem=for_problem)


def _microseconds(estimated: Estimate) -> str:
    return f"{estimated.us:,.{SHOWN_DIGITS}g} us" if estimated.us < 1000 else f"{estimated.us:,.0f} us"
