"""Follows an element of C: its accumulator, its place in shared memory if it is staged, and its store."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import product

import numpy as np

from cutegen.algebra import offsets, offsets_2d
from cutegen.contract.launch import RESULT
from cutegen.hardware import StmatrixAtom
from cutegen.hardware.tcgen05 import LANES, places_of_sums
from cutegen.hardware.units import WARPGROUP
from cutegen.plan import GemmPlan
from cutegen.plan.geometry import Coordinates, place_of_value
from cutegen.plan.kernel.memory import LARGEST
from cutegen.plan.values.copies import BulkTensorCopy, VectorCopy
from cutegen.plan.values.epilogue import EpilogueParts
from cutegen.show.follow import locations
from cutegen.show.follow.operands import held_value
from cutegen.show.follow.vectors import Move, Surroundings, VectorMoves, box_step


class ResultFollower:
    """The tables of C, computed once; the methods take coordinates (m, n) within the CTA's tile, as in the kernel."""

    def __init__(self, plan: GemmPlan) -> None:
        self.plan, self.c = plan, plan.epilogue

    def held(self, within: tuple[int, int]) -> locations.Held:
        """Return the accumulator of the element; with pairs of columns that of its first member."""
        return next(iter(self._of_sums(within)))

    def sums(self, rows: range, columns: range) -> locations.SumsLocation:
        """Return where the sums of these rows and columns of the tile are in tensor memory, and what loads them."""
        sums = self.plan.mma.accumulator
        assert sums.drain is not None
        places = offsets_2d(places_of_sums(*sums.tile, self.plan.atom.ctas))[rows.start : rows.stop]
        lane, column = places[:, columns.start : columns.stop] % LANES, places[:, columns.start : columns.stop] // LANES
        lanes, of_buffer = (tuple(np.unique(each).tolist()) for each in (lane, column))
        return locations.SumsLocation(lanes, of_buffer, sums.drain.opcode(self.plan.columns_of_load))

    def members(self, within: tuple[int, int]) -> dict[str, locations.Held]:
        """Return the accumulators of both members of the element's pair, by name; nothing without pairs."""
        pairs = self.c.fusion.pairs
        return {} if pairs is None else dict(zip(pairs.members, self._of_sums(within), strict=True))

    def _of_sums(self, within: tuple[int, int]) -> Iterator[locations.Held]:
        """Yield the accumulators of the element: a tile has the sums of one member, then those of the other."""
        (rows, columns, _), (of_rows, of_columns) = self.plan.cta_tile, self._tile
        for first_row, first_column in product(range(0, rows, of_rows), range(0, columns, of_columns)):
            yield self._sum(first_row + within[0] + (first_column + within[1]) * rows)

    def _sum(self, coord: int) -> locations.Held:
        thread, value = (int(i) for i in np.argwhere(self._sums == coord)[0])
        sums = self.plan.mma.accumulator
        return held_value(thread, value, place_of_value(sums.extents, value), sums.dtype.bits)

    def staged(self, within: tuple[int, int]) -> locations.StagedResult | None:
        """Return its place in shared memory before the store; None if it is stored straight to global memory."""
        c, parts = self.c, self.c.parts
        if c.smem is None:
            return None
        base = self.plan.memory.offset_bytes(RESULT)
        if parts is None:
            place = locations.SharedLocation.of(c.smem.layout, (*within, 0), c.dtype.bytes, base)
            return locations.StagedResult(instruction="st.shared", part=0, parts=1, place=place)
        part, _, slot, at = self._part(parts, within)
        place = locations.SharedLocation.of(c.smem.layout, (*at, slot), c.dtype.bytes, base)
        if parts.stmatrix is None:
            return locations.StagedResult(instruction="st.shared", part=part, parts=parts.count, place=place)
        return self._by_stmatrix(parts.stmatrix, parts, part, at, place)

    def block(self, within: tuple[int, int]) -> tuple[locations.AccumulatorHits, ...]:
        """Return the accumulators of the element's block of a quantized C, by thread, in order; none without."""
        if (quantization := self.c.fusion.quantization) is None:
            return ()
        rows, columns = (
            range(at // extent * extent, at // extent * extent + extent)
            for at, extent in zip(within, quantization.block, strict=True)
        )
        found: dict[int, list[int]] = {}
        for place in product(rows, columns):
            for held in self._of_sums(place):
                found.setdefault(held.thread, []).append(held.value)
        return tuple(
            locations.AccumulatorHits(thread, tuple(sorted(values))) for thread, values in sorted(found.items())
        )

    def largest(self, within: tuple[int, int]) -> tuple[int, ...]:
        """Return the bytes of shared memory where the warps of the element's block meet, in the CTA's first tile."""
        quantization, tile = self.c.fusion.quantization, self._tile
        if quantization is None or not quantization.of_rows:
            return ()
        first = within[0] // quantization.block[0] * quantization.warps
        base, size = self.plan.memory.offset_bytes(LARGEST), quantization.factors.dtype.bytes
        return tuple(base + ((first + warp) * tile[1] + within[1]) * size for warp in range(quantization.warps))

    def store(self, around: Surroundings) -> locations.CopyStep | None:
        """Return the copy from shared to global memory; None if its own thread stores it.

        A part that ends where another group begins is stored by the threads of its warpgroup.
        """
        if self._move is None:
            return None
        parts, within = self.c.parts, around.window.within
        if parts is None:
            return self._move(around)
        _, group, _, at = self._part(parts, within)
        of_part = around.part(at, parts.tile)
        if self._edge is None or not self._is_cut(of_part):
            return self._move(of_part)
        found = self._edge(of_part)
        return replace(found, thread=found.thread + group * WARPGROUP)

    def _is_cut(self, around: Surroundings) -> bool:
        """Return whether a part has rows or columns past the end of its group."""
        groups = self.plan.scheduler.groups
        assert groups is not None, "only kernels of groups store by threads at their ends"
        mode = "mn".index(groups.of)
        return int(around.window.coordinates[mode][-1]) >= around.extents[mode]

    @cached_property
    def _sums(self) -> Coordinates:
        return self.plan.mma.accumulator.table

    @cached_property
    def _move(self) -> Move | None:
        c = self.c
        if c.store is None or c.smem is None:
            return None

        def by_boxes(copy: BulkTensorCopy) -> Move:
            return lambda around: box_step(copy, around.window.within, c.major_mode, tuple(copy.boxes_issued))

        return c.store.by_kind(vectors=self._by_vectors, boxes=by_boxes)

    @cached_property
    def _edge(self) -> Callable[[Surroundings], locations.VectorStep] | None:
        return None if self.c.edge is None else self._by_vectors(self.c.edge)

    def _by_vectors(self, copy: VectorCopy) -> Callable[[Surroundings], locations.VectorStep]:
        c, tile = self.c, self.c.part or self._tile
        assert c.smem is not None
        placed = offsets(c.smem.layout)[: tile[0] * tile[1]]
        said = (f"loads of {copy.bits} bits from shared memory", f"stores of {copy.bits} bits to global memory")
        element_bytes = c.dtype.bytes
        moves = VectorMoves(copy, tile, c.major_mode, element_bytes=element_bytes, placed=placed, instruction=said)
        return moves.step

    @property
    def _tile(self) -> tuple[int, int]:
        """The extents of C's tile."""
        m, n, _ = self.plan.cta_tile
        return self.c.fusion.tile_of_c((m, n))

    def _part(self, parts: EpilogueParts, within: tuple[int, int]) -> tuple[int, int, int, tuple[int, int]]:
        """Return (part of its warpgroup, warpgroup, slot of shared memory in the CTA's first tile, place in the part).

        `down` warpgroups lie below one another; each has complete atoms, which its parts divide, rows first.
        """
        rows, columns = parts.tile
        down, of_group = self._tile[0] // (rows * (parts.count // parts.columns)), parts.columns * columns
        row_block, group_n = within[0] // rows, within[1] // of_group
        part = row_block // down * parts.columns + within[1] % of_group // columns
        group = row_block % down + group_n * down
        slot = group * parts.buffers + part % parts.buffers
        return part, group, slot, (within[0] % rows, within[1] % columns)

    def _by_stmatrix(
        self, atom: StmatrixAtom, parts: EpilogueParts, part: int, at: tuple[int, int], place: locations.SharedLocation
    ) -> locations.StagedResult:
        """Return the stmatrix place: of a warp's 16 rows, an instruction takes 0 to 7 and 8 to 15, column by column."""
        row, column = at
        matrix = column // 8 * 2 + row % 16 // 8
        inner = column % 8 if atom.transpose else row % 8
        number, matrix = divmod(matrix, atom.matrices)
        return locations.StagedResult(
            instruction=atom.ptx,
            part=part,
            parts=parts.count,
            place=place,
            number=number,
            matrix=matrix,
            row=inner,
            addressing_lane=matrix * 8 + inner,
        )
