"""Register budget for the sums of warpgroups: of a thread's share of the tile, and of one instruction."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.algebra import Extents
from cutegen.hardware import DType, Target
from cutegen.hardware.units import REGISTER_BITS, WARPGROUP, WGMMA_ROWS
from cutegen.plan.predict.occupancy import available_registers
from cutegen.plan.rules.consumers import COOPERATIVE, pingpong
from cutegen.plan.rules.promotion import promotes
from cutegen.plan.rules.register_split import most_registers
from cutegen.plan.rules.wgmma_atom import accumulator
from cutegen.spec import GemmSpec
from cutegen.support.words import extents

REGISTERS_BESIDE_SUMS = 32
"""Registers that addresses, barriers and the epilogue took in practice."""
MOST_SUMS = 200
"""Approximate registers per thread for the sums of compared tiles: more leave no room for everything else."""
REGISTERS_BESIDE_ONE_WGMMA = 26
"""Registers that ptxas 13 needs in addition to the sums of one instruction, out of those at launch (C7602)."""


@dataclass(frozen=True, slots=True)
class LackOfRoom:
    """Lack of registers for the sums: how many they need, what is expected, and the fix."""

    found: str
    why: str
    expected: str
    fix: str


def check_room(spec: GemmSpec, warpgroups: Extents, cta_tile: Extents, target: Target) -> None:
    """Raise SpecError if the sums do not fit in registers: they would spill."""
    if (lack := lacks_room(spec, warpgroups, cta_tile, target)) is not None:
        raise spec.error(
            "tile.cta" if spec.mma.atom_layout is None else "mma.atom_layout",
            found=f"{extents(cta_tile)} for {extents(warpgroups)} warpgroups: {lack.found}",
            expected=lack.expected,
            fix=lack.fix,
        )


def lacks_room(spec: GemmSpec, warpgroups: Extents, cta_tile: Extents, target: Target) -> LackOfRoom | None:
    """Return the sums that do not fit; None if all fit."""
    sums, most = sums_of(spec, warpgroups, cta_tile), _most_sums(spec, warpgroups, target)
    if sums > most:
        found = f"{sums} registers per thread for sums"
        return LackOfRoom(
            found=found,
            why=f"{found}, more than {most}",
            expected=f"at most {most}, with {REGISTERS_BESIDE_SUMS} for everything else",
            fix=_smaller_share(spec, cta_tile, fits_two=sums <= 2 * most),
        )
    columns = cta_tile[1] // warpgroups[1]
    one = sum_registers((WGMMA_ROWS, columns), accumulator(spec), WARPGROUP)
    most = _most_sums_of_one(spec, warpgroups, target)
    if one > most:
        found, of_launch = f"{one} registers for one wgmma's sums", "of those that a thread has at launch"
        return LackOfRoom(
            found=found,
            why=f"{found}, more than {most} {of_launch}",
            expected=f"at most {most} {of_launch}, {columns * most // one // 8 * 8} columns per warpgroup",
            fix="use a narrower tile, or fewer warpgroups",
        )
    return None


def _smaller_share(spec: GemmSpec, cta_tile: Extents, *, fits_two: bool) -> str:
    """Return the fix for a warpgroup's share with too many sums. In ping-pong it is the tile, which two could share."""
    if pingpong(spec):
        shared = f', or schedule.consumers = "{COOPERATIVE}", whose warpgroups share it'
        return "use a smaller tile.cta" + (shared if fits_two and cta_tile[0] % (2 * WGMMA_ROWS) == 0 else "")
    return "use a smaller tile" if spec.mma.atom_layout is None else "use more warpgroups, or a smaller tile.cta"


def sums_of(spec: GemmSpec, warpgroups: Extents, cta_tile: Extents) -> int:
    """Return the registers per thread for the sums of its share of the tile, and for promoted sums."""
    threads = WARPGROUP * warpgroups[0] * warpgroups[1]
    return sum_registers(cta_tile[:2], accumulator(spec), threads, promoted=promotes(spec))


def promoted_sets(spec: GemmSpec, warpgroups: Extents, cta_tile: Extents, target: Target, promote_k: int) -> int:
    """Return the sets of registers for the tensor core's sums: two if each k-tile is promoted and both fit."""
    if promote_k != cta_tile[2]:
        return 1
    one = sums_of(spec, warpgroups, cta_tile) // 2
    return 2 if 3 * one <= _most_sums(spec, warpgroups, target) else 1


def sum_registers(extents_mn: tuple[int, int], element: DType, threads: int, *, promoted: bool = False) -> int:
    """Return the registers of each of `threads` for so many sums; twice as many if they are promoted."""
    sums = extents_mn[0] * extents_mn[1] * element.bits // (REGISTER_BITS * threads)
    return 2 * sums if promoted else sums


def _most_sums(spec: GemmSpec, warpgroups: Extents, target: Target) -> int:
    """Return the most registers of a consumer thread, less what it needs for everything else."""
    return most_registers(target, WARPGROUP * _groups(spec, warpgroups)) - REGISTERS_BESIDE_SUMS


def _most_sums_of_one(spec: GemmSpec, warpgroups: Extents, target: Target) -> int:
    """Return the most that the compiler allots to one instruction: the registers before setmaxnreg adds more."""
    return available_registers(target, WARPGROUP * (_groups(spec, warpgroups) + 1)) - REGISTERS_BESIDE_ONE_WGMMA


def _groups(spec: GemmSpec, warpgroups: Extents) -> int:
    """Return the number of consumer warpgroups: those of one tile, or both that take turns."""
    return warpgroups[0] * warpgroups[1] * (2 if pingpong(spec) else 1)
