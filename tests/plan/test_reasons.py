"""What is said of a decision: its reason, what it rejects, what is given, and how a ranking is shown."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.plan import plan
from cutegen.plan.families import _decision, _Option
from cutegen.plan.gemm_plan import plan_json, ranking, ranking_lines
from cutegen.plan.search import cp_async
from cutegen.plan.search.problem import Option, microseconds
from cutegen.spec import (
    Epilogue,
    Mma,
    Schedule,
    Smem,
    SmemLayout,
    Tile,
)
from tests.plan.said import PLANNED, decisions, open_plan, planned, rejected
from tests.plan.specs import fma_spec, gemm

TILE = Tile(cta=(128, 128, 64))


@pytest.mark.parametrize("name", PLANNED)
def test_a_rejected_option_is_named_and_its_reason_is_a_phrase(name: str) -> None:
    for decision in planned(name).decisions:
        for other in decision.rejected:
            assert len(other.why.split()) > 1, (decision.key, other)
            assert re.search("[a-z]{3}|>", other.why), (decision.key, other)
        named = [rejected.what for rejected in decision.rejected]
        assert len(set(named)) == len(named), decision.key


@pytest.mark.parametrize(
    ("parts", "key"),
    [
        ({"schedule": Schedule(split_k=4)}, "schedule.split_k"),
        ({"schedule": Schedule(split_k=1)}, "schedule.split_k"),
        ({"smem": Smem(a=SmemLayout(pad=8))}, "smem.a"),
        ({"tile": Tile(cta=(64, 64, 32))}, "tile.cta"),
        ({"tile": Tile(cta=(64, 64, 32), stages=2)}, "tile.stages"),
        ({"mma": Mma(atom_layout=(2, 2, 1))}, "mma.atom_layout"),
        ({"epilogue": Epilogue(smem=False)}, "epilogue.smem"),
    ],
)
def test_what_the_spec_says_is_said_to_be_given(parts: dict[str, Any], key: str) -> None:
    assert decisions(plan(gemm(**parts), "sm_80"))[key].given
    if "schedule" not in parts:
        assert not decisions(open_plan())[key].given


def test_a_family_without_a_prediction_is_the_first_that_can() -> None:
    for problem in (None, ProblemShape(64, 64, 64)):
        found = _decision(_Option("sm80"), (), problem)
        assert found.why.startswith("the first of ")
    assert "lowest predicted time" in _decision(_Option("sm80", predicted_us=3.0), (), ProblemShape(64, 64, 64)).why


def test_times_have_three_digits() -> None:
    class Estimate:
        us = 12.3456

    assert microseconds(Estimate()) == "12.3 us"  # type: ignore[arg-type]
    one = Option(cp_async.CANDIDATES[0], 1, Estimate())  # type: ignore[arg-type]
    assert str(replace(one, slices=3)) == f"{one}, 3 slices of K"


def test_the_layout_that_is_used_is_always_shown() -> None:
    smem = plan(gemm("mnn"), "sm_80").a.smem
    rows = ranking(smem)
    assert len(rows) < len(smem.ranking)
    plain = next(row for row in smem.ranking if row.swizzle is None and row.pad_elems == 0)
    assert plain.name in [row[1] for row in rows]
    beside = replace(smem, ranking=smem.ranking[1:])
    assert beside.chosen == smem.ranking[0]
    assert [row[0] for row in ranking(beside)] == ["*"] + [""] * (len(ranking(beside)) - 1)
    assert ranking(beside)[0][1] == beside.chosen.name


def test_ways_by_line_are_shown_where_they_were_counted() -> None:
    row = ("*", "pad 8", "1-way", "2-way", "1-way", "64", "1024")
    with_lines, without = ranking_lines("A", [row]), ranking_lines("A", [(*row[:3], "", *row[4:])])
    assert "by line" in with_lines[1]
    assert "2-way" in with_lines[2]
    assert not any("by line" in line for line in without)


def test_bytes_of_a_rejected_layout_stand_beside_those_of_the_chosen_one() -> None:
    """A pad of 8 elements: 128 rows of 72 x 2 bytes against 128 x 128."""
    found = rejected(plan(gemm(tile=TILE), "sm_80"), "smem.a")
    assert found["pad 8"].endswith("18,432 bytes against 16,384")
    assert "against" not in found["Swizzle<2,3,3> on 8x32"]


def test_a_ranking_has_a_line_for_each_row_under_its_header() -> None:
    found = plan(fma_spec(), "sm_80")
    rows = ranking(found.a.smem)
    title, header, *lines = ranking_lines("A", rows)
    assert (title, header.split()) == ("A", ["layout", "writes", "reads", "wavefronts", "bytes"])
    assert len(lines) == len(rows)
    assert all(row[1].split()[0] in line for row, line in zip(rows, lines, strict=True))
    assert all(line.split()[-1] == row[-1].split()[-1] for row, line in zip(rows, lines, strict=True))


def test_json_is_indented_by_two() -> None:
    first, second, *_ = plan_json(plan(gemm(tile=TILE), "sm_80")).splitlines()
    assert (first, len(second) - len(second.lstrip())) == ("{", 2)
