"""Rule for registers: the warps that multiply take over what the warps that copy do not need."""

from __future__ import annotations

from cutegen.hardware import Target
from cutegen.hardware.units import WARPGROUP
from cutegen.plan.predict.occupancy import REGISTER_GRANULE, available_registers
from cutegen.plan.values.decision import Decision
from cutegen.plan.values.gemm_plan import RegisterSplit

PRODUCER_REGISTERS = 24
MAX_REALLOCATED = 240


def split_registers(target: Target, mma_threads: int) -> tuple[RegisterSplit, Decision]:
    """What a CTA has at launch is shared out anew. `setmaxnreg` counts in 8s and up to 240 (PTX ISA).

    It waits for registers that other warpgroups of the CTA gave back, so that more than those at launch would never
    come; and all warps of a warpgroup must ask for the same, so that one that multiplies and copies cannot ask.
    """
    threads = mma_threads + WARPGROUP
    equal = available_registers(target, threads)
    if equal == target.registers_per_thread:
        return _equal(equal, f"{threads} threads have all the registers that an instruction can name")
    if mma_threads % WARPGROUP:
        return _equal(equal, f"setmaxnreg is for whole warpgroups, and {mma_threads} threads multiply")
    left = equal * threads - PRODUCER_REGISTERS * WARPGROUP
    most = min(left // mma_threads // REGISTER_GRANULE * REGISTER_GRANULE, MAX_REALLOCATED)
    why = (
        f"{threads} threads would have {equal} each; setmaxnreg gives {most} to the {mma_threads} that multiply and "
        f"{PRODUCER_REGISTERS} to the warpgroup that copies"
    )
    split = RegisterSplit(most, PRODUCER_REGISTERS, True)
    return split, Decision("schedule.registers", f"{most} to multiply, {PRODUCER_REGISTERS} to copy", why)


def _equal(registers: int, why: str) -> tuple[RegisterSplit, Decision]:
    return RegisterSplit(registers, registers, False), Decision("schedule.registers", f"{registers} a thread", why)
