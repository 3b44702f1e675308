"""Finds the thread and the register that computed an element of C, as a starting point if that element is wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cutegen.plan import GemmPlan
from cutegen.plan.geometry import place_of_value


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """`cta` is the tile (along M, along N), `block` its blockIdx.x, `value` the coordinate in the thread's tCrC.

    tCrC is (MMA, MMA_M, MMA_N): the value within the atom, and which of the thread's atoms along M and N; if A and B
    are swapped, M and N of the kernel, and not of `cta`. `block` is None for persistent CTAs: the CTA that computes a
    tile depends on how many the GPU holds.
    """

    cta: tuple[int, int]
    block: int | None
    thread: int
    value: tuple[int, int, int]

    @property
    def register(self) -> str:
        """The accumulator by its name in the kernel, as `tCrC(1,2,3)`."""
        return "tCrC({},{},{})".format(*self.value)

    def __str__(self) -> str:
        """Format as `thread 37, tCrC(1,2,3), of CTA (0,1), blockIdx.x 1`."""
        block = "" if self.block is None else f", blockIdx.x {self.block}"
        return f"thread {self.thread}, {self.register}, of CTA ({self.cta[0]},{self.cta[1]}){block}"


def producer(plan: GemmPlan, row: int, column: int, *, m: int, n: int) -> Producer:
    """Return the thread and register that accumulate C[row, column] of an M x N result.

    (A staged epilogue may store it by another thread.)
    """
    tile = plan.launch.cta_tile
    cta, within = (row // tile[0], column // tile[1]), (row % tile[0], column % tile[1])
    if plan.swapped:
        within = within[1], within[0]
    sums = plan.mma.accumulator
    thread, value = (int(i) for i in np.argwhere(sums.table == within[0] + within[1] * plan.cta_tile[0])[0])
    block = None if plan.scheduler.source.loops else block_of(plan, cta, m=m, n=n)
    return Producer(cta=cta, block=block, thread=thread, value=place_of_value(sums.extents, value))


def block_of(plan: GemmPlan, cta: tuple[int, int], *, m: int, n: int) -> int:
    """Return blockIdx.x of the CTA for tile `cta` (along M, along N): the inverse of the kernel's tile_coordinate."""
    if plan.swapped:
        cta, m, n = cta[::-1], n, m
    return plan.scheduler.order.number(cta, plan.scheduler.grid(plan.mma, m, n))
