"""Chooses the tile, its warps and stages, and the slices of K for a problem by predicted time, before the rules run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import prod

import numpy as np

from cutegen.algebra import Extents
from cutegen.contract.launch import RESULT
from cutegen.contract.problem import Distribution, Groups, ProblemShape
from cutegen.errors import SpecError
from cutegen.hardware import GPUS, SM_RATES, Instruction, Issuer, Target, dtype
from cutegen.hardware.rates import ASSUMED_MMA_FLOPS
from cutegen.plan import swapped
from cutegen.plan.gemm_plan import GemmPlan
from cutegen.plan.operands.staging import DOUBLE_BUFFERED
from cutegen.plan.schedule.cluster import ALONE, CLUSTER
from cutegen.plan.schedule.consumers import PINGPONG, WHY_CONSUMERS
from cutegen.plan.search.tile_model import Estimate
from cutegen.plan.values.decision import Decision, Rejected
from cutegen.plan.values.gemm_plan import AT_LEAST, PredictedTime, TimesOfSizes, shown_us
from cutegen.spec import GemmSpec, Mma, Schedule, Tile
from cutegen.spec.values import Consumers, Reduction
from cutegen.support.words import extents, plural

# Groups of uneven sizes, as a performance model sees them: the work of the busiest CTA over that of even groups.
#
# Routers spread rows unevenly, and a group's last tile costs a whole one. So kernels of groups are chosen by the mean
# of their times over the uneven ones of named distributions, which is also the time that their plans predict.


Block = tuple[int, int, int]
"""Rows and columns of C that the CTAs of a cluster compute together, and K of a k-tile."""

AROUND_THE_MEAN = (Distribution.UNIFORM, Distribution.SPREAD, Distribution.ROUTED)
"""Distributions of padded groups, each of which has a room of its own: none has most of all rows."""
FITTING_ROWS, FITTING = 144, 0.92
"""Factor on the time of ping-pong kernels with at most that many rows of groups as columns of their tiles, where groups
fill one.

Power bounds large groups: on an H200 (2026-11-29) most kernels of six products multiplied 600 to 700 TFLOP/s, the dead
rows of a group's last tile included, so that the tiles that groups fill best are fastest. With 112 to 144 rows they
took 0.63 to 0.99 times as long as predicted, 0.84 in the middle; those of 160 rows or columns, which would be chosen
otherwise, 0.81 to 1.05 and 0.93.
"""
WIDEST_ROWS, WIDER = 192, 1.15
"""Factor on the time of a tile of warpgroups with more rows of packed groups than that (docs/grouped.md).

On an H200 three products of 8 to 128 experts took 0.91 to 1.15 times as long as predicted with 256 rows, and 0.80 to
1.03 with 112 to 192.
"""
SHORT_PARTS, SHORT, IN_TURN = 8, 0.87, 0.95
"""Factors on the time of parts of K of at most that many k-tiles on average, and of ping-pong for parts of any length.

The model counts whole k-tiles; kernels skip the k-blocks past a part's end. In ping-pong one warpgroup stores while the
other multiplies. On an H200 22 kernels, with four k-tiles and with sixteen, took 0.84 to 1.01 times as long as
predicted with these, those of the lowest predictions 0.96 to 1.01 (docs/grouped.md).
"""


def factor_of_groups(groups: Groups, block: Block, mean: ProblemShape, *, swap: bool, in_turn: bool) -> float:
    """Return the factor on the predicted time of warpgroups for even groups, each like `mean`.

    >>> mean = ProblemShape(256, 1536, 2048, 128)
    >>> factor_of_groups(Groups("m"), (256, 128, 64), mean, swap=False, in_turn=False)
    1.15
    >>> factor_of_groups(Groups("m"), (112, 128, 64), mean, swap=True, in_turn=True)
    0.92
    >>> factor_of_groups(Groups("k"), (128, 192, 64), ProblemShape(1536, 2048, 1024, 8), swap=False, in_turn=True)
    0.95
    """
    if groups.of == "k":
        return (IN_TURN if in_turn else 1.0) * (SHORT if mean.k <= SHORT_PARTS * block[2] else 1.0)
    rows, are_columns = block["mn".index(groups.of)], (groups.of == "m") == swap
    if in_turn and are_columns and rows <= min(FITTING_ROWS, mean.extents[groups.of]):
        return FITTING
    return WIDER if rows > WIDEST_ROWS else 1.0


@dataclass(frozen=True, slots=True)
class WorkOfSizes:
    """The work of the busiest CTA for sizes of groups, over that for even groups: a batch like `mean`.

    `clusters` of CTAs run at once, each of which computes a `block`.
    """

    groups: Groups
    block: Block
    mean: ProblemShape
    clusters: int

    def of(self, sizes: Sequence[int]) -> float:
        """Return the k-tiles of the busiest CTA for these sizes, over those for even groups.

        >>> of_rows = WorkOfSizes(Groups("m"), (64, 64, 32), ProblemShape(64, 64, 32, 2), 1)
        >>> of_rows.of((64, 64)), of_rows.of((65, 63))
        (1.0, 1.5)
        """
        number, each = self.mean.batch, self.mean.extents[self.groups.of]
        busiest = partial(busiest_k_tiles, self.groups, self.block, self.mean, clusters=self.clusters)
        return busiest(sizes) / busiest((each,) * number)

    def named(self) -> Mapping[Distribution, float]:
        """Return those of the distributions of the same rows; of padded groups only of those around the mean."""
        number, each = self.mean.batch, self.mean.extents[self.groups.of]
        names = tuple(Distribution) if self.groups.layout == "packed" else AROUND_THE_MEAN
        return {name: self.of(_sizes(name, each * number, number)) for name in names}


def times_of_sizes(work: WorkOfSizes, us_of_work: Callable[[float], float]) -> TimesOfSizes:
    """Return the times of a kernel over sizes, from its time for so many times the work for even groups."""
    named = tuple((name, us_of_work(factor)) for name, factor in work.named().items())
    return TimesOfSizes(named, partial(_us_of_sizes, work, us_of_work))


def _us_of_sizes(work: WorkOfSizes, us_of_work: Callable[[float], float], sizes: Sequence[int]) -> float:
    return us_of_work(work.of(sizes))


@lru_cache(maxsize=64)
def _sizes(distribution: Distribution, extent: int, groups: int) -> tuple[int, ...]:
    return distribution.sizes(extent, groups)


def busiest_k_tiles(groups: Groups, block: Block, problem: ProblemShape, sizes: Sequence[int], clusters: int) -> int:
    """Return the k-tiles of the CTA that has most: each of the `clusters` has every so many-th block of all groups.

    A block without K is one k-tile of zeros.

    >>> busiest_k_tiles(Groups("m"), (64, 64, 32), ProblemShape(130, 128, 96, groups=2), (65, 65), 3)
    9
    """
    places, (rows, columns, k_of_tile) = max(1, clusters), block
    extents = {mode: np.full(len(sizes), extent, np.int64) for mode, extent in problem.extents.items()}
    extents[groups.of] = np.asarray(sizes, np.int64)
    tiles = -(-extents["m"] // rows) * -(-extents["n"] // columns)
    k_tiles = np.maximum(1, -(-extents["k"] // k_of_tile))
    # Each group's tiles go round from the place after the last one's: all places have whole rounds, some one more.
    whole, rest = np.divmod(tiles, places)
    begin = (np.cumsum(tiles) - tiles) % places
    end = begin + rest
    steps = np.zeros(places + 1, np.int64)
    for first, last in ((begin, np.minimum(end, places)), (np.zeros_like(begin), np.maximum(end - places, 0))):
        np.add.at(steps, first, k_tiles)
        np.add.at(steps, last, -k_tiles)
    return int((whole * k_tiles).sum() + np.cumsum(steps)[:places].max())


# Reasons of decisions for a problem: the predicted time, and that of the rejected alternatives.


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
    uneven = "" if spec.problem.groups is None else ", on average over sizes of groups"
    why = f"the tile with the lowest predicted time for the problem{uneven}; {fetched}"
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


def microseconds(estimated: Estimate) -> str:
    """Format a predicted time with three digits, or as whole microseconds.

    >>> microseconds(Estimate(12.345, "device memory")), microseconds(Estimate(2345.6, "tensor cores"))
    ('12.3 us', '2,346 us')
    """
    return shown_us(estimated.us)


# Options for a problem: candidates with their slices of K, and the prediction of the performance model for each.


def cluster_text(cluster: Extents) -> str:
    """Format a cluster as in specs: with K only if slices are added there.

    >>> cluster_text((2, 1, 1)), cluster_text((1, 1, 4))
    ('2x1', '1x1x4')
    """
    return extents(cluster if cluster[2] > 1 else cluster[:2])


@dataclass(frozen=True, slots=True)
class Candidate:
    """A CTA tile, the issuers of its multiplications along M, N and K, and its stages.

    If it `schedules`, it has also the consumers' schedule, the CTAs of a cluster, and whether A and B are swapped: the
    tile is then one of the swapped product. `overall` is a measured factor on the model's time.
    """

    cta: tuple[int, int, int]
    atom_layout: tuple[int, int, int]
    stages: int
    consumers: Consumers | None = None
    cluster: Extents = ALONE
    swap: bool = False
    overall: float = 1.0
    issued_by: Issuer = Issuer.WARP

    @property
    def schedules(self) -> bool:
        """True if it says how its consumers share tiles."""
        return self.consumers is not None

    def __str__(self) -> str:
        m, n, k = self.cta
        warps_m, warps_n, _ = self.atom_layout
        shared = f"{warps_m}x{warps_n} {self.issued_by}s" if self.consumers != PINGPONG else PINGPONG
        text = f"{m}x{n}x{k}, {shared}, {plural(self.stages, 'stage')}"
        if self.cluster != ALONE:
            text += f", clusters of {cluster_text(self.cluster)}"
        return f"{text}, swapped" if self.swap else text

    @property
    def tile(self) -> tuple[object, ...]:
        """The part of the name that candidates of one tile have in common."""
        return self.cta, self.atom_layout, self.swap


@dataclass(frozen=True, slots=True)
class Option:
    """A candidate with slices of K, and the model's prediction; so many of its CTAs run on an SM at once.

    With groups the prediction is the mean of those `of_sizes`, in microseconds.
    """

    candidate: Candidate
    slices: int
    estimate: Estimate
    ctas_per_sm: int = 1
    of_sizes: TimesOfSizes | None = None

    def __str__(self) -> str:
        return f"{self.candidate}, {plural(self.slices, 'slice')} of K" if self.slices > 1 else str(self.candidate)


def reduction_in(cluster: Extents) -> Reduction:
    """Return the reduction of slices for such a cluster."""
    return CLUSTER if cluster[2] > 1 else "workspace"


def tile_is_open(spec: GemmSpec) -> bool:
    """Return whether the spec leaves the tile and its warps open."""
    return spec.tile.cta is None and spec.mma.atom_layout is None and spec.mma.permutation is None


def for_elements(candidates: Iterable[Candidate], element_bytes: int) -> Iterator[Candidate]:
    """Return rows written for 2-byte elements: rows of shared memory are 128 or 256 bytes for any type."""
    for row in candidates:
        m, n, k = row.cta
        yield replace(row, cta=(m, n, k * 2 // element_bytes))


def with_stages(
    spec: GemmSpec, candidates: Iterable[Candidate], most: Callable[[tuple[int, int, int]], int]
) -> Iterator[Candidate]:
    """Return each with the stages that the spec gives, else `most` of its CTA tile, as many as fit."""
    for row in candidates:
        if spec.tile.stages is not None:
            yield replace(row, stages=spec.tile.stages)
        elif (stages := min(row.stages, most(row.cta))) >= DOUBLE_BUFFERED:
            yield replace(row, stages=stages)


def mma_flops(spec: GemmSpec, target: Target, by: Instruction = Instruction.MMA_SYNC) -> float:
    """Return the operations per cycle and SM on the spec's operands, for the multiplier `by`."""
    return SM_RATES[target.name].flops_of(by, spec.problem.a.dtype) or ASSUMED_MMA_FLOPS


@dataclass(frozen=True, slots=True)
class Proposal:
    """A spec with every key filled in that the problem decides, and these decisions by key.

    `fits` is true if shared memory holds its stages, and registers hold the sums of warpgroups.
    """

    spec: GemmSpec
    predicted_us: float
    fits: bool
    decisions: Callable[[], Mapping[str, Decision]]
    of_sizes: TimesOfSizes | None = None


def first_that_holds(spec: GemmSpec, settled: Iterable[Proposal], decide: Callable[[GemmSpec], GemmPlan]) -> GemmPlan:
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
        decisions = tuple(settled_by.get(x.key, x) for x in plan.decisions)
        return replace(plan, spec=spec, decisions=decisions, predicted_time=timed(plan, one))
    return decide(spec)


def timed(plan: GemmPlan, proposal: Proposal) -> PredictedTime:
    """Return the time of the proposal that a plan was made of."""
    how = foretold(plan.target, plan.atom.instruction)
    return PredictedTime(proposal.predicted_us, how, str(GPUS[plan.target.name]), proposal.of_sizes)


def _as_far_as_they_come(settled: Iterable[Proposal]) -> Iterator[Proposal]:
    """End a search at a spec that the rules refuse: they then report the same error as without a problem."""
    with suppress(SpecError):
        yield from settled


def settle(
    spec: GemmSpec,
    target: Target,
    problem: ProblemShape,
    options: Iterable[Option],
    fits: Callable[[Candidate], bool],
) -> Iterator[Proposal]:
    """Return specs with the open keys filled in, the fastest for `problem` first.

    With groups, which are a batch here, times are the mean over the distributions of their sizes.
    """
    if spec.problem.groups is not None:
        options = (_over_sizes(spec, target, problem, option) for option in options)
    ranked = sorted(options, key=lambda option: (option.estimate.us, option.slices))
    for option in ranked:
        yield Proposal(
            spec=_filled(spec, option),
            predicted_us=option.estimate.us,
            fits=fits(option.candidate),
            decisions=partial(decisions, spec, target, problem, option, ranked),
            of_sizes=option.of_sizes,
        )


def _over_sizes(spec: GemmSpec, target: Target, problem: ProblemShape, option: Option) -> Option:
    """Return an option of a kernel of groups with its mean time over the distributions of their sizes."""
    assert spec.problem.groups is not None
    (m, n, k), (ctas_m, ctas_n, _) = option.candidate.cta, option.candidate.cluster
    swap = bool(option.candidate.swap or spec.schedule.swap)
    rows, columns = (n * ctas_n, m * ctas_m) if swap else (m * ctas_m, n * ctas_n)
    clusters = option.ctas_per_sm * GPUS[target.name].sms // (ctas_m * ctas_n)
    groups, block, candidate = spec.problem.groups.value, (rows, columns, k), option.candidate
    measured = 1.0
    if candidate.schedules:
        measured = factor_of_groups(groups, block, problem, swap=swap, in_turn=candidate.consumers == PINGPONG)
    work = WorkOfSizes(groups, block, problem, clusters)
    times = times_of_sizes(work, partial(_of_work, option.estimate, measured))
    return replace(option, estimate=replace(option.estimate, us=times.mean_us), of_sizes=times)


def _of_work(estimate: Estimate, measured: float, factor: float) -> float:
    return measured * estimate.busier(factor)


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


def least_time(plan: GemmPlan, problem: ProblemShape) -> PredictedTime:
    """Return the time in which the fullest SM multiplies its tiles, or device memory moves each element once.

    The larger of the two is reached only if everything else is hidden.
    """
    gpu, (m, n, k) = GPUS[plan.target.name], plan.cta_tile
    rate = SM_RATES[plan.target.name].flops_of(plan.atom.instruction, plan.atom.a_dtype.name) or ASSUMED_MMA_FLOPS
    tiles_of_an_sm = -(-plan.launch.tiles(problem) // gpu.sms)
    multiplied_us = tiles_of_an_sm * 2 * m * n * (-(-problem.k // k) * k) / rate / gpu.clock_hz * 1e6
    tensors = (plan.launch.tensor(name) for name in (*(x.name for x in plan.operands), RESULT))
    of_each = (prod(x.extents(problem, plan.launch.groups)) * dtype(x.dtype).bytes for x in tensors)
    moved_bytes = problem.batch * sum(of_each)
    return PredictedTime(max(multiplied_us, moved_bytes / gpu.memory_bytes_per_s * 1e6), AT_LEAST, str(gpu))


def foretold(target: Target, by: Instruction = Instruction.MMA_SYNC) -> str:
    """Return the word for times on the target's GPU: "estimated" if no model was fitted to kernels measured on it.

    `by` is the instruction whose rate they assume.

    >>> from cutegen.hardware import TARGETS
    >>> [foretold(TARGETS[name]) for name in ("sm_90", "sm_80", "sm_100")]
    ['predicted', 'estimated', 'estimated at an assumed rate']
    """
    if GPUS[target.name].fitted:
        return "predicted"
    known = SM_RATES[target.name].flops.get(by) is not None
    return "estimated" if known else "estimated at an assumed rate"
