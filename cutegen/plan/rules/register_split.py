"""Rule for registers: the warps that multiply take over what the warps that copy do not need."""

from __future__ import annotations

from collections.abc import Sequence

from cutegen.hardware import Target
from cutegen.hardware.units import WARPGROUP
from cutegen.plan.predict.occupancy import REGISTER_GRANULE, available_registers
from cutegen.plan.values.decision import Decision
from cutegen.plan.values.gemm_plan import RegisterSplit

LEAST_TO_COPY = 24
"""The fewest that `setmaxnreg` can leave a thread (PTX ISA, "setmaxnreg": multiples of 8 from 24 to 256)."""
MAX_REALLOCATED = 240
"""What threads of two warpgroups have beside one whose threads keep 24: no CTA has more to give."""


def split_registers(
    target: Target, mma_threads: int, *, to_copy: Sequence[int] = (LEAST_TO_COPY,), wanted: int = MAX_REALLOCATED
) -> tuple[RegisterSplit, Decision]:
    """Share out anew the registers that a CTA has at launch.

    `setmaxnreg` waits for registers that other warpgroups of the CTA gave back, so that more than those at launch would
    never come; and all warps of a warpgroup must ask for the same, so that one that multiplies and copies cannot ask.
    Of the numbers `to_copy` the largest is left to the warps that copy with which the others have as many as are
    `wanted`.
    """
    threads = mma_threads + WARPGROUP
    equal = available_registers(target, threads)
    if equal == target.registers_per_thread:
        return _equal(equal, f"{threads} threads have all the registers that an instruction can name")
    if mma_threads % WARPGROUP:
        return _equal(equal, f"setmaxnreg is for whole warpgroups, and {mma_threads} threads multiply")
    left = {kept: _taken_over(equal, mma_threads, kept) for kept in sorted(to_copy, reverse=True)}
    kept = next((kept for kept, most in left.items() if most >= wanted), min(left))
    most = left[kept]
    why = (
        f"{threads} threads would have {equal} each; setmaxnreg gives {most} to the {mma_threads} that multiply and "
        f"{kept} to the warpgroup that copies"
    )
    split = RegisterSplit(most, kept, True)
    return split, Decision("schedule.registers", f"{most} to multiply, {kept} to copy", why)


def most_registers(target: Target, mma_threads: int) -> int:
    """The most registers that each of the threads that multiply can have, beside a warpgroup that copies."""
    equal = available_registers(target, mma_threads + WARPGROUP)
    if equal == target.registers_per_thread or mma_threads % WARPGROUP:
        return equal
    return _taken_over(equal, mma_threads, LEAST_TO_COPY)


def _taken_over(equal: int, mma_threads: int, kept: int) -> int:
    """Registers a thread of those that multiply, where those that copy keep so many of their `equal` share."""
    left = equal * (mma_threads + WARPGROUP) - kept * WARPGROUP
    return min(left // mma_threads // REGISTER_GRANULE * REGISTER_GRANULE, MAX_REALLOCATED)


def _equal(registers: int, why: str) -> tuple[RegisterSplit, Decision]:
    return RegisterSplit(registers, registers, False), Decision("schedule.registers", f"{registers} a thread", why)
