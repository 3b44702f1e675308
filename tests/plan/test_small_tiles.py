"""Small products: which they are, the rows that plans compare for them, and how good the choice is."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import target
from cutegen.plan import plan
from cutegen.plan.gemm_plan import GemmPlan
from cutegen.plan.search import cp_async, warpgroup_rows, warpgroups
from cutegen.plan.search.warpgroup_rows import EIGHT_WIDE, MEASURED, SMALL, is_small
from cutegen.spec import GemmSpec, Schedule, Tile
from tests.gpu.estimates import setting_of
from tests.gpu.fit_small import STORED, fitted, samples_of
from tests.gpu.measured import TORCH, geometric_mean
from tests.gpu.sweep_kernels import Shape
from tests.plan.pages import words_of
from tests.plan.worth import (
    DEVICE,
    OPEN,
    Times,
    forget,
    predicted_of_families,
    times_of,
)

TABLE = json.loads(STORED.read_text())
US = times_of(TABLE)
FEW, LONG_AND_NARROW = times_of(TABLE, "few_us"), times_of(TABLE, "narrow_us")
CHOICES: Mapping[str, tuple[float, ...]] = TABLE["choices"]
CHOICES_OF_FEW: Mapping[str, tuple[float, ...]] = TABLE["few_choices"]
CHOICES_OF_SLICES: Mapping[str, tuple[float, ...]] = TABLE["slices_choices"]
PAGE = words_of("lab/tile_model.md")
ANY_FAMILY = replace(OPEN, family=None)
MMA_SYNC = replace(OPEN, family="sm80")


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    forget()


def planned(spec: GemmSpec, problem: Shape) -> GemmPlan:
    made = plan(spec, DEVICE.name, problem)
    assert isinstance(made, GemmPlan)
    return made


@pytest.mark.parametrize(
    ("problem", "is_so"),
    [
        ((512, 512, 512), True),
        ((16, 2048, 2048), True),
        ((1, 2048, 2048), True),
        ((8, 2048, 2056), False),  # narrow, with a long K
        ((2048, 16, 4096), False),  # narrow, with a long K
        ((2048, 32, 2056), True),
        ((512, 512, 88), False),  # a short K
        ((1024, 1024, 100), False),  # more results
        ((512, 512, 1024), False),  # of middle size
    ],
)
def test_which_are_small(problem: Shape, is_so: bool) -> None:
    m, n, k = problem
    assert is_small(OPEN, ProblemShape(*problem)) == is_so
    assert is_small(OPEN, ProblemShape(n, m, k)) == is_so


def test_a_batch_counts_with_all_its_products() -> None:
    assert is_small(OPEN, ProblemShape(128, 128, 256, batch=8))
    assert not is_small(OPEN, ProblemShape(128, 128, 256, batch=64))


@pytest.mark.parametrize(("dtype", "least_k"), [("bf16", 96), ("e4m3", 192), ("s8", 192), ("f32", None)])
def test_k_counts_in_elements_of_two_bytes(dtype: str, least_k: int | None) -> None:
    """Rows of shared memory are as long for any type; wider types have other instructions."""
    row = replace(OPEN.problem.a, dtype=dtype)
    spec = replace(OPEN, problem=replace(OPEN.problem, a=row, b=row))
    found = [k for k in range(16, 512, 16) if is_small(spec, ProblemShape(256, 256, k))]
    assert found == ([] if least_k is None else list(range(least_k, 512, 16)))


@pytest.mark.parametrize("majors", ["kn", "mk", "mn"])
def test_other_majors_want_a_longer_k(majors: str) -> None:
    a, b = (replace(OPEN.problem.a, major=major) for major in majors)
    spec = replace(OPEN, problem=replace(OPEN.problem, a=a, b=b))
    assert not is_small(spec, ProblemShape(256, 256, 184))
    assert is_small(spec, ProblemShape(256, 256, 192))
    assert not is_small(spec, ProblemShape(8, 2048, 1024))  # few rows were measured along K alone


def test_open_specs_compare_their_rows_alone_and_as_they_are() -> None:
    shape = ProblemShape(256, 512, 512)
    rows = warpgroups.compared_rows(OPEN, DEVICE, shape)
    assert rows == SMALL
    for row, candidate in warpgroups._candidates(OPEN, DEVICE, shape, rows):
        assert warpgroups._joined(OPEN, DEVICE, shape, row, candidate) == candidate


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(consumers="pingpong"),
        Schedule(cluster=(2, 1)),
        Schedule(cluster=(1, 2)),
        Schedule(swap=True),
        Schedule(split_k=3),
        Schedule(split_k=4, reduction="cluster"),
    ],
    ids=str,
)
def test_a_spec_with_some_keys_has_other_rows_too(schedule: Schedule) -> None:
    spec, shape = replace(OPEN, schedule=schedule), ProblemShape(256, 512, 512)
    rows = warpgroups.compared_rows(spec, DEVICE, shape)
    assert {row.kernel for row in (*SMALL, *MEASURED)} <= {row.kernel for row in rows}
    assert len({row.kernel for row in rows}) == len(rows)
    assert rows[: len(SMALL)] == SMALL
    made = planned(spec, (256, 512, 512))
    asked = {name: value for name in ("consumers", "cluster") if (value := getattr(schedule, name)) is not None}
    said = {decision.key: decision.chosen for decision in made.decisions}
    for name, value in asked.items():
        assert said[f"schedule.{name}"] == (value if isinstance(value, str) else "x".join(map(str, value)))


def test_tuning_tries_all_others_too() -> None:
    kernels = set()
    for settled in warpgroups.space_for(OPEN, DEVICE, ProblemShape(256, 512, 512)):
        assert settled.spec.tile.cta is not None
        kernels.add(settled.spec.tile.cta[:2])
    assert {row.cta[:2] for row in (*SMALL, *MEASURED)} <= kernels


def test_a_given_tile_gets_what_a_search_gives_it() -> None:
    """Of each row that a search selects; its cluster is not one of the three that any tile is tried with."""
    for problem in ((3480, 24, 504), (296, 344, 1768), (48, 3992, 216), (352, 72, 1320), (168, 464, 2288)):
        of_search = planned(OPEN, problem)
        of_given = planned(replace(OPEN, tile=Tile(of_search.cta_tile)), problem)
        assert max(of_search.mma.cluster) > 2, problem
        assert of_given.mma.cluster == of_search.mma.cluster, problem


def test_every_row_was_measured_and_can_be_planned() -> None:
    """Two corrections want more than a few times."""
    measured = [name for us in US.values() for name in us]
    for row in SMALL:
        name = setting_of(row).name
        assert measured.count(name) > 10, name
        assert planned(setting_of(row).spec, (256, 512, 512)).cta_tile == row.cta, name


def test_fewer_than_16_rows_or_columns_have_tiles_of_8_columns_besides() -> None:
    for few, rows in ((8, (*SMALL, *EIGHT_WIDE)), (16, SMALL)):
        for shape in (ProblemShape(few, 1024, 768), ProblemShape(1024, few, 768)):
            assert warpgroups.compared_rows(OPEN, DEVICE, shape) == rows


def costs_among(table: Times) -> list[float]:
    """How many times the best time the choice of both families takes, among the kernels that were measured."""
    found = []
    for problem, measured in table.items():
        times = {name: graph for name, (graph, _) in measured.items() if name != TORCH}
        predicted = predicted_of_families(problem)
        chosen = min(times.keys() & predicted.keys(), key=lambda name: (predicted[name], name))
        found.append(times[chosen] / min(times.values()))
    return found


@pytest.mark.slow
def test_the_page_says_what_slices_of_mma_sync_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    constants, known = cp_async.H200, geometric_mean(costs_among(LONG_AND_NARROW))
    each, for_all = constants.slice_cycles, constants.sum_cycles
    said = f"With {each:.0f} cycles for each slice, and {for_all:.0f} instead of 900 for all"
    monkeypatch.setattr(cp_async, "H200", replace(constants, sum_cycles=900.0, slice_cycles=0.0))
    before = geometric_mean(costs_among(LONG_AND_NARROW))
    assert f"{said}, the kernels selected for {len(LONG_AND_NARROW)} narrow products" in PAGE
    assert f"take {known:.3f} times as long as the best, and not {before:.3f}" in PAGE
    shares = [(us[1] / us[0], us[3] / us[2], us[4] / us[0], us[4] / us[1]) for us in CHOICES_OF_SLICES.values()]
    graph, launch, by_torch_before, by_torch = (geometric_mean(list(each)) for each in zip(*shares, strict=True))
    least, most = (extreme(share for share, *_ in shares) for extreme in (min, max))
    assert f"{len(shares)} get another kernel. These take {graph:.3f} times as long in a graph, {least:.2f} to" in PAGE
    assert f"{most:.2f}, and {launch:.3f} in one launch; they were {by_torch_before:.2f} times" in PAGE
    assert f"and are {by_torch:.2f} times as fast" in PAGE


def test_the_page_says_what_was_measured() -> None:
    count = sum(len(us) - 1 for us in US.values())
    kernels = {name for us in US.values() for name in us} - {TORCH}
    assert f"{count:,} times of {len(kernels)} kernels on {len(US)} such products" in PAGE
    small = [shape for shape in US if is_small(OPEN, ProblemShape(*shape))]
    assert all(math.prod(shape) < warpgroup_rows.SMALL_MOST for shape in US)
    assert f"{len(US) - len(small)} of the {len(US)} are narrow with a long K" in PAGE
    assert f"plans compare {len(SMALL)} kernels" in PAGE
    assert f"take {warpgroup_rows.OF_MMA_SYNC} times as long as predicted" in PAGE


@pytest.mark.parametrize("problem", [(120, 104, 832), (32, 176, 472)], ids=str)
def test_families_are_compared_by_what_kernels_take_there(problem: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an H100 a kernel of `sm80` took 1.27 times as long on the first as one of `wgmma`."""
    assert planned(ANY_FAMILY, problem).family == "sm90"
    for module in (warpgroups, cp_async):
        monkeypatch.setattr(module, "is_small", lambda *_: False)
    assert planned(ANY_FAMILY, problem).family == "sm80"


@pytest.mark.parametrize(("arch", "is_so"), [("sm_90", True), ("sm_80", False), ("sm_120", False)])
def test_predictions_of_mma_sync_change_beside_wgmma_alone(
    arch: str, is_so: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def predicted() -> list[float]:
        options = cp_async._options(MMA_SYNC, target(arch), ProblemShape(120, 104, 832))
        return [option.estimate.us for option in options]

    with_factors = predicted()
    monkeypatch.setattr(cp_async, "is_small", lambda *_: False)
    assert (with_factors != predicted()) == is_so


@pytest.mark.slow
def test_corrections_are_those_of_the_fit() -> None:
    for row, found in zip(SMALL, fitted(samples_of(TABLE)), strict=True):
        assert (found.correction, found.overall) == pytest.approx((row.correction, row.overall), rel=0.005), row
