"""The model of time against what was measured on an H200: its choices cost little."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from cutegen.arch import GPUS
from cutegen.plan import plan
from cutegen.plan.sm80.candidates import Candidate
from cutegen.plan.sm80.model import H200, estimate
from tests.gpu.fit import Measured, load, mean_factor, regrets, works
from tests.gpu.sweep import name_of, problems
from tests.plan.specs import gemm

ON_AVERAGE, AT_MOST = 1.05, 1.25
PAGE = Path(__file__).parents[2] / "docs" / "tile_model.md"
TABLE = load()


def test_choices_are_nearly_the_best_that_was_measured() -> None:
    found = list(regrets(TABLE))
    assert len(found) == len(problems()) >= 80
    assert mean_factor(found) <= ON_AVERAGE
    assert max(each.factor for each in found) <= AT_MOST


def test_the_page_says_how_good_they_are() -> None:
    found = list(regrets(TABLE))
    said = re.search(r"(\d+) problems: ([\d.]+) times the best on average, ([\d.]+) at most", PAGE.read_text())
    assert said is not None
    assert (int(said[1]), float(said[2])) == (len(found), round(mean_factor(found), 3))
    assert float(said[3]) == round(max(each.factor for each in found), 2)


def test_a_model_that_knows_nothing_would_not_pass() -> None:
    """Without latency, bookkeeping and a cost of slices, choices are far from the best."""
    blind = replace(H200, k_tile_cycles=0.0, latency_cycles=0.0, sum_cycles=0.0, sum_bytes_per_cycle=1e9)
    assert mean_factor(list(regrets(TABLE, blind))) > ON_AVERAGE


@pytest.mark.parametrize("row", TABLE[::9], ids=lambda row: str(row.problem))
def test_a_plan_takes_what_the_model_ranks_first(row: Measured) -> None:
    found = plan(gemm(), "sm_90", row.problem)
    warps, slices = found.tiled_mma.atom_layout.shape, found.split_k.slices if found.split_k else 1
    chosen = name_of(Candidate(found.cta_tile, warps, found.stages), slices)
    times = {name: estimate(work, row.problem, GPUS["sm_90"]).us for name, work in works().items()}
    assert times[chosen] == min(times.values())
