"""Proves that roles and pipelines fit together: every role always goes on, and no stage is used out of turn.

- Arrivals balance: each phase of a barrier gets the arrivals that it counts, all for one item.
- Credits suffice and are not too many: no wait passes before its item, or a free stage, is there.
- No cycle of waits.
- A stage is filled after it was acquired, read after it was waited for, and released by every reader after its reads.
- Memory of two pipelines is used by one at a time, and no CTA exits while others use its barriers.

Counts and names are checked on the values; the rest by executing the handshakes of all roles on a few tiles. Where all
threads copy, they are one role: its copies, `bar.sync` and loads are in one order, which is checked instead.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from operator import lt
from typing import NamedTuple

from cutegen.errors import ProofError
from cutegen.hardware.units import WARP
from cutegen.plan.kernel.pipeline import AB, Arrival, Barrier, By, Item, Pipeline, Role, Scope, Sync
from cutegen.plan.kernel.program import HANDSHAKES, Action, KernelLoop, Mark, Program, Range, Section, Step

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


# The execution of the handshakes of all roles on a few tiles.
#
# A group of a role runs until it waits for a phase of a barrier that is not over. Phases stay over, so every order of
# execution ends in the same state: if no group can go on here, none can on a GPU. Each group has a vector clock, of
# what it knows of the others and of copies, stores and multiplications in flight: it learns by waiting. So the clocks
# show what is ordered in every execution, not only in this one.
#
# All CTAs of a cluster do the same: the arrivals of one, as often as there are CTAs, stand for those of all.


Clock = list[int]
_LATE = frozenset({By.COPY, By.THREAD_COPIES, By.MMA})
"""Arrivals after the step that asks for them."""
_ISSUED = {Action.BULK_FETCH: By.COPY, Action.ASK: By.COPY, Action.FETCH: By.THREAD_COPIES}
"""The arrivals that copies make which a step issues."""
_MEETING, _WAITS = "bar.sync", "waits"
_FILLS = "fills the stage of"


def wrong(pipeline: str, what: str) -> ProofError:
    """Return the error of a pipeline whose roles do not fit together."""
    return ProofError(f"pipeline {pipeline}: {what}: this is a defect of cutegen, please report the spec")


def amount(barrier: Barrier, role: Role, causes: Collection[By] = frozenset(By)) -> int:
    """Return the arrivals of a group of `role` for an item, of some causes."""
    threads = role.group_threads
    each = {By.THREAD: threads, By.WARP: threads // WARP, By.COPY: 1, By.THREAD_COPIES: threads, By.MMA: 1}
    made = [x for x in barrier.arrivals if x.role == role.name and x.by in causes]
    return sum([each[arrival.by] * arrival.ctas for arrival in made])


def prove_execution(loop: KernelLoop, k_tiles: int, tiles: int) -> None:
    """Raise ProofError unless all roles end, in order and with nothing left over, after `tiles` of `k_tiles` each."""
    _Execution(loop, k_tiles, tiles).run()


class _Kind(IntEnum):
    """A wait for a phase, an arrival, an arrival later by a copy or the tensor core, or something done to an item."""

    WAIT = 0
    ARRIVE = 1
    ARRIVE_LATER = 2
    DO = 3


@dataclass(slots=True)
class _Phases:
    """State of one barrier: per stage the past phases and the present one; per item who arrived at what time.

    `late` is the place in clocks of what arrives after the step that asks for it.
    """

    pipeline: Pipeline
    name: str
    barrier: Barrier
    late: int
    over: list[list[Clock]] = field(init=False)
    pending: list[int] = field(init=False)
    clock: list[Clock] = field(init=False)
    item: list[int] = field(init=False)
    arrived: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    got: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        stages = range(self.pipeline.stages)
        self.over, self.clock = [[] for _ in stages], [[] for _ in stages]
        self.pending, self.item = [0 for _ in stages], [0 for _ in stages]

    def needed(self, item: int) -> int:
        """Return how many phases of the item's stage are over when a wait for it passes."""
        stages, credits = self.pipeline.stages, self.barrier.credits
        turn, stage = divmod(item, stages)
        free = -(-(credits - stage) // stages) if credits > stage else 0
        return turn + 1 - free


class _Op(NamedTuple):
    """One operation on a barrier, for an item: the phases that a wait needs, or the arrivals; and words for it."""

    kind: _Kind
    at: _Phases
    amount: int
    item: int
    words: str = ""


@dataclass(frozen=True, slots=True)
class _End:
    """A group's end of a pipeline: its barriers, and how the group arrives there.

    Without a barrier `empty`, those that wait for an item stand for it.
    """

    pipeline: Pipeline
    full: _Phases
    empty: _Phases
    full_amount: int
    empty_amount: int
    fills: bool

    @property
    def by_copy(self) -> bool:
        """True if the bytes of copies arrive, and not the step that announces them."""
        return self.pipeline.full.arrivals[0].by is By.COPY


class _Recorder:
    """Records the operations of a group, and checks what depends on its own order alone."""

    def __init__(
        self, loop: KernelLoop, program: Program, role: Role, group: int, ends: dict[str, _End], meeting: _Phases
    ) -> None:
        self.loop, self.program, self.role, self.group = loop, program, role, group
        self.ends, self.meeting = ends, meeting
        self.ops: list[_Op] = []
        self.tile = self.visit = 0
        self.announced: set[tuple[str, int]] = set()
        self.last = dict.fromkeys(ends, -1)
        self.released: dict[str, int] = {}
        self.issued: list[int] = []  # k-tiles of the multiplications that are not yet a group
        self.flying: list[list[int]] = []
        actions = {step.action for each in program.sections for step in each.steps}
        self.reads = Action.LOAD if Action.LOAD in actions else Action.MULTIPLY
        waits_for_groups = not actions.isdisjoint((Action.MMA_COMMIT, Action.MMA_WAIT))
        self.asynchronous = waits_for_groups and self.reads is Action.MULTIPLY

    def record(self, k_tiles: int, tiles: int) -> list[_Op]:
        """Return the operations on tiles of so many k-tiles."""
        marks = k_tiles, self.loop.whole(k_tiles), self.loop.stages
        role, program = self.role, self.program
        own = range(self.group, tiles, role.groups) if role.alternates else range(tiles)
        begin, tile, end = (
            [(each, self._steps(each, marks)) for each in run] for run in (program.begin, program.tile, program.end)
        )
        runs = [(begin, 0), *((tile, visit) for visit in range(len(own))), (end, max(len(own) - 1, 0))]
        for run, self.visit in runs:
            self.tile = own[self.visit] if own else 0
            for each, steps in run:
                for step, k_tile, time in steps:
                    self._do(step, each, k_tiles, k_tile, time)
        return self.ops

    def _steps(self, each: Range | Section, marks: tuple[int, int, int]) -> list[tuple[Step, int, int]]:
        """Return the steps on one tile, each with its k-tile, and with the time that a section is repeated.

        Of a k-tile's blocks, the first and the last are enough.
        """
        if each.group not in (None, self.group):
            return []
        blocks = [step.k_block for step in each.steps if step.k_block is not None] or [0]
        ends = (None, min(blocks), max(blocks))
        found = [(step, _end(step.below, marks, step.ahead)) for step in each.steps if step.k_block in ends]
        if isinstance(each, Section):
            times = range(each.times)
            return [(x, 0, time) for time in times for x, end in found if end > 0 and time in x.nth.of(each.times)]
        first, last, copies = each.first.of(*marks), each.last.of(*marks), each.copies
        nth = [step.nth.of(copies) for step, _ in found] if copies > 1 else [range(1)] * len(found)
        return [
            (step, k_tile, 0)
            for k_tile in range(first, last)
            for (step, end), numbers in zip(found, nth, strict=True)
            if (k_tile - first) % copies in numbers and k_tile < end
        ]

    def _do(self, step: Step, each: Range | Section, k_tiles: int, k_tile: int, time: int) -> None:
        """Record one step. Items are counted over all tiles: k-tiles, tiles, turns, or a group's sub-tiles."""
        match step.action:
            case Action.BARRIER:
                self._meet()
                return
            case Action.MMA_COMMIT:
                self.flying.append(self.issued)
                self.issued = []
                return
            case Action.MMA_WAIT:
                del self.flying[: max(len(self.flying) - (step.pending or 0), 0)]
                return
        end = self.ends.get(step.pipeline)
        if end is None:
            return
        match end.pipeline.holds:
            case Item.K_TILE:
                item = self.tile * k_tiles + k_tile
            case Item.TILE:
                item = self.tile
            case Item.TURN:
                item = self.visit * self.role.groups + self.group
            case Item.SUB_TILE:
                item = self.visit * (each.times if isinstance(each, Section) else 1) + time
        self._handshake(step, end, item + step.ahead)

    def _handshake(self, step: Step, end: _End, item: int) -> None:
        name = end.pipeline.name
        match step.action:
            case Action.WAIT:
                self._wait(end.full, item)
                if end.pipeline.empty is None:
                    self._arrive(end.empty, item + end.pipeline.stages, 1)
            case Action.ACQUIRE:
                self._wait(end.empty, item)
            case Action.TAIL:
                for free in range(self.last[name] + 1, self.last[name] + 1 + end.pipeline.stages):
                    self._wait(end.empty, free)
            case Action.COMMIT:
                self._commit(end, item)
            case Action.BULK_FETCH | Action.ASK | Action.FETCH:
                for filled in self._filled(end):
                    self._copied(step, filled, item)
            case Action.RELEASE | Action.BULK_STORE:
                self._release(end, item)
            case Action.DRAIN:
                self.ops.append(_Op(_Kind.DO, end.empty, 0, item, _FILLS))
            case Action.LOAD_ACCUMULATOR | self.reads:
                self._read(end, item)

    def _wait(self, at: _Phases, item: int) -> None:
        self.ops.append(_Op(_Kind.WAIT, at, at.needed(item), item, "passes the wait for"))

    def _arrive(self, at: _Phases, item: int, count: int) -> None:
        late = any(arrival.by in _LATE for arrival in at.barrier.arrivals if arrival.role == self.role.name)
        self.ops.append(_Op(_Kind.ARRIVE_LATER if late else _Kind.ARRIVE, at, count, item))

    def _meet(self) -> None:
        self._arrive(self.meeting, self.visit, self.role.group_threads)
        self._wait(self.meeting, self.visit)

    def _commit(self, end: _End, item: int) -> None:
        self.last[end.pipeline.name] = max(self.last[end.pipeline.name], item)
        self.announced.add((end.pipeline.name, item))
        if end.fills:
            self.ops.append(_Op(_Kind.DO, end.empty, 0, item, _FILLS))
        if not end.by_copy:
            self._arrive(end.full, item, end.full_amount)

    def _filled(self, end: _End) -> tuple[_End, ...]:
        """Return the ends that a step's copies fill: with k-tiles come their factors, which may have a pipeline."""
        others = (x for x in self.ends.values() if x is not end and x.fills and x.by_copy)
        return (end, *(x for x in others if x.pipeline.holds is end.pipeline.holds))

    def _copied(self, step: Step, end: _End, item: int) -> None:
        name, holds = end.pipeline.name, end.pipeline.holds
        if (name, item) not in self.announced:
            raise wrong(name, f"{self.role.name} copies a {holds} whose bytes it did not announce")
        if (count := amount(end.full.barrier, self.role, {_ISSUED[step.action]})) == 0:
            raise wrong(name, f"{self.role.name} issues {step.action}, which arrives at no barrier")
        self._arrive(end.full, item, count)

    def _release(self, end: _End, item: int) -> None:
        if end.pipeline.holds is Item.K_TILE:
            self.released[end.pipeline.name] = item
        if end.pipeline.name == AB and [group for group in (self.issued, *self.flying) if item in group]:
            raise wrong(AB, f"{self.role.name} releases a {end.pipeline.holds} that is being multiplied")
        self.ops.append(_Op(_Kind.DO, end.full, 0, item, "releases"))
        self._arrive(end.empty, item + end.pipeline.stages, end.empty_amount)

    def _read(self, end: _End, item: int) -> None:
        name = end.pipeline.name
        if item <= self.released.get(name, -1):
            raise wrong(name, f"{self.role.name} reads a {end.pipeline.holds} after its release")
        self.ops.append(_Op(_Kind.DO, end.full, 0, item, "reads"))
        if self.asynchronous and item not in self.issued:
            self.issued.append(item)


def _end(below: Mark | None, marks: tuple[int, int, int], ahead: int) -> float:
    """Return the first k-tile without a step that is `ahead`, and done on k-tiles before `below` only."""
    return float("inf") if below is None else below.of(*marks) - ahead


@dataclass(slots=True)
class _Group:
    """A group of a role: its operations, the next one, and what it knows."""

    name: str
    number: int
    ops: list[_Op]
    clock: Clock
    next: int = 0


class _Done(NamedTuple):
    """An operation that must be ordered after all arrivals for its item, and what its group knew then."""

    op: _Op
    group: _Group
    clock: Clock


class _Execution:
    """The groups of all roles, and the barriers between them."""

    def __init__(self, loop: KernelLoop, k_tiles: int, tiles: int) -> None:
        self.loop, self.k_tiles, self.tiles = loop, k_tiles, tiles
        self.done: list[_Done] = []
        self.phases: list[_Phases] = []
        roles = [(program, loop.role(program.role)) for program in loop.programs]
        self.clock_places = sum([role.groups for _, role in roles])
        shared = {each.name: self._barriers(each) for each in loop.pipelines if each.scope is not Scope.GROUP}
        recorders = []
        for program, role in roles:
            meeting = self._meeting(role)
            for group in range(role.groups):
                own = {each.name: self._barriers(each) for each in loop.pipelines if each.scope is Scope.GROUP}
                ends = {name: _end_of(role, *barriers) for name, barriers in {**shared, **own}.items()}
                recorders.append(_Recorder(loop, program, role, group, ends, meeting))
        self.groups = [
            _Group(_name(each.role, each.group), number, each.record(k_tiles, tiles), [0] * self.clock_places)
            for number, each in enumerate(recorders)
        ]
        self.names = [*[each.name for each in self.groups], *[_late_name(at) for at in self.phases]]

    def _add(self, pipeline: Pipeline, name: str, barrier: Barrier) -> _Phases:
        self.phases.append(_Phases(pipeline, name, barrier, self.clock_places))
        self.clock_places += 1
        return self.phases[-1]

    def _barriers(self, pipeline: Pipeline) -> tuple[Pipeline, _Phases, _Phases]:
        """Add the barriers of a pipeline; those that wait for an item stand for a missing `empty`."""
        full = self._add(pipeline, "full", pipeline.full)
        if pipeline.empty is not None:
            return pipeline, full, self._add(pipeline, "empty", pipeline.empty)
        roles = [self.loop.role(name) for name in pipeline.consumers]
        waiting = sum([1 if role.alternates else role.groups for role in roles])
        count = 1 if pipeline.holds is Item.TURN else waiting
        waits = Barrier(sync=Sync.NAMED, count=count, arrivals=(), credits=pipeline.stages)
        return pipeline, full, self._add(pipeline, _WAITS, waits)

    def _meeting(self, role: Role) -> _Phases:
        """Add the `bar.sync` at which the groups of a role that share a tile meet, once a tile."""
        threads = role.group_threads if role.alternates else role.threads
        full = Barrier(sync=Sync.NAMED, count=threads, arrivals=(Arrival(role.name, By.THREAD),))
        ends = (role.name,)
        pipeline = Pipeline(name=_MEETING, producers=ends, consumers=ends, holds=Item.TILE, stages=1, full=full)
        return self._add(pipeline, "full", full)

    def run(self) -> None:
        """Execute all operations; raise ProofError for the first that does not fit."""
        running, progress = self.groups, True
        while running:
            if not progress:
                self._check_order()
                raise self._deadlock(running)
            progress = False
            for group in running:
                begin, ops = group.next, group.ops
                while group.next < len(ops) and self._execute(group, ops[group.next]):
                    group.next += 1
                progress |= group.next > begin
            running = [group for group in running if group.next < len(group.ops)]
        self._check_order()
        self._check_rest()
        for pipeline in self.loop.pipelines:
            if pipeline.within is not None:
                self._check_shared(pipeline)

    def _execute(self, group: _Group, op: _Op) -> bool:
        """Execute one operation; return False if the group has to wait."""
        if op.kind is _Kind.WAIT:
            over = op.at.over[op.item % op.at.pipeline.stages]
            if len(over) < op.amount:
                return False
            if op.amount > 0:
                group.clock = list(map(max, group.clock, over[op.amount - 1]))
        if op.kind in (_Kind.WAIT, _Kind.DO):
            self.done.append(_Done(op, group, group.clock))
        else:
            self._arrive(group, op)
        return True

    def _arrive(self, group: _Group, op: _Op) -> None:
        at, stage = op.at, op.item % op.at.pipeline.stages
        over, later = at.over[stage], op.kind is _Kind.ARRIVE_LATER
        if at.pending[stage] == 0:
            at.item[stage] = op.item
        unordered = bool(over) and not later and any(map(lt, group.clock, over[-1]))
        if at.item[stage] != op.item or unordered:
            self._check_order()
            phase = f"`{at.name}` in the phase of another {at.pipeline.holds}"
            raise wrong(at.pipeline.name, f"{group.name} may arrive at {phase}")
        place = at.late if later else group.number
        time = (len(at.got) if later else group.clock[place]) + 1
        clock = [*group.clock[:place], time, *group.clock[place + 1 :]]
        if not later:
            group.clock = clock
        at.arrived.setdefault(op.item, []).append((place, time))
        at.got[op.item] = at.got.get(op.item, 0) + op.amount
        at.clock[stage] = list(map(max, at.clock[stage], clock)) if at.pending[stage] else clock
        at.pending[stage] += op.amount
        if at.pending[stage] == at.barrier.count:
            over.append(at.clock[stage])
            at.pending[stage] = 0

    def _item(self, at: _Phases, item: int) -> str:
        """Name an item."""
        if at.pipeline.holds is Item.K_TILE:
            return f"k-tile {item % self.k_tiles} of tile {item // self.k_tiles}"
        return f"{at.pipeline.holds} {item}"

    def _deadlock(self, waiting: Iterable[_Group]) -> ProofError:
        """Return the error of groups that all wait: who waits for what."""
        ops = [(group.name, group.ops[group.next]) for group in waiting]
        words = [
            f"{name} waits for `{x.at.name}` of {x.at.pipeline.name}, {self._item(x.at, x.item)}" for name, x in ops
        ]
        where = f"with {self.tiles} tiles of {self.k_tiles} k-tiles"
        return wrong(ops[0][1].at.pipeline.name, f"all wait forever, {where}: {'; '.join(words)}")

    def _check_order(self) -> None:
        """Check that each operation on an item was ordered after all arrivals for it, in every execution."""
        for (_, at, _, item, words), group, clock in self.done:
            for place, time in at.arrived.get(item, ()):
                if clock[place] < time:
                    arrives = "commits it" if at.name == "full" else "is done with the one before it"
                    credits = f"{at.barrier.credits} credits, {at.pipeline.stages} stages"
                    did = f"{group.name} {words} {self._item(at, item)} before {self.names[place]} {arrives}"
                    raise wrong(at.pipeline.name, f"{did} ({credits})")

    def _check_rest(self) -> None:
        """Check that no phase is left half full, and that each item that was committed is released, and reversed."""
        committed = {(id(at.pipeline), item) for at in self.phases if at.name == "full" for item in at.got}
        released = {(id(at.pipeline), item) for at in self.phases if at.name != "full" for item in at.got}
        for at in self.phases:
            pipeline, users = at.pipeline, " or ".join(at.pipeline.consumers)
            for item, got in at.got.items():
                if got != at.barrier.count:
                    words = f"{got} arrivals at `{at.name}` for a {pipeline.holds}, which counts {at.barrier.count}"
                    raise wrong(pipeline.name, words)
                freed, key = item + pipeline.stages, id(pipeline)
                if at.name == "empty" and (key, item - pipeline.stages) not in committed:
                    raise wrong(pipeline.name, f"{users} releases a {pipeline.holds} that nobody commits")
                refilled = pipeline.empty is not None or (key, freed) in committed
                if at.name == "full" and pipeline.name != _MEETING and refilled and (key, freed) not in released:
                    never = "releases" if pipeline.empty is not None else "waits for"
                    raise wrong(pipeline.name, f"a {pipeline.holds} is committed that {users} never {never}")

    def _check_shared(self, inner: Pipeline) -> None:
        """Check that a tile is put into the stages of k-tiles after these are read, and k-tiles after the tile is."""
        outer = self.loop.pipeline(inner.within or "")
        assert outer is not None
        assert (outer.holds, inner.holds) == (Item.K_TILE, Item.TILE)
        read, freed = (
            next(at for at in self.phases if at.pipeline is each and at.name == "empty") for each in (outer, inner)
        )
        for op, _, clock in self.done:
            before: list[tuple[int, int]] = []
            if op.words == _FILLS and op.at is freed:
                first = op.item * self.k_tiles + outer.stages
                before = [each for k_tile in range(self.k_tiles) for each in read.arrived.get(first + k_tile, ())]
            elif op.words == _FILLS and op.at is read and op.item >= self.k_tiles:
                before = freed.arrived.get(op.item // self.k_tiles, [])
            if [place for place, time in before if clock[place] < time]:
                words = f"its memory is that of {outer.name}, which is in use when a {inner.holds} comes"
                raise wrong(inner.name, words)


def _end_of(role: Role, pipeline: Pipeline, full: _Phases, empty: _Phases) -> _End:
    fills = role.name in pipeline.producers
    return _End(pipeline, full, empty, amount(full.barrier, role), amount(empty.barrier, role), fills)


def _name(role: Role, group: int) -> str:
    return role.name if role.groups == 1 else f"group {group} of {role.name}"


def _late_name(at: _Phases) -> str:
    """Name what arrives at a barrier after the step of a role: a copy, a store, or the tensor core."""
    by = at.barrier.arrivals[0].by if at.barrier.arrivals else By.THREAD
    what = "the store" if at.barrier.sync is Sync.STORE_GROUPS else "a copy" if by is By.COPY else "the tensor core"
    return f"{what} of {' or '.join(at.pipeline.producers)}"
