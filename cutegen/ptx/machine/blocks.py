"""Basic blocks at run time: steps, and an end that decides where the lanes continue.

Source: PTX ISA, "Control Flow Instructions".
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from cutegen.ptx.machine.lowering import Predicate, Step
from cutegen.ptx.machine.warp import Mask, Path, Warp
from cutegen.ptx.watch.violations import ViolationKind

Deliver: TypeAlias = Callable[[Warp, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A warp's arrival at a barrier: the barrier waits for `threads` threads (None: the whole CTA).

    The predicate of a `bar.red` is true in `votes` of its lanes and false in `against`; lanes beyond the block count in
    neither.
    """

    barrier: int
    threads: int | None
    waits: bool
    votes: int
    against: int
    site: int
    deliver: Deliver | None


class Awaited(Protocol):
    """Object that a warp may have to wait for until its `phase` changes.

    An mbarrier, the other warps of its warpgroup, or registers.
    """

    @property
    def phase(self) -> int:
        """Counts the events of this object."""

    def awaited(self) -> str:
        """Name of the object, for messages."""


End: TypeAlias = Callable[[Warp, Path], Arrival | Awaited | None]
"""Advances a path to its next block; returns an `Arrival` if the warp has reached a barrier, an `Awaited` if it must
wait and then run the block again."""


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions `first` to `last` of the entry: `steps` for those with an effect, then `end`.

    `asks`: one of them reads data that other CTAs may write meanwhile, as in a polling loop.
    """

    first: int
    last: int
    steps: tuple[Step, ...]
    end: End
    asks: bool = False


def executing(warp: Warp, predicate: Predicate | None) -> Mask:
    """The active lanes that execute an instruction under `@p` or `@!p`; all of them without a predicate."""
    if predicate is None:
        return warp.mask
    cell, negated = predicate
    holds: Mask = warp.cells[cell]
    return warp.mask & (~holds if negated else holds)


def guarded(step: Step, predicate: Predicate) -> Step:
    """The step under a predicate."""

    def run(warp: Warp) -> None:
        mask = executing(warp, predicate)
        count = int(np.count_nonzero(mask))
        if count == warp.count:
            step(warp)
        elif count:
            with warp.narrowed(mask):
                step(warp)

    return run


def fall_through(following: int) -> End:
    """The end of a block that runs into the next one."""

    def end(warp: Warp, path: Path) -> None:
        path.block = following

    return end


def branch(predicate: Predicate | None, taken: int, following: int, meet: int | None) -> End:
    """The end of a block with `bra`."""
    if predicate is None:
        return fall_through(taken)

    def end(warp: Warp, path: Path) -> None:
        goes = executing(warp, predicate)
        count = int(np.count_nonzero(goes))
        if count in (0, warp.count):
            path.block = taken if count else following
        else:
            split(warp, path, meet, [(taken, goes), (following, warp.mask & ~goes)])

    return end


def split(warp: Warp, path: Path, meet: int | None, ways: list[tuple[int, Mask]]) -> None:
    """Sends lanes to different blocks; they reconverge at `meet`. The policy decides who goes first."""
    if meet is None:
        warp.stack.remove(path)
    else:
        path.block = meet
    warp.stack += [Path(block, mask, meet) for block, mask in warp.cta.schedule.order(ways)]


def switch(cell: int, targets: tuple[int, ...], meet: int | None, site: int) -> End:
    """The end of a block with `brx.idx`."""

    def end(warp: Warp, path: Path) -> None:
        index = warp.cells[cell]
        if int(index[warp.mask].max()) >= len(targets):
            lane = int(warp.lanes()[np.argmax(index[warp.mask])])
            message = f"branch index {index[lane]} of a table of {len(targets)}"
            warp.cta.fault(ViolationKind.OUT_OF_BOUNDS, site, warp.thread0 + lane, message, always=True)
        values = np.unique(index[warp.mask]).tolist()
        if len(values) == 1:
            path.block = targets[values[0]]
        else:
            split(warp, path, meet, [(targets[value], warp.mask & (index == value)) for value in values])

    return end


def leave(predicate: Predicate | None, following: int | None) -> End:
    """The end of a block with `ret` or `exit`; with a predicate, the other lanes continue at `following`."""

    def end(warp: Warp, path: Path) -> None:
        if predicate is not None:
            goes = executing(warp, predicate)
            warp.set_mask(goes, int(np.count_nonzero(goes)))
        warp.cta.leave(warp)
        path.mask = path.mask & ~warp.mask
        if following is not None:
            path.block = following

    return end
