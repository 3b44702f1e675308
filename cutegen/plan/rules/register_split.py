"""Rule for registers: the warps that multiply take over what the warps that copy do not need."""

from __future__ import annotations

from cutegen.arch import Target
from cutegen.arch.units import WARPGROUP
from cutegen.plan.decision import Decision
from cutegen.plan.gemm_plan import RegisterSplit

PRODUCER_REGISTERS = 24
MAX_REALLOCATED = 240
GRANULE = 8


def split_registers(target: Target, mma_threads: int) -> tuple[RegisterSplit, Decision]:
    """One CTA has the multiprocessor's registers. `setmaxnreg` counts in 8s and up to 240 (PTX ISA)."""
    threads = mma_threads + WARPGROUP
    equal = min(target.registers_per_sm // threads // GRANULE * GRANULE, target.registers_per_thread)
    if equal == target.registers_per_thread:
        why = f"{threads} threads have all the registers that an instruction can name"
        return RegisterSplit(equal, equal, False), Decision("schedule.registers", f"{equal} a thread", why)
    left = target.registers_per_sm - PRODUCER_REGISTERS * WARPGROUP
    most = min(left // mma_threads // GRANULE * GRANULE, MAX_REALLOCATED)
    why = (
        f"{threads} threads would have {equal} each; setmaxnreg gives {most} to the {mma_threads} that multiply and "
        f"{PRODUCER_REGISTERS} to the warpgroup that copies"
    )
    split = RegisterSplit(most, PRODUCER_REGISTERS, True)
    return split, Decision("schedule.registers", f"{most} to multiply, {PRODUCER_REGISTERS} to copy", why)
