"""Proves that roles and pipelines fit together, by executing the handshakes of all roles on a few k-tiles and tiles.

A role, or a group of one, runs until it waits for a phase of a barrier that is not over. Phases stay over, so every
order of execution ends in the same state: if no role can go on here, none can on a GPU. Clocks, of what each role knows
of the others, show what is ordered in every execution and not only in this one:

- arrivals balance: each phase gets the arrivals that its barrier counts, all for one item;
- credits suffice and are not too many: no wait passes before its item, or a free stage, is there;
- a stage is filled after it was acquired, read after it was waited for, and released by every reader after its reads;
- memory of two pipelines is used by one at a time, and no CTA exits while others use its barriers.

All CTAs of a cluster do the same: the arrivals of one, as often as there are CTAs, stand for those of all. Where all
threads copy, they are one role: its copies, `bar.sync` and loads are in one order, which is checked instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import lt

from cutegen.errors import ProofError
from cutegen.hardware.units import WARP
from cutegen.plan.kernel.pipeline import AB, Arrival, Barrier, By, Item, Pipeline, Scope, Sync
from cutegen.plan.kernel.program import HANDSHAKES, Action, KernelLoop, Program, Range, Section, Step
from cutegen.plan.kernel.role import Role

LEAST_TILES = 3
_AT_EMPTY = frozenset({Action.ACQUIRE, Action.RELEASE, Action.TAIL})
"""The handshakes at `empty`; the others are at `full`."""
_OF_CONSUMERS = frozenset({Action.WAIT, Action.RELEASE})
_MET = {Action.COMMIT: 1, Action.WAIT: -1, Action.RELEASE: 1, Action.ACQUIRE: -1, Action.TAIL: 0}
_WAIT, _ARRIVE, _NOTE, _LATER = range(4)
_LATE = frozenset({By.COPY, By.MMA})
"""Arrivals after the step that asks for them."""
_FILLS = "fills the stage of"

Op = tuple[int, int, int, int, int, str]
"""A wait, an arrival, a note of what is done, or an arrival later, by a copy or by the tensor core: the barrier, its
stage, phases or arrivals, the item, and words.
"""
Clock = list[int]
Note = tuple[int, int, Clock, int, str]
"""A step that must be ordered after all arrivals for its item: barrier, item, clock and number of the group, words."""


def prove_handshakes(loop: KernelLoop) -> None:
    """Raise ProofError, with the pipeline and the role, unless the roles of `loop` always go on, in order."""
    turn = loop.k_tiles_per_turn
    for each in loop.pipelines:
        _prove_counts(loop, each)
    if all(each.full.sync is Sync.COPY_GROUPS for each in loop.pipelines):
        (ab,) = loop.pipelines
        if ab.empty is None or not ab.stages == loop.stages == ab.empty.credits:
            raise _wrong(ab.name, f"{ab.stages} stages for a loop of {loop.stages}, all of which are free at first")
        for k_tiles in {0, 1, 2, loop.stages, 2 * max(turn, loop.stages) + 1}:
            for whole in {0, loop.whole(k_tiles)}:
                _prove_order(loop, k_tiles, whole)
        return
    _prove_names(loop)
    for k_tiles in sorted({1, loop.stages + 2, 2 * turn + 1}):
        tiles = max(LEAST_TILES, -(-2 * (loop.stages + 1) // k_tiles)) if loop.persistent else 1
        _prove_run(loop, k_tiles, tiles)


def _wrong(pipeline: str, what: str) -> ProofError:
    return ProofError(f"pipeline {pipeline}: {what}: this is a defect of cutegen, please report the spec")


def _prove_names(loop: KernelLoop) -> None:
    """Prove that each handshake is on a pipeline of the kernel, by one of its roles, which stays until its end."""
    tails = set()
    met: dict[tuple[str, str], int] = {}
    named = {each.name: each for each in loop.pipelines}
    for program in loop.programs:
        for each in program.sections:
            for step in each.steps:
                if step.action not in HANDSHAKES:
                    continue
                pipeline = named.get(step.pipeline)
                if pipeline is None:
                    raise _wrong(step.pipeline, f"{program.role} uses it, and the kernel does not have it")
                ends = pipeline.consumers if step.action in _OF_CONSUMERS else pipeline.producers
                if program.role not in ends and pipeline.full.sync is not Sync.CLUSTER:
                    raise _wrong(step.pipeline, f"{step.action} by {program.role}; expected {' or '.join(ends)}")
                if step.action in _AT_EMPTY and pipeline.empty is None:
                    raise _wrong(step.pipeline, f"{step.action} by {program.role}, but it has no barrier `empty`")
                if step.action is Action.TAIL:
                    tails.add((program.role, step.pipeline))
                if pipeline.full.sync is Sync.CLUSTER:
                    met[program.role, step.pipeline] = met.get((program.role, step.pipeline), 0) + _MET[step.action]
    for (role, name), more in met.items():
        if more:
            raise _wrong(name, f"{role} arrives at the cluster's barrier more or less often than it waits there")
    barred = {program.role for program in loop.programs for each in program.sections if _bars(each)}
    for used in loop.pipelines:
        if used.within is not None and not barred.issuperset(used.producers):
            raise _wrong(used.name, f"warps write to the memory of {used.within} before all have read it")
        if used.empty is None:
            continue
        of_others = used.empty.sync is Sync.MBARRIER and used.empty.arrivals[0].ctas > 1
        if of_others or used.empty.sync is Sync.STORE_GROUPS:
            for name in used.producers:
                if (name, used.name) not in tails:
                    raise _wrong(used.name, f"{name} may exit while its stages and barriers are in use")


def _bars(each: Range | Section) -> bool:
    return Action.BARRIER in [step.action for step in each.steps]


def _prove_counts(loop: KernelLoop, pipeline: Pipeline) -> None:
    """Prove that each barrier counts the arrivals of its roles, and of all groups that have the same item.

    Only a wait for an mbarrier can pass by the parity of a phase that never was.
    """
    if pipeline.full.credits and pipeline.full.sync is not Sync.MBARRIER:
        raise _wrong(pipeline.name, f"{pipeline.full.credits} credits at `full`; expected 0 for {pipeline.full.sync}")
    if pipeline.holds is Item.TURN and pipeline.stages != (groups := loop.role(pipeline.consumers[0]).groups):
        raise _wrong(pipeline.name, f"{pipeline.stages} stages for the turns of {groups} groups")
    of_one_group = pipeline.scope is Scope.GROUP or pipeline.holds is Item.TURN
    for name, barrier in pipeline.barriers.items():
        made = {}
        for arrival in barrier.arrivals:
            role = loop.role(arrival.role)
            made[role.name] = _amount(barrier, role) * (1 if of_one_group or role.alternates else role.groups)
        if sum(made.values()) != barrier.count:
            who = " and ".join([f"{role} makes {count}" for role, count in made.items()])
            words = f"`{name}` counts {barrier.count} arrivals for a {pipeline.holds}, and {who}"
            raise _wrong(pipeline.name, words)


@dataclass(slots=True)
class _Phases:
    """State of one barrier: per stage the clocks of past phases, and of the present one; per item who arrived when."""

    pipeline: Pipeline
    name: str
    barrier: Barrier
    over: list[list[Clock]]
    pending: list[int]
    clock: list[Clock]
    item: list[int]
    arrived: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    got: dict[int, int] = field(default_factory=dict)

    def words(self, item: int, k_tiles: int) -> str:
        """Name an item."""
        if self.pipeline.holds is Item.K_TILE:
            return f"k-tile {item % k_tiles} of tile {item // k_tiles}"
        return f"{self.pipeline.holds} {item}"


@dataclass(slots=True)
class _Agent:
    """A group of a role, and its steps on barriers."""

    role: Role
    group: int
    number: int
    ops: list[Op]
    next: int = 0

    @property
    def name(self) -> str:
        return self.role.name if self.role.groups == 1 else f"group {self.group} of {self.role.name}"


class _Barriers:
    """The barriers of a kernel by number; groups have their own of some pipelines, and meet at a `bar.sync`."""

    def __init__(self, loop: KernelLoop, agents: list[tuple[Program, Role, int]]) -> None:
        self.table: list[_Phases] = []
        self.numbers: dict[tuple[str, str, int], int] = {}
        for number, (_, role, group) in enumerate(agents):
            for pipeline in loop.pipelines:
                of_group = pipeline.scope is Scope.GROUP
                if number == 0 or of_group:
                    barriers = pipeline.barriers
                    if pipeline.empty is None:
                        barriers[_WAITS] = _waits(loop, pipeline)
                    for name, barrier in barriers.items():
                        at = self._add(pipeline, name, barrier)
                        for agent in (number,) if of_group else range(len(agents)):
                            self.numbers[pipeline.name, name, agent] = at
            if group == 0:
                at = self._add(*_meeting(role))
                for agent in range(number, number + role.groups):
                    self.numbers[_MEETING, "full", agent] = at

    def _add(self, pipeline: Pipeline, name: str, barrier: Barrier) -> int:
        stages = range(pipeline.stages)
        over: list[list[Clock]] = [[] for _ in stages]
        clocks: list[Clock] = [[] for _ in stages]
        self.table.append(_Phases(pipeline, name, barrier, over, [0 for _ in stages], clocks, [0 for _ in stages]))
        return len(self.table) - 1


_MEETING, _WAITS = "bar.sync", "waits"


def _waits(loop: KernelLoop, pipeline: Pipeline) -> Barrier:
    """Stand for `empty` where no barrier says that a stage is free: those that wait for an item."""
    roles = [loop.role(name) for name in pipeline.consumers]
    groups = 1 if pipeline.holds is Item.TURN else sum([1 if role.alternates else role.groups for role in roles])
    return Barrier(sync=Sync.NAMED, count=groups, arrivals=(), credits=pipeline.stages)


def _meeting(role: Role) -> tuple[Pipeline, str, Barrier]:
    """The barrier at which all groups of a role that share a tile meet, once a tile."""
    threads = role.group_threads if role.alternates else role.threads
    full = Barrier(sync=Sync.NAMED, count=threads, arrivals=(Arrival(role.name, By.THREAD),))
    names = (role.name,)
    return Pipeline(name=_MEETING, producers=names, consumers=names, holds=Item.TILE, stages=1, full=full), "full", full


def _prove_run(loop: KernelLoop, k_tiles: int, tiles: int) -> None:
    """Execute all roles on `tiles` of `k_tiles` each, and check that all end, in order, with nothing left over."""
    named = [(program, loop.role(program.role), group) for program in loop.programs for group in _groups(loop, program)]
    barriers, marks = _Barriers(loop, named), (k_tiles, loop.whole(k_tiles), loop.stages)
    agents = [
        _Agent(role, group, number, _ops(loop, program, role, group, number, barriers, marks, tiles))
        for number, (program, role, group) in enumerate(named)
    ]
    who = [*[agent.name for agent in agents], *[_later(at) for at in barriers.table]]
    clocks: list[Clock] = [[0] * len(who) for _ in agents]
    notes: list[Note] = []
    table, running, progress = barriers.table, agents, True
    while running:
        if not progress:
            _prove_ordered(notes, table, who, k_tiles)
            raise _deadlock(running, table, k_tiles, tiles)
        progress = False
        for agent in running:
            number, ops = agent.number, agent.ops
            while agent.next < len(ops):
                kind, barrier, stage, amount, item, words = ops[agent.next]
                at, clock = table[barrier], clocks[number]
                if kind == _WAIT:
                    over = at.over[stage]
                    if len(over) < amount:
                        break
                    if amount > 0:
                        clocks[number] = clock = list(map(max, clock, over[amount - 1]))
                    notes.append((barrier, item, clock, number, words))
                elif kind == _NOTE:
                    notes.append((barrier, item, clock, number, words))
                else:
                    over = at.over[stage]
                    if at.pending[stage] == 0:
                        at.item[stage] = item
                    late = over and kind == _ARRIVE and any(map(lt, clock, over[-1]))
                    if at.item[stage] != item or late:
                        _prove_ordered(notes, table, who, k_tiles)
                        phase = f"`{at.name}` in the phase of another {at.pipeline.holds}"
                        raise _wrong(at.pipeline.name, f"{agent.name} may arrive at {phase}")
                    arrives = number if kind == _ARRIVE else len(agents) + barrier
                    time = clock[arrives] + 1 if kind == _ARRIVE else len(at.got) + 1
                    clock = [*clock[:arrives], time, *clock[arrives + 1 :]]
                    if kind == _ARRIVE:
                        clocks[number] = clock
                    at.arrived.setdefault(item, []).append((arrives, time))
                    at.got[item] = at.got.get(item, 0) + amount
                    at.clock[stage] = list(map(max, at.clock[stage], clock)) if at.pending[stage] else clock
                    at.pending[stage] += amount
                    if at.pending[stage] == at.barrier.count:
                        over.append(at.clock[stage])
                        at.pending[stage] = 0
                agent.next += 1
                progress = True
        running = [agent for agent in running if agent.next < len(agent.ops)]
    _prove_ordered(notes, table, who, k_tiles)
    _prove_left(table)
    for pipeline in loop.pipelines:
        if pipeline.within is not None:
            _prove_shared(loop, pipeline, barriers, notes, k_tiles)


def _later(at: _Phases) -> str:
    """Name what arrives at a barrier after the step of a role: a copy, a store, or the tensor core."""
    by = at.barrier.arrivals[0].by if at.barrier.arrivals else By.THREAD
    what = "the store" if at.barrier.sync is Sync.STORE_GROUPS else "a copy" if by is By.COPY else "the tensor core"
    return f"{what} of {' or '.join(at.pipeline.producers)}"


def _groups(loop: KernelLoop, program: Program) -> range:
    return range(loop.role(program.role).groups)


def _prove_ordered(notes: list[Note], table: list[_Phases], who: list[str], k_tiles: int) -> None:
    """Prove that each step was ordered after all arrivals for its item, in every execution."""
    for barrier, item, clock, number, words in notes:
        at = table[barrier]
        for other, time in at.arrived.get(item, ()):
            if clock[other] < time:
                arrives = "commits it" if at.name == "full" else "is done with the one before it"
                credits = f"{at.barrier.credits} credits, {at.pipeline.stages} stages"
                did = f"{who[number]} {words} {at.words(item, k_tiles)} before {who[other]} {arrives}"
                raise _wrong(at.pipeline.name, f"{did} ({credits})")


def _deadlock(waiting: list[_Agent], table: list[_Phases], k_tiles: int, tiles: int) -> ProofError:
    """Return the error of roles that all wait: who waits for what."""
    words = []
    for agent in waiting:
        _, barrier, _, _, item, _ = agent.ops[agent.next]
        at = table[barrier]
        words.append(f"{agent.name} waits for `{at.name}` of {at.pipeline.name}, {at.words(item, k_tiles)}")
    first = table[waiting[0].ops[waiting[0].next][1]].pipeline.name
    return _wrong(first, f"all wait for ever, with {tiles} tiles of {k_tiles} k-tiles: {'; '.join(words)}")


def _prove_left(table: list[_Phases]) -> None:
    """Prove that no phase is left half full, and that each item that was committed is released."""
    committed = {(id(at.pipeline), item) for at in table if at.name == "full" for item in at.got}
    released = {(id(at.pipeline), item) for at in table if at.name != "full" for item in at.got}
    for at in table:
        for item, got in at.got.items():
            if got != at.barrier.count:
                words = f"{got} arrivals at `{at.name}` for a {at.pipeline.holds}, which counts {at.barrier.count}"
                raise _wrong(at.pipeline.name, words)
            users, behind = " or ".join(at.pipeline.consumers), item + at.pipeline.stages
            refilled = at.pipeline.empty is not None or (id(at.pipeline), behind) in committed
            if at.name == "full" and at.pipeline.name != _MEETING and refilled:
                if (id(at.pipeline), behind) not in released:
                    never = "releases" if at.pipeline.empty is not None else "waits for"
                    raise _wrong(at.pipeline.name, f"a {at.pipeline.holds} is committed that {users} never {never}")
            elif at.name == "empty" and (id(at.pipeline), item - at.pipeline.stages) not in committed:
                raise _wrong(at.pipeline.name, f"{users} releases a {at.pipeline.holds} that nobody commits")


def _prove_shared(
    loop: KernelLoop,
    inner: Pipeline,
    barriers: _Barriers,
    notes: list[Note],
    k_tiles: int,
) -> None:
    """Prove that a tile is put into the stages of k-tiles after these are read, and k-tiles after the tile is."""
    outer = loop.pipeline(inner.within or "")
    assert outer is not None
    assert (outer.holds, inner.holds) == (Item.K_TILE, Item.TILE)
    read, freed = (barriers.numbers[each.name, "empty", 0] for each in (outer, inner))
    for barrier, item, clock, _, words in notes:
        before: list[tuple[int, int]] = []
        if words == _FILLS and barrier == freed:
            first = item * k_tiles + outer.stages
            for each in range(first, first + k_tiles):
                before += barriers.table[read].arrived.get(each, [])
        elif words == _FILLS and barrier == read and item >= k_tiles:
            before = barriers.table[freed].arrived.get(item // k_tiles, [])
        if any(clock[number] < time for number, time in before):
            raise _wrong(inner.name, f"its memory is that of {outer.name}, which is in use when a {inner.holds} comes")


def _ops(
    loop: KernelLoop,
    program: Program,
    role: Role,
    group: int,
    number: int,
    barriers: _Barriers,
    marks: tuple[int, int, int],
    tiles: int,
) -> list[Op]:
    """Return the steps of a group on barriers; check what depends on its own order alone."""
    taken, _, _ = marks
    own = range(group, tiles, role.groups) if role.alternates else range(tiles)
    begin, tile_steps, end = (
        [(each, _steps(loop, each, group, marks)) for each in run] for run in (program.begin, program.tile, program.end)
    )
    actions = {step.action for run in (begin, tile_steps, end) for _, steps in run for step, _, _ in steps}
    loads, in_groups = Action.LOAD in actions, not actions.isdisjoint((Action.MMA_COMMIT, Action.MMA_WAIT))
    ends = {each.name: _Ends.of(each, role, number, barriers) for each in loop.pipelines}
    meeting = barriers.numbers[_MEETING, "full", number]
    ops: list[Op] = []
    announced: set[tuple[str, int]] = set()
    issued: list[int] = []
    flying: list[list[int]] = []
    multiplied: set[int] = set()  # k-tiles in `issued` and `flying`
    released, last = -1, dict.fromkeys(ends, -1)
    runs = [(begin, 0), *((tile_steps, visit) for visit in range(len(own))), (end, max(len(own) - 1, 0))]
    for each, steps, visit in [(*pair, visit) for run, visit in runs for pair in run]:
        tile = own[visit] if own else 0
        for step, k_tile, time in steps:
            action, name = step.action, step.pipeline
            if action is Action.BARRIER:
                ops.append((_ARRIVE, meeting, 0, role.group_threads, visit, ""))
                ops.append((_WAIT, meeting, 0, visit + 1, visit, "passes"))
                continue
            if action is Action.MMA_COMMIT:
                flying.append(issued)
                issued = []
                continue
            if action is Action.MMA_WAIT:
                while len(flying) > (step.pending or 0):
                    multiplied.difference_update(flying.pop(0))
                continue
            if name not in ends:
                continue
            at = ends[name]
            if at.holds is Item.K_TILE:
                item = tile * taken + k_tile + step.ahead
            elif at.holds is Item.TILE:
                item = tile + step.ahead
            elif at.holds is Item.TURN:
                item = visit * role.groups + group + step.ahead
            else:
                item = visit * (each.times if isinstance(each, Section) else 0) + time + step.ahead
            if action is Action.WAIT or action is Action.ACQUIRE or action is Action.TAIL:
                barrier, credits = (at.full, at.full_credits) if action is Action.WAIT else (at.empty, at.empty_credits)
                items = range(last[name] + 1, last[name] + 1 + at.stages) if action is Action.TAIL else (item,)
                for wanted in items:
                    turn, stage = divmod(wanted, at.stages)
                    free = -(-(credits - stage) // at.stages) if credits > stage else 0
                    ops.append((_WAIT, barrier, stage, turn + 1 - free, wanted, "passes the wait for"))
                    if action is Action.WAIT and at.waits is not None:
                        behind = wanted + at.stages
                        ops.append((_ARRIVE, at.waits, behind % at.stages, 1, behind, ""))
            elif action is Action.COMMIT or action is Action.BULK_FETCH:
                if action is Action.COMMIT:
                    last[name] = max(last[name], item)
                    announced.add((name, item))
                    if at.fills:
                        ops.append((_NOTE, at.empty if at.waits is None else at.waits, 0, 0, item, _FILLS))
                elif (name, item) not in announced:
                    raise _wrong(name, f"{role.name} copies a {at.holds} whose bytes it did not announce")
                if at.by_copy == (action is Action.BULK_FETCH):
                    kind = _LATER if at.full_later else _ARRIVE
                    ops.append((kind, at.full, item % at.stages, at.full_amount, item, ""))
            elif action is Action.RELEASE or action is Action.BULK_STORE:
                if name == AB and item in multiplied:
                    raise _wrong(name, f"{role.name} releases a {at.holds} that is being multiplied")
                if name == AB:
                    released = item
                behind = item + at.stages
                ops.append((_NOTE, at.full, 0, 0, item, "releases"))
                kind = _LATER if at.empty_later else _ARRIVE
                ops.append((kind, at.empty, behind % at.stages, at.empty_amount, behind, ""))
            elif action is Action.DRAIN:
                ops.append((_NOTE, at.empty, 0, 0, item, _FILLS))
            elif action is Action.LOAD_ACCUMULATOR or action is (Action.LOAD if loads else Action.MULTIPLY):
                if name == AB and item <= released:
                    raise _wrong(name, f"{role.name} reads a {at.holds} after its release")
                ops.append((_NOTE, at.full, 0, 0, item, "reads"))
                if in_groups and not loads and item not in multiplied:
                    issued.append(item)
                    multiplied.add(item)
    return ops


@dataclass(frozen=True, slots=True)
class _Ends:
    """A group's ends of a pipeline: the numbers of its barriers, and the arrivals that the group makes there."""

    holds: Item
    stages: int
    full: int
    empty: int
    full_credits: int
    empty_credits: int
    full_amount: int
    empty_amount: int
    by_copy: bool
    full_later: bool
    empty_later: bool
    fills: bool
    waits: int | None

    @classmethod
    def of(cls, pipeline: Pipeline, role: Role, number: int, barriers: _Barriers) -> _Ends:
        """Return those of the `number`-th group, of `role`."""
        full, empty = pipeline.full, pipeline.empty or pipeline.full
        at_full = barriers.numbers[pipeline.name, "full", number]
        return cls(
            holds=pipeline.holds,
            stages=pipeline.stages,
            full=at_full,
            empty=barriers.numbers.get((pipeline.name, "empty", number), at_full),
            full_credits=full.credits,
            empty_credits=empty.credits,
            full_amount=_amount(full, role),
            empty_amount=_amount(empty, role),
            by_copy=full.arrivals[0].by is By.COPY,
            full_later=full.arrivals[0].by in _LATE,
            empty_later=empty.arrivals[0].by in _LATE,
            fills=role.name in pipeline.producers,
            waits=barriers.numbers.get((pipeline.name, _WAITS, number)),
        )


def _amount(barrier: Barrier, role: Role) -> int:
    """Return the arrivals of a group of `role` for an item."""
    each = {By.THREAD: role.group_threads, By.WARP: role.group_threads // WARP, By.COPY: 1, By.MMA: 1}
    return sum([each[arrival.by] * arrival.ctas for arrival in barrier.arrivals if arrival.role == role.name])


def _steps(
    loop: KernelLoop, each: Range | Section, group: int, marks: tuple[int, int, int]
) -> list[tuple[Step, int, int]]:
    """Return the steps of a group on one tile, each with its k-tile, and with the time that a section is repeated.

    Of a k-tile's blocks, the first and the last are enough.
    """
    if each.group not in (None, group):
        return []
    ends = (None, 0, loop.k_blocks - 1)
    found = [
        (step, None if step.below is None else step.below.of(*marks) - step.ahead)
        for step in each.steps
        if step.k_block in ends
    ]
    if isinstance(each, Section):
        return [(step, 0, time) for time in range(each.times) for step, below in found if below is None or below > 0]
    first, last, copies = each.first.of(*marks), each.last.of(*marks), each.copies
    nth = [step.nth.of(copies) for step, _ in found] if copies > 1 else [range(1)] * len(found)
    return [
        (step, k_tile, 0)
        for k_tile in range(first, last)
        for (step, below), numbers in zip(found, nth, strict=True)
        if (k_tile - first) % copies in numbers and (below is None or k_tile < below)
    ]


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
                        raise _wrong(AB, f"{program.role} copies a k-tile to a stage that others may still read")
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
                        raise _wrong(AB, f"{program.role} reads a k-tile before a barrier after its copy")
                    unread[item] = True
