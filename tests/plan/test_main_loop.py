"""The main loop's steps: against the emitted PTX, and what follows from them for the stages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise

import pytest

import cutegen
from cutegen.api import build_request
from cutegen.build import Cache, build
from cutegen.plan import GemmPlan
from cutegen.plan.kernel.accumulator import PROMOTED_TILES, Promotion
from cutegen.plan.kernel.pipeline import Turns
from cutegen.plan.kernel.program import Action, Range, RangeName, Step
from cutegen.plan.kernel.timeline import Slot, residences, slots
from cutegen.run import Kernel
from cutegen.verify import random_operands
from tests.plan.loops import multiplied_from_shared, pipelined, promoted
from tests.run.wgmma import CASES

INSTRUCTION = re.compile(
    r"(?P<wait>\bcp\.async\.wait_group\s+(?P<pending>\d+))|(?P<commit>\bcp\.async\.commit_group)|(?P<fetch>\bcp\.async\.c[ag])"
    r"|(?P<barrier>\bbar\.sync|\bbarrier\.sync)|(?P<load>\bldmatrix)|(?P<multiply>\bmma\.sync)|(?P<label>^\$L\w+):"
    r"|(?P<global_load>\bld\.global)|(?P<store>\bst\.shared)",
    re.MULTILINE,
)
OF_WARPGROUPS = re.compile(
    r"(?P<label>^\$L\w+):|\bbra(?:\.uni)?\s+(?P<branch>\$L\w+)|(?P<wait>\bmbarrier\.try_wait)"
    r"|(?P<release>\bmbarrier\.arrive(?!\.expect_tx))|(?P<mma_fence>\bwgmma\.fence)|(?P<multiply>\bwgmma\.mma_async)"
    r"|(?P<mma_commit>\bwgmma\.commit_group)|(?P<mma_wait>\bwgmma\.wait_group\S*\s+(?P<pending>\d+))",
    re.MULTILINE,
)
TURNS = (RangeName.TURN, RangeName.EDGE_TURN)
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
    assert (plan.stages, plan.mma.k_blocks) == (stages, k_blocks)
    words = issued(build(build_request(spec, "sm_80"), kernels).ptx)
    prologue, body = steps(stages, k_blocks)
    labels = [i for i, word in enumerate(words) if word == "label"]
    loops = [(a, words[a + 1 : b]) for a, b in pairwise(labels) if "multiply" in words[a + 1 : b]]
    first, found = loops[0]
    # K-tiles that K does not have are jumped over.
    assert [word for word in words[:first] if word != "label"] == prologue
    assert found == body * stages


def runs(words: Iterable[str]) -> list[str]:
    """Runs of one kind as one, without labels and branches."""
    return [kind for kind, _ in groupby(word for word in words if "$" not in word)]


def issued_by_warpgroups(ptx: str) -> tuple[list[str], list[list[str]]]:
    """What warpgroups that multiply issue in the order of the text, and each innermost loop that multiplies.

    An arrival that gives the other warpgroup its turn stands beside a release, and the wait for one's own beside that
    for a stage, so that they are in the same run.
    """
    words: list[str] = []
    for match in OF_WARPGROUPS.finditer(ptx):
        kinds = {"branch": f"to {match['branch']}", "label": match["label"], "mma_wait": f"mma_wait {match['pending']}"}
        words.append(kinds.get(str(match.lastgroup), str(match.lastgroup)))
    # What lies before is the producer's, or where the second warpgroup begins apart.
    begin = max(i for i, word in enumerate(words[: words.index("mma_fence")]) if word == "wait")
    ends = [(i, word.removeprefix("to ")) for i, word in enumerate(words) if word.startswith("to ")]
    loops = [words[words.index(label) : i] for i, label in ends if label in words[:i]]
    multiplying = [loop for loop in loops if "multiply" in loop]
    inner = [x for x in multiplying if not any(len(y) < len(x) and y[0] in x for y in multiplying)]
    return runs(words[begin:]), [runs(loop) for loop in inner]


def texts(part: Range) -> Iterator[tuple[int, Step]]:
    """A part's steps as the text has them, each with the number of its copy."""
    return ((n, step) for n in range(part.copies) for step in part.steps if n in step.nth.of(part.copies))


def words_of(parts: Iterable[Range]) -> list[str]:
    """Steps in the words of `issued_by_warpgroups`."""
    steps = (step for part in parts for _, step in texts(part))
    names = ((step, step.action.name.lower()) for step in steps)
    return runs(f"{name} {step.pending}" if step.action is Action.MMA_WAIT else name for step, name in names)


def of_warpgroups(name: str) -> GemmPlan:
    found = cutegen.plan(CASES.get(name) or cutegen.load_spec(name), "sm_90")
    assert isinstance(found, GemmPlan)
    return found


WARPGROUPS = {
    "tn": multiplied_from_shared(2, 4),
    "pingpong": multiplied_from_shared(3, 4),
    "sm90_hgemm_tn": multiplied_from_shared(4, 4, Turns.LAST_K_TILES),
    "ends_in_turns": multiplied_from_shared(3, 1, Turns.LAST_K_TILES),
    "cluster_ends_in_turns": multiplied_from_shared(2, 1, Turns.LAST_K_TILES),
    "e4m3_at_once": promoted(2, 2, Promotion(128)),
    "e4m3_promoted_every_second": promoted(2, 2, Promotion(128)),
    "sm90_e4m3_tn": promoted(6, 4, Promotion(128, 2, k_tiles_per_turn=PROMOTED_TILES)),
    "cluster_of_e4m3": promoted(2, 4, Promotion(128, 2, k_tiles_per_turn=PROMOTED_TILES)),
}
"""Cooperative and ping-pong, that end in turns, and promoted sums in one set of registers and in two."""
FAST = {"tn", "pingpong", "ends_in_turns", "e4m3_at_once", "e4m3_promoted_every_second"}


@pytest.mark.dsl
@pytest.mark.parametrize("name", [x if x in FAST else pytest.param(x, marks=pytest.mark.slow) for x in WARPGROUPS])
def test_emitted_warpgroups_run_these_steps(name: str, kernels: Cache) -> None:
    """Every step in the order of the text, and the loops that hold the turns."""
    found = of_warpgroups(name)
    assert found.loop.to_json() == WARPGROUPS[name].to_json()
    consumers = found.loop.main.ranges
    words, loops = issued_by_warpgroups(build(build_request(found.spec, "sm_90"), kernels).ptx)
    assert words == words_of(consumers)
    assert loops == [words_of([part]) for part in consumers if part.name in TURNS]


@pytest.mark.dsl
@pytest.mark.parametrize(
    ("name", "k_tiles"),
    [
        ("tn", 3),
        *(("ends_in_turns", k_tiles) for k_tiles in (1, 3, 4, 7)),
        *(("e4m3", k_tiles) for k_tiles in (3, 8, 10)),
        ("e4m3_promoted_every_second", 3),
    ],
)
def test_each_step_is_executed_as_often_as_its_part_says(name: str, k_tiles: int, kernels: Cache) -> None:
    """Multiplications that are committed, and stages released, of one tile: by all warps, or those of one warpgroup.

    A wait is executed until it is over, so that its own count says nothing: the release behind it does.
    """
    found = of_warpgroups(name)
    kernel = Kernel(build(build_request(found.spec, "sm_90"), kernels))
    m, n, k = found.cta_tile
    a, b, out = random_operands(kernel.contract, m, n, k * k_tiles, seed=k_tiles)
    report = kernel.execute(a, b, out=out)
    marks = (k_tiles, found.loop.whole(k_tiles), found.stages)
    warps = found.tiled_mma.threads // 32

    def expected(action: Action) -> list[int]:
        return [
            len(range(part.first.of(*marks) + copy, part.last.of(*marks), part.copies))
            * (warps if part.group is None else 4)
            for part in found.loop.main.ranges
            for copy, step in texts(part)
            if step.action is action
        ]

    commits, arrivals = report.matching(Action.MMA_COMMIT.value), report.matching("mbarrier.arrive")
    assert [site.executed for site in commits] == expected(Action.MMA_COMMIT)
    releases = [site.executed for site in arrivals if "expect_tx" not in site.opcode]
    if found.mma.role.turns is Turns.LAST_K_TILES:
        assert releases.pop(-2) == warps, "the other warpgroup's turn comes before the last drain"
    assert releases == expected(Action.RELEASE)


@pytest.mark.dsl
def test_which_warpgroup_leaves_its_stage_before_its_turn_is_in_the_source(kernels: Cache) -> None:
    """The second; the first does behind the next multiplications. The executor counts warps alone."""
    found = of_warpgroups("ends_in_turns")
    source = build(build_request(found.spec, "sm_90"), kernels).source
    assert re.search(r"if group == 1:\n +finish\(empty \+ last\)\n +cute\.arch\.mbarrier_wait\(turn \+ group", source)
    assert "held = group == 0 and add" in source
    alone = [
        (part.group, next(step.pending for step in part.steps)) for part in found.loop.ranges if part.group is not None
    ]
    assert alone == [(1, 0), (0, 1)]


@pytest.mark.parametrize(("sets", "turn"), [(1, 1), (1, PROMOTED_TILES), (2, PROMOTED_TILES)])
def test_with_two_sets_a_stage_is_free_a_k_tile_later(sets: int, turn: int) -> None:
    """All but a turn's last k-tile are waited for behind the next one's multiplications."""
    first = slots(promoted(4, 2, Promotion(128, sets, k_tiles_per_turn=turn)), PROMOTED_TILES + 1)
    refilled = {
        step.k_tile - 4: slot.k_tile
        for slot in first
        for step in slot.steps
        if step.action is Action.BULK_FETCH and slot.k_tile is not None
    }
    pending = [step.pending for slot in first for step in slot.steps if step.action is Action.MMA_WAIT]
    last = PROMOTED_TILES - 1
    if sets == 1:
        assert refilled == {k_tile: k_tile for k_tile in range(PROMOTED_TILES + 1)}
        assert pending == [0] * (PROMOTED_TILES + 1)
    else:
        assert refilled == {k_tile: min(k_tile + 1, last) for k_tile in range(PROMOTED_TILES)}
        assert pending == [1] * last + [0]


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
