"""The main loop in program order, as the template writes it.

A k-tile is computed in k-blocks: while k-block b is multiplied, b + 1 is on its way to registers. When a k-tile begins,
the stage of the one before is free and is refilled; what plain copies bring waits in registers and is stored before the
k-tile's last k-block. With a single stage nothing overlaps. The steps here are held against emitted PTX.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cutegen.plan.gemm_plan import VectorCopy
from cutegen.plan.main_loop import Action, Slot, Step

ASYNCHRONOUS = (Action.FETCH,)


def shown_main_loop(stages: int, k_blocks: int, *copies: VectorCopy) -> tuple[Slot, ...]:
    """As many k-tiles as show the whole cycle, until stage 0 is read again, but no more than some 20 slots."""
    actions = tuple(Action.GLOBAL_LOAD if copy.through_registers else Action.FETCH for copy in copies)
    return main_loop(stages, k_blocks, min(stages + 1, max(3, 20 // k_blocks)), actions)


def k_tiles_per_turn(stages: int, *copies: VectorCopy) -> int:
    """All stages where copies are asynchronous, so that the stages are constants in the addresses of a turn.

    On an H200 that is up to 10 % faster than one k-tile a turn (docs/performance.md). Plain copies keep a k-tile in
    registers, and the addresses of several do not fit beside it.
    """
    return 1 if any(copy.through_registers for copy in copies) else stages


def main_loop(stages: int, k_blocks: int, k_tiles: int, copies: tuple[Action, ...] = ASYNCHRONOUS) -> tuple[Slot, ...]:
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
        """Every stage but the last filled; then the first k-block."""
        for k_tile in range(self.stages - 1):
            yield Slot(None, None, (*self._send(k_tile), *self._commit(k_tile)))
            if store := self._store(k_tile):
                yield Slot(None, None, store)
        wait = self._wait(0, pending=self.stages - 2)
        yield Slot(None, None, (*wait, Step(Action.BARRIER, 0), Step(Action.LOAD, 0, 0)))

    def slot(self, k_tile: int, k_block: int) -> Slot:
        """The next k-block is loaded, this one multiplied; at a k-tile's beginning another is sent for."""
        sent = k_tile + self.stages - 1
        send = (*self._send(sent), *self._commit(sent)) if k_block == 0 else ()
        multiply = Step(Action.MULTIPLY, k_tile, k_block)
        if k_block < self.k_blocks - 1:
            return Slot(k_tile, k_block, (*send, Step(Action.LOAD, k_tile, k_block + 1), multiply))
        arrive = (*self._store(sent), *self._wait(k_tile + 1, pending=self.stages - 2))
        load = (Step(Action.BARRIER, k_tile + 1), Step(Action.LOAD, k_tile + 1, 0))
        return Slot(k_tile, k_block, (*send, *arrive, *load, multiply))

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
