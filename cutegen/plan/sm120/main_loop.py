"""The main loop in program order, as the template writes it: one warp that multiplies, beside the warp that copies.

A stage is filled again as soon as all warps have arrived at its `empty` barrier, which each does before a k-tile's
last k-block.
"""

from __future__ import annotations

from cutegen.plan.main_loop import Action, Slot, Step


def shown_main_loop(stages: int, k_blocks: int) -> tuple[Slot, ...]:
    """As many k-tiles as show the whole cycle, until stage 0 is read again, but no more than some 20 slots."""
    k_tiles = min(stages + 1, max(3, 20 // k_blocks))
    fill = [Slot(None, None, (Step(Action.BULK_FETCH, k_tile),)) for k_tile in range(stages)]
    first = Slot(None, None, (Step(Action.BULK_WAIT, 0), Step(Action.LOAD, 0, 0)))
    body = [_slot(stages, k_blocks, k_tile, k_block) for k_tile in range(k_tiles) for k_block in range(k_blocks)]
    return (*fill, first, *body)


def _slot(stages: int, k_blocks: int, k_tile: int, k_block: int) -> Slot:
    multiply = Step(Action.MULTIPLY, k_tile, k_block)
    if k_block < k_blocks - 1:
        return Slot(k_tile, k_block, (Step(Action.LOAD, k_tile, k_block + 1), multiply))
    steps = (
        Step(Action.BULK_FETCH, k_tile + stages),
        Step(Action.BULK_WAIT, k_tile + 1),
        Step(Action.LOAD, k_tile + 1, 0),
        multiply,
    )
    return Slot(k_tile, k_block, steps)
