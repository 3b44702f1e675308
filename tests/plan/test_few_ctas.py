"""Few CTAs are on every second SM: what plans say of it, and the page's figures against stored times."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS
from cutegen.plan import GemmPlan, plan
from cutegen.plan.search import warpgroup_model
from cutegen.plan.search.warpgroup_rows import is_small
from cutegen.spec import GemmSpec, Operand, Problem, Schedule, Tile
from tests.gpu.estimates import compared_us, estimated_us
from tests.gpu.measured import STORED, TORCH, geometric_mean
from tests.gpu.settings import parsed
from tests.gpu.sweep_kernels import Shape, shape_of
from tests.gpu.sweep_spread import SIDE_BY_SIDE, ctas_of, is_for
from tests.plan.pages import words_of
from tests.plan.worth import OPEN

PAGE = words_of("lab/tile_orders.md")
US = {
    shape_of(text): us for text, us in json.loads(STORED.with_name("h100_spread.json").read_text())["problems"].items()
}
FEW_ROWS, LONG_K, SHORT_K = 16, 2048, 1024
LINE_ELEMS = 64
"""Elements of f16 in a line of the L2 cache."""


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


def _pairs() -> Iterator[tuple[Shape, str, float]]:
    """(problem, kernel, its time spread as a multiple of that side by side)."""
    for shape, us in US.items():
        for name in us:
            if (before := us.get(f"{name}, {SIDE_BY_SIDE}")) is not None:
                yield shape, name, us[name][0] / before[0]


def test_the_page_says_what_it_gains() -> None:
    pairs = list(_pairs())
    assert all(is_for(name, shape) and ctas_of(name, shape) <= GPUS["sm_90"].sms // 2 for shape, name, _ in pairs)
    assert f"Measured on {len(US)} problems, most of few rows, in {len(pairs)} launches of 8 to 66 CTAs" in PAGE
    torn = [share for shape, _, share in pairs if shape[2] % LINE_ELEMS]
    whole = {(shape, name): share for shape, name, share in pairs if shape[2] % LINE_ELEMS == 0}
    few_rows = [share for ((m, _, k), _), share in whole.items() if m <= FEW_ROWS and k >= LONG_K]
    short_k = [share for ((*_, k), _), share in whole.items() if k <= SHORT_K]
    shares = list(whole.values())
    said = f"{geometric_mean(shares):.3f} times as long in a graph, {min(shares):.2f} to {max(shares):.2f}. With"
    assert said in PAGE
    assert f"a K of 2048 or more, it is {geometric_mean(few_rows):.3f}." in PAGE
    assert f"With a K of up to 1024 it is {geometric_mean(short_k):.3f}:" in PAGE
    assert f"If rows are not aligned, it is {geometric_mean(torn):.3f}" in PAGE


def test_the_page_says_what_the_best_gain_and_what_the_choice_does(monkeypatch: pytest.MonkeyPatch) -> None:
    best: dict[Shape, float] = {}
    for shape, us in US.items():
        side_by_side = {name: us.get(f"{name}, {SIDE_BY_SIDE}", us[name])[0] for name in _kernels(us)}
        best[shape] = min(us[name][0] for name in _kernels(us)) / min(side_by_side.values())
    most = min(best, key=best.__getitem__)
    mean, of_most = geometric_mean(list(best.values())), "x".join(map(str, most))
    assert f"{mean:.3f} times as long as the best side by side, {best[most]:.2f} at best ({of_most})" in PAGE
    chosen = _regret()
    monkeypatch.setattr(warpgroup_model, "SPREAD_LATENCY", 1.0)
    assert f"it takes {chosen:.3f} times as long as the best of these kernels, and without {_regret():.3f}" in PAGE


def _regret() -> float:
    """How many times the best time the choice takes on average, among the kernels that plans compare for a problem.

    Small products are left out: plans compare others.
    """
    shares = []
    for shape, us in US.items():
        if is_small(OPEN, ProblemShape(*shape)):
            continue
        predicted = {name: compared_us(parsed(name), shape) for name in _kernels(us)}
        chosen = min(predicted, key=predicted.__getitem__)
        if predicted[chosen] < math.inf:
            shares.append(us[chosen][0] / min(us[name][0] for name in predicted))
    return geometric_mean(shares)


def _kernels(us: dict[str, list[float]]) -> list[str]:
    return [name for name in us if name != TORCH and SIDE_BY_SIDE not in name]
