"""The loop value: its counts by hand, and that everything said of a main loop follows from it."""

from __future__ import annotations

import json
from fractions import Fraction
from importlib import import_module
from typing import Any

import pytest

from cutegen.analysis import counters
from cutegen.analysis.limits import k_tile_cost
from cutegen.api import build_request
from cutegen.build import Cache, build
from cutegen.contract.problem import ProblemShape
from cutegen.errors import EmissionError, ProofError
from cutegen.plan import GemmPlan, plan
from cutegen.plan.kernel.accumulator import PROMOTED_TILES, SCALED_TILES, Promotion
from cutegen.plan.kernel.pipeline import Turns
from cutegen.plan.kernel.program import HANDSHAKES, Action, Check, KernelLoop, Step
from cutegen.plan.kernel.timeline import shown
from cutegen.spec import GemmSpec, load_spec
from tests.plan.loops import multiplied_from_shared, pipelined, produced, promoted, through_registers

CP_ASYNC, PLAIN = (Action.FETCH,), (Action.GLOBAL_LOAD,)
LOOPS = {
    "cp.async": pipelined(3, 4, 3, CP_ASYNC),
    "plain": pipelined(2, 4, 1, PLAIN),
    "both": pipelined(4, 2, 1, (Action.FETCH, Action.GLOBAL_LOAD)),
    "one stage": pipelined(1, 4, 1, CP_ASYNC),
    "simt, one stage": through_registers(1),
    "simt": through_registers(2),
    "tma": produced(4, 4),
    "wgmma": multiplied_from_shared(4, 4),
    "wgmma, ends in turns": multiplied_from_shared(3, 4, Turns.LAST_K_TILES),
    "promoted": promoted(4, 2, Promotion(128)),
    "promoted, two sets": promoted(4, 2, Promotion(128, 2, k_tiles_per_turn=PROMOTED_TILES)),
    "scaled, in turns": promoted(4, 2, Promotion(128, k_tiles_per_turn=SCALED_TILES)),
}


def simulated(loop: KernelLoop, action: Action, k_tiles: int, whole: int, group: int) -> Fraction:
    """How often a warpgroup executes a step, by walking every range k-tile by k-tile."""
    done = Fraction(0)
    k_tiles = max(k_tiles, loop.least_k_tiles)
    for part in loop.ranges:
        if part.group not in (None, group):
            continue
        marks = (k_tiles, whole, loop.stages)
        for number, k_tile in enumerate(range(part.first.of(*marks), part.last.of(*marks))):
            for step in part.steps:
                left_out = step.below is not None and k_tile + step.ahead >= step.below.of(*marks)
                in_copy = number % part.copies in step.nth.of(part.copies)
                if step.action is action and in_copy and not left_out:
                    done += 1 if step.k_block is None else Fraction(1, loop.k_blocks)
    return done


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("k_tiles", [0, 1, 2, 3, 4, 5, 17])
def test_how_k_tiles_are_shared_out_does_not_change_the_sum(name: str, k_tiles: int) -> None:
    """Turns take none of the k-tiles at an edge of C, and all that they can inside."""
    loop = LOOPS[name]
    for action in Action:
        for whole in {0, loop.whole(k_tiles)}:
            for group in (0, 1):
                assert loop.executed(action, k_tiles).total == simulated(loop, action, k_tiles, whole, group), action


def test_a_pipeline_of_cp_async_by_hand() -> None:
    """Three stages, four k-blocks, eight k-tiles: two filled first, one k-block loaded ahead."""
    loop = LOOPS["cp.async"]
    assert loop.executed(Action.FETCH, 8).total == 8
    assert [loop.executed(Action.FETCH, k_tiles).total for k_tiles in (0, 1, 2)] == [1, 1, 2]  # no k-tile: of zeros
    assert loop.executed(Action.LOAD, 8).total == 8 + Fraction(1, 4)
    assert loop.executed(Action.MULTIPLY, 8).total == 8
    assert loop.executed(Action.BARRIER, 8).total == 9
    assert loop.executed(Action.COMMIT, 8).total == 10


def test_plain_copies_store_what_they_did_not_load() -> None:
    loop = LOOPS["plain"]
    assert loop.executed(Action.GLOBAL_LOAD, 8).total == loop.executed(Action.GLOBAL_LOAD, 8).k_tiles == 8
    assert loop.executed(Action.STORE, 8).total == 9


def test_a_producer_fetches_each_k_tile_and_one_of_zeros() -> None:
    loop = LOOPS["tma"]
    for action in (Action.BULK_FETCH, Action.WAIT, Action.RELEASE, Action.LOAD, Action.MULTIPLY):
        assert loop.executed(action, 8).total == 8
        assert loop.executed(action, 0).total == 1


def test_the_text_of_a_pipeline_by_hand() -> None:
    """A prologue of two fills, three k-tiles in a turn, one in the edge turn; of the fills' loads all are checked."""

    def opcodes(step: Step) -> dict[str, int]:
        return {"fetch": 8} if step.action is Action.FETCH else {"checked": 4} if step.check is Check.VECTOR else {}

    assert LOOPS["cp.async"].written(opcodes) == {"fetch": 8 * (2 + 3 + 1)}
    assert LOOPS["plain"].written(opcodes) == {"checked": 4 * (1 + 1)}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_of_plan_json_counts_the_same(name: str) -> None:
    """All but the producer's handshakes, which it leaves out."""
    loop = LOOPS[name]
    read = KernelLoop.from_json(json.loads(json.dumps(loop.to_json())))
    for action in set(Action) - HANDSHAKES | {Action.RELEASE}:
        for k_tiles in (0, 1, 3, 17):
            assert read.executed(action, k_tiles) == loop.executed(action, k_tiles), action
    assert read.k_tiles_per_turn == loop.k_tiles_per_turn


@pytest.mark.parametrize("name", LOOPS)
def test_the_timeline_multiplies_each_k_block_once(name: str) -> None:
    slots = shown(LOOPS[name])
    multiplied = [(x.k_tile, x.k_block) for slot in slots for x in slot.steps if x.action is Action.MULTIPLY]
    assert len(set(multiplied)) == len(multiplied) >= 2
    assert multiplied == sorted(multiplied, key=lambda each: (each[0], each[1] or 0))


def gemm_plan(spec: GemmSpec) -> GemmPlan:
    found = plan(spec, "sm_80")
    assert isinstance(found, GemmPlan)
    return found


def said(found: GemmPlan) -> dict[str, Any]:
    """What four rooms say of a main loop."""
    problem = ProblemShape(1024, 1024, 1024)
    return {
        "predictions": found.predictions.instructions,
        "limits": k_tile_cost(found, problem, None).wavefronts,
        "counters": counters.predict(found.to_json(), problem)[counters.LDMATRIX],
        "timeline": shown(found.loop),
    }


@pytest.mark.dsl
def test_one_edit_changes_everything_and_the_old_template_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """One k-block ahead becomes none, in one constant of `cutegen/plan/mainloop/programs.py`."""
    spec = load_spec("sm80_hgemm_tn")
    before = said(gemm_plan(spec))
    monkeypatch.setattr(import_module("cutegen.plan.mainloop.programs"), "BLOCKS_AHEAD", 0)
    with pytest.raises(ProofError, match="read by threads before a barrier after its copy"):
        gemm_plan(spec)
    monkeypatch.setattr(import_module("cutegen.plan.family"), "prove", lambda plan: None)
    after = said(gemm_plan(spec))
    assert {key for key in before if before[key] == after[key]} == set()
    import_module("cutegen.api")._build_request.cache_clear()
    try:
        with pytest.raises(EmissionError, match="ldmatrix"):
            build(build_request(spec, "sm_80"), Cache(tmp_path))
    finally:
        import_module("cutegen.api")._build_request.cache_clear()


def test_a_k_tile_that_is_taken_of_an_empty_k_lies_past_the_end() -> None:
    """Nothing of it is read: a slice of K may have none."""
    loop = LOOPS["tma"]
    empty, one = (loop.executed(Action.BULK_FETCH, k_tiles) for k_tiles in (0, 1))
    assert (empty.k_tiles, empty.past_end) == (0, 1)
    assert (one.k_tiles, one.past_end) == (1, 0)
