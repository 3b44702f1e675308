"""Roles and pipelines that fit together, and each mistake that the proof of handshakes names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from cutegen.errors import ProofError
from cutegen.plan import plan
from cutegen.plan.kernel.handshakes import prove_handshakes
from cutegen.plan.kernel.pipeline import (
    AB,
    C_STORE,
    MMA,
    PRODUCER,
    SLICES,
    TURN,
    Arrival,
    Barrier,
    By,
    Item,
    Pipeline,
    Sync,
    Turns,
)
from cutegen.plan.kernel.program import HANDSHAKES, Action, KernelLoop, Program, Range, Section, Step
from cutegen.plan.prove import prove
from cutegen.spec import GemmSpec
from tests.plan.loops import multiplied_from_shared, pipelined, produced, through_registers
from tests.plan.test_loop import LOOPS
from tests.run.wgmma import CASES

Edit = Callable[[KernelLoop], KernelLoop]


@pytest.mark.parametrize("name", LOOPS)
def test_every_kind_of_loop_goes_on_in_order(name: str) -> None:
    prove_handshakes(LOOPS[name])


def planned(name: str) -> KernelLoop:
    spec = CASES[name]
    assert isinstance(spec, GemmSpec)
    return plan(spec, "sm_90").loop


def changed(name: str, **fields: object) -> Edit:
    """A pipeline with other fields."""

    def edit(loop: KernelLoop) -> KernelLoop:
        return replace(loop, pipelines=tuple(replace(x, **fields) if x.name == name else x for x in loop.pipelines))

    return edit


def at(name: str, barrier: str, **fields: object) -> Edit:
    """A barrier of a pipeline with other fields."""

    def edit(loop: KernelLoop) -> KernelLoop:
        found = loop.pipeline(name)
        assert found is not None
        return changed(name, **{barrier: replace(found.barriers[barrier], **fields)})(loop)

    return edit


def more(name: str, barrier: str, field: str, by: int = 1) -> Edit:
    def edit(loop: KernelLoop) -> KernelLoop:
        found = loop.pipeline(name)
        assert found is not None
        return at(name, barrier, **{field: getattr(found.barriers[barrier], field) + by})(loop)

    return edit


def steps_of(role: str, rewrite: Callable[[tuple[Step, ...]], tuple[Step, ...]]) -> Edit:
    """A role's slots and sections rewritten."""

    def rewritten(each: Range | Section) -> Range | Section:
        if isinstance(each, Section):
            return replace(each, steps=rewrite(each.steps))
        return replace(each, slots=tuple(map(rewrite, each.slots)))

    def edited(program: Program) -> Program:
        begin, tile, end = (tuple(map(rewritten, x)) for x in (program.begin, program.tile, program.end))
        return replace(program, begin=begin, tile=tile, end=end)

    return lambda loop: replace(loop, programs=tuple(edited(x) if x.role == role else x for x in loop.programs))


def without(role: str, action: Action, pipeline: str = AB) -> Edit:
    return steps_of(role, lambda steps: tuple(x for x in steps if (x.action, x.pipeline) != (action, pipeline)))


def drop(pipeline: str) -> Edit:
    return lambda loop: replace(loop, pipelines=tuple(x for x in loop.pipelines if x.name != pipeline))


def released_at_once(loop: KernelLoop) -> KernelLoop:
    """A k-tile's stage is released in its first k-block, and not before its last."""
    program = loop.main
    turn = next(x for x in program.ranges if x.name == "turn")
    first, *rest = (tuple(x for x in slot if x.action is not Action.RELEASE) for slot in turn.slots)
    other = replace(turn, slots=((Step(Action.RELEASE), *first), *rest))
    main = replace(program, tile=tuple(other if x is turn else x for x in program.tile))
    return replace(loop, programs=tuple(main if x is program else x for x in loop.programs))


def in_a_cycle(loop: KernelLoop) -> KernelLoop:
    """The producer copies a tile when the multiplications of that tile permit it, which need the copies."""
    full = Barrier(sync=Sync.MBARRIER, count=8, arrivals=(Arrival(MMA, By.WARP),))
    go = Pipeline(name="go", producers=(MMA,), consumers=(PRODUCER,), holds=Item.TILE, stages=1, full=full)
    fetch, main = loop.programs
    waits, permits = (Section((Step(action, pipeline="go"),)) for action in (Action.WAIT, Action.COMMIT))
    programs = replace(fetch, tile=(waits, *fetch.tile)), replace(main, tile=(*main.tile, permits))
    return replace(loop, programs=programs, pipelines=(*loop.pipelines, go))


def acquired_late(loop: KernelLoop) -> KernelLoop:
    """The producer waits until a cluster has read a tile's sums when the next tile's k-tiles are copied."""

    def rewrite(steps: tuple[Step, ...]) -> tuple[Step, ...]:
        if not any(x.pipeline == SLICES for x in steps):
            return steps
        *others, acquire = steps
        return replace(acquire, ahead=0), *others

    return steps_of(PRODUCER, rewrite)(loop)


def wgmma() -> KernelLoop:
    return multiplied_from_shared(4, 4)


def in_turns() -> KernelLoop:
    return multiplied_from_shared(3, 4, Turns.LAST_K_TILES)


def cooperative() -> KernelLoop:
    return planned("tn")


def pingpong() -> KernelLoop:
    return planned("pingpong")


def cluster() -> KernelLoop:
    return planned("cluster_along_m")


def slices() -> KernelLoop:
    return planned("two_atoms_in_slices")


WRONG: dict[str, tuple[Callable[[], KernelLoop], Edit, str]] = {
    "an arrival more than is made": (wgmma, more(AB, "empty", "count"), "ab: `empty` counts 9 .* mma makes 8"),
    "an arrival less": (wgmma, more(AB, "empty", "count", -1), "ab: `empty` counts 7 .* mma makes 8"),
    "two that announce bytes": (wgmma, more(AB, "full", "count"), "ab: `full` counts 2 .* producer makes 1"),
    "arrivals of one CTA of two": (cluster, more(AB, "empty", "count", -4), "ab: `empty` counts 4 .* mma makes 8"),
    "a credit too many": (
        wgmma,
        more(AB, "empty", "credits"),
        "ab: producer passes .* before group 0 of mma is done .*5 credits, 4 stages",
    ),
    "a credit too few": (
        lambda: produced(1, 4),
        more(AB, "empty", "credits", -1),
        "ab: all wait forever.* producer waits for `empty` of ab",
    ),
    "a stage that is not released": (
        wgmma,
        without(MMA, Action.RELEASE),
        "ab: all wait .* producer waits for `empty` of ab, k-tile",
    ),
    "a stage that is not acquired": (wgmma, without(PRODUCER, Action.ACQUIRE), "ab: producer fills .* before group"),
    "a stage that is not waited for": (
        wgmma,
        without(MMA, Action.WAIT),
        "ab: group 0 of mma reads .* a copy of producer",
    ),
    "bytes that are not announced": (wgmma, without(PRODUCER, Action.COMMIT), "ab: producer copies .* not announce"),
    "bytes that are not copied": (
        wgmma,
        without(PRODUCER, Action.BULK_FETCH),
        "ab: all wait forever.*mma waits for `full` of ab",
    ),
    "a release during multiplications": (wgmma, without(MMA, Action.MMA_WAIT), "ab: mma releases .* being multiplied"),
    "a release before fragments are loaded": (
        lambda: produced(3, 4),
        released_at_once,
        "ab: mma reads .* after its release",
    ),
    "both warpgroups have the turn": (
        pingpong,
        more(TURN, "full", "credits"),
        "turn: group 1 of mma passes .* before group 0 of mma commits it",
    ),
    "nobody has the turn": (
        pingpong,
        at(TURN, "full", credits=0),
        "(ab|turn): all wait forever.*group 0 of mma waits for `full` of turn",
    ),
    "a turn that is not passed on": (
        pingpong,
        without(MMA, Action.COMMIT, TURN),
        "(ab|turn): all wait forever.*`full` of turn",
    ),
    "a turn that is counted twice": (in_turns, more(TURN, "full", "count", 4), "turn: `full` counts 8 .* makes 4"),
    "a turn without its pipeline": (pingpong, drop(TURN), "turn: mma uses it, and the kernel does not have it"),
    "C in a buffer that is being stored": (
        cooperative,
        without(MMA, Action.ACQUIRE, C_STORE),
        "c_store: .* fills .* before the store of mma is done",
    ),
    "C gone before it is stored": (cooperative, without(MMA, Action.TAIL, C_STORE), "c_store: mma may exit"),
    "barriers gone before peers arrive": (cluster, without(PRODUCER, Action.TAIL), "ab: producer may exit"),
    "sums over stages that are read": (slices, without(MMA, Action.BARRIER), "slices: warps write to the memory of ab"),
    "k-tiles over sums that are read": (
        slices,
        acquired_late,
        "slices: its memory is that of ab",
    ),
    "a role that does not meet its cluster": (
        slices,
        without(PRODUCER, Action.COMMIT, SLICES),
        "slices: producer arrives at the cluster's barrier more or less often",
    ),
    "roles in a cycle": (
        wgmma,
        in_a_cycle,
        "(ab|go): all wait forever.* producer waits for `full` of go, .*mma waits for `full` of ab",
    ),
    "a role at the wrong end": (wgmma, changed(AB, consumers=(PRODUCER,)), "ab: (wait|release) by mma; expected prod"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_named(name: str) -> None:
    make, edit, words = WRONG[name]
    with pytest.raises(ProofError, match=f"^pipeline {words}") as error:
        prove_handshakes(edit(make()))
    assert "defect of cutegen" in str(error.value)


def later(action: Action) -> Edit:
    """A wait that leaves one group more in flight."""
    return steps_of(
        "threads",
        lambda steps: tuple(replace(x, pending=(x.pending or 0) + 1) if x.action is action else x for x in steps),
    )


BY_THREADS: dict[str, tuple[Callable[[], KernelLoop], Edit, str]] = {
    "no barrier": (
        lambda: pipelined(3, 4, 3, (Action.FETCH,)),
        without("threads", Action.BARRIER),
        "a k-tile is read by threads before a barrier",
    ),
    "a wait for too few": (
        lambda: pipelined(3, 4, 3, (Action.FETCH,)),
        later(Action.WAIT),
        "a k-tile is read by threads before a barrier",
    ),
    "no wait": (
        lambda: pipelined(2, 4, 2, (Action.FETCH,)),
        without("threads", Action.WAIT),
        "a k-tile is read by threads before a barrier",
    ),
    "no barrier before a store": (
        lambda: through_registers(1),
        lambda loop: steps_of("threads", lambda steps: () if steps == (Step(Action.BARRIER, 1),) else steps)(loop),
        "a k-tile is copied to a stage that threads may still read",
    ),
}


@pytest.mark.parametrize("name", BY_THREADS)
def test_an_order_of_all_threads_that_does_not_fit_is_named(name: str) -> None:
    make, edit, words = BY_THREADS[name]
    with pytest.raises(ProofError, match=f"^pipeline ab: {words}"):
        prove_handshakes(edit(make()))


def test_a_plan_whose_roles_do_not_fit_is_not_proved() -> None:
    found = plan(CASES["tn"], "sm_90")
    prove(found)
    with pytest.raises(ProofError, match="pipeline ab: `empty` counts 9"):
        prove(replace(found, loop=more(AB, "empty", "count")(found.loop)))


def parts_of(program: Program) -> Iterator[tuple[str, int, Range | Section]]:
    for run in ("begin", "tile", "end"):
        yield from ((run, number, each) for number, each in enumerate(getattr(program, run)))


def without_one(loop: KernelLoop) -> Iterator[tuple[str, KernelLoop]]:
    """The loop without each of its steps on a barrier, one at a time."""
    for i, program in enumerate(loop.programs):
        for run, number, each in parts_of(program):
            slots = (each.steps,) if isinstance(each, Section) else each.slots
            for j, slot in enumerate(slots):
                for k, step in enumerate(slot):
                    if step.action not in ORDERED:
                        continue
                    fewer = (*slots[:j], (*slot[:k], *slot[k + 1 :]), *slots[j + 1 :])
                    other = replace(each, steps=fewer[0]) if isinstance(each, Section) else replace(each, slots=fewer)
                    those = getattr(program, run)
                    edited = replace(program, **{run: (*those[:number], other, *those[number + 1 :])})
                    programs = (*loop.programs[:i], edited, *loop.programs[i + 1 :])
                    yield f"{program.role}.{run}: {step.action} {step.pipeline}", replace(loop, programs=programs)


def off_by_one(loop: KernelLoop) -> Iterator[tuple[str, KernelLoop]]:
    """The loop with each number of its pipelines one more and one less."""
    for pipeline in loop.pipelines:
        yield f"{pipeline.name}.stages", changed(pipeline.name, stages=pipeline.stages + 1)(loop)
        for name, barrier in pipeline.barriers.items():
            for kind in ("count", "credits"):
                for by in (-1, 1):
                    if getattr(barrier, kind) + by >= 0:
                        yield f"{pipeline.name}.{name}.{kind} {by:+}", more(pipeline.name, name, kind, by)(loop)


ORDERED = HANDSHAKES | {
    Action.MMA_COMMIT,
    Action.MMA_WAIT,
    Action.BULK_FETCH,
    Action.BULK_STORE,
    Action.BARRIER,
}
EQUIVALENT = {
    # Only the time at which tensor cores are busy: the second warpgroup waits for its own k-tiles as well.
    ("e4m3_of_two_warpgroups", "mma.begin: wait ab"),
    # The cluster has met before the next tile's first copy, and all have released the stages before.
    *((name, "producer.tile: acquire ab") for name in ("clusters_leave_shares", "two_atoms_in_slices")),
    ("cluster_of_tiles_and_slices", "producer.tile: acquire ab"),
}
"""Steps without which a loop is still right."""
KERNELS = (
    *("tn", "pingpong", "ends_in_turns", "cluster_along_m", "cluster_taking_turns", "two_atoms_in_slices", "e4m3"),
    *("cluster_of_tiles_and_slices", "clusters_leave_shares", "e4m3_of_two_warpgroups", "pingpong_e4m3"),
    "c_from_registers",
)


@pytest.mark.parametrize("name", [*LOOPS, *KERNELS])
def test_no_step_may_be_left_out_and_no_number_may_be_off_by_one(name: str) -> None:
    loop = LOOPS[name] if name in LOOPS else planned(name)
    prove_handshakes(loop)
    passed = set()
    for what, wrong in (*without_one(loop), *off_by_one(loop)):
        try:
            prove_handshakes(wrong)
        except ProofError:
            continue
        passed.add((name, what))
    assert passed <= EQUIVALENT


def test_a_loop_of_other_stages_than_its_pipeline_is_named() -> None:
    with pytest.raises(ProofError, match=r"^pipeline ab: 3 stages for a loop of 2"):
        prove_handshakes(replace(pipelined(3, 4, 3, (Action.FETCH,)), stages=2))


BETWEEN_TILES = {
    "cp.async": (pipelined(3, 4, 3, (Action.FETCH,)), False),
    "plain": (pipelined(2, 4, 1, (Action.GLOBAL_LOAD,)), False),
    "one stage": (pipelined(1, 4, 1, (Action.FETCH,)), True),
    "simt": (through_registers(2), True),
}
"""Loops of all threads, and whether their last barrier is after all of their reads."""


@pytest.mark.parametrize("name", BETWEEN_TILES)
def test_threads_that_copy_meet_between_tiles(name: str) -> None:
    """A persistent CTA's next tile is copied to stages that a slower warp may still read."""
    loop, meets = BETWEEN_TILES[name]
    prove_handshakes(loop)
    prove_handshakes(loop.over_tiles())
    bare = replace(loop, persistent=True)
    if meets:
        prove_handshakes(bare)
    else:
        with pytest.raises(ProofError, match=r"^pipeline ab: a k-tile is copied to a stage that threads"):
            prove_handshakes(bare)
