"""The loops of kernels as values: pipelined copies, copies through registers, a producer warp.

A kernel with a producer has up to four pipelines:

| pipeline | from | to | full: arrivals | empty: arrivals |
|---|---|---|---|---|
| `ab` | producer | mma | bytes of copies, lanes that copy | each warp that reads it, in every CTA that fills it |
| `turn` | mma | mma | each warp of the warpgroup before | |
| `c_store` | mma | bulk stores | `bar.sync` of those that write a buffer | the stores that read it |
| `slices` | mma | mma | all threads of a cluster | all threads of a cluster |
"""

from collections.abc import Iterable
from dataclasses import replace
from math import prod

from cutegen.hardware.units import WARP
from cutegen.plan.kernel.accumulator import Promotion
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
    Role,
    Scope,
    Sync,
    Turns,
)
from cutegen.plan.kernel.program import (
    Action,
    Check,
    KernelLoop,
    Mark,
    Nth,
    Program,
    Range,
    RangeName,
    Section,
    Slot,
    Step,
)

BLOCKS_AHEAD = 1
"""K-blocks of look-ahead of the fragment loads: while b is multiplied, b + 1 is loaded to registers."""
BOXES = (Action.BULK_FETCH,)
"""The copies of a producer all of whose operands have tensor maps."""
_FETCH = (Step(Action.ACQUIRE), Step(Action.COMMIT))
FETCHED = (Range(RangeName.TURN, ((*_FETCH, Step(Action.BULK_FETCH)),), Mark.FIRST, Mark.END),)
"""A producer that copies every k-tile in its loop, by boxes."""
_LEAVE_PREVIOUS = (Step(Action.MMA_WAIT, -1, pending=1), Step(Action.RELEASE, -1))
"""After a k-tile's multiplications are issued: the previous k-tile's are complete, and its stage is released."""

Sections = tuple[Section, ...]
Tile = tuple[Range | Section, ...]


def copied_by_threads(role: Role, stages: int, stage_bytes: int) -> Pipeline:
    """`ab` if every thread copies: groups of cp.async, or plain stores, and `bar.sync` for all threads."""
    all_threads = (Arrival(role.name, By.THREAD),)
    return Pipeline(
        name=AB,
        producers=(role.name,),
        consumers=(role.name,),
        holds=Item.K_TILE,
        stages=stages,
        payload_bytes=stage_bytes,
        full=Barrier(sync=Sync.COPY_GROUPS, count=role.threads, arrivals=all_threads),
        empty=Barrier(sync=Sync.NAMED, count=role.threads, arrivals=all_threads, credits=stages),
    )


def copied_in_bulk(
    mma: Role, stages: int, boxes_bytes: int, *, ctas: int = 1, fetches: tuple[Action, ...] = BOXES
) -> Pipeline:
    """`ab` if a producer warp copies: the bytes of a stage's boxes arrive, and each warp that has read them.

    If its lanes copy too, each arrives when its own copies have landed. A stage's copies are for `ctas`, which release
    it in each other.
    """
    groups = 1 if mma.alternates else mma.groups
    readers = groups * mma.group_threads // WARP
    lanes = (Arrival(PRODUCER, By.THREAD_COPIES),) if Action.FETCH in fetches else ()
    return Pipeline(
        name=AB,
        producers=(PRODUCER,),
        consumers=(mma.name,),
        holds=Item.K_TILE,
        stages=stages,
        payload_bytes=boxes_bytes,
        full=Barrier(sync=Sync.MBARRIER, count=1 + WARP * len(lanes), arrivals=(Arrival(PRODUCER, By.COPY), *lanes)),
        empty=Barrier(
            sync=Sync.MBARRIER, count=readers * ctas, arrivals=(Arrival(mma.name, By.WARP, ctas),), credits=stages
        ),
        scope=Scope.CLUSTER if ctas > 1 else Scope.CTA,
    )


def turns(mma: Role) -> tuple[Pipeline, ...]:
    """`turn` if warpgroups take turns: each permits the next one, and the first begins."""
    if mma.turns is None:
        return ()
    each_warp = (Arrival(mma.name, By.WARP),)
    barrier = Barrier(sync=Sync.MBARRIER, count=mma.group_threads // WARP, arrivals=each_warp, credits=1)
    return (
        Pipeline(
            name=TURN,
            producers=(mma.name,),
            consumers=(mma.name,),
            holds=Item.TURN,
            stages=mma.groups,
            full=barrier,
        ),
    )


def stored_in_bulk(mma: Role, buffers: int, buffer_bytes: int, *, scope: Scope) -> Pipeline:
    """`c_store`: threads write a sub-tile to a buffer, and a bulk tensor store reads it."""
    threads = mma.group_threads if scope is Scope.GROUP else mma.threads
    return Pipeline(
        name=C_STORE,
        producers=(mma.name,),
        consumers=(mma.name,),
        holds=Item.SUB_TILE,
        stages=buffers,
        payload_bytes=buffer_bytes,
        full=Barrier(sync=Sync.NAMED, count=threads, arrivals=(Arrival(mma.name, By.THREAD),)),
        empty=Barrier(sync=Sync.STORE_GROUPS, count=1, arrivals=(Arrival(mma.name, By.COPY),), credits=buffers),
        scope=scope,
    )


def slices_in_cluster(mma: Role, producer: Role, sums_bytes: int, *, ctas: int) -> Pipeline:
    """`slices`: a CTA's sums of a slice of K in the memory of its k-tiles, which the CTAs of its cluster read.

    The producer meets the others at its barriers, and refills the stages afterwards.
    """
    every = tuple(Arrival(role.name, By.THREAD, ctas) for role in (mma, producer))
    count = (mma.threads + producer.threads) * ctas
    return Pipeline(
        name=SLICES,
        producers=(mma.name,),
        consumers=(mma.name,),
        holds=Item.TILE,
        stages=1,
        payload_bytes=sums_bytes,
        full=Barrier(sync=Sync.CLUSTER, count=count, arrivals=every),
        empty=Barrier(sync=Sync.CLUSTER, count=count, arrivals=every, credits=1),
        scope=Scope.CLUSTER,
        within=AB,
    )


def pipelined(
    role: Role, ab: Pipeline, k_blocks: int, k_tiles_per_turn: int, fetches: tuple[Action, ...]
) -> KernelLoop:
    """Every thread copies and multiplies: `stages - 1` k-tiles are in flight while one is multiplied.

    When a k-tile begins, every warp has released the stage of the previous one, which is then refilled. Data of plain
    loads (GLOBAL_LOAD among `fetches`) is held in registers and stored before the k-tile's last k-block. Needs two
    stages.
    """
    stages = ab.stages
    if stages == 1:
        return _one_stage(role, ab, k_blocks, fetches)
    behind = stages - 1
    arrive = (*_wait(fetches, stages - 2), Step(Action.BARRIER))
    fill = (
        (*_fetch(fetches, 0, check=Check.VECTOR, bounded=True), *_commit(fetches)),
        _store(fetches, 0, below=Mark.FETCHED),
    )
    first = Range(RangeName.PROLOGUE, ((*arrive, *_loads_before(k_blocks)),), Mark.FIRST, Mark.ONE)

    def k_tile(*, check: Check) -> tuple[Slot, ...]:
        send = (*_fetch(fetches, behind, check=check, bounded=check is not Check.NONE), *_commit(fetches, behind))
        arrived = (*_store(fetches, behind), *_wait(fetches, stages - 2, 1), Step(Action.BARRIER, 1))
        return _k_blocks(k_blocks, before=send, leaving=arrived)

    ranges = (
        Range(RangeName.PROLOGUE, tuple(slot for slot in fill if slot), Mark.FIRST, Mark.FILLED, copies=behind),
        first,
        Range(RangeName.TURN, k_tile(check=Check.NONE), Mark.FIRST, Mark.WHOLE, copies=k_tiles_per_turn),
        Range(RangeName.EDGE_TURN, k_tile(check=Check.VECTOR), Mark.WHOLE, Mark.END),
    )
    return _by_every_thread(role, ab, k_blocks, ranges)


def _one_stage(role: Role, ab: Pipeline, k_blocks: int, fetches: tuple[Action, ...]) -> KernelLoop:
    """One stage: a k-tile is copied, waited for, multiplied, and released by every warp before the next one."""

    def k_tile(*, check: Check) -> tuple[Slot, ...]:
        arrive = (*_store(fetches, 0), *_commit(fetches), *_wait(fetches, 0), Step(Action.BARRIER))
        blocks = tuple((Step(Action.LOAD, 0, b), Step(Action.MULTIPLY, 0, b)) for b in range(k_blocks))
        return (_fetch(fetches, 0, check=check), arrive, *blocks, (Step(Action.BARRIER, 1),))

    return _by_every_thread(role, ab, k_blocks, _turns(k_tile(check=Check.NONE), k_tile(check=Check.VECTOR)))


def through_registers(role: Role, ab: Pipeline) -> KernelLoop:
    """Every thread copies by plain loads and stores, and multiplies a k-tile at once, straight from shared memory.

    With two stages the next k-tile is loaded into registers before this one is multiplied, and stored after.
    """
    multiply = (Step(Action.LOAD), Step(Action.MULTIPLY))
    if ab.stages == 1:

        def alone(*, check: Check) -> tuple[Slot, ...]:
            load = (Step(Action.GLOBAL_LOAD, check=check),)
            return load, (Step(Action.STORE), Step(Action.BARRIER)), multiply, (Step(Action.BARRIER, 1),)

        return _by_every_thread(role, ab, 1, _turns(alone(check=Check.NONE), alone(check=Check.ELEMENT)))

    def overlapped(*, check: Check) -> tuple[Slot, ...]:
        load = (Step(Action.GLOBAL_LOAD, 1, check=check),)
        return load, multiply, (Step(Action.STORE, 1), Step(Action.BARRIER, 1))

    # The text has the first load twice, and one is executed: the k-tile lies inside the matrices or crosses an edge.
    loads = [((Step(Action.GLOBAL_LOAD, check=check),),) for check in (Check.NONE, Check.ELEMENT)]
    prologue = (
        Range(RangeName.PROLOGUE, loads[0], Mark.FIRST, Mark.FIRST_WHOLE),
        Range(RangeName.PROLOGUE, loads[1], Mark.FIRST_WHOLE, Mark.ONE),
        Range(RangeName.PROLOGUE, ((Step(Action.STORE), Step(Action.BARRIER)),), Mark.FIRST, Mark.ONE),
    )
    turns = _turns(overlapped(check=Check.NONE), overlapped(check=Check.ELEMENT))
    return _by_every_thread(role, ab, 1, (*prologue, *turns))


def produced(
    roles: tuple[Role, ...], pipelines: tuple[Pipeline, ...], k_blocks: int, epilogue: Sections = ()
) -> KernelLoop:
    """A producer warp issues bulk tensor copies, the others multiply; two barriers per stage synchronize them.

    A stage is refilled as soon as every MMA warp has arrived at its `empty` barrier, which each does before a k-tile's
    last k-block. For an empty K there is still one k-tile, of zeros.
    """
    begin = ((Step(Action.WAIT), *_loads_before(k_blocks)),)
    leaving = (Step(Action.RELEASE), Step(Action.WAIT, 1))
    consume = (
        Range(RangeName.PROLOGUE, begin, Mark.FIRST, Mark.ONE),
        Range(RangeName.TURN, _k_blocks(k_blocks, leaving=leaving), Mark.FIRST, Mark.LAST),
        Range(RangeName.TAIL, (*_k_blocks(k_blocks, last=True), (Step(Action.RELEASE),)), Mark.LAST, Mark.END),
    )
    return _produced(roles, pipelines, k_blocks, FETCHED, (*consume, *epilogue))


def multiplied_from_shared(
    roles: tuple[Role, ...], pipelines: tuple[Pipeline, ...], k_blocks: int, epilogue: Sections = ()
) -> KernelLoop:
    """A producer warp as in `produced`; warpgroups multiply k-tiles from shared memory, one group per k-tile.

    Wait for group i after issuing i + 1 to keep the tensor cores busy; then its stage is released. The first k-tile is
    separate: its first multiplication does not read the accumulators. If warpgroups take turns at the last k-tiles,
    two multiply the last `stages` of them one after the other, as a separate range. The second drains its
    multiplications before it waits for its turn. The first continues, and waits for its previous group and releases its
    stage after it issues the next k-tile. A warpgroup passes the turn on before its last drain: in ping-pong, for the
    whole tile.

    ```text
    k-tiles   0 ... in_turns                    in_turns ... end
    group 0   both issue together               issue, pass the turn, drain, store C, next tile ...
    group 1                                     wait for the turn ......., issue, pass it, drain, store C ...
    ```
    """
    mma = _role(roles, MMA)
    drain = (Step(Action.MMA_WAIT, pending=0), Step(Action.RELEASE))
    drained = Range(RangeName.TAIL, (drain,), Mark.LAST, Mark.END)
    take, give = _turn(pipelines)

    def run(first: Mark, second: Mark, end: Mark) -> tuple[Range, Range]:
        k_tile = _multiplied(k_blocks)
        begin = Range(RangeName.PROLOGUE, k_tile, first, second)
        return begin, Range(RangeName.TURN, (*k_tile, _LEAVE_PREVIOUS), second, end)

    if mma.turns is not Turns.LAST_K_TILES:
        consume: Tile = (*take, *run(Mark.FIRST, Mark.ONE, Mark.END), *give, drained)
        return _produced(roles, pipelines, k_blocks, _first_apart(), (*consume, *epilogue))
    alike = run(Mark.FIRST, Mark.FIRST_ALIKE, Mark.IN_TURNS)
    begin, turn = run(Mark.IN_TURNS, Mark.NEXT_IN_TURNS, Mark.END)
    # Each warpgroup releases the stage of the last common k-tile, if there is any, at its own place.
    leave = (Step(Action.MMA_WAIT, pending=1), Step(Action.RELEASE))
    second = Range(RangeName.TAIL, (drain,), Mark.LAST_ALIKE, Mark.IN_TURNS, group=1)
    first = Range(RangeName.TAIL, (leave,), Mark.LAST_ALIKE, Mark.IN_TURNS, group=0)
    ends: Tile = (*alike, second, *take, begin, first, turn, *give, drained)
    return _produced(roles, pipelines, k_blocks, _first_apart(), (*ends, *epilogue))


def promoted(
    roles: tuple[Role, ...],
    pipelines: tuple[Pipeline, ...],
    k_blocks: int,
    epilogue: Sections = (),
    *,
    promotion: Promotion,
    fetches: tuple[Action, ...] = BOXES,
) -> KernelLoop:
    """Like `multiplied_from_shared`, but with a wait for each k-tile, so that its sums can be promoted.

    The other warpgroup's multiplications keep tensor cores busy meanwhile, and with two sets of registers for the
    tensor core's sums a warpgroup's own do: all but the last k-tile of a turn are waited for, and their stages
    released, after the next one's multiplications are issued. The k-tiles after the whole turns run one by one. If they
    are staggered, the second warpgroup begins when the second k-tile has arrived, if there is one. In waves a k-tile
    has as many groups of multiplications, each waited for before the next. `fetches` are the copies of a k-tile.
    """
    take, give = _turn(pipelines)
    drain = (Step(Action.MMA_WAIT, pending=0), Step(Action.RELEASE))
    between = (Step(Action.MMA_WAIT, pending=0), Step(Action.MMA_FENCE), Step(Action.MMA_COMMIT))
    alone = (*_multiplied(k_blocks), *(between,) * (prod(promotion.waves) - 1), drain)
    later = (Section((Step(Action.WAIT, 1, below=Mark.END),), group=1),) if promotion.staggered else ()
    turn = alone
    if promotion.sets > 1:
        leave = tuple(replace(step, nth=Nth.LATER) for step in _LEAVE_PREVIOUS)
        last = tuple(replace(step, nth=Nth.LAST) for step in drain)
        turn = (*_multiplied(k_blocks), leave, last)
    k_tiles: tuple[Range, ...] = (Range(RangeName.TURN, turn, Mark.FIRST, Mark.END),)
    if (copies := promotion.k_tiles_per_turn) > 1:
        rest = Range(RangeName.EDGE_TURN, alone, Mark.WHOLE, Mark.END)
        k_tiles = (Range(RangeName.TURN, turn, Mark.FIRST, Mark.WHOLE, copies=copies), rest)
    consume: Tile = (*take, *k_tiles, *give, *epilogue)
    return _produced(roles, pipelines, k_blocks, _first_apart(fetches), consume, begin=later)


def epilogue(pipelines: tuple[Pipeline, ...], sub_tiles: int) -> Sections:
    """A tile's end: slices are added, then each of `sub_tiles` goes from the accumulator to C.

    With one buffer, a sub-tile waits until the previous one is stored. With two it is written at once: the wait for its
    buffer, before the previous barrier, is over.
    """
    adds = _named(pipelines, SLICES) is not None
    slices = ((Action.COMMIT, 0), (Action.WAIT, 0), (Action.RELEASE, 0))
    summed = (Step(Action.BARRIER), *(Step(action, ahead, pipeline=SLICES) for action, ahead in slices))
    read = Section((Step(Action.ACQUIRE, 1, pipeline=SLICES),))
    store = _named(pipelines, C_STORE)
    work: Slot = (Step(Action.DRAIN, pipeline=C_STORE),)
    if store is not None:
        acquire = Step(Action.ACQUIRE, int(store.stages > 1), pipeline=C_STORE)
        send = (Step(Action.COMMIT, pipeline=C_STORE), Step(Action.BULK_STORE, pipeline=C_STORE))
        work = (acquire, *work, *send) if store.stages == 1 else (*work, acquire, *send)
    return (*((Section(summed),) if adds else ()), Section(work, times=sub_tiles), *((read,) if adds else ()))


def _first_apart(fetches: tuple[Action, ...] = BOXES) -> tuple[Range, Range]:
    """A producer that copies a CTA's first k-tile before its loop, which also copies the first ones of later tiles."""
    fetch = ((*_FETCH, *map(Step, fetches)),)
    return (
        Range(RangeName.PROLOGUE, fetch, Mark.FIRST, Mark.ONE),
        Range(RangeName.TURN, fetch, Mark.ONE, Mark.END),
    )


def _turn(pipelines: tuple[Pipeline, ...]) -> tuple[Sections, Sections]:
    """The wait for a warpgroup's turn, and its permission for the next one; nothing if none take turns."""
    if _named(pipelines, TURN) is None:
        return (), ()
    return (Section((Step(Action.WAIT, pipeline=TURN),)),), (Section((Step(Action.COMMIT, 1, pipeline=TURN),)),)


def _named(pipelines: Iterable[Pipeline], name: str) -> Pipeline | None:
    return next((each for each in pipelines if each.name == name), None)


def _role(roles: Iterable[Role], name: str) -> Role:
    return next(each for each in roles if each.name == name)


def _multiplied(k_blocks: int) -> tuple[Slot, ...]:
    """A k-tile's multiplications as one group: a fence of registers before them, a commit after them."""
    begin, end = (Step(Action.WAIT), Step(Action.MMA_FENCE)), (Step(Action.MMA_COMMIT),)
    return tuple(
        (*(begin if b == 0 else ()), Step(Action.MULTIPLY, 0, b), *(end if b == k_blocks - 1 else ()))
        for b in range(k_blocks)
    )


def _produced(
    roles: tuple[Role, ...],
    pipelines: tuple[Pipeline, ...],
    k_blocks: int,
    fetch: tuple[Range, ...],
    consume: tuple[Range | Section, ...],
    *,
    begin: Sections = (),
) -> KernelLoop:
    """A producer warp and the MMA warps. They exit when their buffers are read, and no other CTA arrives any more."""
    ab, slices, store = (_named(pipelines, name) for name in (AB, SLICES, C_STORE))
    assert ab is not None
    steps = ((Action.COMMIT, 0), (Action.WAIT, 0), (Action.RELEASE, 0), (Action.ACQUIRE, 1))
    added = (Section(tuple(Step(action, ahead, pipeline=SLICES) for action, ahead in steps)),) if slices else ()
    peers = (Section((Step(Action.TAIL),)),) if ab.scope is Scope.CLUSTER else ()
    stored = (Section((Step(Action.TAIL, pipeline=C_STORE),)),) if store else ()
    return KernelLoop(
        stages=ab.stages,
        k_blocks=k_blocks,
        roles=roles,
        pipelines=pipelines,
        programs=(
            Program(PRODUCER, (*fetch, *added), end=peers),
            Program(MMA, consume, begin=begin, end=stored),
        ),
        least_k_tiles=1,
    ).over_tiles()


def _by_every_thread(role: Role, ab: Pipeline, k_blocks: int, ranges: tuple[Range, ...]) -> KernelLoop:
    """A loop that every thread of a CTA runs for the CTA's tile."""
    return KernelLoop(
        stages=ab.stages, k_blocks=k_blocks, roles=(role,), pipelines=(ab,), programs=(Program(role.name, ranges),)
    )


def _turns(whole: tuple[Slot, ...], checked: tuple[Slot, ...]) -> tuple[Range, Range]:
    """The two loops with one k-tile per turn."""
    return (
        Range(RangeName.TURN, whole, Mark.FIRST, Mark.WHOLE),
        Range(RangeName.EDGE_TURN, checked, Mark.WHOLE, Mark.END),
    )


def _k_blocks(k_blocks: int, *, before: Slot = (), leaving: Slot = (), last: bool = False) -> tuple[Slot, ...]:
    """The k-blocks of a k-tile, each with the load of the one BLOCKS_AHEAD.

    `before` comes first, and `leaving` before the loads of the next k-tile, which the `last` one lacks.
    """
    slots = []
    for k_block in range(k_blocks):
        next_tile, loaded = divmod(k_block + BLOCKS_AHEAD, k_blocks)
        begin = before if k_block == 0 else ()
        left = leaving if next_tile and loaded == 0 else ()
        load = () if next_tile and last else (Step(Action.LOAD, next_tile, loaded),)
        slots.append((*begin, *left, *load, Step(Action.MULTIPLY, 0, k_block)))
    return tuple(slots)


def _loads_before(k_blocks: int) -> tuple[Step, ...]:
    """The loads of the first k-tile that no multiplication overlaps."""
    return tuple(Step(Action.LOAD, 0, k_block) for k_block in range(min(BLOCKS_AHEAD, k_blocks)))


def _fetch(fetches: tuple[Action, ...], ahead: int, *, check: Check, bounded: bool = False) -> Slot:
    """The copies of a k-tile, within K; cp.async at least for the first one, of zeros for an empty K."""
    past = Mark.FETCHED if Action.FETCH in fetches else Mark.END
    return tuple(Step(fetch, ahead, check=check, below=past if bounded else None) for fetch in fetches)


def _store(fetches: tuple[Action, ...], ahead: int, *, below: Mark | None = None) -> Slot:
    return (Step(Action.STORE, ahead, below=below),) if Action.GLOBAL_LOAD in fetches else ()


def _commit(fetches: tuple[Action, ...], ahead: int = 0) -> Slot:
    """A group for each k-tile, empty or not: a WAIT counts groups."""
    return (Step(Action.COMMIT, ahead),) if Action.FETCH in fetches else ()


def _wait(fetches: tuple[Action, ...], pending: int, ahead: int = 0) -> Slot:
    return (Step(Action.WAIT, ahead, pending=pending),) if Action.FETCH in fetches else ()
