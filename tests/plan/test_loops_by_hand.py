"""Main loops step by step: what one stage does, who waits for whom, and what a timeline shows of it."""

from __future__ import annotations

import pytest

from cutegen.plan.loop import Action, Edge, Loop, Mark, PartName
from cutegen.plan.main_loops import pipelined, produced, through_registers
from cutegen.show.timeline import shown

A = Action


def words(loop: Loop, part: PartName) -> list[list[tuple[Action, int]]]:
    """The actions of each slot of the first part of that name, and how many k-tiles ahead they are."""
    found = next(each for role in reversed(loop.roles) for each in role.parts if each.name is part)
    return [[(step.action, step.ahead) for step in slot] for slot in found.slots]


def test_a_producer_and_its_consumers_wait_for_each_other() -> None:
    """A stage is full before it is read and empty before it is filled, of which all are at the beginning."""
    loop = produced(4, 2)
    assert loop.persistent
    assert loop.least_k_tiles == 1
    assert loop.edges == (Edge("full", "producer", "consumers"), Edge("empty", "consumers", "producer", credits=4))
    assert words(loop, PartName.TURN) == [
        [(A.LOAD, 0), (A.MULTIPLY, 0)],
        [(A.RELEASE, 0), (A.BULK_WAIT, 1), (A.LOAD, 1), (A.MULTIPLY, 0)],
    ]
    assert words(loop, PartName.TAIL) == [[(A.LOAD, 0), (A.MULTIPLY, 0)], [(A.MULTIPLY, 0)], [(A.RELEASE, 0)]]


def test_one_stage_is_filled_read_and_left_before_the_next() -> None:
    plain, copied = through_registers(1), pipelined(1, 2, 1, (A.FETCH,))
    for loop in (plain, copied):
        assert PartName.PROLOGUE not in [part.name for part in loop.parts]
        assert loop.stages == 1
    assert words(plain, PartName.TURN) == [
        [(A.GLOBAL_LOAD, 0)],
        [(A.STORE, 0), (A.BARRIER, 0)],
        [(A.LOAD, 0), (A.MULTIPLY, 0)],
        [(A.BARRIER, 1)],
    ]
    assert words(copied, PartName.TURN) == [
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
def test_whole_k_tiles_go_to_the_turns_and_the_others_to_the_edge(loop: Loop) -> None:
    by_name = {part.name: part for part in loop.parts}
    turn, edge = by_name[PartName.TURN], by_name[PartName.EDGE_TURN]
    assert (turn.first, turn.last, edge.first, edge.last) == (Mark.FIRST, Mark.WHOLE, Mark.WHOLE, Mark.END)
