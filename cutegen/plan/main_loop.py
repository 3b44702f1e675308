"""A main loop in program order: what is issued when, and what lies in which stage. Each family says its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Action(StrEnum):
    """What a step does."""

    WAIT = "cp.async.wait_group"
    BARRIER = "bar.sync"
    LOAD = "load"
    FETCH = "cp.async"
    COMMIT = "cp.async.commit_group"
    BULK_FETCH = "cp.async.bulk.tensor"
    BULK_WAIT = "mbarrier.try_wait"
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


def residences(slots: Sequence[Slot], stages: int) -> Iterator[Residence]:
    """What lies where and when: groups of cp.async land in the order of their commits, when they are waited for.

    Where plain copies do it all, a k-tile has landed at the barrier behind its stores; what bulk tensor copies bring,
    when its own mbarrier has been waited for.
    """
    steps = [(number, step) for number, slot in enumerate(slots) for step in slot.steps]
    asynchronous = any(step.action is Action.COMMIT for _, step in steps)
    arrives = (Action.COMMIT,) if asynchronous else (Action.STORE, Action.BULK_FETCH)
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
