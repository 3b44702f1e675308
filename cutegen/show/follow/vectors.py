"""Moves of an element between global and shared memory: a vector of a thread, or a box that one thread issues."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cutegen.algebra import offsets
from cutegen.hardware import phases, wavefronts
from cutegen.hardware.units import SECTOR_BYTES, WARP
from cutegen.plan.geometry.access import Coordinates, vectors
from cutegen.plan.loop import Action, Step
from cutegen.plan.values.copies import BulkTensorCopy, Landing, VectorCopy
from cutegen.show.follow.places import BoxStep, VectorStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The matrix in global memory around an element at `byte`: `left` has the elements from it to the edges.

    `left` counts along both modes of the copy's tile. `leading_elems` is the stride of the non-contiguous mode.
    """

    byte: int
    leading_elems: int
    left: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VectorTables:
    """A copy's vectors [step, thread, element] of a tile, and the place of each coordinate among them.

    `placed` has the offset of each coordinate in shared memory, in elements; `instruction` has the opcodes that move
    one. `accesses` are the vectors of each access to shared memory, several if the compiler merges them.
    """

    copy: VectorCopy
    tile: tuple[int, int]
    major_mode: int
    element_bytes: int
    placed: Coordinates
    instruction: tuple[str, ...]
    accesses: tuple[tuple[int, ...], ...]
    table: Coordinates
    where: Coordinates

    @classmethod
    def of_operand(cls, copy: VectorCopy, at: Landing, major_mode: int) -> VectorTables:
        """Return the moves of a copy to shared memory."""
        steps = (Step(copy.fetch), Step(Action.STORE))
        instruction = tuple(dict.fromkeys(opcode for step in steps for opcode in copy.opcodes(step, at)))
        placed, accesses = offsets(at.stage), copy.accesses(at)
        return cls._of(copy, at.tile, major_mode, at.element.bytes, placed, instruction, accesses)

    @classmethod
    def of_result(
        cls, copy: VectorCopy, tile: tuple[int, int], major_mode: int, element_bytes: int, placed: Coordinates
    ) -> VectorTables:
        """Return the moves of the stores of C's tile from shared memory."""
        said = (f"loads of {copy.bits} bits from shared memory", f"stores of {copy.bits} bits to global memory")
        return cls._of(copy, tile, major_mode, element_bytes, placed, said, None)

    @classmethod
    def _of(
        cls,
        copy: VectorCopy,
        tile: tuple[int, int],
        major_mode: int,
        element_bytes: int,
        placed: Coordinates,
        instruction: tuple[str, ...],
        accesses: tuple[tuple[int, ...], ...] | None,
    ) -> VectorTables:
        table = vectors(copy.threads, copy.values, tile)
        where = np.empty(table.size, np.int64)
        where[table.ravel()] = np.arange(table.size)
        return cls(
            copy=copy,
            tile=tile,
            major_mode=major_mode,
            element_bytes=element_bytes,
            placed=placed,
            instruction=instruction,
            accesses=accesses or tuple((step,) for step in range(len(table))),
            table=table,
            where=where,
        )

    def step(self, coord: int, around: Surroundings) -> VectorStep:
        """Return the thread that moves the element at a column-major coordinate of the tile."""
        step, thread, index = (int(i) for i in np.unravel_index(self.where[coord], self.table.shape))
        first = int(self.table[step, thread, 0])
        lanes, count = self._phase(step, thread)
        return VectorStep(
            instruction=self.instruction,
            thread=thread,
            step=step,
            steps=len(self.table),
            bits=self.copy.bits,
            first=(first % self.tile[0], first // self.tile[0]),
            elems=self.table.shape[2],
            index=index,
            lanes_first=lanes.start,
            lanes_last=lanes.stop - 1,
            wavefronts=count,
            warp_sectors=self._sectors(step, thread // WARP, coord, around),
        )

    def _phase(self, step: int, thread: int) -> tuple[range, int]:
        """Return the lanes that access shared memory in the same phase as the thread, and their wavefronts."""
        first_lane = thread // WARP * WARP
        together = next(each for each in self.accesses if step in each)
        starts, access_bytes = self.table[together[0], :, 0], len(together) * self.copy.bits // 8
        lanes_at_once = WARP // phases(access_bytes)
        first = thread % WARP // lanes_at_once * lanes_at_once
        lanes = range(first, first + lanes_at_once)
        at = self.placed[starts[first_lane:][first : first + lanes_at_once]] * self.element_bytes
        return lanes, int(wavefronts(at, access_bytes))

    def _sectors(self, step: int, warp: int, coord: int, around: Surroundings) -> int:
        """Return the global memory sectors that the warp's request touches; nothing past the edges is requested."""
        coords = self.table[step, warp * WARP : (warp + 1) * WARP]
        x, y = coords % self.tile[0] - coord % self.tile[0], coords // self.tile[0] - coord // self.tile[0]
        along, across = (y, x) if self.major_mode == 1 else (x, y)
        at = around.byte + (across * around.leading_elems + along) * self.element_bytes
        return len(np.unique(at[(x < around.left[0]) & (y < around.left[1])] // SECTOR_BYTES))


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
