"""The first k-tiles of a main loop in program order: when each action is issued, and the contents of the stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cutegen.plan import loop as loops
from cutegen.plan.loop import Action, Loop, Nth, Part, PartName, Role
from cutegen.support.words import plural

SHOWN_SLOTS = 20


@dataclass(frozen=True, slots=True)
class Step:
    """One action on a k-tile, on one of its k-blocks if it has one; for a WAIT, `pending` groups may be in flight."""

    action: Action
    k_tile: int
    k_block: int | None = None
    pending: int | None = None


@dataclass(frozen=True, slots=True)
class Slot:
    """The steps between two multiplications, in program order; `k_tile` None is the prologue."""

    k_tile: int | None
    k_block: int | None
    steps: tuple[Step, ...]

    @property
    def told(self) -> tuple[Step, ...]:
        """Return the steps shown separately: a barrier that follows a wait is shown with it."""
        waits = self.step(Action.WAIT) is not None
        return tuple(step for step in self.steps if not (waits and step.action is Action.BARRIER))

    def step(self, action: Action) -> Step | None:
        """Return the slot's step of that kind, which it has at most once."""
        return next((step for step in self.steps if step.action is action), None)


def shown(loop: Loop) -> tuple[Slot, ...]:
    """Return the k-tiles of a full cycle, until stage 0 is read again, limited to about 20 slots."""
    return slots(loop, min(loop.stages + 1, max(3, SHOWN_SLOTS // loop.k_blocks)))


def slots(loop: Loop, k_tiles: int) -> tuple[Slot, ...]:
    """Return the prologue and the first `k_tiles` k-tiles of a longer loop, for the math warps.

    A role that waits for stages is shown at the earliest point: first for every stage, then for a released one.
    """
    *others, main = loop.roles
    filled = tuple(
        Slot(None, None, _steps(slot, k_tile))
        for role in others
        for k_tile in range(_credits(loop, role))
        for slot in _turn(role).slots
    )
    own = (slot for part in main.parts for slot in _part_slots(loop, part, k_tiles))
    return (*filled, *(_with_others(loop, others, slot) for slot in own))


def not_shown(loop: Loop) -> Iterator[str]:
    """Say, in one sentence each, how later k-tiles differ from those shown."""
    parts = loop.roles[-1].parts
    for part in parts:
        if any(step.nth is Nth.LAST for step in part.steps):
            yield (
                f"Of every {part.copies} k-tiles, the last is waited for before the next is multiplied, and so is each "
                "remaining one."
            )
    if any(part.group is not None for part in parts):
        yield f"The two warpgroups multiply the last {plural(loop.stages, 'k-tile')} one after the other."


def _part_slots(loop: Loop, part: Part, k_tiles: int) -> Iterator[Slot]:
    """Return a part's slots: one per k-tile of a prologue, one per shown turn.

    The loop is assumed to be so long that its k-tiles are inside the matrices and those after them fill the stages.
    """
    first, last = (mark.of(k_tiles + loop.stages, k_tiles, loop.stages) for mark in (part.first, part.last))
    if part.name is PartName.TURN:
        for k_tile in range(first, k_tiles):
            copy = (k_tile - first) % part.copies
            kept = (tuple(step for step in slot if copy in step.nth.of(part.copies)) for slot in part.slots)
            yield from (_slot(slot, k_tile, k_tile) for slot in kept if slot)
    elif part.name is PartName.PROLOGUE and first < k_tiles:
        yield from (_slot(slot, None, k_tile) for k_tile in range(first, last) for slot in part.slots)


def _slot(slot: loops.Slot, shown_as: int | None, k_tile: int) -> Slot:
    multiplied = next((step.k_block for step in slot if step.action is Action.MULTIPLY), None)
    return Slot(shown_as, multiplied, _steps(slot, k_tile))


def _steps(slot: loops.Slot, k_tile: int) -> tuple[Step, ...]:
    return tuple(Step(step.action, k_tile + step.ahead, step.k_block, step.pending) for step in slot)


def _with_others(loop: Loop, others: Sequence[Role], slot: Slot) -> Slot:
    """Insert after the step that releases a stage the actions of the role that waits for it."""
    steps: list[Step] = []
    for step in slot.steps:
        steps.append(step)
        if step.action is Action.RELEASE:
            for role in others:
                following = (_steps(each, step.k_tile + _credits(loop, role)) for each in _turn(role).slots)
                steps += (each for group in following for each in group)
    return Slot(slot.k_tile, slot.k_block, tuple(steps))


def _turn(role: Role) -> Part:
    return next(part for part in role.parts if part.name is PartName.TURN)


def _credits(loop: Loop, role: Role) -> int:
    """Return the turns that a role may run before another has released a stage."""
    return min((edge.credits for edge in loop.edges if edge.target == role.name), default=0)


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
        elif step.action is Action.BULK_WAIT:
            landed.setdefault(step.k_tile, number)
        elif step.action is (Action.WAIT if asynchronous else Action.BARRIER):
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
