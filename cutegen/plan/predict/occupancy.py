"""Counts the CTAs per SM that each resource allows (CUDA's occupancy calculation)."""

from __future__ import annotations

from cutegen.algebra import Extents, TiledMma
from cutegen.hardware import MmaAtom, Target
from cutegen.hardware.units import REGISTER_BITS, WARP
from cutegen.plan.values.gemm_plan import Occupancy
from cutegen.support.words import round_up

ADDRESS_REGISTERS = 40
"""Registers that addresses and predicates took in practice."""
FRAGMENT_BUFFERS = 2
"""One k-block is multiplied while the next is loaded."""
REGISTER_GRANULE = 8
"""Unit in which registers of a thread are allocated, and set by `setmaxnreg`."""


def estimate_registers(target: Target, cta_tile: Extents, tiled_mma: TiledMma, atom: MmaAtom, passing: int) -> int:
    """Estimate registers per thread: accumulators, two buffers of fragments, addresses and predicates.

    `passing` are those that hold the next k-tile on its way to shared memory.

    The result is at most what a CTA's threads can have: beyond that the compiler spills.
    """
    m, n, _ = cta_tile
    accumulators = m * n * atom.c_dtype.bits // (REGISTER_BITS * tiled_mma.threads)
    tile_m, tile_n, _ = tiled_mma.tile_mnk
    values = m // tile_m * tiled_mma.values("A") + n // tile_n * tiled_mma.values("B")
    fragments = FRAGMENT_BUFFERS * values * atom.a_dtype.bits // REGISTER_BITS
    return allocated_registers(target, tiled_mma.threads, accumulators + fragments + passing + ADDRESS_REGISTERS)


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
