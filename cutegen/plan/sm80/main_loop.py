"""The main loop in program order, as the template writes it.

A k-tile is computed in k-blocks. While k-block b is multiplied, b + 1 is on its way to registers; before a k-tile's
last k-block, its stage is free and is refilled. Where plain copies fill shared memory, the refill waits in registers
and is stored a k-tile later. With a single stage nothing overlaps. The steps here are held against emitted PTX.
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
