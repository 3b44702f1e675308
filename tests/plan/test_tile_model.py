"""The model of time against what was measured on an H200: its choices cost little."""

from __future__ import annotations

import re
from dataclasses import asdict, replace

import pytest

from cutegen.hardware import GPUS
from cutegen.plan import plan
from cutegen.plan.search.problem import Candidate
from cutegen.plan.search.tile_model import estimate
from tests.gpu.families import FAMILIES, name_of
from tests.gpu.fit import Measured, Regret, load, mean_factor, regrets, works
from tests.gpu.sweep import problems
from tests.plan.pages import DOCS, words_of

ON_AVERAGE, AT_MOST = 1.07, 1.3
PAGE = "lab/tile_model.md"
TABLES = {name: load(family) for name, family in FAMILIES.items()}
SOME = [pytest.param(name, row, id=f"{name} {row.problem}") for name, table in TABLES.items() for row in table[::9]]


def found(name: str) -> list[Regret]:
    return list(regrets(TABLES[name], FAMILIES[name]))


@pytest.mark.parametrize("name", FAMILIES)
def test_choices_are_nearly_the_best_that_was_measured(name: str) -> None:
    assert len(found(name)) == len(problems()) >= 80
    assert mean_factor(found(name)) <= ON_AVERAGE
    assert max(each.factor for each in found(name)) <= AT_MOST


@pytest.mark.parametrize("name", FAMILIES)
def test_the_page_says_how_good_they_are(name: str) -> None:
    pattern = name + r": (\d+) problems: ([\d.]+) times the best on average, ([\d.]+) at most"
    said = re.search(pattern, words_of(PAGE))
    assert said is not None
    assert (int(said[1]), float(said[2])) == (len(found(name)), round(mean_factor(found(name)), 3))
    assert float(said[3]) == round(max(each.factor for each in found(name)), 2)


def test_the_page_has_the_constants() -> None:
    columns = [asdict(family.constants) for family in FAMILIES.values()]
    found = dict(re.findall(r"^\| `(\w+)`, .*? \| (.*? \| .*?) \|$", (DOCS / PAGE).read_text(), re.M))
    rows = {name: text for name, text in found.items() if name in columns[0]}
    assert rows == {name: " | ".join(f"{column[name]:g}" for column in columns) for name in columns[0]}


def test_the_page_says_how_many_tiles_are_compared() -> None:
    said = re.search(r"(\d+) tiles with (\d+) slice counts.*?`sm120` (\d+) tiles", words_of(PAGE))
    assert said is not None
    sm80, sm120 = FAMILIES["sm80"], FAMILIES["sm120"]
    assert tuple(map(int, said.groups())) == (len(sm80.candidates), len(sm80.splits), len(sm120.candidates))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_that_knows_nothing_would_not_pass(name: str) -> None:
    """With shared memory hidden behind tensor cores, and nothing around k-tiles, choices are far from the best."""
    family = FAMILIES[name]
    blind = replace(family.constants, overlap=0.0, tile_cycles=0.0, store_cycles_per_kib=0.0)
    assert mean_factor(list(regrets(TABLES[name], family, blind))) > mean_factor(found(name)) + 0.01


@pytest.mark.parametrize(("name", "row"), SOME)
def test_a_plan_takes_what_the_model_ranks_first(name: str, row: Measured) -> None:
    family = FAMILIES[name]
    found = plan(family.spec, "sm_90", row.problem)
    warps, slices = found.tiled_mma.atom_layout.shape, found.split_k.slices if found.split_k else 1
    chosen = name_of(Candidate(found.cta_tile, warps, found.stages), slices)
    times = {
        kernel: estimate(work, row.problem, GPUS["sm_90"], family.constants).us
        for kernel, work in works(family).items()
    }
    assert times[chosen] == min(times.values())
