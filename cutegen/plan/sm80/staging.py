"""Registers that hold a k-tile on its way to shared memory, where plain loads and stores bring it there."""

from __future__ import annotations

from cutegen.arch import UNIVERSAL, dtype
from cutegen.plan.sm80.operand import align_bytes
from cutegen.spec import G2sCopy, GemmSpec, Operand

NARROWEST_CP_ASYNC_BYTES = 4
REGISTER_BITS = 32


def through_registers(spec: GemmSpec, name: str) -> bool:
    """Whether the spec has A or B copied by plain loads and stores: it says so, or no cp.async is narrow enough."""
    given: G2sCopy = getattr(spec.g2s, name) or G2sCopy()
    narrow = given.bits == 16 or align_bytes(getattr(spec.problem, name)) < NARROWEST_CP_ASYNC_BYTES
    return given.op == UNIVERSAL or (given.op is None and narrow)


def expected_registers(spec: GemmSpec, cta_tile: tuple[int, int, int], threads: int) -> int:
    """Registers a thread for the k-tiles of both operands, before their copies are settled."""
    total = 0
    for name, extent in zip("ab", cta_tile[:2], strict=True):
        if through_registers(spec, name):
            operand: Operand = getattr(spec.problem, name)
            given: G2sCopy = getattr(spec.g2s, name) or G2sCopy()
            bits = given.bits or 8 * min(align_bytes(operand), 16)
            total += registers(extent * cta_tile[2], dtype(operand.dtype).bits, bits, threads)
    return total


def registers(elems: int, element_bits: int, copy_bits: int, threads: int) -> int:
    """Registers a thread for its share of `elems` elements; a vector narrower than a register still takes one.

    >>> registers(128 * 64, 16, 16, 128), registers(128 * 64, 16, 128, 128)
    (64, 32)
    """
    return elems * element_bits // threads // min(copy_bits, REGISTER_BITS)
