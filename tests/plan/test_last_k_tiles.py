"""The last k-tiles of a tile that two warpgroups share: when they take turns with them, and what the loop does then."""

from __future__ import annotations

from typing import Any

import pytest

from cutegen.plan import GemmPlan, plan
from cutegen.plan.kernel.pipeline import Turns
from cutegen.plan.kernel.program import MMA_ORDER, Action, Range
from tests.run.wgmma import spec

KEY = "schedule.last_k_tiles"


def planned(**parts: Any) -> GemmPlan:
    found = plan(spec("last_k_tiles", **parts), "sm_90")
    assert isinstance(found, GemmPlan)
    return found


def decided(found: GemmPlan) -> str | None:
    return next((decision.chosen for decision in found.decisions if decision.key == KEY), None)


@pytest.mark.parametrize(
    "parts",
    [
        {"cta": (128, 256, 64)},
        {"cta": (128, 192, 64)},
        {"cta": (256, 128, 64)},
        {"cta": (192, 192, 64), "groups": (1, 2, 1), "cluster": (2, 1)},
        {"cta": (128, 256, 128), "dtype": "s8"},
        {"cta": (128, 256, 128), "dtype": "e4m3", "promote_k": 0},
    ],
)
def test_two_warpgroups_with_much_of_a_tile_take_turns(parts: dict[str, Any]) -> None:
    found = planned(**parts)
    assert (decided(found), found.mma.role.turns is Turns.LAST_K_TILES) == ("in turns", True)
    (decision,) = (decision for decision in found.decisions if decision.key == KEY)
    assert "fit into the stages" in decision.why
    assert [rejected.what for rejected in decision.rejected] == ["side by side"]


@pytest.mark.parametrize("cta", [(128, 176, 64), (128, 128, 64), (192, 96, 64), (128, 32, 128)])
def test_with_less_they_multiply_side_by_side(cta: tuple[int, int, int]) -> None:
    """Alone a warpgroup would leave tensor cores idle between its k-tiles."""
    groups = (1, 2, 1) if cta[0] == 192 else None
    found = planned(cta=cta, groups=groups)
    assert (decided(found), found.mma.role.turns is Turns.LAST_K_TILES) == ("side by side", False)


@pytest.mark.parametrize(
    "parts",
    [
        {"cta": (64, 256, 64)},
        {"cta": (128, 192, 64), "consumers": "pingpong"},
        {"cta": (128, 256, 64), "split_k": 2},
        {"cta": (192, 128, 128), "dtype": "e4m3", "groups": (3, 1, 1)},
        {"cta": (128, 192, 128), "dtype": "e4m3"},
    ],
)
def test_elsewhere_there_is_nothing_to_decide(parts: dict[str, Any]) -> None:
    """One warpgroup, three, one for each tile, slices that all threads add, sums that are promoted."""
    found = planned(**parts)
    assert (decided(found), found.mma.role.turns is Turns.LAST_K_TILES) == (None, False)


def test_the_barriers_of_the_turns_lie_behind_those_of_the_stages() -> None:
    in_turns, alone = planned(cta=(128, 256, 64)), planned(cta=(64, 256, 64))
    for found, beside in ((in_turns, 16), (alone, 0)):
        assert found.smem_bytes == found.memory.offset_bytes("barriers") + 16 * found.stages + beside


@pytest.mark.parametrize("group", [0, 1])
@pytest.mark.parametrize("k_tiles", [0, 1, 2, 3, 4, 5, 6, 33])
def test_each_k_tile_is_multiplied_once_and_its_stage_is_released_once(k_tiles: int, group: int) -> None:
    """By each warpgroup, however differently they do it."""
    found = planned(cta=(128, 256, 64), stages=4)
    for action in (Action.MULTIPLY, Action.WAIT, Action.RELEASE, *MMA_ORDER):
        assert found.loop.executed(action, k_tiles, group).total == max(k_tiles, 1), action


def ranges(group: int) -> list[Range]:
    """The k-tiles that a warpgroup runs."""
    main = planned(cta=(128, 256, 64)).loop.main
    return [each for each in main.ranges if each.group in (None, group)]


def test_no_k_tile_is_left_under_way_when_the_second_warpgroup_waits_for_its_turn() -> None:
    """What it had not released, the other warpgroup's copies would wait for."""
    second = ranges(1)
    before, after = second[:3], second[3:]
    for run in (before, after):
        assert [part.name for part in run] == ["prologue", "turn", "tail"]
        assert [(step.action, step.pending) for step in run[-1].steps] == [
            (Action.MMA_WAIT, 0),
            (Action.RELEASE, None),
        ]
    for k_tiles, stages, switch in ((10, 4, 6), (4, 4, 0), (3, 4, 0)):
        marks = (k_tiles, k_tiles, stages)
        assert before[-1].last.of(*marks) == after[0].first.of(*marks) == switch


def test_the_first_warpgroup_goes_on_and_waits_behind_the_next_multiplications() -> None:
    """It would leave tensor cores idle if it waited before; where no k-tile came before, there is none to wait for."""
    first = ranges(0)
    assert [part.name for part in first] == ["prologue", "turn", "prologue", "tail", "turn", "tail"]
    assert not any(step.action is Action.MMA_WAIT for part in (first[0], first[2]) for step in part.steps)
    leaves = first[3]
    assert [(step.action, step.pending) for step in leaves.steps] == [(Action.MMA_WAIT, 1), (Action.RELEASE, None)]
    for k_tiles, left in ((10, range(5, 6)), (4, range(0)), (3, range(0))):
        marks = (k_tiles, k_tiles, 4)
        assert range(leaves.first.of(*marks), leaves.last.of(*marks)) == left
