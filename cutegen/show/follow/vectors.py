"""Moves of an element between global and shared memory: a vector of a thread, or a box that one thread issues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from cutegen.hardware import phases, wavefronts
from cutegen.hardware.units import SECTOR_BYTES, WARP
from cutegen.plan.geometry import Coordinates, vectors
from cutegen.plan.values.copies import BulkTensorCopy, VectorCopy
from cutegen.show.follow.locations import BoxStep, CopyStep, GlobalLocation, VectorStep
from cutegen.show.follow.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The matrix of `extents` in global memory around an element: its tile's `window`, both in the kernel's modes.

    `leading_elems` is the stride of the non-contiguous mode.
    """

    extents: tuple[int, int]
    leading_elems: int
    window: Window

    @classmethod
    def of(cls, place: GlobalLocation, window: Window) -> Surroundings:
        """Return what surrounds an element of the kernel's matrix."""
        return cls(extents=place.extents, leading_elems=place.leading_elems, window=window)

    def exchanged(self) -> Surroundings:
        """Return it with its modes exchanged."""
        return replace(self, extents=self.extents[::-1], window=self.window.exchanged())

    def part(self, within: tuple[int, int], extents: tuple[int, int]) -> Surroundings:
        """Return it for a part of the tile, of `extents`, in which the element is at `within`."""
        return replace(self, window=self.window.part(within, extents))


Move: TypeAlias = Callable[[Surroundings], CopyStep]
"""Maps an element in its tile, and what surrounds it in global memory, to what moves it."""


class VectorMoves:
    """The moves by a copy's vectors, of all elements of a tile.

    `placed` has the offset of each coordinate in shared memory, in elements; `instruction` has the opcodes that move
    one vector. `accesses` are the vectors of each access to shared memory, several if the compiler merges them. The
    copy's threads are those of the CTA from `first_thread` on.
    """

    def __init__(
        self,
        copy: VectorCopy,
        tile: tuple[int, int],
        major_mode: int,
        *,
        element_bytes: int,
        placed: Coordinates,
        instruction: tuple[str, ...],
        accesses: tuple[tuple[int, ...], ...] | None = None,
        first_thread: int = 0,
    ) -> None:
        self._first_thread = first_thread
        self._copy, self._tile, self._major_mode, self._element_bytes = copy, tile, major_mode, element_bytes
        self._placed, self._instruction = placed, instruction
        self._table = vectors(copy.threads, copy.values, tile)
        self._accesses = accesses or tuple((step,) for step in range(len(self._table)))
        self._where = np.empty(self._table.size, np.int64)
        self._where[self._table.ravel()] = np.arange(self._table.size)

    def step(self, around: Surroundings) -> VectorStep:
        """Return the thread that moves an element, and its vector."""
        within = around.window.within
        coord = within[0] + within[1] * self._tile[0]
        step, thread, index = (int(i) for i in np.unravel_index(self._where[coord], self._table.shape))
        first = int(self._table[step, thread, 0])
        lanes, count = self._phase(step, thread)
        return VectorStep(
            instruction=self._instruction,
            thread=self._first_thread + thread,
            step=step,
            steps=len(self._table),
            bits=self._copy.bits,
            first=(first % self._tile[0], first // self._tile[0]),
            elems=self._table.shape[2],
            index=index,
            lanes_first=lanes.start,
            lanes_last=lanes.stop - 1,
            wavefronts=count,
            warp_sectors=self._sectors(step, thread // WARP, around),
        )

    def _phase(self, step: int, thread: int) -> tuple[range, int]:
        """Return the lanes that access shared memory in the same phase as the thread, and their wavefronts."""
        together = next(each for each in self._accesses if step in each)
        starts, access_bytes = self._table[together[0], :, 0], len(together) * self._copy.bits // 8
        lanes_at_once = WARP // phases(access_bytes)
        first = thread // lanes_at_once * lanes_at_once
        at = self._placed[starts[first : first + lanes_at_once]] * self._element_bytes
        first_lane = first % WARP
        return range(first_lane, first_lane + lanes_at_once), int(wavefronts(at, access_bytes))

    def _sectors(self, step: int, warp: int, around: Surroundings) -> int:
        """Return the global memory sectors that the warp's request touches; nothing past the edges is requested."""
        coords, (rows, columns) = self._table[step, warp * WARP : (warp + 1) * WARP], around.window.coordinates
        x, y = rows[coords % self._tile[0]], columns[coords // self._tile[0]]
        along, across = (y, x) if self._major_mode == 1 else (x, y)
        at = (across * around.leading_elems + along) * self._element_bytes
        return len(np.unique(at[(x < around.extents[0]) & (y < around.extents[1])] // SECTOR_BYTES))


def box_step(copy: BulkTensorCopy, within: tuple[int, int], major_mode: int, instruction: tuple[str, ...]) -> BoxStep:
    """Return the box that has the element at tile coordinates `within`."""
    along, across = within[major_mode], within[1 - major_mode]
    share, row = divmod(across, copy.box[1])
    return BoxStep(
        instruction=instruction,
        box=along // copy.box[0],
        boxes=copy.boxes,
        extents=copy.box,
        row=row,
        along=along % copy.box[0],
        share=share,
        shares=copy.shares,
    )
