"""The main loop in program order, as the template writes it: what is issued when, and what lies in which stage.

A k-tile is computed in k-blocks. While k-block b is multiplied, b + 1 is on its way to registers; before a k-tile's
last k-block, its stage is free and is refilled. Where plain copies fill shared memory, the refill waits in registers
and is stored a k-tile later. With a single stage nothing overlaps. The steps here are held against emitted PTX.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cutegen.plan.gemm_plan import GemmPlan


class Action(StrEnum):
    """What a step does."""

    WAIT = "cp.async.wait_group"
    BARRIER = "bar.sync"
    LOAD = "load"
    FETCH = "cp.async"
    COMMIT = "cp.async.commit_group"
    GLOBAL_LOAD = "ld.global"
    STORE = "st.shared"
    MULTIPLY = "mma.sync"


@dataclass(frozen=True, slots=True)
class Step:
    """One action on a k-tile, on one of its k-blocks where it has one; of a WAIT, `pending` groups may be in flight."""

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

    def step(self, action: Action) -> Step | None:
        """The slot's step of that kind, which it has at most once."""
        return next((step for step in self.steps if step.action is action), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Residence:
    """A k-tile's stay in a stage, by numbers of slots.

    Sent for in `fetched`, there and visible after the wait in `landed`, read for the last time in `last_read`; None
    where the slots end before.
    """

    k_tile: int
    stage: int
    fetched: int
    landed: int | None
    last_read: int | None


def shown_k_tiles(stages: int, k_blocks: int) -> int:
    """How many k-tiles show the whole cycle: until stage 0 is read again, but no more than some 20 slots."""
    return min(stages + 1, max(3, 20 // k_blocks))


ASYNCHRONOUS = (Action.FETCH,)


def shown_loop(plan: GemmPlan) -> tuple[Slot, ...]:
    """The main loop of a plan, as far as it takes to see the whole cycle."""
    copies = tuple(Action.GLOBAL_LOAD if x.g2s.through_registers else Action.FETCH for x in (plan.a, plan.b))
    return main_loop(plan.stages, plan.k_blocks, shown_k_tiles(plan.stages, plan.k_blocks), copies)


def main_loop(
    stages: int, k_blocks: int, k_tiles: int, copies: tuple[Action, ...] = ASYNCHRONOUS
) -> tuple[Slot, ...]:
    """The prologue and the first `k_tiles` k-tiles of a longer loop; `copies` send for A and for B, in that order."""
    loop = _Loop(stages, k_blocks, tuple(dict.fromkeys(copies)))
    if stages == 1:
        return tuple(slot for k_tile in range(k_tiles) for slot in loop.alone(k_tile))
    body = (loop.slot(k_tile, k_block) for k_tile in range(k_tiles) for k_block in range(k_blocks))
    return (*loop.prologue(), *body)


@dataclass(frozen=True, slots=True)
class _Loop:
    """What the slots of one loop have in common."""

    stages: int
    k_blocks: int
    copies: tuple[Action, ...]

    def prologue(self) -> Iterator[Slot]:
        """Every stage filled, except that plain copies leave the last k-tile in registers; then the first k-block."""
        for k_tile in range(self.stages):
            yield Slot(None, None, (*self._send(k_tile), *self._commit(k_tile)))
            if k_tile < self.stages - 1 and (store := self._store(k_tile)):
                yield Slot(None, None, store)
        wait = self._wait(0, pending=self.stages - 1)
        yield Slot(None, None, (*wait, Step(Action.BARRIER, 0), Step(Action.LOAD, 0, 0)))

    def slot(self, k_tile: int, k_block: int) -> Slot:
        """The next k-block is loaded, this one multiplied; before a k-tile's last one, stages change their content."""
        multiply = Step(Action.MULTIPLY, k_tile, k_block)
        if k_block < self.k_blocks - 1:
            return Slot(k_tile, k_block, (Step(Action.LOAD, k_tile, k_block + 1), multiply))
        steps = (
            *self._store(k_tile + self.stages - 1),
            *self._wait(k_tile + 1, pending=self.stages - 2),
            Step(Action.BARRIER, k_tile + 1),
            Step(Action.LOAD, k_tile + 1, 0),
            *self._send(k_tile + self.stages),
            *self._commit(k_tile + self.stages),
            multiply,
        )
        return Slot(k_tile, k_block, steps)

    def alone(self, k_tile: int) -> Iterator[Slot]:
        """A k-tile of a single stage: sent for, waited for, multiplied, and left by every warp."""
        arrive = (*self._store(k_tile), *self._commit(k_tile), *self._wait(k_tile, pending=0))
        yield Slot(k_tile, None, self._send(k_tile))
        yield Slot(k_tile, None, (*arrive, Step(Action.BARRIER, k_tile)))
        for k_block in range(self.k_blocks):
            yield Slot(k_tile, k_block, (Step(Action.LOAD, k_tile, k_block), Step(Action.MULTIPLY, k_tile, k_block)))
        yield Slot(k_tile, None, (Step(Action.BARRIER, k_tile + 1),))

    def _send(self, k_tile: int) -> tuple[Step, ...]:
        return tuple(Step(copy, k_tile) for copy in self.copies)

    def _store(self, k_tile: int) -> tuple[Step, ...]:
        return (Step(Action.STORE, k_tile),) if Action.GLOBAL_LOAD in self.copies else ()

    def _commit(self, k_tile: int) -> tuple[Step, ...]:
        return (Step(Action.COMMIT, k_tile),) if Action.FETCH in self.copies else ()

    def _wait(self, k_tile: int, pending: int) -> tuple[Step, ...]:
        return (Step(Action.WAIT, k_tile, pending=pending),) if Action.FETCH in self.copies else ()


def residences(slots: Sequence[Slot], stages: int) -> Iterator[Residence]:
    """What lies where and when: groups of cp.async land in the order of their commits, when they are waited for.

    Where plain copies do it all, a k-tile has landed at the barrier behind its stores.
    """
    steps = [(number, step) for number, slot in enumerate(slots) for step in slot.steps]
    asynchronous = any(step.action is Action.COMMIT for _, step in steps)
    arrives = Action.COMMIT if asynchronous else Action.STORE
    sent: list[tuple[int, int]] = []
    landed: dict[int, int] = {}
    last_read: dict[int, int] = {}
    for number, step in steps:
        if step.action is arrives:
            sent.append((step.k_tile, number))
        elif step.action is (Action.WAIT if asynchronous else Action.BARRIER):
            for k_tile, _ in sent[: len(sent) - (step.pending or 0)]:
                landed.setdefault(k_tile, number)
        elif step.action is Action.LOAD:
            last_read[step.k_tile] = number
    # The last k-tile of which anything is read may be read further behind the last slot.
    unfinished = max(last_read, default=None)
    for k_tile, fetched in sent:
        read = None if k_tile == unfinished else last_read.get(k_tile)
        yield Residence(
            k_tile=k_tile, stage=k_tile % stages, fetched=fetched, landed=landed.get(k_tile), last_read=read
        )


def passages(slots: Sequence[Slot]) -> Iterator[tuple[int, int, int | None]]:
    """Which k-tile is in registers from which slot to which, on its way to shared memory; None behind the last slot."""
    stored = {step.k_tile: n for n, slot in enumerate(slots) for step in slot.steps if step.action is Action.STORE}
    for number, slot in enumerate(slots):
        if (load := slot.step(Action.GLOBAL_LOAD)) is not None:
            yield load.k_tile, number, stored.get(load.k_tile)
