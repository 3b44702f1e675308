"""The main loop's steps: against the emitted PTX, and what follows from them for the stages."""

from __future__ import annotations

import re
from itertools import groupby, pairwise

import pytest

import cutegen
from cutegen.api import build_request
from cutegen.build import Cache, build
from cutegen.plan.loop import Action
from cutegen.plan.main_loops import pipelined
from cutegen.show.timeline import Slot, residences, slots

INSTRUCTION = re.compile(
    r"(?P<wait>\bcp\.async\.wait_group\s+(?P<pending>\d+))|(?P<commit>\bcp\.async\.commit_group)|(?P<fetch>\bcp\.async\.c[ag])"
    r"|(?P<barrier>\bbar\.sync|\bbarrier\.sync)|(?P<load>\bldmatrix)|(?P<multiply>\bmma\.sync)|(?P<label>^\$L\w+):"
    r"|(?P<global_load>\bld\.global)|(?P<store>\bst\.shared)",
    re.MULTILINE,
)
SHAPES = [(stages, k_blocks) for stages in range(2, 9) for k_blocks in (2, 3, 4)]


def issued(ptx: str) -> list[str]:
    """Kinds of instructions in the order of the text, runs of one kind as one; a wait with its number."""
    kinds = [
        f"wait {match['pending']}" if match["wait"] else str(match.lastgroup) for match in INSTRUCTION.finditer(ptx)
    ]
    return [kind for kind, _ in groupby(kinds)]


def main_loop(stages: int, k_blocks: int, k_tiles: int) -> tuple[Slot, ...]:
    """The prologue and the first k-tiles of a pipeline of cp.async."""
    return slots(pipelined(stages, k_blocks, stages, (Action.FETCH,)), k_tiles)


def steps(stages: int, k_blocks: int) -> tuple[list[str], list[str]]:
    """Prologue, and one k-tile of the loop, in the words of `issued`."""
    prologue: list[str] = []
    body: list[str] = []
    for slot in main_loop(stages, k_blocks, 1):
        for step in slot.steps:
            word = f"wait {step.pending}" if step.action is Action.WAIT else step.action.name.lower()
            (prologue if slot.k_tile is None else body).append(word)
    return prologue, body


@pytest.mark.dsl
@pytest.mark.parametrize(("name", "stages", "k_blocks"), [("sm80_hgemm_tn", 3, 4), ("sm80_bf16_nn", 2, 4)])
def test_the_emitted_kernel_runs_these_steps(name: str, stages: int, k_blocks: int, kernels: Cache) -> None:
    spec = cutegen.load_spec(name)
    plan = cutegen.plan(spec, "sm_80")
    assert (plan.stages, plan.k_blocks) == (stages, k_blocks)
    words = issued(build(build_request(spec, "sm_80"), kernels).ptx)
    prologue, body = steps(stages, k_blocks)
    labels = [i for i, word in enumerate(words) if word == "label"]
    loops = [(a, words[a + 1 : b]) for a, b in pairwise(labels) if "multiply" in words[a + 1 : b]]
    first, found = loops[0]
    # K-tiles that K does not have are jumped over.
    assert [word for word in words[:first] if word != "label"] == prologue
    assert found == body * stages


@pytest.mark.parametrize(("stages", "k_blocks"), SHAPES)
def test_a_k_tile_is_sent_for_lands_and_is_read_in_that_order(stages: int, k_blocks: int) -> None:
    stays = list(residences(main_loop(stages, k_blocks, 3 * stages), stages))
    for stay in stays:
        assert stay.stage == stay.k_tile % stages
        assert stay.landed is None or stay.fetched < stay.landed
        assert stay.last_read is None or (stay.landed is not None and stay.landed <= stay.last_read)
    complete = [stay for stay in stays if stay.last_read is not None]
    assert len(complete) >= 2 * stages


@pytest.mark.parametrize(("stages", "k_blocks"), SHAPES)
def test_a_stage_is_not_refilled_before_it_was_read(stages: int, k_blocks: int) -> None:
    """Between the slot of a stage's last reads and the one that refills it, there is one with a barrier."""
    first = main_loop(stages, k_blocks, 3 * stages)
    stays = list(residences(first, stages))
    for earlier in stays:
        for later in stays:
            if later.k_tile == earlier.k_tile + stages:
                assert earlier.last_read is not None
                between = first[earlier.last_read + 1 : later.fetched]
                assert any(slot.step(Action.BARRIER) for slot in between)


@pytest.mark.parametrize(("stages", "k_blocks"), SHAPES)
def test_a_k_block_is_loaded_one_slot_before_it_is_multiplied(stages: int, k_blocks: int) -> None:
    first = main_loop(stages, k_blocks, 4)
    for before, slot in pairwise(first):
        multiply, load = slot.step(Action.MULTIPLY), before.step(Action.LOAD)
        if multiply is not None:
            assert load is not None
            assert (multiply.k_tile, multiply.k_block) == (load.k_tile, load.k_block)


def test_copies_have_all_but_one_stage_to_arrive() -> None:
    """3 stages, 4 k-blocks: a k-tile is waited for when two k-tiles are all but multiplied; with 2 stages, one."""
    for stages in (2, 3, 5):
        steady = [stay for stay in residences(main_loop(stages, 4, 3 * stages), stages) if stay.k_tile >= stages]
        times = {stay.landed - stay.fetched for stay in steady if stay.landed is not None}
        assert times == {4 * (stages - 1) - 1}
