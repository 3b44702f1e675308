"""Products of middle size: which they are, what counts there, and how good the choice among kernels is."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.plan import plan
from cutegen.plan.search import warpgroups
from cutegen.plan.search.warpgroup_rows import MEASURED
from cutegen.plan.search.warpgroups import is_of_middle_size, request_factor
from tests.gpu.estimates import compared_us
from tests.gpu.measured import STORED, STORED_H100, geometric_mean, load, regrets
from tests.gpu.sweep_kernels import Shape
from tests.plan.pages import words_of
from tests.plan.worth import DEVICE, OPEN, forget, times_of, without

TABLE = json.loads(STORED.with_name("h100_middle.json").read_text())
US = times_of(TABLE)
CHOICES: Mapping[str, tuple[float, ...]] = TABLE["choices"]
PAGE = words_of("lab/tile_model.md")
CONSTANTS = ("ASKED", "COVERED", "UNALIGNED_READERS", "UNALIGNED_TOGETHER")


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    forget()


@pytest.mark.parametrize(
    ("problem", "is_so"),
    [
        ((1024, 1024, 1024), True),
        ((64, 8192, 512), True),
        ((56, 8192, 512), False),  # fewer rows
        ((8192, 64, 504), False),  # K is short
        ((512, 512, 512), False),  # a launch decides
        ((2048, 2048, 2048), False),  # more results
        ((1024, 2048, 8192), False),  # power decides
        ((256, 256, 65536), True),
    ],
)
def test_which_are_of_middle_size(problem: Shape, is_so: bool) -> None:
    assert is_of_middle_size(OPEN, ProblemShape(*problem)) == is_so


def test_a_batch_counts_with_all_its_products() -> None:
    assert not is_of_middle_size(OPEN, ProblemShape(256, 256, 1024))
    assert is_of_middle_size(OPEN, ProblemShape(256, 256, 1024, batch=8))
    assert not is_of_middle_size(OPEN, ProblemShape(256, 256, 1024, batch=64))


def test_promoted_sums_are_not() -> None:
    a = replace(OPEN.problem.a, dtype="e4m3")
    promoted = replace(OPEN, problem=replace(OPEN.problem, a=a, b=a))
    by_the_tensor_core = replace(promoted, mma=replace(promoted.mma, promote_k=0))
    problem = ProblemShape(1024, 1024, 1024)
    assert not is_of_middle_size(promoted, problem)
    assert is_of_middle_size(by_the_tensor_core, problem)


def test_all_that_was_measured_is_and_no_stream() -> None:
    for problem in US:
        assert is_of_middle_size(OPEN, ProblemShape(*problem)), problem
        assert not warpgroups.is_streamed(OPEN, ProblemShape(*problem)), problem


def test_an_exchanged_product_asks_for_the_same() -> None:
    for _ in range(300):
        (m, n), k = random.sample(range(64, 8192, 8), 2), 8 * random.randint(64, 1024)
        tile_m, tile_n = random.choice((64, 128, 192)), 8 * random.randint(5, 32)
        ctas_m, ctas_n = random.choice(((1, 1), (2, 1), (1, 4), (4, 2), (2, 2)))
        of_both = [
            request_factor((*tile, 64), (*ctas, 1), ProblemShape(*sides, k), torn=bool(k % 64))
            for tile, ctas, sides in (
                ((tile_m, tile_n), (ctas_m, ctas_n), (m, n)),
                ((tile_n, tile_m), (ctas_n, ctas_m), (n, m)),
            )
        ]
        assert of_both[0] == pytest.approx(of_both[1]), (m, n, k)


def test_less_counts_for_less() -> None:
    """A cluster's rows count once, half of a tile that is empty counts, and rows count where they are torn."""
    problem = ProblemShape(1024, 640, 1024)

    def share(cta: Shape, cluster: Shape = (1, 1, 1), *, torn: bool = False) -> float:
        return request_factor(cta, cluster, problem, torn=torn)

    assert share((128, 128, 64), (2, 1, 1)) < share((128, 128, 64))
    assert share((128, 80, 64)) < share((128, 96, 64))  # 640 is 8 x 80 and 6.7 x 96
    assert share((128, 160, 64), (4, 1, 1), torn=True) < share((128, 160, 64), (2, 1, 1), torn=True)
    assert share((128, 160, 64), torn=True) > share((128, 160, 64))


def test_they_count_in_what_plans_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = ProblemShape(1232, 448, 3840)
    row = MEASURED[0]
    candidate = warpgroups.candidate_of(OPEN, DEVICE, row)

    def predicted() -> float:
        return warpgroups.estimate_of(OPEN, DEVICE, shape, row, candidate, candidate).us

    known = predicted()
    without(monkeypatch, "is_of_middle_size")
    multiplied = ProblemShape(448, 1232, 3840) if row.swap else shape
    assert known == pytest.approx(predicted() * request_factor(row.cta, row.cluster, multiplied, torn=False))


def test_the_page_has_the_constants() -> None:
    part = PAGE.partition("**L2 requests of CTAs.**")[2].partition("These factors apply")[0]
    said = re.findall(r"\| \S[^|]+ \| (\d\.\d\d) \|", part)
    assert said == [f"{getattr(warpgroups, name):.2f}" for name in (*CONSTANTS, "SOONER")]


@pytest.mark.slow
def test_the_page_says_what_they_do_to_choices_among_older_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [
        [each for each in load(path) if each.us and is_of_middle_size(OPEN, ProblemShape(*each.problem))]
        for path in (STORED, STORED_H100)
    ]

    def costs() -> list[float]:
        forget()
        return [geometric_mean([each.factor for each in regrets(table, compared_us)]) for table in tables]

    (h200, h100), _ = costs(), without(monkeypatch, "is_of_middle_size")
    h200_before, h100_before = costs()
    said = f"the selection on {len(tables[0])} such products takes {h200:.3f} times the best"
    assert f"{said}, and {h200_before:.3f} without these factors" in PAGE
    assert f"on {len(tables[1])} in the H100's table {h100:.3f} and {h100_before:.3f}" in PAGE


@pytest.mark.parametrize("problem", [(312, 80, 7864), (224, 488, 2040)], ids=str)
def test_families_are_compared_by_what_kernels_take_today(problem: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an H100 a kernel of `sm80` took 1.26 times as long on the first as one of `wgmma`."""
    any_family = replace(OPEN, family=None)
    assert plan(any_family, DEVICE.name, problem).family == "sm90"
    monkeypatch.setattr(warpgroups, "SOONER", 1.0)
    assert plan(any_family, DEVICE.name, problem).family == "sm80"
