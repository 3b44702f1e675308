"""Main loops step by step: what one stage does, who waits for whom, and what a timeline shows of it."""

from __future__ import annotations

import pytest

from cutegen.plan.kernel.pipeline import AB
from cutegen.plan.kernel.program import Action, KernelLoop, Mark, RangeName
from cutegen.plan.kernel.timeline import shown
from tests.plan.loops import pipelined, produced, through_registers

A = Action


def words(loop: KernelLoop, part: RangeName) -> list[list[tuple[Action, int]]]:
    """The actions of each slot of the first range of that name, and how many k-tiles ahead they are."""
    found = next(each for program in reversed(loop.programs) for each in program.ranges if each.name is part)
    return [[(step.action, step.ahead) for step in slot] for slot in found.slots]


def test_a_producer_and_its_consumers_wait_for_each_other() -> None:
    """A stage is full before it is read and empty before it is filled, of which all are at the beginning."""
    loop = produced(4, 2)
    assert loop.persistent
    assert loop.least_k_tiles == 1
    ab = loop.pipeline(AB)
    assert ab is not None
    assert ab.empty is not None
    assert (ab.producers, ab.consumers) == (("producer",), ("mma",))
    assert (ab.full.count, ab.full.credits, ab.empty.count, ab.empty.credits) == (1, 0, 4, 4)
    assert loop.to_json()["edges"] == [
        {"name": "full", "source": "producer", "target": "consumers", "credits": 0},
        {"name": "empty", "source": "consumers", "target": "producer", "credits": 4},
    ]
    assert words(loop, RangeName.TURN) == [
        [(A.LOAD, 0), (A.MULTIPLY, 0)],
        [(A.RELEASE, 0), (A.WAIT, 1), (A.LOAD, 1), (A.MULTIPLY, 0)],
    ]
    assert words(loop, RangeName.TAIL) == [[(A.LOAD, 0), (A.MULTIPLY, 0)], [(A.MULTIPLY, 0)], [(A.RELEASE, 0)]]


def test_one_stage_is_filled_read_and_left_before_the_next() -> None:
    plain, copied = through_registers(1), pipelined(1, 2, 1, (A.FETCH,))
    for loop in (plain, copied):
        assert RangeName.PROLOGUE not in [part.name for part in loop.ranges]
        assert loop.stages == 1
    assert words(plain, RangeName.TURN) == [
        [(A.GLOBAL_LOAD, 0)],
        [(A.STORE, 0), (A.BARRIER, 0)],
        [(A.LOAD, 0), (A.MULTIPLY, 0)],
        [(A.BARRIER, 1)],
    ]
    assert words(copied, RangeName.TURN) == [
        [(A.FETCH, 0)],
        [(A.COMMIT, 0), (A.WAIT, 0), (A.BARRIER, 0)],
        *[[(A.LOAD, 0), (A.MULTIPLY, 0)]] * 2,
        [(A.BARRIER, 1)],
    ]


@pytest.mark.parametrize(("stages", "k_blocks"), [(2, 1), (3, 2), (4, 4)])
def test_a_timeline_fetches_where_a_stage_is_released(stages: int, k_blocks: int) -> None:
    slots = shown(produced(stages, k_blocks))
    filled, rest = slots[:stages], slots[stages:]
    assert [slot.steps[0].k_tile for slot in filled] == list(range(stages))
    for slot in rest:
        for i, step in enumerate(slot.steps):
            if step.action is A.BULK_FETCH:
                before = slot.steps[i - 1]
                assert (before.action, before.k_tile) == (A.RELEASE, step.k_tile - stages)
    multiplied = [(slot.k_tile, slot.k_block) for slot in rest if slot.k_tile is not None]
    assert multiplied == [(number // k_blocks, number % k_blocks) for number in range(len(multiplied))]
    fetched = [step.k_tile for slot in slots for step in slot.steps if step.action is A.BULK_FETCH]
    assert fetched == list(range(len(fetched)))


@pytest.mark.parametrize(
    "loop", [pipelined(1, 4, 1, (A.FETCH,)), pipelined(3, 4, 3, (A.FETCH,)), through_registers(1), through_registers(2)]
)
def test_whole_k_tiles_go_to_the_turns_and_the_others_to_the_edge(loop: KernelLoop) -> None:
    by_name = {part.name: part for part in loop.ranges}
    turn, edge = by_name[RangeName.TURN], by_name[RangeName.EDGE_TURN]
    assert (turn.first, turn.last, edge.first, edge.last) == (Mark.FIRST, Mark.WHOLE, Mark.WHOLE, Mark.END)
