"""The multiply instructions: who issues each, where it reads operands, where it accumulates, and on which units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from cutegen.hardware.instructions import Instruction
from cutegen.hardware.units import WARP, WARPGROUP


class Issuer(StrEnum):
    """The threads that execute one instruction together."""

    THREAD = "thread"
    WARP = "warp"
    WARPGROUP = "warpgroup"

    @property
    def threads(self) -> int:
        """Return how many they are."""
        return {Issuer.THREAD: 1, Issuer.WARP: WARP, Issuer.WARPGROUP: WARPGROUP}[self]


class OperandSource(StrEnum):
    """Home of an operand: each thread's registers, or shared memory by a descriptor."""

    RMEM = "registers"
    SMEM = "shared memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiply:
    """Abilities of an instruction: its issuer, the homes that A and B may have, and that of the accumulators.

    An `asynchronous` one completes later, which its issuer waits for. `unit` executes it.
    """

    issued_by: Issuer
    reads_a: frozenset[OperandSource]
    reads_b: frozenset[OperandSource]
    accumulates_in: OperandSource = OperandSource.RMEM
    asynchronous: bool = False
    unit: str = "tensor cores"


_REGISTERS = frozenset({OperandSource.RMEM})

MULTIPLIES: Mapping[Instruction, Multiply] = {
    # PTX ISA, "Floating Point Instructions: fma".
    Instruction.FMA: Multiply(issued_by=Issuer.THREAD, reads_a=_REGISTERS, reads_b=_REGISTERS, unit="FMA units"),
    # PTX ISA, "Matrix multiply-accumulate operation using mma instruction": "all threads in the warp must execute".
    Instruction.MMA_SYNC: Multiply(issued_by=Issuer.WARP, reads_a=_REGISTERS, reads_b=_REGISTERS),
    # PTX ISA, "Asynchronous wgmma instructions": A in registers or shared memory, B in shared memory.
    Instruction.WGMMA: Multiply(
        issued_by=Issuer.WARPGROUP,
        reads_a=frozenset(OperandSource),
        reads_b=frozenset({OperandSource.SMEM}),
        asynchronous=True,
    ),
}
"""Every multiply instruction that has atoms."""
