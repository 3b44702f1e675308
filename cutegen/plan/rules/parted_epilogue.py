"""Rule for the store path of C of warpgroups: in parts through shared memory by bulk tensor stores, or from registers.

A part is 64 rows by a line of C's elements, so that a box stores full lines. While one part is stored, the next is
written to the warpgroup's other buffer, and no warpgroup waits for another. Promoted sums are stored at once.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cutegen.algebra import TiledMma
from cutegen.contract.tensor_map import STRIDE_MULTIPLE_BYTES
from cutegen.hardware import TMA_STORE, StmatrixAtom
from cutegen.hardware.units import LINE_BYTES, WARPGROUP
from cutegen.plan.geometry.access import Coordinates, by_warp
from cutegen.plan.geometry.accumulators import accumulators
from cutegen.plan.rules.bulk_boxes import bulk_copy, check_align, check_rows, full_lines, rank_boxes
from cutegen.plan.rules.bulk_epilogue import beyond_capacity
from cutegen.plan.rules.bulk_memory import stages_for_sums
from cutegen.plan.rules.epilogue import DIRECT, direct, epilogue_plan
from cutegen.plan.rules.epilogue_parts import MATRIX_ROWS, PartsChoice, choose_parts, pair_elems, part_mma, stmatrix_of
from cutegen.plan.rules.smem import Access, SmemRanking, lay_out
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.epilogue import EpiloguePlan, Fusion
from cutegen.plan.values.mma import MmaPlan
from cutegen.plan.values.operand import OperandTile, operand_tile
from cutegen.spec import GemmSpec
from cutegen.support.words import extents, plural

BUFFERS = 2
"""Buffers of a warpgroup whose sums are several parts: one is stored while the next is written."""
WORTHWHILE_STAGES = 2
"""Stages that must fit in addition to parts of C, if the spec gives no number."""
ROW_BYTES = 16
"""Least bytes of a box's row, and bytes of a matrix row that `stmatrix` writes."""


def choose_parted_epilogue(
    spec: GemmSpec, fusion: Fusion, mma: MmaPlan, registers: int, stage_bytes: int, capacity_bytes: int
) -> Choice[EpiloguePlan]:
    """Store C in parts through shared memory if a tensor map can store it and two stages fit, else from registers.

    `registers` is the number per consumer thread.
    """
    whole = operand_tile(spec, "c", mma.cta_tile)
    held = _columns_held(spec, whole, mma, stage_bytes, capacity_bytes)
    sharers = spec.schedule.slices // mma.cluster[2]

    def parts_of(columns_at_once: int | None) -> PartsChoice:
        return choose_parts(whole, fusion, mma, registers, held, columns_at_once, sharers)

    def from_registers(why: str, *, given: bool = False) -> Choice[EpiloguePlan]:
        found = parts_of(None)
        return direct(whole, fusion, why, given=given, parts=found.parts, rejected=found.rejected)

    if spec.epilogue.smem is False:
        return from_registers("given", given=True)
    asked = spec.epilogue.smem is not None
    if whole.align_bytes < STRIDE_MULTIPLE_BYTES and not asked:
        why = f"C is aligned to {whole.align_bytes} bytes, a tensor map to {STRIDE_MULTIPLE_BYTES}"
        return from_registers(why)
    of_parts = parts_of(BUFFERS * (LINE_BYTES // whole.dtype.bytes if held is None else held))
    parts = of_parts.parts
    x = operand_tile(spec, "c", (*parts.tile, mma.cta_tile[2]))
    if (row_bytes := x.extents[x.major_mode] * x.dtype.bytes) < ROW_BYTES and not asked:
        why = f"parts of {extents(parts.tile)} have rows of {row_bytes} bytes, and a box needs at least {ROW_BYTES}"
        return from_registers(why)
    check_align(spec, "c", "epilogue.smem = false")
    check_rows(spec, x)
    stmatrix = stmatrix_of(x, parts.tile[1])
    ranking = _rank(spec, x, part_mma(mma.atom, parts.tile), stmatrix)
    each = 1 if of_parts.at_once else BUFFERS
    buffers = each * mma.threads // mma.tiled_mma.threads
    staged = lay_out(ranking.value, x.extents, buffers * parts.warpgroups)
    stages = spec.tile.stages or max(WORTHWHILE_STAGES, stages_for_sums(mma, stage_bytes))
    if (why_not := beyond_capacity(spec, stages, stage_bytes, staged, capacity_bytes)) is not None:
        return from_registers(why_not)
    store = bulk_copy(x, TMA_STORE, staged.chosen.atom)
    written = f"{stmatrix.ptx.partition('.sync')[0]} x{stmatrix.matrices}" if stmatrix else "plain stores"
    chosen = f"{extents(parts.tile)} parts, {staged.chosen.name}, {written}, bulk stores"
    meanwhile = (
        "all of its sums are stored while the next tile is multiplied"
        if of_parts.at_once
        else "one part is stored while the next is written, and the next tile's copies continue"
    )
    why = f"each warpgroup has {plural(each, 'buffer')}: {meanwhile}; {ranking.decision.why}"
    tile_bytes = whole.extents[0] * whole.extents[1] * whole.dtype.bytes
    rejected = (
        Rejected(DIRECT, "a thread's stores would delay its next tile"),
        *((Rejected("C's whole tile at once", f"{tile_bytes:,} bytes that stages need"),) if parts.count > 1 else ()),
        *of_parts.rejected,
        *ranking.decision.rejected,
    )
    decision = Decision("epilogue.smem", chosen, why, given=ranking.decision.given, rejected=rejected)
    stored = replace(parts, buffers=buffers, stmatrix=stmatrix)
    return Choice(epilogue_plan(x, fusion, staged, store, stored), decision)


def _columns_held(spec: GemmSpec, x: OperandTile, mma: MmaPlan, stage_bytes: int, capacity_bytes: int) -> int | None:
    """Return the columns of a part for which every warpgroup's buffers fit with the stages that the spec requests."""
    if spec.tile.stages is None:
        return None
    column_bytes = BUFFERS * mma.threads // WARPGROUP * mma.accumulator.block[0] * x.dtype.bytes
    return (capacity_bytes - spec.tile.stages * stage_bytes) // column_bytes


def _rank(spec: GemmSpec, x: OperandTile, tiled_mma: TiledMma, stmatrix: StmatrixAtom | None) -> Choice[SmemRanking]:
    """Rank layouts of a part by how sums are written: in rows of matrices, or in pairs if N is contiguous."""
    if stmatrix is not None:
        write = Access(matrix_rows(x, stmatrix), ROW_BYTES)
    else:
        pair = pair_elems(x)
        write = Access(by_warp(accumulators(tiled_mma, x.extents, pair)[..., 0]), pair * x.dtype.bytes)
    return rank_boxes(spec, x, tiled_mma, write, full_lines(x), each="part")


def matrix_rows(x: OperandTile, stmatrix: StmatrixAtom) -> Coordinates:
    """Elements that begin the rows of a warp's `stmatrix`, int64[instruction, warp, lane].

    A warp stores its 16 rows of C and 16 or 8 columns at a time: two matrices along M, then the next two along N.
    """
    rows, columns = x.extents
    lane = np.arange(MATRIX_ROWS * stmatrix.matrices)
    matrix, row = lane // MATRIX_ROWS, lane % MATRIX_ROWS
    down, across = MATRIX_ROWS * (matrix % 2), MATRIX_ROWS * (matrix // 2)
    m, n = (down + row, across) if x.major_mode == 1 else (down, across + row)
    warps = 2 * MATRIX_ROWS * np.arange(rows // (2 * MATRIX_ROWS))
    steps = np.arange(0, columns, stmatrix.matrices // 2 * MATRIX_ROWS)
    table: Coordinates = m + warps[None, :, None] + (n + steps[:, None, None]) * rows
    return table
