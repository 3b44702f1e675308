"""The main loop in program order, as the template writes it.

A k-tile is computed in k-blocks. While k-block b is multiplied, b + 1 is on its way to registers; before a k-tile's
last k-block, its stage is free and is refilled. The steps here are held against emitted PTX.
"""

from __future__ import annotations

from cutegen.plan.main_loop import Action, Slot, Step


def shown_main_loop(stages: int, k_blocks: int) -> tuple[Slot, ...]:
    """As many k-tiles as show the whole cycle, until stage 0 is read again, but no more than some 20 slots."""
    return main_loop(stages, k_blocks, min(stages + 1, max(3, 20 // k_blocks)))


def main_loop(stages: int, k_blocks: int, k_tiles: int) -> tuple[Slot, ...]:
    """The prologue and the first `k_tiles` k-tiles of a longer loop."""
    fill = [Slot(None, None, (Step(Action.FETCH, k_tile), Step(Action.COMMIT, k_tile))) for k_tile in range(stages)]
    first = (
        Step(Action.WAIT, 0, pending=stages - 1),
        Step(Action.BARRIER, 0),
        Step(Action.LOAD, 0, 0),
    )
    body = [_slot(stages, k_blocks, k_tile, k_block) for k_tile in range(k_tiles) for k_block in range(k_blocks)]
    return (*fill, Slot(None, None, first), *body)


def _slot(stages: int, k_blocks: int, k_tile: int, k_block: int) -> Slot:
    multiply = Step(Action.MULTIPLY, k_tile, k_block)
    if k_block < k_blocks - 1:
        return Slot(k_tile, k_block, (Step(Action.LOAD, k_tile, k_block + 1), multiply))
    steps = (
        Step(Action.WAIT, k_tile + 1, pending=stages - 2),
        Step(Action.BARRIER, k_tile + 1),
        Step(Action.LOAD, k_tile + 1, 0),
        Step(Action.FETCH, k_tile + stages),
        Step(Action.COMMIT, k_tile + stages),
        multiply,
    )
    return Slot(k_tile, k_block, steps)
