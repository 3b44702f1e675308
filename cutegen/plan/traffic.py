"""What a plan moves through memory: wavefronts of shared memory, lines written to it, sectors of global memory."""

from __future__ import annotations

import numpy as np

from cutegen.algebra import TiledMma
from cutegen.plan.access import Coordinates, by_warp, vectors
from cutegen.plan.epilogue import accumulators, held_together
from cutegen.plan.gemm_plan import EpiloguePlan, EpilogueTensor, OperandPlan, Sectors, SplitPlan, Wavefronts
from cutegen.plan.split_k import bytes_per_slice
from cutegen.plan.values.copies import BulkTensorCopy, VectorCopy
from cutegen.support.words import round_up

SECTOR_BYTES = 32
LINE_BYTES = 128


def predict_wavefronts(a: OperandPlan, b: OperandPlan, epilogue: EpiloguePlan) -> dict[str, Wavefronts]:
    """Of one k-tile for A and B, of the whole tile for C; an epilogue from registers has none."""
    found = {
        "g2s.a": a.smem.chosen.write,
        "g2s.b": b.smem.chosen.write,
        "s2r.a": a.smem.chosen.read,
        "s2r.b": b.smem.chosen.read,
    }
    if epilogue.smem is not None:
        found["epilogue.write"] = epilogue.smem.chosen.write
        found["epilogue.read"] = epilogue.smem.chosen.read
    return found


def predict_line_writes(*operands: OperandPlan) -> dict[str, Wavefronts]:
    """Of one k-tile of the operands whose copies bypass L1."""
    lines = {f"g2s.{x.name}": x.smem.chosen.lines for x in operands}
    return {key: found for key, found in lines.items() if found is not None}


def predict_sectors(
    a: OperandPlan, b: OperandPlan, epilogue: EpiloguePlan, tiled_mma: TiledMma, cta_tile: tuple[int, int, int]
) -> dict[str, Sectors]:
    """Sectors of one k-tile of A and B and of the tile of C, for leading strides that are whole sectors."""
    found = {f"g2s.{x.name}": _copied_sectors(x.g2s, x.tile, x.major_mode, x.dtype.bytes) for x in (a, b)}
    tile = cta_tile[0], cta_tile[1]
    if epilogue.store is not None:
        found["epilogue"] = _copied_sectors(epilogue.store, tile, epilogue.major_mode, epilogue.dtype.bytes)
    else:
        held = accumulators(tiled_mma, tile, held_together(tiled_mma, epilogue.major_mode))
        found["epilogue"] = touched_sectors(held, tile, epilogue.major_mode, epilogue.dtype.bytes)
    for tensor in epilogue.fusion.tensors:
        if len(tensor.modes) == 2:
            found[f"epilogue.{tensor.name}"] = _operand_sectors(tensor, tiled_mma, tile)
    return found


def predict_split_sectors(split_k: SplitPlan | None, cta_tile: tuple[int, int, int]) -> dict[str, Sectors]:
    """Sectors of the workspace that one slice of one tile writes, and that the tile's last CTA reads: whole vectors."""
    if split_k is None or split_k.atomics:
        return {}
    sectors = bytes_per_slice(split_k, cta_tile) // SECTOR_BYTES
    return {key: Sectors(sectors, sectors) for key in ("split_k.write", "split_k.read")}


def _copied_sectors(
    copy: VectorCopy | BulkTensorCopy, tile: tuple[int, int], major_mode: int, element_bytes: int
) -> Sectors:
    """Of a tile that vectors of threads move, or boxes: a box is read and written by whole rows."""
    if isinstance(copy, VectorCopy):
        return touched_sectors(vectors(copy.threads, copy.values, tile), tile, major_mode, element_bytes)
    rows = tile[1 - major_mode] * copy.boxes
    sectors = rows * round_up(copy.box[0] * element_bytes, SECTOR_BYTES) // SECTOR_BYTES
    return Sectors(ideal=tile[0] * tile[1] * element_bytes // SECTOR_BYTES, predicted=sectors)


def _operand_sectors(tensor: EpilogueTensor, tiled_mma: TiledMma, tile: tuple[int, int]) -> Sectors:
    """Of a matrix that each thread reads, or writes, where its accumulators lie."""
    major_mode = tensor.modes.index(tensor.major)
    pair = min(held_together(tiled_mma, major_mode), tensor.align_bytes // tensor.dtype.bytes)
    return touched_sectors(accumulators(tiled_mma, tile, pair), tile, major_mode, tensor.dtype.bytes)


def touched_sectors(table: Coordinates, tile: tuple[int, int], major_mode: int, element_bytes: int) -> Sectors:
    """Distinct sectors of each warp's request, summed; rows of the tile lie far apart in global memory.

    `table` holds int64[instruction, thread, element], column-major coordinates in the tile.
    """
    major, other = _along_and_across(table, tile, major_mode)
    per_row = round_up(tile[major_mode] * element_bytes, SECTOR_BYTES) // SECTOR_BYTES
    sector = other * per_row + major * element_bytes // SECTOR_BYTES
    requests = np.sort(by_warp(sector).reshape(-1, 32 * sector.shape[-1]), axis=1)
    distinct = requests.shape[0] + int((requests[:, 1:] != requests[:, :-1]).sum())
    return Sectors(ideal=tile[0] * tile[1] * element_bytes // SECTOR_BYTES, predicted=distinct)


def _along_and_across(table: Coordinates, tile: tuple[int, int], major_mode: int) -> tuple[Coordinates, Coordinates]:
    """Coordinates along the contiguous mode of a tile, and along the other."""
    x, y = table % tile[0], table // tile[0]
    return (y, x) if major_mode == 1 else (x, y)
