"""The main loop in program order, as the template writes it: copies are plain loads and stores, so barriers order them.

With one stage a k-tile is copied, then multiplied. With two, the next k-tile is loaded into registers before this one
is multiplied, and stored into the other stage after.
"""

from __future__ import annotations

from collections.abc import Iterator

from cutegen.plan.main_loop import Action, Slot, Step

SHOWN_K_TILES = 4


def main_loop(stages: int, k_tiles: int = SHOWN_K_TILES) -> tuple[Slot, ...]:
    """The prologue, which only two stages have, and the first `k_tiles` k-tiles of a longer loop."""
    if stages == 1:
        return tuple(slot for k_tile in range(k_tiles) for slot in _alone(k_tile))
    prologue = Slot(None, None, (Step(Action.GLOBAL_LOAD, 0),))
    return (prologue, *(slot for k_tile in range(k_tiles) for slot in _overlapped(k_tile)))


def _alone(k_tile: int) -> Iterator[Slot]:
    yield Slot(k_tile, None, (Step(Action.GLOBAL_LOAD, k_tile),))
    yield Slot(k_tile, None, (Step(Action.STORE, k_tile), Step(Action.BARRIER, k_tile)))
    yield _multiplied(k_tile)
    yield Slot(k_tile, None, (Step(Action.BARRIER, k_tile + 1),))


def _overlapped(k_tile: int) -> Iterator[Slot]:
    arrive = Step(Action.STORE, k_tile), Step(Action.BARRIER, k_tile)
    yield Slot(k_tile, None, (*arrive, Step(Action.GLOBAL_LOAD, k_tile + 1)))
    yield _multiplied(k_tile)


def _multiplied(k_tile: int) -> Slot:
    return Slot(k_tile, None, (Step(Action.LOAD, k_tile), Step(Action.MULTIPLY, k_tile)))
