"""The candidates of a problem: the model's favorite first, no more than sixteen, of more than one kind."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.errors import SpecError
from cutegen.hardware import target
from cutegen.plan import GemmPlan, plan
from cutegen.spec import GemmSpec, Raster, Schedule, Tile, load_spec
from cutegen.tune import space
from cutegen.tune.space import MOST, OF_ONE_TILE, name_of, proposed, ranked_space
from cutegen.tuned.answer import settled_plan
from tests.tuned.made import open_spec

SM90 = target("sm_90")
GROUPS = ProblemShape(32768, 1536, 2048, groups=128)
PROBLEMS = [
    ProblemShape(*extents)
    for extents in ((4096, 4096, 4096), (16, 4096, 4096), (256, 256, 65536), (1000, 504, 3000), (64, 64, 64, 100))
]

by_problem = pytest.mark.parametrize(
    "problem", [PROBLEMS[0], *(pytest.param(x, marks=pytest.mark.slow) for x in PROBLEMS[1:])], ids=str
)


@cache
def candidates(problem: ProblemShape) -> tuple[Any, ...]:
    """Those of a spec that leaves everything open; found once, because each takes a second."""
    return tuple(proposed(open_spec(), SM90, problem))


def planned(spec: GemmSpec, problem: ProblemShape) -> GemmPlan:
    made = plan(spec, SM90, problem)
    assert isinstance(made, GemmPlan)
    return made


@by_problem
def test_the_first_is_the_kernel_that_the_model_chooses(problem: ProblemShape) -> None:
    first, *others = candidates(problem)
    models, settled = planned(open_spec(), problem), settled_plan(open_spec(), first.settled, SM90, problem)
    for name in ("family", "cta_tile", "stages", "swapped", "scheduler", "smem_bytes"):
        assert getattr(settled, name) == getattr(models, name), name
    assert (settled.mma.cluster, settled.mma.role.alternates) == (models.mma.cluster, models.mma.role.alternates)
    assert settled.launch == models.launch
    assert 8 <= len(others) < MOST
    assert len({each.name for each in others} | {first.name}) == len(others) + 1


@pytest.mark.slow
@pytest.mark.parametrize("problem", [ProblemShape(512, 1536, 2048, groups=128), GROUPS], ids=str)
def test_groups_are_compared_as_products_of_their_mean_size(problem: ProblemShape) -> None:
    """128 experts read all their weights, however few rows they have: 0.8 GB take 170 us."""
    spec = load_spec("sm90_bf16_grouped")
    first, *others = proposed(spec, SM90, problem)
    models = planned(spec, problem)
    assert models.predicted_time is not None
    assert first.predicted_us == models.predicted_time.us > 150
    assert (first.settled.tile.cta, first.settled.schedule.swap) == (models.cta_tile, models.swapped)
    assert len(others) == MOST - 1


@by_problem
def test_they_are_no_near_copies(problem: ProblemShape) -> None:
    found = candidates(problem)
    tiles = [(each.settled.family, each.settled.tile.cta, each.settled.schedule.swap) for each in found]
    assert len(set(tiles)) >= 4
    assert max(map(tiles.count, tiles)) <= OF_ONE_TILE + 4  # with the favorite's other orders and its pace


@pytest.mark.parametrize(("problem", "groups"), list(zip(PROBLEMS[:3], ({4, 8}, set(), {8}), strict=True)), ids=str)
def test_the_favorite_comes_in_other_orders(problem: ProblemShape, groups: set[int]) -> None:
    """Where the other mode has four tiles, bands of 4 and of 8 are alike; a single row of tiles has one order."""
    first, *others = candidates(problem)
    assert first.settled.family == "sm90"
    alike = [each.settled for each in others if _without_order(each.settled) == _without_order(first.settled)]
    raster = first.settled.schedule.raster
    assert raster is not None
    orders = {(each.schedule.raster.along, each.schedule.raster.group) for each in alike if each.schedule.raster}
    assert orders == {("n" if raster.along == "m" else "m", group) for group in groups}


@pytest.mark.parametrize(
    ("problem", "pace"), [(PROBLEMS[0], 1126), (PROBLEMS[1], None), (ProblemShape(512, 512, 256), None)]
)
def test_the_favorite_comes_at_a_pace_where_l2_may_limit_it(problem: ProblemShape, pace: int | None) -> None:
    """128 x 256 x 64 takes 1024 cycles, and a tenth more is tried; few rows or a short K are not slowed."""
    first, *others = candidates(problem)
    assert first.settled.schedule.pace is None
    paced = [each for each in others if each.settled.schedule.pace]
    assert [each.settled.schedule.pace for each in paced] == [pace] * (pace is not None)
    for each in paced:
        assert replace(each.settled.schedule, pace=None) == first.settled.schedule
        assert f"pace{pace}" in each.name.split()
        assert settled_plan(open_spec(), each.settled, SM90, problem).pace == pace


@pytest.mark.parametrize("pace", [0, 900])
def test_a_given_pace_is_kept(pace: int) -> None:
    asked = replace(open_spec(), family="sm90", schedule=Schedule(pace=pace))
    assert {each.settled.schedule.pace for each in proposed(asked, SM90, PROBLEMS[0])} == {pace}


def _without_order(settled: GemmSpec) -> GemmSpec:
    return replace(settled, schedule=replace(settled.schedule, raster=None))


def test_what_the_spec_gives_is_kept() -> None:
    asked = replace(
        open_spec(),
        family="sm90",
        tile=Tile(stages=3),
        schedule=Schedule(consumers="cooperative", raster=Raster("m", 4, False)),
    )
    for each in proposed(asked, SM90, PROBLEMS[0]):
        assert each.settled.family == "sm90"
        assert each.settled.tile.stages == 3
        assert each.settled.schedule.consumers == "cooperative"
        assert each.settled.schedule.raster == Raster("m", 4, False)


@pytest.mark.parametrize(
    "problem", [pytest.param(x, marks=pytest.mark.slow) for x in PROBLEMS[:-1]] + PROBLEMS[-1:], ids=str
)
def test_none_is_refused_where_sums_are_promoted(problem: ProblemShape) -> None:
    """13 of 16 were: the registers of promoted sums were no part of the space."""
    asked = replace(load_spec("sm90_e4m3_tn"), tile=Tile())
    found = proposed(asked, SM90, problem)
    assert len(found) >= 8
    for each in found:
        assert planned(each.settled, problem).mma.accumulator.promotion


def test_a_family_whose_best_is_refused_has_its_next(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = ProblemShape(16, 4096, 4096)
    first, *others = proposed(open_spec(), SM90, problem)
    best = next(each for each in others if each.settled.family != first.settled.family)

    def refusing(asked: GemmSpec, *rest: Any) -> object:
        if asked == best.settled:
            raise SpecError(file="", key="tile", found="the best", expected="the next")
        return plan(asked, *rest)

    monkeypatch.setattr(space, "plan", refusing)
    found = proposed(open_spec(), SM90, problem)
    assert best.name not in {each.name for each in found}
    assert best.settled.family in {each.settled.family for each in found}


def test_of_a_given_tile_the_rest_is_varied() -> None:
    asked = replace(open_spec(), family="sm90", tile=Tile((64, 64, 128)))
    found = proposed(asked, SM90, PROBLEMS[2])
    assert {each.settled.tile.cta for each in found} == {(64, 64, 128)}
    assert {each.settled.schedule.split_k for each in found} >= {1, 4, 8}


def test_where_nothing_is_open_there_is_one() -> None:
    settled = proposed(open_spec(), SM90, PROBLEMS[0])[0].settled
    asked = replace(settled, schedule=replace(settled.schedule, pace=0))
    assert [each.name for each in proposed(asked, SM90, PROBLEMS[0])] == [name_of(asked)]


def test_what_no_family_can_do_is_refused() -> None:
    asked = replace(open_spec(), tile=Tile((7, 7, 7)))
    with pytest.raises(SpecError):
        proposed(asked, SM90, PROBLEMS[0])


def test_names_tell_candidates_apart() -> None:
    ranked = ranked_space(open_spec(), SM90, PROBLEMS[0])
    assert len({each.name for each in ranked}) == len({each.settled for each in ranked}) == len(ranked)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_every_target_has_a_space(arch: str) -> None:
    assert len(proposed(open_spec(), target(arch), PROBLEMS[3])) >= 8
