"""Registers that hold a k-tile on its way to shared memory, if plain loads and stores copy it."""

from __future__ import annotations

from cutegen.algebra import Extents
from cutegen.contract.launch import OPERANDS
from cutegen.hardware import UNIVERSAL, dtype
from cutegen.plan.values.copies import passing_registers
from cutegen.plan.values.operand import align_bytes, k_tile_bytes
from cutegen.spec import GemmSpec

NARROWEST_CP_ASYNC_BYTES = 4


def through_registers(spec: GemmSpec, name: str) -> bool:
    """Return whether plain loads and stores copy A or B: the spec requests it, or no cp.async is narrow enough."""
    given = spec.g2s.of(name)
    align = align_bytes(spec.problem.operand(name))
    widest_bytes = align if given.bits is None else min(align, given.bits // 8)
    return given.op == UNIVERSAL or (given.op is None and widest_bytes < NARROWEST_CP_ASYNC_BYTES)


def expected_registers(spec: GemmSpec, cta_tile: Extents, threads: int) -> int:
    """Return the registers per thread for the k-tiles of both operands, before their copies are settled."""
    total = 0
    for name, k_tile in zip(OPERANDS, k_tile_bytes(spec, cta_tile), strict=True):
        if through_registers(spec, name):
            operand = spec.problem.operand(name)
            bits = spec.g2s.of(name).bits or 8 * min(align_bytes(operand), 16)
            element = dtype(operand.dtype)
            total += passing_registers(k_tile // element.bytes, element.bits, bits, threads)
    return total
