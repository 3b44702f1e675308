"""Proves that roles and pipelines fit together: every role always goes on, and no stage is used out of turn.

- Arrivals balance: each phase of a barrier gets the arrivals that it counts, all for one item.
- Credits suffice and are not too many: no wait passes before its item, or a free stage, is there.
- No cycle of waits.
- A stage is filled after it was acquired, read after it was waited for, and released by every reader after its reads.
- Memory of two pipelines is used by one at a time, and no CTA exits while others use its barriers.

Counts and names are checked on the values; the rest by executing the handshakes of all roles on a few k-tiles and tiles
(`cutegen/plan/kernel/execution.py`). Where all threads copy, they are one role: its copies, `bar.sync` and loads are in
one order, which is checked instead.
"""

from __future__ import annotations

from functools import lru_cache

from cutegen.plan.kernel.execution import amount, prove_execution, wrong
from cutegen.plan.kernel.pipeline import AB, Item, Pipeline, Scope, Sync
from cutegen.plan.kernel.program import HANDSHAKES, Action, KernelLoop, Step

REMEMBERED = 256
"""Loops that hold are not executed again: plans for many problems share them."""
LEAST_TILES = 2
"""Tiles of a persistent CTA: what one leaves behind, the next one finds."""
_AT_EMPTY = frozenset({Action.ACQUIRE, Action.RELEASE, Action.TAIL})
"""The handshakes at `empty`; the others are at `full`."""
_OF_CONSUMERS = frozenset({Action.WAIT, Action.RELEASE})
_ARRIVALS = {Action.COMMIT: 1, Action.WAIT: -1, Action.RELEASE: 1, Action.ACQUIRE: -1, Action.TAIL: 0}
"""Arrivals at a barrier of the cluster, less waits."""


@lru_cache(maxsize=REMEMBERED)
def prove_handshakes(loop: KernelLoop) -> None:
    """Raise ProofError, with the pipeline and the role, unless the roles of `loop` always go on, in order."""
    for pipeline in loop.pipelines:
        _prove_counts(loop, pipeline)
    turn = loop.k_tiles_per_turn
    if {each.full.sync for each in loop.pipelines} == {Sync.COPY_GROUPS}:
        _prove_stages(loop)
        for k_tiles in {0, 1, 2, loop.stages, 2 * max(turn, loop.stages) + 1}:
            for whole in {0, loop.whole(k_tiles)}:
                _prove_order(loop, k_tiles, whole)
        return
    _prove_ends(loop)
    _prove_meetings(loop)
    _prove_exits(loop)
    for k_tiles in sorted({1, loop.stages + 2, 2 * turn + 1}):
        # Every stage is used again, and once more.
        tiles = max(LEAST_TILES, -(-(loop.stages + 3) // k_tiles)) if loop.persistent else 1
        prove_execution(loop, k_tiles, tiles)


def _handshakes(loop: KernelLoop) -> list[tuple[str, Step]]:
    """Return each step on a pipeline, with its role."""
    return [
        (program.role, step)
        for program in loop.programs
        for each in program.sections
        for step in each.steps
        if step.action in HANDSHAKES
    ]


def _prove_ends(loop: KernelLoop) -> None:
    """Prove that each handshake is on a pipeline of the kernel, by a role at that end of it."""
    named = {each.name: each for each in loop.pipelines}
    for role, step in _handshakes(loop):
        pipeline = named.get(step.pipeline)
        if pipeline is None:
            raise wrong(step.pipeline, f"{role} uses it, and the kernel does not have it")
        ends = pipeline.consumers if step.action in _OF_CONSUMERS else pipeline.producers
        if role not in ends and pipeline.full.sync is not Sync.CLUSTER:
            raise wrong(step.pipeline, f"{step.action} by {role}; expected {' or '.join(ends)}")
        if step.action in _AT_EMPTY and pipeline.empty is None:
            raise wrong(step.pipeline, f"{step.action} by {role}, but it has no barrier `empty`")


def _prove_meetings(loop: KernelLoop) -> None:
    """Prove that roles arrive at the cluster's barrier as often as they wait there, and warps meet before they write.

    The threads of a cluster alternate between the two (PTX ISA, "barrier.cluster"). Warps of a group are no roles here.
    """
    of_cluster = {each.name for each in loop.pipelines if each.full.sync is Sync.CLUSTER}
    more: dict[tuple[str, str], int] = {}
    for role, step in _handshakes(loop):
        if step.pipeline in of_cluster:
            more[role, step.pipeline] = more.get((role, step.pipeline), 0) + _ARRIVALS[step.action]
    for (role, name), count in more.items():
        if count:
            raise wrong(name, f"{role} arrives at the cluster's barrier more or less often than it waits there")
    meets = {
        program.role
        for program in loop.programs
        for each in program.sections
        if Action.BARRIER in [step.action for step in each.steps]
    }
    for pipeline in loop.pipelines:
        if pipeline.within is not None and not meets.issuperset(pipeline.producers):
            raise wrong(pipeline.name, f"warps write to the memory of {pipeline.within} before all have read it")


def _prove_exits(loop: KernelLoop) -> None:
    """Prove that a role stays until its stages are free, if other CTAs or bulk stores free them."""
    tails = {(role, step.pipeline) for role, step in _handshakes(loop) if step.action is Action.TAIL}
    for pipeline in loop.pipelines:
        if pipeline.empty is None:
            continue
        by_others = pipeline.empty.sync is Sync.MBARRIER and pipeline.empty.arrivals[0].ctas > 1
        if by_others or pipeline.empty.sync is Sync.STORE_GROUPS:
            for role in pipeline.producers:
                if (role, pipeline.name) not in tails:
                    raise wrong(pipeline.name, f"{role} may exit while its stages and barriers are in use")


def _prove_stages(loop: KernelLoop) -> None:
    """Prove that the only pipeline of a loop without a producer has the loop's stages."""
    (ab,) = loop.pipelines
    if ab.empty is None or not ab.stages == loop.stages == ab.empty.credits:
        raise wrong(ab.name, f"{ab.stages} stages for a loop of {loop.stages}, all of which are free at first")


def _prove_counts(loop: KernelLoop, pipeline: Pipeline) -> None:
    """Prove that each barrier counts the arrivals of its roles, and of all groups that have the same item.

    Only a wait for an mbarrier can pass by the parity of a phase that never was.
    """
    if pipeline.full.credits and pipeline.full.sync is not Sync.MBARRIER:
        raise wrong(pipeline.name, f"{pipeline.full.credits} credits at `full`; expected 0 for {pipeline.full.sync}")
    if pipeline.holds is Item.TURN and pipeline.stages != (groups := loop.role(pipeline.consumers[0]).groups):
        raise wrong(pipeline.name, f"{pipeline.stages} stages for the turns of {groups} groups")
    of_one_group = pipeline.scope is Scope.GROUP or pipeline.holds is Item.TURN
    for name, barrier in pipeline.barriers.items():
        made = {}
        for arrival in barrier.arrivals:
            role = loop.role(arrival.role)
            made[role.name] = amount(barrier, role) * (1 if of_one_group or role.alternates else role.groups)
        if sum(made.values()) != barrier.count:
            who = " and ".join([f"{role} makes {count}" for role, count in made.items()])
            words = f"`{name}` counts {barrier.count} arrivals for a {pipeline.holds}, and {who}"
            raise wrong(pipeline.name, words)


def _prove_order(loop: KernelLoop, k_tiles: int, whole: int) -> None:
    """Prove, where all threads copy, that a k-tile is read between a barrier after its copy and one before the next."""
    (program,), taken = loop.programs, max(k_tiles, loop.least_k_tiles)
    marks = (taken, whole, loop.stages)
    committed: list[list[tuple[int, Action]]] = []
    held: dict[int, int] = {}  # k-tile of each stage
    unsent: list[tuple[int, Action]] = []
    kinds = {step.action for each in program.ranges for step in each.steps} & {Action.FETCH, Action.STORE}
    landed: set[tuple[int, Action]] = set()
    visible: set[tuple[int, Action]] = set()
    unread: dict[int, bool] = {}  # k-tiles with loads since the last barrier
    for each in program.ranges:
        first, last = each.first.of(*marks), each.last.of(*marks)
        for k_tile in range(first, last):
            for step in each.steps:
                action, item = step.action, k_tile + step.ahead
                if step.below is not None and item >= step.below.of(*marks):
                    continue
                stage = item % loop.stages
                if action in (Action.FETCH, Action.STORE):
                    if unread.get(held.get(stage, -1)):
                        raise wrong(AB, f"{program.role} copies a k-tile to a stage that others may still read")
                    held[stage] = item
                    visible.discard((item, action))
                    if action is Action.FETCH:
                        unsent.append((item, action))
                    else:
                        landed.add((item, action))
                elif action is Action.COMMIT:
                    committed.append(unsent)
                    unsent = []
                elif action is Action.WAIT:
                    for copies in committed[: len(committed) - (step.pending or 0)]:
                        landed.update(copies)
                elif action is Action.BARRIER:
                    visible |= landed
                    unread = {}
                elif action is Action.LOAD and item < k_tiles:
                    if held.get(stage) != item or not visible.issuperset([(item, kind) for kind in kinds]):
                        raise wrong(AB, f"{program.role} reads a k-tile before a barrier after its copy")
                    unread[item] = True
