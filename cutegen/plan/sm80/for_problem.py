"""What a problem settles before the rules run: the tile, its warps and stages, and the slices of K, by predicted time.

Only what the spec leaves open is settled. The rules then run on the spec with these keys filled in, so that a tile
which they refuse is passed over for the next best.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from cutegen.algebra import Layout, TiledMma
from cutegen.arch import GPUS, SM_RATES, Target, dtype
from cutegen.plan import mma
from cutegen.plan.decision import Decision, Rejected
from cutegen.plan.occupancy import estimate_registers, predict_occupancy
from cutegen.plan.pipeline import DOUBLE_BUFFERED, smem_offsets
from cutegen.plan.problem import ProblemShape
from cutegen.plan.sm80.candidates import CANDIDATES, SPLITS, Candidate
from cutegen.plan.sm80.model import Estimate, Work, estimate
from cutegen.plan.staging import expected_registers, through_registers
from cutegen.plan.text import extents, plural
from cutegen.spec import GemmSpec, Mma, Tile

SHOWN_DIGITS = 3
UNKNOWN_MMA_FLOPS = 4096.0
"""A cycle and multiprocessor, where no source says: as on sm_90, about, which only ranks tiles against each other."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A spec with nothing left open that the problem settles, and the decisions that did so, by their keys."""

    spec: GemmSpec
    decisions: Mapping[str, Decision]


@dataclass(frozen=True, slots=True)
class _Option:
    """A candidate with a number of slices, and what the model says of it."""

    candidate: Candidate
    slices: int
    estimate: Estimate

    def __str__(self) -> str:
        return f"{self.candidate}, {plural(self.slices, 'slice')} of K"


def settled_for(spec: GemmSpec, target: Target, problem: ProblemShape) -> Iterator[Settled]:
    """Specs with the open keys filled in, the fastest for `problem` first."""
    candidates = tuple(_candidates(spec, target))
    splits = SPLITS if spec.schedule.split_k is None else (spec.schedule.split_k,)
    ranked = sorted(
        (
            _Option(candidate, slices, _estimate(spec, target, problem, candidate, slices))
            for candidate in candidates
            for slices in splits
        ),
        key=lambda option: (option.estimate.us, option.slices),
    )
    for option in ranked:
        yield _settled(spec, target, problem, option, ranked)


def _tile_is_open(spec: GemmSpec) -> bool:
    return spec.tile.cta is None and spec.mma.atom_layout is None and spec.mma.permutation is None


def _candidates(spec: GemmSpec, target: Target) -> Iterator[Candidate]:
    """The tiles that are compared, cut to the target's shared memory; only the spec's own where it names one."""
    element_bytes = dtype(spec.problem.a.dtype).bytes
    if not _tile_is_open(spec):
        cta = mma.choose_cta_tile(spec).value
        atom = mma.choose_atom(spec, cta).value
        warps = mma.choose_atom_layout(spec, cta, atom, target).value
        rows: tuple[Candidate, ...] = (Candidate(cta, warps, 4),)
    else:
        # Rows of shared memory are 128 or 256 bytes whatever the type.
        rows = tuple(replace(x, cta=(*x.cta[:2], x.cta[2] * 2 // element_bytes)) for x in CANDIDATES)
    # What waits in registers fills no third stage sooner.
    asynchronous = not (through_registers(spec, "a") and through_registers(spec, "b"))
    for row in rows:
        m, n, k = row.cta
        most = row.stages if asynchronous else DOUBLE_BUFFERED
        fitting = [
            stages
            for stages in range(DOUBLE_BUFFERED, most + 1)
            if smem_offsets((m * k * element_bytes, n * k * element_bytes), stages)[1] <= target.smem_per_cta_bytes
        ]
        if spec.tile.stages is not None:
            yield replace(row, stages=spec.tile.stages)
        elif fitting:
            yield replace(row, stages=fitting[-1])


def _estimate(spec: GemmSpec, target: Target, problem: ProblemShape, candidate: Candidate, slices: int) -> Estimate:
    return estimate(work_of(spec, target, candidate, slices), problem, GPUS[target.name])


def work_of(spec: GemmSpec, target: Target, candidate: Candidate, slices: int) -> Work:
    """A candidate as the model sees it. Raises SpecError where no MMA atom is for the spec's types."""
    atom = mma.choose_atom(spec, candidate.cta).value
    tiled_mma = TiledMma(atom, Layout(candidate.atom_layout))
    (m, n, k), element_bytes = candidate.cta, dtype(spec.problem.a.dtype).bytes
    smem_bytes = smem_offsets((m * k * element_bytes, n * k * element_bytes), candidate.stages)[1]
    passing = expected_registers(spec, candidate.cta, tiled_mma.threads)
    registers = estimate_registers(target, candidate.cta, tiled_mma, atom, passing)
    return Work(
        cta=candidate.cta,
        warps=candidate.atom_layout[:2],
        stages=candidate.stages,
        slices=slices,
        ctas_per_sm=max(1, predict_occupancy(target, tiled_mma.threads, smem_bytes, registers).ctas_per_sm),
        element_bytes=element_bytes,
        result_bytes=dtype(spec.problem.c.dtype).bytes,
        mma_flops=SM_RATES[target.name].mma_flops_of(spec.problem.a.dtype) or UNKNOWN_MMA_FLOPS,
    )


def _settled(spec: GemmSpec, target: Target, problem: ProblemShape, option: _Option, ranked: list[_Option]) -> Settled:
    candidate, slices = option.candidate, option.slices
    filled = replace(
        spec,
        tile=Tile(candidate.cta, spec.tile.stages or (candidate.stages if _tile_is_open(spec) else None)),
        mma=Mma(spec.mma.atom, candidate.atom_layout, spec.mma.permutation) if _tile_is_open(spec) else spec.mma,
        schedule=replace(spec.schedule, split_k=slices),
    )
    decisions = (
        *(_tile_decisions(spec, target, problem, option, ranked) if _tile_is_open(spec) else ()),
        *(_split_decisions(target, problem, option, ranked) if spec.schedule.split_k is None else ()),
    )
    return Settled(filled, {decision.key: decision for decision in decisions})


def _tile_decisions(
    spec: GemmSpec, target: Target, problem: ProblemShape, option: _Option, ranked: list[_Option]
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
    target: Target, problem: ProblemShape, option: _Option, ranked: list[_Option]
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
