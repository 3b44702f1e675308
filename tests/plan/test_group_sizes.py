"""Predicted times of groups of uneven sizes: the tiles of the busiest CTA, counted by the scheduler's value."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from cutegen.cli.main import main
from cutegen.contract.problem import Distribution, Groups, ProblemShape
from cutegen.hardware import target
from cutegen.plan import GemmPlan, plan
from cutegen.plan.search.problem import busiest_k_tiles
from cutegen.plan.search.tile_model import Estimate
from cutegen.plan.search.warpgroups import settled_for
from cutegen.plan.values.gemm_plan import sizes_line
from cutegen.spec import GemmSpec, Grouped, Operand, Tile, load_spec
from cutegen.tune.space import proposed

PROBLEM = ProblemShape(8192, 4096, 2048, groups=16)


@pytest.fixture(scope="module")
def made() -> GemmPlan:
    found = plan(load_spec("sm80_bf16_grouped"), "sm_80", PROBLEM)
    assert isinstance(found, GemmPlan)
    return found


def times_of(planned: GemmPlan) -> dict[Distribution, float]:
    time = planned.predicted_time
    return {} if time is None or time.of_sizes is None else dict(time.of_sizes.named)


@pytest.mark.parametrize("name", list(Distribution))
@pytest.mark.parametrize("ctas", [1, 7, 108])
def test_the_busiest_cta_is_that_of_a_count_tile_by_tile(made: GemmPlan, name: Distribution, ctas: int) -> None:
    sizes = name.sizes(PROBLEM.m, 16, seed=1)
    (rows, columns), k_of_tile = made.launch.cta_tile, made.cta_tile[2]
    tiles = sum(-(-size // rows) for size in sizes) * -(-PROBLEM.n // columns)
    busiest = max(Counter(tile % ctas for tile in range(tiles)).values())
    assert made.launch.groups is not None
    found = busiest_k_tiles(made.launch.groups, (rows, columns, k_of_tile), PROBLEM, sizes, ctas)
    assert found == busiest * -(-PROBLEM.k // k_of_tile)


def test_parts_of_k_have_the_k_tiles_of_their_sizes(made: GemmPlan) -> None:
    """Each group has four tiles of C, and an empty one multiplies a k-tile of zeros; three CTAs take turns."""
    rows, columns = made.launch.cta_tile
    sizes, k_of_tile = (65, 0, 640, 32), 32
    work = np.repeat([3, 1, 20, 1], 4)
    problem = ProblemShape(2 * rows, 2 * columns, sum(sizes), groups=4)
    for ctas in (1, 3, 5, 16, 40):
        found = busiest_k_tiles(Groups("k"), (rows, columns, k_of_tile), problem, sizes, ctas)
        assert found == max(work[cta::ctas].sum() for cta in range(ctas))


def test_the_plans_time_is_the_mean_of_uneven_ones_and_a_line_says_the_worst(made: GemmPlan) -> None:
    times = times_of(made)
    assert made.predicted_time is not None
    uneven = (Distribution.SPREAD, Distribution.ROUTED, Distribution.ZIPF)
    assert fmean(times[each] for each in uneven) == pytest.approx(made.predicted_time.us)
    assert list(times) == list(Distribution)
    (line,) = sizes_line(made.predicted_time)
    worst = f"the worst takes {max(times.values()) / min(times.values()):.2f} times the best"
    assert line.endswith(f"kernels are chosen by the mean of spread, routed, zipf; {worst}")
    assert line in " ".join(made.explain().split())


def test_without_groups_or_a_problem_there_are_none(made: GemmPlan) -> None:
    dense = plan(load_spec("sm80_bf16_nn"), "sm_80", ProblemShape(512, 512, 512))
    assert isinstance(dense, GemmPlan)
    assert not times_of(dense)
    alone = plan(load_spec("sm80_bf16_grouped"), "sm_80")
    assert isinstance(alone, GemmPlan)
    assert not times_of(alone)


PADDED = Grouped("m", "padded")


def padded(name: str) -> GemmSpec:
    spec = load_spec(name)
    return replace(spec, problem=replace(spec.problem, groups=PADDED))


@pytest.mark.parametrize(("name", "target_name"), [("sm80_bf16_grouped", "sm_80"), ("sm90_bf16_grouped", "sm_90")])
def test_padded_groups_have_sizes_around_their_mean(name: str, target_name: str) -> None:
    """No group has a large share of all rows; the plan's time is the mean of uneven sizes."""
    found = plan(padded(name), target_name, ProblemShape(192, 4096, 7168, groups=32))
    assert isinstance(found, GemmPlan)
    times = times_of(found)
    assert list(times) == [Distribution.UNIFORM, Distribution.SPREAD, Distribution.ROUTED]
    assert found.predicted_time is not None
    assert found.predicted_time.us == pytest.approx((times[Distribution.SPREAD] + times[Distribution.ROUTED]) / 2)
    (line,) = sizes_line(found.predicted_time)
    assert "kernels are chosen by the mean of spread, routed;" in line
    assert line in " ".join(found.explain().split())


@pytest.mark.parametrize("sizes", [(192,) * 4, (250, 134, 191, 193), (0, 768, 0, 0), (384, 1, 383, 0)], ids=str)
def test_a_padded_size_takes_as_long_as_a_packed_one(sizes: tuple[int, ...]) -> None:
    """The same tile for groups of the same mean: their busiest CTA has as many k-tiles."""
    tile = Tile((128, 128, 64))
    asked = [
        (padded("sm90_bf16_grouped"), ProblemShape(192, 4096, 7168, groups=4)),
        (load_spec("sm90_bf16_grouped"), ProblemShape(4 * 192, 4096, 7168, groups=4)),
    ]
    found = []
    for spec, problem in asked:
        made = plan(replace(spec, tile=tile), "sm_90", problem)
        assert isinstance(made, GemmPlan)
        assert made.predicted_time is not None
        assert made.predicted_time.of_sizes is not None
        found.append(made.predicted_time.of_sizes.us_of(sizes))
    assert found[0] == found[1]


def test_the_busiest_cta_of_padded_groups_is_that_of_the_scheduler() -> None:
    """The scheduler's tiles of each group, one CTA after another in turn, have the k-tiles that are predicted."""
    spec, problem, sizes = padded("sm90_bf16_grouped"), ProblemShape(384, 512, 640, groups=5), (384, 0, 1, 200, 65)
    made = plan(spec, "sm_90", problem)
    assert isinstance(made, GemmPlan)
    assert made.launch.groups is not None
    (rows, columns), k_of_tile = made.launch.cta_tile, made.cta_tile[2]
    works = []
    for product in made.scheduler.products(problem, sizes):
        shape = ProblemShape(len(product.m), len(product.n), len(product.k))
        works += [-(-shape.k // k_of_tile)] * replace(made.launch, groups=None).tiles(shape)
    for ctas in (1, 3, 7, 132):
        found = busiest_k_tiles(made.launch.groups, (rows, columns, k_of_tile), problem, sizes, ctas)
        assert found == max(sum(works[cta::ctas]) for cta in range(ctas))


def chosen_and_of_columns(spec: GemmSpec, problem: ProblemShape, columns: int) -> tuple[GemmPlan, GemmPlan]:
    """The plan of the search, and that of a swapped tile with so many columns, which are rows of groups."""
    swapped = replace(spec, tile=Tile((128, columns, 64)), schedule=replace(spec.schedule, swap=True))
    chosen, given = (plan(each, "sm_90", problem) for each in (spec, swapped))
    assert isinstance(chosen, GemmPlan)
    assert isinstance(given, GemmPlan)
    return chosen, given


def test_padded_groups_get_no_tile_that_only_even_ones_fill() -> None:
    """Of 32 groups of about 192 rows half have a few more, and need a second tile of 192 rows."""
    problem = ProblemShape(192, 4096, 7168, groups=32)
    spec = padded("sm90_bf16_grouped")
    chosen, fitting = chosen_and_of_columns(spec, problem, 192)
    assert chosen.launch.cta_tile[0] < 192 == fitting.launch.cta_tile[0]
    assert times_of(fitting)[Distribution.UNIFORM] < times_of(chosen)[Distribution.UNIFORM]
    assert times_of(chosen)[Distribution.SPREAD] < 0.9 * times_of(fitting)[Distribution.SPREAD]


def test_given_sizes_of_padded_groups_have_a_time(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """`cutegen plan --sizes` says it, with the tiles that these sizes have."""
    file = tmp_path / "padded.toml"
    text = (Path(__file__).parents[2] / "layouts" / "sm90_bf16_grouped.toml").read_text()
    file.write_text(text.replace('layout = "packed"', 'layout = "padded"'))
    words = ["plan", str(file), "--problem", "384,4096,7168", "--sizes", "384,0,200,65", "--arch", "h200", "--json"]
    found = json.loads(_printed(capsys, words))
    assert list(found["times_of_sizes_us"]) == ["uniform", "spread", "routed"]
    assert found["of_sizes"]["predicted_us"] > 0


def test_programs_get_them(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "sm80_bf16_grouped", "--problem", "512,256,128", "--groups", "8", "--arch", "a100", "--json"]
    assert main(words) == 0
    assert list(json.loads(capsys.readouterr().out)["times_of_sizes_us"]) == list(Distribution)


@pytest.mark.parametrize("sizes", [(100, 0, 150), (300,), (1, 1, 1, 0)])
def test_given_sizes_have_the_tiles_of_a_count_by_hand(
    capsys: pytest.CaptureFixture[str], sizes: tuple[int, ...]
) -> None:
    listed = ",".join(map(str, sizes))
    assert main(["plan", "sm90_bf16_grouped", "--problem", "300,250,130", "--sizes", listed, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["of_sizes"]
    made = plan(load_spec("sm90_bf16_grouped"), "sm_90a", ProblemShape(300, 250, 130, groups=len(sizes)))
    assert isinstance(made, GemmPlan)
    rows, columns = made.launch.cta_tile
    first_rows = [(group, row) for group, size in enumerate(sizes) for row in range(0, size, rows)]
    tiles = len(first_rows) * len(range(0, 250, columns))
    k_tiles = tiles * len(range(0, 130, made.cta_tile[2]))
    assert (found["sizes"], found["tiles"], found["k_tiles"]) == (list(sizes), tiles, k_tiles)
    multiplied = k_tiles * rows * columns * made.cta_tile[2]
    assert found["fill"] == pytest.approx(sum(sizes) * 250 * 130 / multiplied)
    assert found["predicted_us"] > 0


def test_the_time_of_a_distribution_is_that_of_its_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "sm90_bf16_grouped", "--problem", "8192,4096,2048", "--groups", "16", "--json"]
    for name in Distribution:
        of_name = json.loads(_printed(capsys, [*words, "--sizes", str(name)]))
        listed = ",".join(map(str, name.sizes(8192, 16)))
        of_list = json.loads(_printed(capsys, [*words[:4], *words[6:], "--sizes", listed]))
        assert of_name["of_sizes"]["predicted_us"] == of_name["times_of_sizes_us"][name]
        assert of_list["of_sizes"] == of_name["of_sizes"]


def _printed(capsys: pytest.CaptureFixture[str], words: list[str]) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


def test_no_rows_take_no_tiles(capsys: pytest.CaptureFixture[str]) -> None:
    text = _printed(capsys, ["plan", "sm90_bf16_grouped", "--problem", "300,250,130", "--sizes", "0,0"])
    assert text.startswith("sizes 0,0: 0 of 2 groups with M, 0 CTA tiles of ")


@pytest.mark.parametrize("verb", ["plan", "show"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--sizes", "3,4"), "--sizes: found 3,4 without --problem"),
        (("--sizes", "300,4", "--problem", "300,256,128"), "--sizes: found 304 along M; expected at most 300"),
        (("--sizes", "30,4", "--groups", "3", "--problem", "300,256,128"), "--groups: found 3 with 2 sizes"),
    ],
)
def test_sizes_without_room_are_refused(
    capsys: pytest.CaptureFixture[str], verb: str, words: tuple[str, ...], said: str
) -> None:
    assert main([verb, "sm90_bf16_grouped", *words]) == 2
    assert said in capsys.readouterr().err


def test_the_tile_is_one_that_uneven_groups_fill() -> None:
    """Groups of 256 rows fill tiles of 256; of uneven ones half have a few more, which take a second tile."""
    problem = ProblemShape(4096, 16384, 5120, groups=16)
    spec = load_spec("sm90_bf16_grouped")
    chosen, widest = chosen_and_of_columns(spec, problem, 256)
    assert chosen.launch.cta_tile[0] < 256 == widest.launch.cta_tile[0]
    of_chosen, of_widest = times_of(chosen), times_of(widest)
    assert of_chosen[Distribution.ROUTED] < 0.95 * of_widest[Distribution.ROUTED]
    more = [each[Distribution.ROUTED] / each[Distribution.UNIFORM] for each in (of_chosen, of_widest)]
    assert more[0] < 0.8 * more[1]
    why = next(each.why for each in chosen.decisions if each.key == "tile.cta")
    assert "on average over sizes of groups" in why


@pytest.mark.parametrize("rows", [(32768, 1536, 2048, 128), (16384, 5760, 2880, 128), (256, 4096, 7168, 8)], ids=str)
def test_no_uneven_sizes_take_much_longer_than_by_their_fastest_kernel(rows: tuple[int, int, int, int]) -> None:
    """The mean over uneven distributions is compared, and the choice costs none of them a fifth of its time."""
    m, n, k, groups = rows
    each = ProblemShape(m // groups, n, k, batch=groups)
    found = [one.of_sizes for one in settled_for(load_spec("sm90_bf16_grouped"), target("sm_90"), each) if one.fits]
    times = np.array([[us for _, us in of_sizes.named] for of_sizes in found if of_sizes is not None])
    assert len(times) == len(found) > 20
    times = times[:, [not name.even for name in Distribution]]
    assert times.mean(axis=1).argmin() == 0
    assert (times[0] < 1.2 * times.min(axis=0)).all()


def test_device_memory_moves_as_much_for_uneven_groups() -> None:
    """Weights that take all of the time are read once, however many tiles there are; tiles cost when SMs limit."""
    assert Estimate(10.0, "device memory", 10.0, 2.0).busier(2.0) == 10.0
    assert Estimate(10.0, "device memory", 8.0, 2.0).busier(2.0) == pytest.approx((12.0**2 + 8.0**2) ** 0.5)
    assert Estimate(10.0, "SMs", 6.0, 2.0).busier(2.0) == 20.0


MEASURED = json.loads((Path(__file__).parents[1] / "gpu" / "h200_groups.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("row", MEASURED, ids=lambda row: "x".join(map(str, row["problem"])))
def test_the_choice_is_near_the_best_measured_kernel(row: dict[str, Any]) -> None:
    """Of up to 22 kernels measured on an H200 with uneven sizes, the chosen one takes at most 3 % longer than the best.

    The tile of one product's choice was not measured with it; the next one's is compared.
    """
    m, n, k, groups = row["problem"]
    spec, majors = load_spec("sm90_bf16_grouped"), ("k", "k") if row["of"] == "m" else ("m", "n")
    a, b = (Operand("bf16", major) for major in majors)
    of_groups = Grouped(row["of"], row.get("layout", "packed"))
    asked = replace(spec, problem=replace(spec.problem, a=a, b=b, groups=of_groups))
    ranked = proposed(asked, target("sm_90"), ProblemShape(m, n, k, groups=groups))[:2]
    measured = {_of_tile(name): us for name, us in row["us"].items()}
    found = [measured[name] for each in ranked if (name := _of_tile(each.name)) in measured]
    assert found[0] <= 1.03 * min(measured.values())


def _of_tile(name: str) -> str:
    """Return a name without stages and order: specs that give a tile have larger parts of C, and some a stage less."""
    return " ".join(word for word in name.split() if word[:1] not in "smn" or not word[1:].isdigit())
