"""Few CTAs are on every second SM: what plans, launches and the model say of it."""

from __future__ import annotations

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS
from cutegen.plan import GemmPlan, plan
from cutegen.plan.search import warpgroup_model
from cutegen.spec import GemmSpec, Operand, Problem, Schedule, Tile
from tests.gpu.estimates import estimated_us
from tests.gpu.settings import parsed
from tests.gpu.sweep_kernels import Shape


def planned(tile: tuple[int, int, int], problem: Shape, schedule: Schedule | None = None) -> GemmPlan:
    row = Operand("f16", "k")
    operands = Problem(a=row, b=row, c=Operand("f16", "n"), accumulator="f32")
    spec = GemmSpec(family="sm90", problem=operands, tile=Tile(tile), schedule=schedule or Schedule(cluster=(1, 1)))
    made = plan(spec, "h100", problem)
    assert isinstance(made, GemmPlan)
    return made


@pytest.mark.parametrize(
    ("problem", "schedule", "spread"),
    [
        ((66 * 64, 64, 4096), Schedule(cluster=(1, 1)), True),
        ((67 * 64, 64, 4096), Schedule(cluster=(1, 1)), False),
        ((32 * 64, 64, 4096), Schedule(cluster=(2, 1)), False),
        ((16 * 64, 64, 4096), Schedule(split_k=4, cluster=(1, 1)), True),
        ((17 * 64, 64, 4096), Schedule(split_k=4, cluster=(1, 1)), False),
        ((16 * 64, 64, 4096), Schedule(split_k=4, reduction="cluster"), False),
    ],
)
def test_a_plan_says_where_its_few_ctas_are_and_launches_them_there(
    problem: Shape, schedule: Schedule, spread: bool
) -> None:
    made = planned((64, 64, 64), problem, schedule)
    said = next(each for each in made.decisions if each.key == "schedule.persistent")
    assert ("on every second SM" in said.chosen) == spread
    assert ("share its path to L2" in said.why) == spread
    grid = made.launch.geometry(ProblemShape(*problem), multiprocessors=GPUS["sm_90"].sms).grid
    tiles = -(-problem[0] // 64)
    assert grid[0] == (2 * tiles if spread else tiles)


def test_a_plan_without_a_problem_says_nothing_of_it() -> None:
    row = Operand("f16", "k")
    problem = Problem(a=row, b=row, c=Operand("f16", "n"), accumulator="f32")
    made = plan(GemmSpec(family="sm90", problem=problem), "h100")
    assert isinstance(made, GemmPlan)
    assert made.launch.spread
    assert "every second" not in made.explain()


def test_the_model_counts_it_where_stages_are_filled_again() -> None:
    name = "sm90_64x8x256_cooperative_c1x1_k1_n8_swap"
    gains = {}
    for shape in ((8, 4096, 4096), (8, 4096, 1024), (8, 8192, 4096)):
        spread = estimated_us(parsed(name), shape)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(warpgroup_model, "SPREAD_LATENCY", 1.0)
            gains[shape] = 1 - spread / estimated_us(parsed(name), shape)
    assert 0.01 < gains.pop((8, 4096, 4096)) < 0.1
    assert set(gains.values()) == {0.0}, "four k-tiles fill six stages once; 128 CTAs fill the GPU"
