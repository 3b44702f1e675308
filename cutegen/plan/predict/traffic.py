"""Predicts the traffic of a plan: wavefronts of shared memory, lines written to it, sectors of global memory."""

from __future__ import annotations

from cutegen.algebra import Extents, TiledMma
from cutegen.hardware import DType
from cutegen.hardware.units import LINE_BYTES, SECTOR_BYTES
from cutegen.plan.geometry.access import Coordinates, touched_sectors
from cutegen.plan.geometry.accumulators import accumulators, held_together
from cutegen.plan.kernel.scheduler import SplitK
from cutegen.plan.values.accesses import AccessKey
from cutegen.plan.values.epilogue import EpiloguePlan
from cutegen.plan.values.mma import MmaPlan
from cutegen.plan.values.path import OperandPath
from cutegen.plan.values.smem import Sectors, Wavefronts


def predict_wavefronts(
    operands: tuple[OperandPath, ...], epilogue: EpiloguePlan, split_k: SplitK | None, cta_tile: Extents
) -> dict[str, Wavefronts]:
    """Predict wavefronts for one k-tile of A and B, and the whole tile of C; an epilogue from registers has none.

    If a cluster adds slices, also for all sums that a CTA writes, and as many that it reads: adjacent threads have
    adjacent vectors, so both are full rows of banks.
    """
    found: dict[str, Wavefronts] = {
        **{AccessKey.g2s(x.name): x.smem.chosen.write for x in operands},
        **{
            AccessKey.mma(x.name): x.smem.chosen.read.times(times)
            for x in operands
            if (
                times := x.s2r.by_source(
                    copied=lambda _: 0, described=lambda described: described.times, read=lambda _: 0
                )
            )
        },
        **{AccessKey.s2r(x.name): x.smem.chosen.read for x in operands if x.s2r.in_registers},
    }
    if split_k is not None and split_k.clustered > 1:
        lines = split_k.sums_bytes(cta_tile) // LINE_BYTES
        found[AccessKey.CLUSTER_WRITE] = found[AccessKey.CLUSTER_READ] = Wavefronts(lines, lines)
    if epilogue.smem is not None:
        found[AccessKey.EPILOGUE_WRITE] = epilogue.smem.chosen.write.times(epilogue.pieces)
        found[AccessKey.EPILOGUE_READ] = epilogue.smem.chosen.read.times(epilogue.pieces)
    return found


def predict_line_writes(operands: tuple[OperandPath, ...]) -> dict[str, Wavefronts]:
    """Predict line writes of one k-tile of the operands whose copies bypass L1."""
    lines = {AccessKey.g2s(x.name): x.smem.chosen.lines for x in operands}
    return {key: found for key, found in lines.items() if found is not None}


def predict_sectors(
    operands: tuple[OperandPath, ...], epilogue: EpiloguePlan, split_k: SplitK | None, mma: MmaPlan
) -> dict[str, Sectors]:
    """Predict sectors of a k-tile of A and B and of the tile of C, for leading strides of whole sectors.

    If K is split, also those of the workspace that one slice of one tile writes, and that are read to be added: whole
    vectors. If a cluster adds slices, for the share of the tile that a CTA writes; none if all are in one cluster.
    """
    tiled_mma, cta_tile = mma.tiled_mma, mma.cta_tile
    found: dict[str, Sectors] = {
        AccessKey.g2s(x.name): _sectors(
            x.g2s.sectors(x.tile, x.major_mode, x.dtype.bytes), x.tile, x.dtype.bytes, x.g2s.shares
        )
        for x in operands
    }
    tile, major_mode, element = cta_tile[:2], epilogue.major_mode, epilogue.dtype
    if epilogue.store is not None:
        piece = epilogue.part or tile
        stored = epilogue.pieces * epilogue.store.sectors(piece, major_mode, element.bytes)
        found["epilogue"] = _sectors(stored, tile, element.bytes)
    else:
        found["epilogue"] = _by_registers(tiled_mma, tile, major_mode, element, epilogue.align_bytes)
    for tensor in epilogue.fusion.tensors:
        if len(tensor.modes) == 2:
            major = tensor.modes.index(tensor.major)
            found[f"epilogue.{tensor.name}"] = _by_registers(tiled_mma, tile, major, tensor.dtype, tensor.align_bytes)
    if split_k is not None and split_k.leaves_sums:
        sectors = split_k.slice_bytes(cta_tile) // SECTOR_BYTES
        found["split_k.write"] = found["split_k.read"] = Sectors(sectors, sectors)
    return found


def _by_registers(
    tiled_mma: TiledMma, tile: tuple[int, int], major_mode: int, element: DType, align_bytes: int
) -> Sectors:
    """Return the sectors of a matrix that each thread reads or writes at the places of its accumulators."""
    pair = min(held_together(tiled_mma, major_mode), align_bytes // element.bytes)
    return sectors_of(accumulators(tiled_mma, tile, pair), tile, major_mode, element.bytes)


def sectors_of(table: Coordinates, tile: tuple[int, int], major_mode: int, element_bytes: int) -> Sectors:
    """Return the sectors of a table of accesses, int64[instruction, thread, element], and the fewest for its bytes."""
    return _sectors(touched_sectors(table, tile, major_mode, element_bytes), tile, element_bytes)


def _sectors(predicted: int, tile: tuple[int, int], element_bytes: int, shares: int = 1) -> Sectors:
    """Return the predicted and the fewest sectors of a tile, of which one CTA copies one of the `shares`."""
    return Sectors(ideal=tile[0] * tile[1] * element_bytes // (SECTOR_BYTES * shares), predicted=predicted)
