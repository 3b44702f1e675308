"""Candidates for a problem: at most sixteen kernels, out of all that the rules and the performance model leave.

The model's favorite is always first. Most of the others follow by predicted time, only a few with the same tile. Some
are included because the model may be wrong about them: the best of each other family, other tile orders, a pace of
copies, and fewer stages.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from cutegen.algebra import Extents
from cutegen.contract.problem import ProblemShape
from cutegen.errors import SpecError
from cutegen.hardware import GPUS, Target
from cutegen.plan import FAMILIES, GemmPlan, plan, swapped
from cutegen.plan.mainloop.l2 import PACE as PACE_KEY
from cutegen.plan.mainloop.l2 import tensor_cycles
from cutegen.plan.operands.staging import DOUBLE_BUFFERED
from cutegen.plan.schedule.groups import mean_product
from cutegen.plan.schedule.order import BAND, BANDS_ALONG_N, bands_of, given_order
from cutegen.spec import FAMILIES as SPEC_FAMILIES
from cutegen.spec import GemmSpec, Raster, Schedule
from cutegen.spec.values import RasterMode
from cutegen.support.words import extents

MOST = 16
OF_ONE_TILE = 4
"""Candidates with the same tile, among those that follow by predicted time."""
HOPELESS = 2.0
"""Limit on predicted time relative to the favorite; slower candidates are not measured."""
OF_OTHERS = 1.6
"""The same limit for the best of another family."""
PACE = 1.1
"""The pace tried, relative to the tensor cores' time for a k-tile: `docs/lab/hopper_experiments.md`, "The pace of
copies".
"""
PACED_SIDE, PACED_K_TILES = 256, 16
"""Least M and N, and least k-tiles: narrower and shorter products do not depend on what CTAs request together."""


@dataclass(frozen=True, slots=True)
class Proposed:
    """One candidate: its settled spec under a unique name, and the model's microseconds, if any."""

    name: str
    settled: GemmSpec
    predicted_us: float | None


def proposed(asked: GemmSpec, target: Target, problem: ProblemShape, most: int = MOST) -> tuple[Proposed, ...]:
    """Return the candidates for a problem, the model's favorite first. Values set in `asked` are kept.

    Raises SpecError if no family can meet the spec.
    """
    favorite = favorite_of(asked, target, problem)
    ranked = ranked_space(asked, target, problem)
    limit_us = HOPELESS * (favorite.predicted_us or ranked[0].predicted_us or 0.0) if ranked else 0.0
    ranked = [each for each in ranked if each.predicted_us is not None and each.predicted_us <= limit_us]
    special = list(_of_other_families(favorite, ranked, target, problem))
    special += _accepted(_variants(asked, favorite, target, problem), target, problem)
    following = list(islice(_accepted(_spread(ranked), target, problem), most))
    first = _distinct([favorite, *following])[: max(1, most - len(special))]
    return tuple(_distinct([*first, *special, *following])[:most])


def favorite_of(asked: GemmSpec, target: Target, problem: ProblemShape) -> Proposed:
    """Return the performance model's selection with every key settled. Raises SpecError."""
    made = plan(asked, target, problem)
    assert isinstance(made, GemmPlan)
    order = made.scheduler.order
    raster = Raster(order.along, order.group, order.zigzag)
    of_family = replace(asked, family=made.family)
    for one in FAMILIES[made.family].proposed(of_family, target, problem):
        if _is(one.spec, made):
            return _proposed(one.spec, raster, one.predicted_us)
    return _proposed(of_family, raster, None)


def ranked_space(asked: GemmSpec, target: Target, problem: ProblemShape) -> list[Proposed]:
    """Return everything to compare, fastest first by the performance model; rules may still reject some."""
    found: list[Proposed] = []
    for name in (asked.family,) if asked.family else FAMILIES:
        try:
            settled = list(FAMILIES[name].tuned_over(replace(asked, family=name), target, problem))
        except SpecError:
            continue
        found += (
            _proposed(one.spec, _raster(asked, one.spec, problem), one.predicted_us) for one in settled if one.fits
        )
    return sorted(_distinct(found), key=lambda each: each.predicted_us or 0.0)


def name_of(settled: GemmSpec) -> str:
    """Name a candidate briefly: family, tile, warps, stages, and non-default parts of the schedule.

    >>> from cutegen.spec import load_spec
    >>> name_of(load_spec("sm80_hgemm_tn"))
    'sm80 128x128x64 s3'
    """
    tile, schedule = settled.tile, settled.schedule
    parts = [settled.family or "", extents(tile.cta) if tile.cta else ""]
    if settled.mma.atom_layout:
        parts.append(extents(settled.mma.atom_layout[:2]))
    if tile.stages:
        parts.append(f"s{tile.stages}")
    parts += _of_schedule(schedule)
    return " ".join(part for part in parts if part)


def _of_schedule(schedule: Schedule) -> Iterator[str]:
    if schedule.consumers == "pingpong":
        yield "pingpong"
    if schedule.cluster and max(schedule.cluster) > 1:
        yield f"c{extents(schedule.cluster)}"
    if schedule.swap:
        yield "swap"
    if schedule.pace:
        yield f"pace{schedule.pace}"
    if schedule.split_k and schedule.split_k > 1:
        yield f"k{schedule.split_k}" + ("" if schedule.reduction in (None, "workspace") else f"-{schedule.reduction}")
    if (raster := schedule.raster) and raster.along:
        yield f"{raster.along}{raster.group}" + ("z" if raster.zigzag else "")


def _proposed(settled: GemmSpec, raster: Raster, predicted_us: float | None) -> Proposed:
    filled = replace(settled, schedule=replace(settled.schedule, raster=raster))
    return Proposed(name_of(filled), filled, predicted_us)


def _raster(asked: GemmSpec, settled: GemmSpec, problem: ProblemShape) -> Raster:
    """Return the tile order of a plan with this tile, if the L2 cache does not decide."""
    default = BANDS_ALONG_N
    if _is_short_of_l2(settled) and settled.tile.cta is not None:
        default = bands_of(settled.tile.cta, _cluster(settled), _multiplied(settled, problem))
    order = given_order(asked.schedule.raster or Raster(), default)
    return Raster(order.along, order.group, order.zigzag)


def _is(settled: GemmSpec, made: GemmPlan) -> bool:
    """Tell whether a plan belongs to a settled spec."""
    schedule = settled.schedule
    return (
        settled.tile.cta == made.cta_tile
        and settled.tile.stages in (None, made.stages)
        and bool(schedule.swap) == made.swapped
        and schedule.slices == made.slices
        and (schedule.consumers == "pingpong") == made.mma.role.alternates
        and _cluster(settled) == made.mma.cluster
    )


def _cluster(settled: GemmSpec) -> Extents:
    """Return the CTAs along M, N and K."""
    m, n, k = (*(settled.schedule.cluster or (1, 1)), 1)[:3]
    return m, n, k


def _accepted(candidates: Iterable[Proposed], target: Target, problem: ProblemShape) -> Iterator[Proposed]:
    """Return those that the rules can plan: the space knows the memory of stages and sums, but not every rule."""
    for each in candidates:
        try:
            plan(each.settled, target, problem)
        except SpecError:
            continue
        yield each


def _spread(ranked: Iterable[Proposed]) -> Iterator[Proposed]:
    """Return them in order, with only a few of one tile."""
    seen: Counter[object] = Counter()
    for each in ranked:
        key = (each.settled.family, each.settled.tile.cta, each.settled.schedule.swap)
        seen[key] += 1
        if seen[key] <= OF_ONE_TILE:
            yield each


def _of_other_families(
    favorite: Proposed, ranked: Iterable[Proposed], target: Target, problem: ProblemShape
) -> Iterator[Proposed]:
    """Return the best of each other family that the rules accept, unless it is much slower."""
    limit_us = math.inf if favorite.predicted_us is None else OF_OTHERS * favorite.predicted_us
    near = [each for each in ranked if (each.predicted_us or 0.0) <= limit_us]
    for family in dict.fromkeys(each.settled.family for each in near):
        if family != favorite.settled.family:
            yield from islice(_accepted((x for x in near if x.settled.family == family), target, problem), 1)


def _variants(asked: GemmSpec, favorite: Proposed, target: Target, problem: ProblemShape) -> Iterator[Proposed]:
    """Return the favorite in other tile orders, at a pace if it can have one, and if threads copy with a stage less."""
    settled, stages = favorite.settled, favorite.settled.tile.stages
    if asked.schedule.raster is None and settled.schedule.raster:
        for raster in _other_orders(settled, settled.schedule.raster, target, problem):
            yield _proposed(settled, raster, favorite.predicted_us)
    if asked.schedule.pace is None and (pace := _pace(settled, target, problem)):
        paced = replace(settled, schedule=replace(settled.schedule, pace=pace))
        yield _proposed(paced, settled.schedule.raster or Raster(), favorite.predicted_us)
    by_threads = not SPEC_FAMILIES[_family(settled)].bulk_copies
    if by_threads and asked.tile.stages is None and stages is not None and stages > DOUBLE_BUFFERED + 1:
        fewer = replace(settled, tile=replace(settled.tile, stages=stages - 1))
        yield _proposed(fewer, settled.schedule.raster or Raster(), favorite.predicted_us)


def _other_orders(settled: GemmSpec, order: Raster, target: Target, problem: ProblemShape) -> Iterator[Raster]:
    """Return orders that may be faster: if L2 is short two bands along the other mode; else if tiles take turns.

    For 207 kernels measured on H100s, the plan's order takes at most 18 % longer than the best, and the best of these
    three at most 5 %.
    """
    other: RasterMode = "m" if order.along == "n" else "n"
    grid = dict(zip("mn", _grid(settled, problem), strict=True))
    short_of_l2 = _is_short_of_l2(settled)
    if short_of_l2 and min(grid.values()) > 1:
        # Up to four tiles are one band in either width.
        widths = (BAND, BAND // 2) if grid[other] > BAND // 2 else (BAND,)
        yield from (Raster(other, width, False) for width in widths)
    elif not short_of_l2 and math.prod(grid.values()) * mean_product(settled, problem).batch > GPUS[target.name].sms:
        yield from (Raster(other, order.group, False), replace(order, zigzag=True))


def _pace(settled: GemmSpec, target: Target, problem: ProblemShape) -> int:
    """Return the cycles per k-tile to try for a kernel that has a pace and that L2 may limit, else 0."""
    tile, slices, row = settled.tile.cta, settled.schedule.slices, SPEC_FAMILIES[_family(settled)]
    problem = mean_product(settled, problem)
    if PACE_KEY in row.without or tile is None or min(problem.m, problem.n) < PACED_SIDE:
        return 0
    (instruction,) = FAMILIES[row.name].mma.keys.needs
    cycles = tensor_cycles(target, instruction, settled.problem.a.dtype, tile)
    return 0 if cycles is None or problem.k < PACED_K_TILES * slices * tile[2] else round(PACE * cycles)


def _family(settled: GemmSpec) -> str:
    assert settled.family is not None  # every candidate has one
    return settled.family


def _is_short_of_l2(settled: GemmSpec) -> bool:
    return FAMILIES[_family(settled)].schedule.short_of_l2


def _multiplied(settled: GemmSpec, problem: ProblemShape) -> ProblemShape:
    """Return the product as the kernel computes it; with groups that of their mean size."""
    mean = mean_product(settled, problem)
    return swapped.shape_multiplied(mean) if settled.schedule.swap else mean


def _grid(settled: GemmSpec, problem: ProblemShape) -> tuple[int, int]:
    """Return the tiles along M and N as the kernel computes them."""
    shape, (m, n, _) = _multiplied(settled, problem), settled.tile.cta or (128, 128, 64)
    return -(-shape.m // m), -(-shape.n // n)


def _distinct(candidates: Iterable[Proposed]) -> list[Proposed]:
    found: dict[str, Proposed] = {}
    for each in candidates:
        found.setdefault(each.name, each)
    return list(found.values())
