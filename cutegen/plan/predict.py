"""Predicts the behavior of a plan: CTAs per SM, and the traffic of shared and global memory."""

from cutegen.algebra import Extents, TiledMma
from cutegen.hardware import DType, MmaAtom, Target
from cutegen.hardware.gmma import VECTOR_BYTES
from cutegen.hardware.units import LINE_BYTES, REGISTER_BITS, SECTOR_BYTES, WARP
from cutegen.plan.geometry import Coordinates, adjacent, in_vectors, touched_sectors
from cutegen.plan.kernel.scheduler import SplitK
from cutegen.plan.values.copies import AccessKey
from cutegen.plan.values.epilogue import EpiloguePlan, Fusion
from cutegen.plan.values.gemm_plan import MmaPlan, Occupancy
from cutegen.plan.values.operand import Sectors, Wavefronts
from cutegen.plan.values.path import OperandPath
from cutegen.support.words import round_up

# Counts the CTAs per SM that each resource allows (CUDA's occupancy calculation).


ADDRESS_REGISTERS = 40
"""Registers that addresses and predicates took in practice."""
FRAGMENT_BUFFERS = 2
"""One k-block is multiplied while the next is loaded."""
REGISTER_GRANULE = 8
"""Unit in which registers of a thread are allocated, and set by `setmaxnreg`."""


def estimate_registers(target: Target, cta_tile: Extents, tiled_mma: TiledMma, atom: MmaAtom, passing: int) -> int:
    """Return the registers that a thread is likely to get: those it wants, at most what a CTA's threads can have.

    `passing` are those that hold the next k-tile on its way to shared memory.
    """
    return allocated_registers(target, tiled_mma.threads, wanted_registers(cta_tile, tiled_mma, atom, passing))


def wanted_registers(cta_tile: Extents, tiled_mma: TiledMma, atom: MmaAtom, passing: int) -> int:
    """Estimate registers per thread: accumulators, two buffers of fragments, `passing` ones, addresses and predicates.

    The compiler spills those beyond what a thread can have.
    """
    m, n, _ = cta_tile
    accumulators = m * n * atom.c_dtype.bits // (REGISTER_BITS * tiled_mma.threads)
    tile_m, tile_n, _ = tiled_mma.tile_mnk
    values = m // tile_m * tiled_mma.values("A") + n // tile_n * tiled_mma.values("B")
    fragments = FRAGMENT_BUFFERS * values * atom.a_dtype.bits // REGISTER_BITS
    return accumulators + fragments + passing + ADDRESS_REGISTERS


def allocated_registers(target: Target, threads: int, wanted: int) -> int:
    """Round up to the registers that a thread gets: whole granules, at most what all threads of a CTA can have."""
    return min(round_up(wanted, REGISTER_GRANULE), available_registers(target, threads))


def available_registers(target: Target, threads: int) -> int:
    """Return the most registers that each of a CTA's threads can have at launch.

    Each quarter of the SM has a quarter of the registers, so the number of warps is rounded up to a multiple of four.
    """
    held = round_up(threads, WARP * target.warp_allocation_unit)
    granules = target.registers_per_sm // held // REGISTER_GRANULE
    return min(granules * REGISTER_GRANULE, target.registers_per_thread)


def ctas_by_smem(target: Target, smem_bytes: int) -> int:
    """Return the CTAs whose shared memory fits, including what the system reserves for each."""
    held = round_up(smem_bytes + target.smem_reserved_per_cta_bytes, target.smem_allocation_unit_bytes)
    return target.smem_per_sm_bytes // held


def ctas_by_registers(target: Target, threads: int, registers_per_thread: int) -> int:
    """Return the CTAs whose registers fit: registers are allocated per warp, and warps to the SM's quarters."""
    per_warp = round_up(registers_per_thread * WARP, target.register_allocation_unit)
    warps = target.registers_per_sm // per_warp // target.warp_allocation_unit * target.warp_allocation_unit
    return warps // (threads // WARP)


def predict_occupancy(target: Target, threads: int, smem_bytes: int, registers_per_thread: int) -> Occupancy:
    """Return the CTAs per SM, by each resource alone and together."""
    by_threads = min(target.threads_per_sm // threads, target.ctas_per_sm)
    by_smem = ctas_by_smem(target, smem_bytes)
    by_registers = ctas_by_registers(target, threads, registers_per_thread)
    return Occupancy(
        ctas_per_sm=min(by_threads, by_smem, by_registers),
        by_threads=by_threads,
        by_smem=by_smem,
        by_registers=by_registers,
        registers_per_thread=registers_per_thread,
    )


# Predicts the traffic of a plan: wavefronts of shared memory, lines written to it, sectors of global memory.


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
            AccessKey.mma(x.name): x.smem.chosen.read.times(described.times)
            for x in operands
            if (described := x.s2r.described) is not None
        },
        **{AccessKey.s2r(x.name): x.smem.chosen.read for x in operands if x.s2r.in_registers},
    }
    if split_k is not None and split_k.clustered > 1:
        lines = split_k.sums_bytes(cta_tile) // LINE_BYTES
        found[AccessKey.CLUSTER_WRITE] = found[AccessKey.CLUSTER_READ] = Wavefronts(lines, lines)
    quantization = epilogue.fusion.quantization
    beside = 0 if quantization is None else quantization.largest_stores(epilogue.fusion.tile_of_c(cta_tile[:2]))
    if beside:
        found[AccessKey.EPILOGUE_WRITE] = Wavefronts(beside, beside)
    if epilogue.smem is not None:
        found[AccessKey.EPILOGUE_WRITE] = epilogue.smem.chosen.write.times(epilogue.pieces).plus(beside)
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
    cta_tile = mma.cta_tile
    found: dict[str, Sectors] = {
        AccessKey.g2s(x.name): _sectors(
            x.g2s.sectors(x.tile, x.major_mode, x.dtype.bytes),
            x.tile,
            x.dtype.bytes,
            x.g2s.shares * x.g2s.receivers,
        )
        for x in operands
    }
    tile = epilogue.fusion.tile_of_c((cta_tile[0], cta_tile[1]))
    major_mode, element = epilogue.major_mode, epilogue.dtype
    if epilogue.store is not None:
        piece = epilogue.part or tile
        stored = epilogue.pieces * epilogue.store.sectors(piece, major_mode, element.bytes)
        found["epilogue"] = _sectors(stored, tile, element.bytes)
    else:
        found["epilogue"] = _by_registers(mma, epilogue.fusion, major_mode, element, epilogue.align_bytes)
    for tensor in epilogue.fusion.tensors:
        if len(tensor.modes) == 2:
            major = tensor.modes.index(tensor.major)
            found[f"epilogue.{tensor.name}"] = _by_registers(
                mma, epilogue.fusion, major, tensor.dtype, tensor.align_bytes
            )
    if split_k is not None and split_k.leaves_sums:
        sectors = split_k.slice_bytes(cta_tile) // SECTOR_BYTES
        found["split_k.write"] = found["split_k.read"] = Sectors(sectors, sectors)
    return found


def _by_registers(mma: MmaPlan, fusion: Fusion, major_mode: int, element: DType, align_bytes: int) -> Sectors:
    """Return the sectors of a matrix like C that each thread reads or writes at the places of its results."""
    tile, aligned = fusion.tile_of_c((mma.cta_tile[0], mma.cta_tile[1])), align_bytes // element.bytes
    most = min(VECTOR_BYTES // element.bytes, aligned) if major_mode == 1 else 1
    places = _results(mma.accumulator.table, mma.cta_tile[0], tile)
    elems = adjacent(places, tile[0], most)
    return sectors_of(in_vectors(places, elems), tile, major_mode, element.bytes)


def _results(sums: Coordinates, rows: int, tile: tuple[int, int]) -> Coordinates:
    """Return the places in a `tile` of C of the sums that lie in it, of a tile of so many rows: int64[thread, value].

    Every thread has the second members of its pairs in the same values.
    """
    m, n = sums % rows, sums // rows
    first = ((m < tile[0]) & (n < tile[1])).all(axis=0)
    places: Coordinates = (m + n * tile[0])[:, first]
    return places


def sectors_of(table: Coordinates, tile: tuple[int, int], major_mode: int, element_bytes: int) -> Sectors:
    """Return the sectors of a table of accesses, int64[instruction, thread, element], and the fewest for its bytes."""
    return _sectors(touched_sectors(table, tile, major_mode, element_bytes), tile, element_bytes)


def _sectors(predicted: int, tile: tuple[int, int], element_bytes: int, shares: int = 1) -> Sectors:
    """Return the predicted and the fewest sectors of a tile, of which one CTA copies one of the `shares`."""
    return Sectors(ideal=tile[0] * tile[1] * element_bytes // (SECTOR_BYTES * shares), predicted=predicted)
