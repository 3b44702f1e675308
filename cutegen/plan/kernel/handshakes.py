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
from cutegen.plan.kernel.program import HANDSHAKES, Action, KernelLoop, Program, Section, Step

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
        shared = pipeline.scope in (Scope.PAIR, Scope.CLUSTER)
        by_others = pipeline.empty.sync is Sync.MBARRIER and (shared or pipeline.empty.arrivals[0].ctas > 1)
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


class _Copies:
    """The copies of a kernel whose threads all copy, in program order: what is on its way, there for all, and read."""

    def __init__(self, program: Program, stages: int, k_tiles: int) -> None:
        self.role, self.stages, self.k_tiles = program.role, stages, k_tiles
        actions = {step.action for each in program.ranges for step in each.steps}
        self.kinds = actions & {Action.FETCH, Action.STORE}
        self.tile = 0
        self.held: dict[int, tuple[int, int]] = {}  # tile and k-tile of each stage
        self.sent: list[tuple[Action, int, int]] = []
        self.groups: list[list[tuple[Action, int, int]]] = []
        self.landed: set[tuple[Action, int, int]] = set()
        self.visible: set[tuple[Action, int, int]] = set()
        self.read: set[tuple[int, int]] = set()  # since the last barrier

    def do(self, step: Step, k_tile: int) -> None:
        """Follow one step on a k-tile; raise ProofError if a stage is used out of turn."""
        match step.action:
            case Action.FETCH | Action.STORE:
                self._copy(step.action, k_tile)
            case Action.COMMIT:
                self.groups.append(self.sent)
                self.sent = []
            case Action.WAIT:
                for group in self.groups[: len(self.groups) - (step.pending or 0)]:
                    self.landed.update(group)
            case Action.BARRIER:
                self.visible |= self.landed
                self.read.clear()
            case Action.LOAD:
                self._load(k_tile)

    def _copy(self, kind: Action, k_tile: int) -> None:
        stage = k_tile % self.stages
        if self.held.get(stage) in self.read:
            raise wrong(AB, f"a k-tile is copied to a stage that {self.role} may still read")
        self.held[stage] = self.tile, k_tile
        copy = kind, self.tile, k_tile
        if kind is Action.FETCH:
            self.sent.append(copy)
        else:
            self.landed.add(copy)

    def _load(self, k_tile: int) -> None:
        if k_tile >= self.k_tiles:  # is read and not multiplied
            self.read.add(self.held.get(k_tile % self.stages, (self.tile, k_tile)))
            return
        there = self.visible.issuperset([(kind, self.tile, k_tile) for kind in self.kinds])
        if self.held.get(k_tile % self.stages) != (self.tile, k_tile) or not there:
            raise wrong(AB, f"a k-tile is read by {self.role} before a barrier after its copy")
        self.read.add((self.tile, k_tile))


def _prove_order(loop: KernelLoop, k_tiles: int, whole: int) -> None:
    """Prove, where all threads copy, that a k-tile is read between a barrier after its copy and one before the next."""
    (program,), taken = loop.programs, max(k_tiles, loop.least_k_tiles)
    marks, copies = (taken, whole, loop.stages), _Copies(program, loop.stages, k_tiles)
    for copies.tile in range(LEAST_TILES if loop.persistent else 1):
        for each in program.tile:
            k_tile_range = (0, 1) if isinstance(each, Section) else (each.first.of(*marks), each.last.of(*marks))
            for k_tile in range(*k_tile_range):
                for step in each.steps:
                    item = k_tile + step.ahead
                    if step.below is None or item < step.below.of(*marks):
                        copies.do(step, item)
