"""Rules for consumer warpgroups: one tile or each its own, its last k-tiles at once or in turn, and their registers."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from cutegen.algebra import Extents
from cutegen.hardware import Target
from cutegen.hardware.units import WARPGROUP, WGMMA_ROWS
from cutegen.plan.predict import REGISTER_GRANULE, available_registers
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.spec import GemmSpec
from cutegen.support.words import extents

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


# Rule for the last k-tiles of a tile that two warpgroups share: both at once, or one warpgroup after the other.
#
# Side by side both finish at once, and tensor cores idle while C is stored. When the rest of K fits into the stages,
# the tile needs no more copies: one warpgroup can multiply its share first, store its part of C, and continue with the
# next tile, while the other follows.


LAST_K_TILES, IN_TURNS, SIDE_BY_SIDE = "schedule.last_k_tiles", "in turns", "side by side"
LEAST_ALONE = WGMMA_ROWS * 192
"""Least values of C per warpgroup for multiplying alone.

Measured on an H200 (`docs/lab/last_k_tiles.md`), launches in a graph, in turns against side by side: up to 4 % less
with 64 x 256, 128 x 128 and 192 x 96 values (0.1 % more at worst, 3000^3), 0.4 to 0.6 % less with 64 x 192, 7 % less or
6 % more with 64 x 160, up to 4 % more with 64 x 128 except in clusters of four, and up to a quarter more with 64 x 64.
"""


def may_end_in_turns(warpgroups: Extents, *, pingpong: bool, promotes: bool, slices: int) -> bool:
    """Return whether two warpgroups share a tile, and one can store its part while the other multiplies.

    All warpgroups of a CTA add slices of K together, so the first would wait. A warpgroup that promotes its sums waits
    for each k-tile, so alone it leaves tensor cores idle.
    """
    return prod(warpgroups) == 2 and not (pingpong or promotes or slices > 1)


def busy_alone(warpgroups: Extents, cta_tile: Extents) -> bool:
    """Return whether one of the warpgroups that share a tile keeps tensor cores busy while the others wait."""
    return prod(cta_tile[:2]) // prod(warpgroups) >= LEAST_ALONE


def clears_begins(spec: GemmSpec) -> bool:
    """Return whether warpgroups clear what a group's first k-tile holds before it: K-major boxes begin at vectors."""
    groups = spec.problem.groups
    return groups is not None and groups.of == "k" and "k" in (spec.problem.a.major, spec.problem.b.major)


def choose_last_k_tiles(spec: GemmSpec, warpgroups: Extents, cta_tile: Extents, promote_k: int) -> Choice[bool] | None:
    """Return whether two warpgroups multiply the last k-tiles of their tile in turns; None if they cannot."""
    if not may_end_in_turns(warpgroups, pingpong=pingpong(spec), promotes=promote_k > 0, slices=spec.schedule.slices):
        return None
    if clears_begins(spec):
        return None  # all meet before a group's first k-tile
    share = cta_tile[0] // warpgroups[0], cta_tile[1] // warpgroups[1]
    of_warpgroup, least = f"{extents(share)} of C", f"{LEAST_ALONE} values"
    if not busy_alone(warpgroups, cta_tile):
        why = (
            f"{of_warpgroup} per warpgroup: with less than {least}, one warpgroup alone does not keep tensor cores busy"
        )
        in_turns = Rejected(IN_TURNS, "tensor cores would wait longer than the stores of C take")
        return Choice(False, Decision(LAST_K_TILES, SIDE_BY_SIDE, why, rejected=(in_turns,)))
    why = (
        "those that fit into the stages: the first warpgroup stores its part of C while the second one multiplies; "
        f"{of_warpgroup} per warpgroup, at least {least}, keep tensor cores busy"
    )
    together = Rejected(SIDE_BY_SIDE, "tensor cores would wait while both store C")
    return Choice(True, Decision(LAST_K_TILES, IN_TURNS, why, rejected=(together,)))
