"""The first k-tiles of a main loop in program order: when each action is issued, and the contents of the stages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cutegen.plan.kernel import program as loops
from cutegen.plan.kernel.pipeline import AB, Sync
from cutegen.plan.kernel.program import Action, KernelLoop, Nth, Program, Range, RangeName
from cutegen.support.words import plural

SHOWN_SLOTS = 20


@dataclass(frozen=True, slots=True)
class Step:
    """One action on a k-tile, on one of its k-blocks if it has one; for a WAIT, `pending` groups may be in flight.

    `instruction` is the action in words of PTX; a WAIT is another one in each kind of pipeline.
    """

    action: Action
    k_tile: int
    k_block: int | None
    pending: int | None
    instruction: str


@dataclass(frozen=True, slots=True)
class Slot:
    """The steps between two multiplications, in program order; `k_tile` None is the prologue."""

    k_tile: int | None
    k_block: int | None
    steps: tuple[Step, ...]

    @property
    def told(self) -> tuple[Step, ...]:
        """The steps shown separately: a barrier that follows a wait is shown with it."""
        waits = any(step.instruction == Sync.COPY_GROUPS for step in self.steps)
        return tuple(step for step in self.steps if not (waits and step.action is Action.BARRIER))

    def step(self, action: Action) -> Step | None:
        """Return the slot's step of that kind, which it has at most once."""
        return next((step for step in self.steps if step.action is action), None)


def shown(loop: KernelLoop) -> tuple[Slot, ...]:
    """Return the k-tiles of a full cycle, until stage 0 is read again, limited to about 20 slots."""
    return slots(loop, min(loop.stages + 1, max(3, SHOWN_SLOTS // loop.k_blocks)))


def slots(loop: KernelLoop, k_tiles: int) -> tuple[Slot, ...]:
    """Return the prologue and the first `k_tiles` k-tiles of a longer loop, for the math warps.

    A role that waits for stages is shown at the earliest point: first for every stage, then for a released one.
    """
    main = loop.main
    others = [each for each in loop.programs if each is not main and each.ranges]
    filled = tuple(
        Slot(None, None, _steps(loop, slot, k_tile))
        for program in others
        for k_tile in range(_credits(loop, program))
        for slot in _turn(program).slots
    )
    own = (slot for each in main.ranges for slot in _range_slots(loop, each, k_tiles))
    return (*filled, *(_with_others(loop, others, slot) for slot in own))


def not_shown(loop: KernelLoop) -> Iterator[str]:
    """Say, in one sentence each, how later k-tiles differ from those shown."""
    ranges = loop.main.ranges
    for each in ranges:
        if any(step.nth is Nth.LAST for step in each.steps):
            yield (
                f"Of every {each.copies} k-tiles, the last is waited for before the next is multiplied, and so is each "
                "remaining one."
            )
    if any(each.group is not None for each in ranges):
        yield f"The two warpgroups multiply the last {plural(loop.stages, 'k-tile')} one after the other."


def _range_slots(loop: KernelLoop, part: Range, k_tiles: int) -> Iterator[Slot]:
    """Return a range's slots: one per k-tile of a prologue, one per shown turn.

    The loop is assumed to be so long that its k-tiles are inside the matrices and those after them fill the stages.
    """
    first, last = (mark.of(k_tiles + loop.stages, k_tiles, loop.stages) for mark in (part.first, part.last))
    if part.name is RangeName.TURN:
        for k_tile in range(first, k_tiles):
            copy = (k_tile - first) % part.copies
            kept = (tuple(step for step in slot if copy in step.nth.of(part.copies)) for slot in part.slots)
            yield from (_slot(loop, slot, k_tile, k_tile) for slot in kept if slot)
    elif part.name is RangeName.PROLOGUE and first < k_tiles:
        yield from (_slot(loop, slot, None, k_tile) for k_tile in range(first, last) for slot in part.slots)


def _slot(loop: KernelLoop, slot: loops.Slot, shown_as: int | None, k_tile: int) -> Slot:
    multiplied = next((step.k_block for step in slot if step.action is Action.MULTIPLY), None)
    return Slot(shown_as, multiplied, _steps(loop, slot, k_tile))


def _steps(loop: KernelLoop, slot: loops.Slot, k_tile: int) -> tuple[Step, ...]:
    words = ((step, loop.instruction(step)) for step in slot)
    return tuple(
        Step(step.action, k_tile + step.ahead, step.k_block, step.pending, word)
        for step, word in words
        if word is not None
    )


def _with_others(loop: KernelLoop, others: Sequence[Program], slot: Slot) -> Slot:
    """Insert after the step that releases a stage the actions of the role that waits for it."""
    steps: list[Step] = []
    for step in slot.steps:
        steps.append(step)
        if step.action is Action.RELEASE:
            for program in others:
                behind = _credits(loop, program)
                following = (_steps(loop, each, step.k_tile + behind) for each in _turn(program).slots)
                steps += (each for group in following for each in group)
    return Slot(slot.k_tile, slot.k_block, tuple(steps))


def _turn(program: Program) -> Range:
    return next(each for each in program.ranges if each.name is RangeName.TURN)


def _credits(loop: KernelLoop, program: Program) -> int:
    """Return the turns that a producer may run before another role has released a stage."""
    ab = loop.pipeline(AB)
    return 0 if ab is None or ab.empty is None or program.role not in ab.producers else ab.empty.credits


@dataclass(frozen=True, slots=True, kw_only=True)
class Residence:
    """A k-tile's stay in a stage, by slot numbers.

    Its copy is issued in slot `fetched`, the wait that makes it visible ends in `landed`, and `last_read` is the last
    slot that reads it; None if the shown slots end before.
    """

    k_tile: int
    stage: int
    fetched: int
    landed: int | None
    last_read: int | None


def residences(slots: Sequence[Slot], stages: int) -> Iterator[Residence]:
    """Return the stays: groups of cp.async land in the order of their commits, when they are waited for.

    With plain copies only, a k-tile has landed at the barrier after its stores; a bulk tensor copy has landed when the
    wait on its mbarrier is over.
    """
    steps = [(number, step) for number, slot in enumerate(slots) for step in slot.steps]
    asynchronous = any(step.action is Action.COMMIT for _, step in steps)
    waits = Action.WAIT if asynchronous else Action.BARRIER
    arrives = (Action.COMMIT,) if asynchronous else (Action.STORE, Action.BULK_FETCH)
    # An operand that is multiplied in place is read until it is released.
    loaded = any(step.action is Action.LOAD for _, step in steps)
    reads = (Action.LOAD,) if loaded else (Action.MULTIPLY, Action.RELEASE)
    sent: list[tuple[int, int]] = []
    landed: dict[int, int] = {}
    last_read: dict[int, int] = {}
    for number, step in steps:
        if step.action in arrives:
            sent.append((step.k_tile, number))
        elif step.instruction == Sync.MBARRIER:
            landed.setdefault(step.k_tile, number)
        elif step.action is waits:
            for k_tile, _ in sent[: len(sent) - (step.pending or 0)]:
                landed.setdefault(k_tile, number)
        elif step.action in reads:
            last_read[step.k_tile] = number
    # The last k-tile of which anything is read may still be read after the last slot.
    unfinished = max(last_read, default=None)
    for k_tile, fetched in sent:
        read = None if k_tile == unfinished else last_read.get(k_tile)
        yield Residence(
            k_tile=k_tile, stage=k_tile % stages, fetched=fetched, landed=landed.get(k_tile), last_read=read
        )


def passages(slots: Sequence[Slot]) -> Iterator[tuple[int, int, int | None]]:
    """Return which k-tile is in registers from which slot to which, before its store; None after the last slot."""
    stored = {step.k_tile: n for n, slot in enumerate(slots) for step in slot.steps if step.action is Action.STORE}
    for number, slot in enumerate(slots):
        if (load := slot.step(Action.GLOBAL_LOAD)) is not None:
            yield load.k_tile, number, stored.get(load.k_tile)
