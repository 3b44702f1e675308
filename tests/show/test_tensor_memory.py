"""Tensor memory as it is shown: against the executor's formulas for writes and loads of sums, and the kernel's text."""

from __future__ import annotations

import random
import re
from functools import lru_cache

import numpy as np
import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.plan import GemmPlan, plan
from cutegen.ptx.machine.tensor_memory import accumulator_pieces, warp_words
from cutegen.render import render
from cutegen.show.canvas.drawing import MARK, Box
from cutegen.show.follow import Element, Follower, OperandElementPath, ResultElementPath
from cutegen.show.parts import tmem
from cutegen.spec import GemmSpec, Mma, Operand, Problem, Tile, load_spec

PROBLEM = ProblemShape(1024, 1024, 512)
LANES = 128


@lru_cache
def planned(name: str) -> GemmPlan:
    """A shipped spec, or bf16 with a tile of 64 rows, of one CTA or of each of a pair."""
    k_major = Operand("bf16", "k")
    specs = {
        f"64 rows, {ctas} CTA": GemmSpec(
            family="sm100",
            problem=Problem(a=k_major, b=k_major, c=Operand("bf16", "n")),
            tile=Tile(cta=(64, 96, 64)),
            mma=Mma(cta_group=ctas),
            name="rows",
        )
        for ctas in (1, 2)
    }
    made = plan(specs.get(name) or load_spec(name), "sm_100")
    assert isinstance(made, GemmPlan)
    return made


PLANS = ("sm100_hgemm_tn", "sm100_bf16_pair", "sm100_mxf8_tn", "64 rows, 1 CTA", "64 rows, 2 CTA")


def written(made: GemmPlan) -> np.ndarray:
    """Return lane + 128 * column of each sum of a CTA's tile, as the executor writes those of one instruction."""
    (rows, columns), ctas = made.mma.accumulator.tile, made.atom.ctas
    found = np.full((rows, columns), -1)
    for piece in accumulator_pieces(rows * ctas, columns, ctas, 0, 0):
        lanes, of_buffer = (
            np.arange(512)[part] if isinstance(part, slice) else np.asarray(part)
            for part in (piece.region.lanes, piece.region.columns)
        )
        lanes = lanes[lanes < LANES]
        found[piece.rows, piece.columns] = lanes[:, None] + LANES * of_buffer
    return found


@pytest.mark.parametrize("name", PLANS)
def test_an_element_is_followed_to_the_lane_and_column_of_its_sum(name: str) -> None:
    made, rng = planned(name), random.Random(3)
    places, follower = written(made), Follower(made, PROBLEM)
    (rows, columns), ctas = made.mma.accumulator.tile, made.atom.ctas
    for _ in range(4):
        m, n, k = (rng.randrange(extent) for extent in (PROBLEM.m, PROBLEM.n, PROBLEM.k))
        of_c = follower.path_of(Element.parse(f"c,{m},{n}"))
        assert isinstance(of_c, ResultElementPath)
        assert of_c.sums is not None
        expected = int(places[m % rows, n % columns])
        assert (of_c.sums.lanes, of_c.sums.columns) == ((expected % LANES,), (expected // LANES,))
        # The thread that loads it is of the warp that reaches the lane.
        assert of_c.held.thread // 32 == expected % LANES // 32
        for letter, line in (("a", places[m % rows]), ("b", places[:, n % columns])):
            at = m if letter == "a" else n
            way = follower.path_of(Element.parse(f"{letter},{at},{k % (PROBLEM.k // 2)}"))
            assert isinstance(way, OperandElementPath)
            assert way.sums is not None
            assert (set(way.sums.lanes), set(way.sums.columns)) == (set(line % LANES), set(line // LANES))
            assert {meeting.thread // 32 for meeting in way.meets} == {lane // 32 for lane in way.sums.lanes}
    assert ctas in (1, 2)


@pytest.mark.parametrize("name", PLANS)
def test_the_places_of_a_thread_are_those_that_its_warp_loads(name: str) -> None:
    made, thread = planned(name), 70
    sums = made.mma.accumulator
    assert sums.drain is not None
    lanes, words = warp_words(sums.drain.shape, sums.columns // sums.drain.columns)
    expected = {
        (int(lane[thread % 32]) + 64, int(column[thread % 32])) for lane, column in zip(lanes, words, strict=True)
    }
    table = tmem.view(made, thread, PROBLEM).table
    assert {tuple(place) for place in table["places"]} == expected
    drawn = [x for x in tmem.picture(made, thread).items if isinstance(x, Box) and x.fill == MARK and not x.lines]
    assert round(sum(box.width for box in drawn) / tmem.COLUMN_PX) == len(expected)


@pytest.mark.parametrize("name", PLANS)
def test_columns_follow_one_another_and_are_those_of_the_text(name: str) -> None:
    made = planned(name)
    text = render(made).text
    table = tmem.view(made, 0, PROBLEM).table
    ends = [each["first"] + each["count"] for each in table["columns"]]
    assert [each["first"] for each in table["columns"]] == [0, *ends[:-1]]
    assert f"BUFFERS, COLUMNS = 2, {table['allocated']} " in text
    first = next((each["first"] for each in table["columns"] if each["holds"] == "scale_a"), None)
    found = re.search(r"FACTORS_COLUMN, STAGE_COLUMNS, FACTOR_IDS = (\d+), (\d+)", text)
    assert (found is None) == (first is None)
    if found is not None:
        of_stage = [each["count"] for each in table["columns"] if each["number"] == 1 and each["holds"] != "sums"]
        assert (int(found[1]), int(found[2])) == (first, sum(of_stage))


def test_a_plan_with_sums_in_registers_has_none() -> None:
    made = plan(load_spec("sm80_hgemm_tn"), "sm_80")
    assert isinstance(made, GemmPlan)
    assert tmem.page(made) is None
    assert tmem.view(made, 0, PROBLEM).table["columns"] == []
