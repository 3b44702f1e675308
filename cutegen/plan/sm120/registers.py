"""Rule for registers: the warps that multiply take over what the warps that copy do not need."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.arch import Target
from cutegen.plan.decision import Decision

WARPGROUP_THREADS = 128
PRODUCER_REGISTERS = 24
MAX_REALLOCATED = 240
GRANULE = 8


@dataclass(frozen=True, slots=True)
class RegisterSplit:
    """Registers a thread: of those that multiply, and of the warpgroup one warp of which copies.

    `reallocated` when the kernel moves them by `setmaxnreg`; without it every thread has as many.
    """

    mma: int
    producer: int
    reallocated: bool


def split_registers(target: Target, mma_threads: int) -> tuple[RegisterSplit, Decision]:
    """One CTA has the multiprocessor's registers. `setmaxnreg` counts in 8s and up to 240 (PTX ISA)."""
    threads = mma_threads + WARPGROUP_THREADS
    equal = min(target.registers_per_sm // threads // GRANULE * GRANULE, target.registers_per_thread)
    if equal == target.registers_per_thread:
        why = f"{threads} threads have all the registers that an instruction can name"
        return RegisterSplit(equal, equal, False), Decision("schedule.registers", f"{equal} a thread", why)
    left = target.registers_per_sm - PRODUCER_REGISTERS * WARPGROUP_THREADS
    most = min(left // mma_threads // GRANULE * GRANULE, MAX_REALLOCATED)
    why = (
        f"{threads} threads would have {equal} each; setmaxnreg gives {most} to the {mma_threads} that multiply and "
        f"{PRODUCER_REGISTERS} to the warpgroup that copies"
    )
    split = RegisterSplit(most, PRODUCER_REGISTERS, True)
    return split, Decision("schedule.registers", f"{most} to multiply, {PRODUCER_REGISTERS} to copy", why)
