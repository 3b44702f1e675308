"""Follows the elements of a tile of A or B, from their copy to the accumulators that they meet."""

from dataclasses import replace
from functools import cached_property

import numpy as np

from cutegen.algebra import inner_layout, offsets, offsets_2d
from cutegen.hardware import Issuer, LdmatrixTrace, ldmatrix_trace, phases, wavefronts
from cutegen.hardware.units import REGISTER_BITS, WARP, WARPGROUP
from cutegen.plan import GemmPlan
from cutegen.plan.geometry import Coordinates
from cutegen.plan.kernel.program import Action, Step
from cutegen.plan.values.copies import BulkTensorCopy, VectorCopy
from cutegen.plan.values.fragments import ByDescriptor, LdmatrixLoads, LoadTable, PlainLoads
from cutegen.plan.values.path import FragmentTable, OperandPath, fragment_table
from cutegen.show.follow.locations import AccumulatorHits, CopyStep, DescriptorRead, FragmentLoad, Held, SharedLocation
from cutegen.show.follow.vectors import Move, Surroundings, VectorMoves, box_step

CORE_ROWS, CORE_BYTES = 8, 16


class OperandFollower:
    """The tables of one operand, computed once; the methods take coordinates (x, k) within the CTA's tile."""

    def __init__(self, plan: GemmPlan, operand: OperandPath) -> None:
        self.plan, self.operand = plan, operand
        self.base_bytes = plan.memory.offset_bytes(operand.name)
        self._kept_trace: LdmatrixTrace | None = None

    def coord(self, within: tuple[int, int]) -> int:
        """Return the column-major coordinate."""
        return within[0] + within[1] * self.operand.tile[0]

    def copy(self, around: Surroundings) -> CopyStep:
        """Return the copy that moves the element from global to shared memory."""
        return self._move(around)

    def shared(self, within: tuple[int, int], stage: int) -> SharedLocation:
        """Return its place in shared memory."""
        return SharedLocation.of(self.operand.smem.layout, (*within, stage), self.operand.dtype.bytes, self.base_bytes)

    def loads(self, within: tuple[int, int], stage: int) -> tuple[FragmentLoad, ...]:
        """Return every load that moves it to registers, by warp; empty if the MMA reads shared memory."""
        copy = self.operand.s2r.copied
        if copy is None:
            return ()
        return copy.by_kind(
            ldmatrix=lambda copy: self._by_ldmatrix(copy, within, stage),
            plain=lambda copy: self._by_plain_loads(copy, within, stage),
        )

    def reads(self, within: tuple[int, int], stage: int) -> tuple[DescriptorRead, ...]:
        """Return the block in which the MMA reads it in shared memory; None if it is loaded to registers."""
        found = self.operand.s2r.described
        return () if found is None else (self._by_descriptor(found, within, stage),)

    def meets(self, lines: range) -> tuple[AccumulatorHits, ...]:
        """Return the accumulators of these rows or columns of the CTA's tile, for every thread that has any."""
        rows = self.plan.cta_tile[0]
        held = self._sums % rows if self.operand.operand == "A" else self._sums // rows
        mine = (held >= lines.start) & (held < lines.stop)
        return tuple(
            AccumulatorHits(int(thread), tuple(np.flatnonzero(mine[thread]).tolist()))
            for thread in np.flatnonzero(mine.any(axis=1))
        )

    @cached_property
    def _move(self) -> Move:
        x = self.operand
        at = x.landing(self.plan.tiled_mma, self.plan.target)

        def by_vectors(copy: VectorCopy) -> Move:
            steps = (Step(copy.fetch), Step(Action.STORE))
            moves = VectorMoves(
                copy,
                x.tile,
                x.major_mode,
                element_bytes=x.dtype.bytes,
                placed=offsets(at.stage),
                instruction=tuple(dict.fromkeys(opcode for step in steps for opcode in copy.opcodes(step, at))),
                accesses=copy.accesses(at),
                first_thread=self.plan.loop.first_thread(self.plan.loop.fetching(copy.fetch)),
            )
            return moves.step

        def by_boxes(copy: BulkTensorCopy) -> Move:
            instruction = tuple(copy.opcodes(Step(copy.fetch), at))
            return lambda around: box_step(copy, around.window.within, x.major_mode, instruction)

        return x.g2s.by_kind(vectors=by_vectors, boxes=by_boxes)

    @cached_property
    def _sums(self) -> Coordinates:
        return offsets_2d(self.plan.mma.accumulator.layout)

    @cached_property
    def _fragments(self) -> FragmentTable:
        return fragment_table(self.plan.tiled_mma, self.operand)

    @cached_property
    def _table(self) -> LoadTable:
        x = self.operand
        return x.fragment_copy.table(x.operand, x.tile, x.dtype, self.plan.tiled_mma)

    @cached_property
    def _stage_bytes(self) -> Coordinates:
        """The byte offset of each coordinate in the first stage."""
        placed: Coordinates = offsets(self.operand.smem.layout_of_one_stage) * self.operand.dtype.bytes
        return placed

    def _held(self, thread: int, coord: int) -> Held:
        """Return the element's value index in a thread's fragment."""
        table = self._fragments
        value = int(np.flatnonzero(table.coordinates[thread] == coord)[0])
        return held_value(thread, value, table.place(value), table.bits)

    def _by_ldmatrix(self, copy: LdmatrixLoads, within: tuple[int, int], stage: int) -> tuple[FragmentLoad, ...]:
        coord, trace = self.coord(within), self._trace(copy)
        side = trace.rows // copy.matrices
        found = []
        for i, warp, lane, value in np.argwhere(self._table.received == coord).tolist():
            rows = np.argwhere(trace.source_coords[i, warp, : trace.rows] == coord)
            row = int(rows[0][0])
            load = self._load(copy.atom.ptx, (i, warp, lane, value), row, row // CORE_ROWS, within, stage)
            found.append(replace(load, matrix=row // side, row=row % side))
        return tuple(sorted(found, key=lambda load: (load.warp, load.lane)))

    def _trace(self, copy: LdmatrixLoads) -> LdmatrixTrace:
        if self._kept_trace is None:
            x = self.operand
            self._kept_trace = ldmatrix_trace(
                self.plan.tiled_mma, x.operand, x.smem.layout_of_one_stage, copy.atom, x.dtype.bits, copy.order
            )
        return self._kept_trace

    def _by_plain_loads(self, copy: PlainLoads, within: tuple[int, int], stage: int) -> tuple[FragmentLoad, ...]:
        x = self.operand
        (opcode,) = x.loads(self.plan.tiled_mma)
        together = WARP // phases(copy.bits // 8)
        hits = np.argwhere(self._table.received == self.coord(within)).tolist()
        return tuple(
            self._load(opcode, (i, warp, lane, value), lane, lane // together, within, stage)
            for i, warp, lane, value in sorted(hits, key=lambda hit: (hit[1], hit[2]))
        )

    def _load(
        self, opcode: str, hit: tuple[int, int, int, int], giver: int, phase: int, within: tuple[int, int], stage: int
    ) -> FragmentLoad:
        """Load `hit` (instruction, warp, lane, value), whose lane `giver` addresses the element, in its `phase`."""
        i, warp, lane, value = hit
        mma, x, bits = self.plan.tiled_mma, self.operand, self.operand.dtype.bits
        tile_k = mma.tile_of(x.operand)[1]
        k_blocks = x.tile[1] // tile_k
        loads = max(1, len(self._table.received) // k_blocks)
        placed = self._stage_bytes[self._table.addressed[i, warp]]
        together = WARP // phases(self._table.access_bytes)
        lanes = slice(phase * together, (phase + 1) * together)
        return FragmentLoad(
            instruction=opcode,
            warp=warp,
            k_block=within[1] // tile_k,
            number=i % loads,
            loads=loads,
            phase=phase,
            matrix=None,
            row=None,
            addressing_lane=giver,
            row_address_bytes=self.base_bytes + self._stage_start(stage) + int(placed[giver]),
            wavefronts=int(wavefronts(placed[lanes], self._table.access_bytes)),
            lane=lane,
            register=value * bits // REGISTER_BITS,
            bits_from=value * bits % REGISTER_BITS,
            held=self._held(warp * WARP + lane, self.coord(within)),
        )

    def _stage_start(self, stage: int) -> int:
        """Return the first byte of a stage: that of its first element, before the swizzle."""
        x = self.operand
        inner = inner_layout(x.smem.layout)
        return int(offsets(inner)[stage * x.tile[0] * x.tile[1]]) * x.dtype.bytes

    def _by_descriptor(self, described: ByDescriptor, within: tuple[int, int], stage: int) -> DescriptorRead:
        x, mma, atom = self.operand, self.plan.tiled_mma, self.plan.atom
        rows, depth = atom.rows(x.operand), atom.shape_mnk[2]
        block, k_block = within[0] // rows, within[1] // depth
        first = (block * rows, k_block * depth, stage)
        start = self.base_bytes + int(inner_layout(x.smem.layout)(*first)) * x.dtype.bytes
        row, along_k = within[0] % rows, within[1] % depth
        major, minor = (row, along_k) if x.major_mode == 1 else (along_k, row)
        held = offsets_2d(mma.tv_layout(x.operand))
        tiler = mma.tile_of(x.operand)
        mine = (held == within[0] % tiler[0] + within[1] % tiler[1] * tiler[0]).any(axis=1)
        return DescriptorRead(
            layout=described.layout.name,
            encoded=described.first.advanced(start // CORE_BYTES).encode(),
            start_bytes=start,
            lbo_bytes=described.first.lbo_bytes,
            sbo_bytes=described.first.sbo_bytes,
            block=block,
            k_block=k_block,
            row=row,
            along_k=along_k,
            core=(major // CORE_ROWS, minor * x.dtype.bytes // CORE_BYTES),
            core_row=major % CORE_ROWS,
            core_byte=minor * x.dtype.bytes % CORE_BYTES,
            warpgroups=tuple(np.unique(np.flatnonzero(mine) // WARPGROUP).tolist())
            if atom.multiply.issued_by is Issuer.WARPGROUP
            else (),
        )


def held_value(thread: int, value: int, place: tuple[int, int, int], bits: int) -> Held:
    """Return the place of a value of `bits` bits among a thread's values."""
    return Held(
        thread=thread,
        value=value,
        place=place,
        register=value * bits // REGISTER_BITS,
        bits_from=value * bits % REGISTER_BITS,
    )
