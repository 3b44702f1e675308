"""Follows an element of C: its accumulator, its place in shared memory if it is staged, and its store."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from cutegen.algebra import offsets
from cutegen.contract.launch import RESULT
from cutegen.hardware import StmatrixAtom
from cutegen.plan import GemmPlan
from cutegen.plan.geometry import Coordinates, place_of_value
from cutegen.plan.values.copies import BulkTensorCopy, VectorCopy
from cutegen.plan.values.epilogue import EpilogueParts
from cutegen.show.follow.locations import CopyStep, Held, SharedLocation, StagedResult
from cutegen.show.follow.operands import held_value
from cutegen.show.follow.vectors import Move, Surroundings, VectorMoves, box_step


class ResultFollower:
    """The tables of C, computed once; the methods take coordinates (m, n) within the CTA's tile, as in the kernel."""

    def __init__(self, plan: GemmPlan) -> None:
        self.plan, self.c = plan, plan.epilogue

    def held(self, within: tuple[int, int]) -> Held:
        """Return the accumulator of the element."""
        coord = within[0] + within[1] * self.plan.cta_tile[0]
        thread, value = (int(i) for i in np.argwhere(self._sums == coord)[0])
        sums = self.plan.mma.accumulator
        return held_value(thread, value, place_of_value(sums.extents, value), sums.dtype.bits)

    def staged(self, within: tuple[int, int]) -> StagedResult | None:
        """Return its place in shared memory before the store; None if it is stored straight to global memory."""
        c, parts = self.c, self.c.parts
        if c.smem is None:
            return None
        base = self.plan.memory.offset_bytes(RESULT)
        if parts is None:
            place = SharedLocation.of(c.smem.layout, (*within, 0), c.dtype.bytes, base)
            return StagedResult(instruction="st.shared", part=0, parts=1, place=place)
        part, slot, at = self._part(parts, within)
        place = SharedLocation.of(c.smem.layout, (*at, slot), c.dtype.bytes, base)
        if parts.stmatrix is None:
            return StagedResult(instruction="st.shared", part=part, parts=parts.count, place=place)
        return self._by_stmatrix(parts.stmatrix, parts, part, at, place)

    def store(self, within: tuple[int, int], around: Surroundings) -> CopyStep | None:
        """Return the copy from shared to global memory; None if its own thread stores it."""
        if self._move is None:
            return None
        parts = self.c.parts
        return self._move(within if parts is None else self._part(parts, within)[2], around)

    @cached_property
    def _sums(self) -> Coordinates:
        return self.plan.mma.accumulator.table

    @cached_property
    def _move(self) -> Move | None:
        c, tile = self.c, self.c.part or self.plan.cta_tile[:2]
        if c.store is None or c.smem is None:
            return None
        placed = offsets(c.smem.layout)[: tile[0] * tile[1]]

        def by_vectors(copy: VectorCopy) -> Move:
            said = (f"loads of {copy.bits} bits from shared memory", f"stores of {copy.bits} bits to global memory")
            element_bytes = c.dtype.bytes
            moves = VectorMoves(copy, tile, c.major_mode, element_bytes=element_bytes, placed=placed, instruction=said)
            return moves.step

        def by_boxes(copy: BulkTensorCopy) -> Move:
            return lambda within, _: box_step(copy, within, c.major_mode, tuple(copy.boxes_issued))

        return c.store.by_kind(vectors=by_vectors, boxes=by_boxes)

    def _part(self, parts: EpilogueParts, within: tuple[int, int]) -> tuple[int, int, tuple[int, int]]:
        """Return (part of its warpgroup, slot of shared memory in the CTA's first tile, coordinates in the part).

        `down` warpgroups lie below one another; each has complete atoms, which its parts divide, rows first.
        """
        (rows, columns), sums = parts.tile, self.plan.mma.accumulator
        down, atom_n = sums.tile[0] // (rows * (parts.count // parts.columns)), sums.block[1]
        row_block, group_n = within[0] // rows, within[1] // atom_n
        part = row_block // down * parts.columns + within[1] % atom_n // columns
        group = row_block % down + group_n * down
        slot = group * parts.buffers + part % parts.buffers
        return part, slot, (within[0] % rows, within[1] % columns)

    def _by_stmatrix(
        self, atom: StmatrixAtom, parts: EpilogueParts, part: int, at: tuple[int, int], place: SharedLocation
    ) -> StagedResult:
        """Return the stmatrix place: of a warp's 16 rows, an instruction takes 0 to 7 and 8 to 15, column by column."""
        row, column = at
        matrix = column // 8 * 2 + row % 16 // 8
        inner = column % 8 if atom.transpose else row % 8
        number, matrix = divmod(matrix, atom.matrices)
        return StagedResult(
            instruction=atom.ptx,
            part=part,
            parts=parts.count,
            place=place,
            number=number,
            matrix=matrix,
            row=inner,
            addressing_lane=matrix * 8 + inner,
        )
