"""A program with Blackwell's roles and pipelines, without a kernel: the values can say it, and the proof checks it.

| pipeline | from | to | full | empty |
|---|---|---|---|---|
| `ab` | producer | mma | bytes | the end of the multiplications that read it |
| `accumulator` | mma | epilogue | the end of a tile's multiplications | each warp that has loaded its sums |
| `c_store` | epilogue | bulk stores | `bar.sync` | the stores |
| `tiles` | scheduler | all | 16 bytes that name the next tile | each warp that has read them |
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from cutegen.errors import ProofError
from cutegen.plan.kernel.handshakes import prove_handshakes
from cutegen.plan.kernel.pipeline import (
    AB,
    C_STORE,
    IDLE,
    MMA,
    PRODUCER,
    Arrival,
    Barrier,
    By,
    Item,
    Pipeline,
    Role,
    Scope,
    Sync,
    initial_counts,
    mbarriers_bytes,
)
from cutegen.plan.kernel.program import Action, KernelLoop, Mark, Program, Range, RangeName, Section, Step
from cutegen.plan.kernel.timeline import shown
from cutegen.plan.mainloop.programs import FETCHED, stored_in_bulk
from tests.plan.test_handshakes import Edit, at, more, without

EPILOGUE, SCHEDULER, ACCUMULATOR, TILES = "epilogue", "scheduler", "accumulator", "tiles"
STAGES, K_BLOCKS, SUB_TILES = 4, 4, 8
ROLES = (
    Role(name=EPILOGUE, threads=128),
    Role(name=PRODUCER, threads=32),
    Role(name=MMA, threads=32),
    Role(name=SCHEDULER, threads=32),
    Role(name=IDLE, threads=32),
)


def ring(
    name: str, source: str, targets: tuple[str, ...], holds: Item, stages: int, *, by: By, freed_by: By, ctas: int = 1
) -> Pipeline:
    """A pipeline of mbarriers: `source` arrives once, by bytes or by multiplications, and each target frees a stage."""
    warps = {role.name: role.warps for role in ROLES}
    freed = ctas * sum(1 if freed_by is By.MMA else warps[target] for target in targets)
    return Pipeline(
        name=name,
        producers=(source,),
        consumers=targets,
        holds=holds,
        stages=stages,
        full=Barrier(sync=Sync.MBARRIER, count=1, arrivals=(Arrival(source, by),)),
        empty=Barrier(
            sync=Sync.MBARRIER,
            count=freed,
            arrivals=tuple(Arrival(target, freed_by, ctas) for target in targets),
            credits=stages,
        ),
        scope=Scope.PAIR if ctas == 2 else Scope.CTA,
    )


def on(pipeline: str, *actions: Action) -> Section:
    return Section(tuple(Step(action, pipeline=pipeline) for action in actions))


NEXT_TILE = on(TILES, Action.WAIT, Action.RELEASE)
MULTIPLIED = (
    (Step(Action.WAIT), *(Step(Action.MULTIPLY, 0, block) for block in range(K_BLOCKS)), Step(Action.RELEASE)),
)
STORED = Section(
    (
        Step(Action.LOAD_ACCUMULATOR, pipeline=ACCUMULATOR),
        *(Step(action, pipeline=C_STORE) for action in (Action.DRAIN,)),
        Step(Action.ACQUIRE, 1, pipeline=C_STORE),
        *(Step(action, pipeline=C_STORE) for action in (Action.COMMIT, Action.BULK_STORE)),
    ),
    times=SUB_TILES,
)


def blackwell(ctas: int = 1) -> KernelLoop:
    """With one CTA, or a pair whose halves fill each other's stages."""
    readers = (PRODUCER, MMA, EPILOGUE, SCHEDULER)
    tails = (on(AB, Action.TAIL),) if ctas == 2 else ()
    return KernelLoop(
        stages=STAGES,
        k_blocks=K_BLOCKS,
        roles=ROLES,
        pipelines=(
            ring(AB, PRODUCER, (MMA,), Item.K_TILE, STAGES, by=By.COPY, freed_by=By.MMA, ctas=ctas),
            ring(ACCUMULATOR, MMA, (EPILOGUE,), Item.TILE, 2, by=By.MMA, freed_by=By.WARP),
            stored_in_bulk(ROLES[0], 2, 16384, scope=Scope.GROUP),
            ring(TILES, SCHEDULER, readers, Item.TILE, 3, by=By.COPY, freed_by=By.WARP),
        ),
        programs=(
            Program(PRODUCER, (*FETCHED, NEXT_TILE), end=tails),
            Program(SCHEDULER, (on(TILES, Action.ACQUIRE, Action.COMMIT, Action.BULK_FETCH), NEXT_TILE)),
            Program(
                MMA,
                (
                    on(ACCUMULATOR, Action.ACQUIRE),
                    Range(RangeName.TURN, MULTIPLIED, Mark.FIRST, Mark.END),
                    on(ACCUMULATOR, Action.COMMIT),
                    NEXT_TILE,
                ),
            ),
            Program(
                EPILOGUE,
                (on(ACCUMULATOR, Action.WAIT), STORED, on(ACCUMULATOR, Action.RELEASE), NEXT_TILE),
                end=(on(C_STORE, Action.TAIL),),
            ),
        ),
        least_k_tiles=1,
        persistent=True,
    )


@pytest.mark.parametrize("ctas", [1, 2])
def test_its_roles_go_on_in_order(ctas: int) -> None:
    prove_handshakes(blackwell(ctas))


def test_its_barriers_by_hand() -> None:
    """A stage of `ab` is freed by one arrival of the tensor core; sums by 4 warps; a tile by 1 + 1 + 4 + 1."""
    assert initial_counts(blackwell().pipelines) == {
        "ab.full": (4, 1),
        "ab.empty": (4, 1),
        "accumulator.full": (2, 1),
        "accumulator.empty": (2, 4),
        "tiles.full": (3, 1),
        "tiles.empty": (3, 7),
    }
    assert mbarriers_bytes(blackwell().pipelines) == 8 * 2 * (4 + 2 + 3)


def test_counts_and_timeline_follow_from_it() -> None:
    loop = blackwell()
    assert loop.executed(Action.MULTIPLY, 7).total == loop.executed(Action.BULK_FETCH, 7).total == 7
    assert loop.written(lambda step: {step.action.value: 4} if step.action is Action.MULTIPLY else {}) == {"mma": 4}
    multiplied = {step.k_tile for slot in shown(loop) for step in slot.steps if step.action is Action.MULTIPLY}
    assert multiplied == set(range(len(multiplied)))


WRONG: dict[str, tuple[Edit, str]] = {
    "sums that a warp does not free": (
        more(ACCUMULATOR, "empty", "count", -1),
        "accumulator: `empty` counts 3 .* epilogue makes 4",
    ),
    "a tile that the scheduler does not read": (
        more(TILES, "empty", "count", -1),
        "tiles: `empty` counts 6 .* scheduler makes 1",
    ),
    "three tiles in two accumulators": (
        more(ACCUMULATOR, "empty", "credits"),
        "accumulator: mma passes .* before epilogue is done .*3 credits, 2 stages",
    ),
    "sums that are read before they are complete": (
        without(EPILOGUE, Action.WAIT, ACCUMULATOR),
        "accumulator: epilogue (reads|releases) .* before the tensor core of mma commits it",
    ),
    "sums that are not freed": (
        without(EPILOGUE, Action.RELEASE, ACCUMULATOR),
        "(ab|accumulator|tiles): all wait forever.*mma waits for `empty` of accumulator",
    ),
    "sums that are not completed": (
        without(MMA, Action.COMMIT, ACCUMULATOR),
        "(ab|tiles): all wait forever.*epilogue waits for `full` of accumulator",
    ),
    "a tile's name that nobody waits for": (
        without(PRODUCER, Action.WAIT, TILES),
        "tiles: producer (releases tile .* before a copy of scheduler commits it|may arrive at `empty`)",
    ),
    "no credits": (
        at(TILES, "empty", credits=0),
        "(ab|tiles): all wait .*scheduler waits for `empty` of tiles, tile 0",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_named(name: str) -> None:
    edit, words = WRONG[name]
    with pytest.raises(ProofError, match=f"^pipeline {words}"):
        prove_handshakes(edit(blackwell()))


def test_a_pair_waits_for_its_peer_before_it_exits() -> None:
    paired = blackwell(ctas=2)
    bare = replace(paired, programs=(replace(paired.programs[0], end=()), *paired.programs[1:]))
    with pytest.raises(ProofError, match="pipeline ab: producer may exit"):
        prove_handshakes(bare)


@pytest.mark.parametrize("stages", range(1, 5))
@pytest.mark.parametrize("buffers", [1, 2, 3])
def test_any_depth_of_its_rings_goes_on(stages: int, buffers: int) -> None:
    depths: dict[str, int] = {AB: stages, ACCUMULATOR: buffers}

    def deep(each: Pipeline) -> Pipeline:
        depth = depths.get(each.name, each.stages)
        assert each.empty is not None
        return replace(each, stages=depth, empty=replace(each.empty, credits=depth))

    loop = blackwell()
    prove_handshakes(replace(loop, stages=stages, pipelines=tuple(map(deep, loop.pipelines))))
