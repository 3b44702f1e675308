"""The main loops of kernels as values: pipelined copies, copies through registers, a producer warp."""

from __future__ import annotations

from dataclasses import replace

from cutegen.plan.loop import Action, Check, Edge, Loop, Mark, Nth, Part, PartName, Role, Slot, Step

PROMOTED_TILES = 8
"""K-tiles of a turn in which two sets of registers alternate for the tensor core's sums."""
BLOCKS_AHEAD = 1
"""K-blocks of look-ahead of the fragment loads: while b is multiplied, b + 1 is loaded to registers."""
_FETCH = ((Step(Action.BULK_FETCH),),)
FETCHED = (Part(PartName.TURN, _FETCH, Mark.FIRST, Mark.END),)
"""A producer that copies every k-tile in its loop."""
FIRST_APART = (
    Part(PartName.PROLOGUE, _FETCH, Mark.FIRST, Mark.ONE),
    Part(PartName.TURN, _FETCH, Mark.ONE, Mark.END),
)
"""A producer that copies a CTA's first k-tile before its loop. For later tiles the loop also copies the first k-tile.
"""
_LEAVE_PREVIOUS = (Step(Action.MMA_WAIT, -1, pending=1), Step(Action.RELEASE, -1))
"""After a k-tile's multiplications are issued: the previous k-tile's are complete, and its stage is released."""


def pipelined(stages: int, k_blocks: int, k_tiles_per_turn: int, fetches: tuple[Action, ...]) -> Loop:
    """Every thread copies and multiplies: `stages - 1` k-tiles are in flight while one is multiplied.

    When a k-tile begins, every warp has released the stage of the previous one, which is then refilled. Data of plain
    loads (GLOBAL_LOAD among `fetches`) is held in registers and stored before the k-tile's last k-block. Needs two
    stages.
    """
    if stages == 1:
        return _one_stage(k_blocks, fetches)
    behind = stages - 1
    arrive = (*_wait(fetches, stages - 2), Step(Action.BARRIER))
    fill = (
        (*_fetch(fetches, 0, check=Check.VECTOR, bounded=True), *_commit(fetches)),
        _store(fetches, 0, below=Mark.FETCHED),
    )
    first = Part(PartName.PROLOGUE, ((*arrive, *_loads_before(k_blocks)),), Mark.FIRST, Mark.ONE)

    def k_tile(*, check: Check) -> tuple[Slot, ...]:
        send = (*_fetch(fetches, behind, check=check, bounded=check is not Check.NONE), *_commit(fetches, behind))
        arrived = (*_store(fetches, behind), *_wait(fetches, stages - 2, 1), Step(Action.BARRIER, 1))
        return _k_blocks(k_blocks, before=send, leaving=arrived)

    parts = (
        Part(PartName.PROLOGUE, tuple(slot for slot in fill if slot), Mark.FIRST, Mark.FILLED, copies=behind),
        first,
        Part(PartName.TURN, k_tile(check=Check.NONE), Mark.FIRST, Mark.WHOLE, copies=k_tiles_per_turn),
        Part(PartName.EDGE_TURN, k_tile(check=Check.VECTOR), Mark.WHOLE, Mark.END),
    )
    return _by_every_thread(stages, k_blocks, parts)


def _one_stage(k_blocks: int, fetches: tuple[Action, ...]) -> Loop:
    """One stage: a k-tile is copied, waited for, multiplied, and released by every warp before the next one."""

    def k_tile(*, check: Check) -> tuple[Slot, ...]:
        arrive = (*_store(fetches, 0), *_commit(fetches), *_wait(fetches, 0), Step(Action.BARRIER))
        blocks = tuple((Step(Action.LOAD, 0, b), Step(Action.MULTIPLY, 0, b)) for b in range(k_blocks))
        return (_fetch(fetches, 0, check=check), arrive, *blocks, (Step(Action.BARRIER, 1),))

    return _by_every_thread(1, k_blocks, _turns(k_tile(check=Check.NONE), k_tile(check=Check.VECTOR)))


def through_registers(stages: int) -> Loop:
    """Every thread copies by plain loads and stores, and multiplies a k-tile at once, straight from shared memory.

    With two stages the next k-tile is loaded into registers before this one is multiplied, and stored after.
    """
    multiply = (Step(Action.LOAD), Step(Action.MULTIPLY))
    if stages == 1:

        def alone(*, check: Check) -> tuple[Slot, ...]:
            load = (Step(Action.GLOBAL_LOAD, check=check),)
            return load, (Step(Action.STORE), Step(Action.BARRIER)), multiply, (Step(Action.BARRIER, 1),)

        return _by_every_thread(1, 1, _turns(alone(check=Check.NONE), alone(check=Check.ELEMENT)))

    def overlapped(*, check: Check) -> tuple[Slot, ...]:
        load = (Step(Action.GLOBAL_LOAD, 1, check=check),)
        return load, multiply, (Step(Action.STORE, 1), Step(Action.BARRIER, 1))

    # The text has the first load twice, and one is executed: the k-tile lies inside the matrices or crosses an edge.
    loads = [((Step(Action.GLOBAL_LOAD, check=check),),) for check in (Check.NONE, Check.ELEMENT)]
    prologue = (
        Part(PartName.PROLOGUE, loads[0], Mark.FIRST, Mark.FIRST_WHOLE),
        Part(PartName.PROLOGUE, loads[1], Mark.FIRST_WHOLE, Mark.ONE),
        Part(PartName.PROLOGUE, ((Step(Action.STORE), Step(Action.BARRIER)),), Mark.FIRST, Mark.ONE),
    )
    turns = _turns(overlapped(check=Check.NONE), overlapped(check=Check.ELEMENT))
    return _by_every_thread(stages, 1, (*prologue, *turns))


def produced(stages: int, k_blocks: int) -> Loop:
    """A producer warp issues bulk tensor copies, the others multiply; two barriers per stage synchronize them.

    A stage is refilled as soon as every MMA warp has arrived at its `empty` barrier, which each does before a k-tile's
    last k-block. For an empty K there is still one k-tile, of zeros.
    """
    begin = ((Step(Action.BULK_WAIT), *_loads_before(k_blocks)),)
    leaving = (Step(Action.RELEASE), Step(Action.BULK_WAIT, 1))
    consume = (
        Part(PartName.PROLOGUE, begin, Mark.FIRST, Mark.ONE),
        Part(PartName.TURN, _k_blocks(k_blocks, leaving=leaving), Mark.FIRST, Mark.LAST),
        Part(PartName.TAIL, (*_k_blocks(k_blocks, last=True), (Step(Action.RELEASE),)), Mark.LAST, Mark.END),
    )
    return _produced(stages, k_blocks, FETCHED, consume)


def multiplied_from_shared(stages: int, k_blocks: int, *, ends_in_turns: bool) -> Loop:
    """A producer warp as in `produced`; warpgroups multiply k-tiles from shared memory, one group per k-tile.

    A group is waited for after the next one is issued, so that tensor cores always have work; then its stage is
    released. The first k-tile is separate: its first multiplication does not read the accumulators. If the loop
    `ends_in_turns`, two warpgroups multiply the last `stages` k-tiles one after the other, as a separate range. The
    second drains its multiplications before it waits for its turn. The first continues, and waits for its previous
    group and releases its stage after it issues the next k-tile. The barriers of the turns are not steps on a k-tile
    and are not described: a warpgroup waits for its turn before the second range, and passes the turn on before the
    last drain.
    """
    drain = (Step(Action.MMA_WAIT, pending=0), Step(Action.RELEASE))
    drained = Part(PartName.TAIL, (drain,), Mark.LAST, Mark.END)

    def run(first: Mark, second: Mark, end: Mark) -> tuple[Part, Part]:
        k_tile = _multiplied(k_blocks)
        begin = Part(PartName.PROLOGUE, k_tile, first, second)
        return begin, Part(PartName.TURN, (*k_tile, _LEAVE_PREVIOUS), second, end)

    if not ends_in_turns:
        return _produced(stages, k_blocks, FIRST_APART, (*run(Mark.FIRST, Mark.ONE, Mark.END), drained))
    alike = run(Mark.FIRST, Mark.FIRST_ALIKE, Mark.IN_TURNS)
    begin, turn = run(Mark.IN_TURNS, Mark.NEXT_IN_TURNS, Mark.END)
    # Each warpgroup releases the stage of the last common k-tile, if there is any, at its own place.
    leave = (Step(Action.MMA_WAIT, pending=1), Step(Action.RELEASE))
    second = Part(PartName.TAIL, (drain,), Mark.LAST_ALIKE, Mark.IN_TURNS, group=1)
    first = Part(PartName.TAIL, (leave,), Mark.LAST_ALIKE, Mark.IN_TURNS, group=0)
    return _produced(stages, k_blocks, FIRST_APART, (*alike, second, begin, first, turn, drained))


def promoted(stages: int, k_blocks: int, sets: int) -> Loop:
    """Like `multiplied_from_shared`, but with a wait for each k-tile, so that its sums can be promoted.

    The other warpgroup's multiplications keep tensor cores busy meanwhile, and with two `sets` of registers for the
    tensor core's sums a warpgroup's own do. A turn then has `PROMOTED_TILES` k-tiles: all but the last are waited for,
    and their stages released, after the next one's multiplications are issued. The remaining k-tiles run one by one.
    """
    drain = (Step(Action.MMA_WAIT, pending=0), Step(Action.RELEASE))
    alone = (*_multiplied(k_blocks), drain)
    if sets == 1:
        return _produced(stages, k_blocks, FIRST_APART, (Part(PartName.TURN, alone, Mark.FIRST, Mark.END),))
    later = tuple(replace(step, nth=Nth.LATER) for step in _LEAVE_PREVIOUS)
    last = tuple(replace(step, nth=Nth.LAST) for step in drain)
    turn = Part(PartName.TURN, (*_multiplied(k_blocks), later, last), Mark.FIRST, Mark.WHOLE, copies=PROMOTED_TILES)
    return _produced(stages, k_blocks, FIRST_APART, (turn, Part(PartName.EDGE_TURN, alone, Mark.WHOLE, Mark.END)))


def _multiplied(k_blocks: int) -> tuple[Slot, ...]:
    """A k-tile's multiplications as one group: a fence of registers before them, a commit after them."""
    begin, end = (Step(Action.BULK_WAIT), Step(Action.MMA_FENCE)), (Step(Action.MMA_COMMIT),)
    return tuple(
        (*(begin if b == 0 else ()), Step(Action.MULTIPLY, 0, b), *(end if b == k_blocks - 1 else ()))
        for b in range(k_blocks)
    )


def _produced(stages: int, k_blocks: int, fetch: tuple[Part, ...], consume: tuple[Part, ...]) -> Loop:
    """A producer warp and the MMA warps, with two barriers per stage."""
    return Loop(
        stages=stages,
        k_blocks=k_blocks,
        roles=(Role("producer", fetch), Role("consumers", consume)),
        edges=(Edge("full", "producer", "consumers"), Edge("empty", "consumers", "producer", credits=stages)),
        least_k_tiles=1,
        persistent=True,
    )


def _by_every_thread(stages: int, k_blocks: int, parts: tuple[Part, ...]) -> Loop:
    """A loop that every thread of a CTA runs for the CTA's tile."""
    return Loop(stages=stages, k_blocks=k_blocks, roles=(Role("threads", parts),))


def _turns(whole: tuple[Slot, ...], checked: tuple[Slot, ...]) -> tuple[Part, Part]:
    """The two loops with one k-tile per turn."""
    return (
        Part(PartName.TURN, whole, Mark.FIRST, Mark.WHOLE),
        Part(PartName.EDGE_TURN, checked, Mark.WHOLE, Mark.END),
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
