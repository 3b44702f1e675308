"""Rules for the consumer warpgroups: on one tile or each on its own, and the registers that they take over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cutegen.hardware import Target
from cutegen.hardware.units import WARPGROUP
from cutegen.plan.predict import REGISTER_GRANULE, available_registers
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.spec import GemmSpec

# Rule for the consumer warpgroups: together on one tile (cooperative), or each on a tile of its own (ping-pong).
#
# After CUTLASS's kernels of the same names. In ping-pong one warpgroup stores its tile while the other multiplies the
# next one. Cooperative warpgroups have a larger tile, which needs fewer bytes from L2 per multiplication.


COOPERATIVE, PINGPONG = "cooperative", "pingpong"
WHY_CONSUMERS = {
    COOPERATIVE: "one tile at a time, which may be larger: fewer bytes from L2 per multiplication",
    PINGPONG: "each of two warpgroups has its own tile: one stores while the other multiplies",
}
"""Reasons, with and without a problem: kernels whose comments differ are compiled and cached twice."""


def pingpong(spec: GemmSpec) -> bool:
    """Return whether each of two warpgroups has a tile of its own."""
    return spec.schedule.consumers == PINGPONG


def choose_consumers(spec: GemmSpec) -> Choice[bool]:
    """Return whether they take turns; by default they are cooperative."""
    if spec.schedule.consumers is not None:
        asked = spec.schedule.consumers
        return Choice(pingpong(spec), Decision.as_given("schedule.consumers", asked))
    other = Rejected(PINGPONG, "overlaps the epilogue with the other warpgroup's tile, but tiles are half as large")
    return Choice(False, Decision("schedule.consumers", COOPERATIVE, WHY_CONSUMERS[COOPERATIVE], rejected=(other,)))


# Rule for registers: the consumer warpgroups take over what the producer warpgroup does not need.


LEAST_TO_COPY = 24
"""The fewest registers that `setmaxnreg` can set (PTX ISA, "setmaxnreg": multiples of 8 from 24 to 256)."""
MAX_REALLOCATED = 240
"""Registers per thread of two warpgroups if the threads of a third keep 24: the maximum."""


@dataclass(frozen=True, slots=True)
class Reallocation:
    """Registers per thread that `setmaxnreg` sets: of the consumers, and of the warpgroup with the producer warp."""

    mma: int
    producer: int


def split_registers(
    target: Target, mma_threads: int, *, to_copy: Sequence[int] = (LEAST_TO_COPY,), wanted: int = MAX_REALLOCATED
) -> tuple[Reallocation | None, Decision]:
    """Reallocate the registers that a CTA has at launch; None if all threads keep equally many.

    `setmaxnreg` waits for registers that other warpgroups of the CTA released, so a request beyond those at launch
    would never return. All warps of a warpgroup must request the same number, so a warpgroup that both multiplies and
    copies cannot use it. The producer keeps the largest number of `to_copy` that leaves the consumers as many as are
    `wanted`.
    """
    threads = mma_threads + WARPGROUP
    equal = available_registers(target, threads)
    if equal == target.registers_per_thread:
        return _equal(equal, f"{threads} threads have all the registers that an instruction can address")
    if mma_threads % WARPGROUP:
        return _equal(equal, f"setmaxnreg applies to whole warpgroups, and {mma_threads} threads multiply")
    left = {kept: _taken_over(equal, mma_threads, kept) for kept in sorted(to_copy, reverse=True)}
    kept = next((kept for kept, most in left.items() if most >= wanted), min(left))
    most = left[kept]
    why = (
        f"{threads} threads would have {equal} each; setmaxnreg gives {most} to the {mma_threads} consumer threads and "
        f"{kept} to the producer warpgroup"
    )
    return Reallocation(most, kept), Decision("schedule.registers", f"{most} to multiply, {kept} to copy", why)


def most_registers(target: Target, mma_threads: int) -> int:
    """Return the most registers that a consumer thread can have, if there is a producer warpgroup."""
    equal = available_registers(target, mma_threads + WARPGROUP)
    if equal == target.registers_per_thread or mma_threads % WARPGROUP:
        return equal
    return _taken_over(equal, mma_threads, LEAST_TO_COPY)


def _taken_over(equal: int, mma_threads: int, kept: int) -> int:
    """Return the registers per consumer thread if producer threads keep `kept` of their `equal` share."""
    left = equal * (mma_threads + WARPGROUP) - kept * WARPGROUP
    return min(left // mma_threads // REGISTER_GRANULE * REGISTER_GRANULE, MAX_REALLOCATED)


def _equal(registers: int, why: str) -> tuple[None, Decision]:
    return None, Decision("schedule.registers", f"{registers} per thread", why)
