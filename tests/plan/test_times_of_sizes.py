"""Predicted times of groups of uneven sizes: the tiles of the busiest CTA, counted by the scheduler's value."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from cutegen.cli.main import main
from cutegen.contract.distributions import Distribution
from cutegen.contract.problem import ProblemShape
from cutegen.plan import GemmPlan, plan
from cutegen.plan.values.times_of_sizes import most_k_tiles, sizes_line, times_of_sizes
from cutegen.spec import load_spec

PROBLEM = ProblemShape(8192, 4096, 2048, groups=16)


@pytest.fixture(scope="module")
def made() -> GemmPlan:
    found = plan(load_spec("sm80_bf16_grouped"), "sm_80", PROBLEM)
    assert isinstance(found, GemmPlan)
    return found


@pytest.mark.parametrize("name", list(Distribution))
@pytest.mark.parametrize("ctas", [1, 7, 108])
def test_the_busiest_cta_is_that_of_a_count_tile_by_tile(made: GemmPlan, name: Distribution, ctas: int) -> None:
    sizes = name.sizes(PROBLEM.m, 16, seed=1)
    (rows, columns), k_of_tile = made.launch.cta_tile, made.cta_tile[2]
    tiles = sum(-(-size // rows) for size in sizes) * -(-PROBLEM.n // columns)
    busiest = max(Counter(tile % ctas for tile in range(tiles)).values())
    assert most_k_tiles(made.launch, k_of_tile, PROBLEM, sizes, ctas) == busiest * -(-PROBLEM.k // k_of_tile)


def test_parts_of_k_have_the_k_tiles_of_their_sizes(made: GemmPlan) -> None:
    """Each group has four tiles of C, and an empty one multiplies a k-tile of zeros; three CTAs take turns."""
    assert made.launch.groups is not None
    launch = replace(made.launch, groups=replace(made.launch.groups, of="k"))
    rows, columns = launch.cta_tile
    sizes, k_of_tile = (65, 0, 640, 32), 32
    work = np.repeat([3, 1, 20, 1], 4)
    problem = ProblemShape(2 * rows, 2 * columns, sum(sizes), groups=4)
    assert most_k_tiles(launch, k_of_tile, problem, sizes, 3) == max(work[cta::3].sum() for cta in range(3))


def test_even_sizes_take_the_plans_time_and_a_line_says_the_worst(made: GemmPlan) -> None:
    times = times_of_sizes(made)
    assert made.predicted_time is not None
    assert times[Distribution.UNIFORM] == pytest.approx(made.predicted_time.us)
    assert list(times) == list(Distribution)
    (line,) = sizes_line(made)
    assert line.endswith(f"the worst takes {max(times.values()) / min(times.values()):.2f} times the best")
    assert line in " ".join(made.explain().split())


def test_without_groups_or_a_problem_there_are_none(made: GemmPlan) -> None:
    dense = plan(load_spec("sm80_bf16_nn"), "sm_80", ProblemShape(512, 512, 512))
    assert isinstance(dense, GemmPlan)
    assert not times_of_sizes(dense)
    assert not times_of_sizes(replace(made, problem=None, predicted_time=None))


def test_programs_get_them(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "sm80_bf16_grouped", "--problem", "512,256,128", "--groups", "8", "--arch", "a100", "--json"]
    assert main(words) == 0
    assert list(json.loads(capsys.readouterr().out)["times_of_sizes_us"]) == list(Distribution)
