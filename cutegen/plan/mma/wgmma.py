"""`wgmma`: a warpgroup multiplies operands in shared memory asynchronously; its rules, from atom to registers."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import gcd, prod
from typing import ClassVar

from cutegen.algebra import Extents, OperandName, TiledMma
from cutegen.contract.launch import OPERANDS
from cutegen.errors import SpecError
from cutegen.hardware import WGMMA_ATOMS, DType, Instruction, MmaAtom, OperandSource, Target, dtype
from cutegen.hardware.mma_atoms import columns_of
from cutegen.hardware.units import LINE_BYTES, REGISTER_BITS, WARPGROUP, WGMMA_ROWS
from cutegen.plan.epilogue.pairs import check_warpgroups, rows_of_warpgroup
from cutegen.plan.epilogue.quantized import check_blocks
from cutegen.plan.kernel.accumulator import PROMOTED_TILES, SCALED_TILES, Promotion, in_registers
from cutegen.plan.kernel.pipeline import MMA, Role, Turns
from cutegen.plan.kernel.program import Action, Step
from cutegen.plan.mma.atoms import (
    DEFAULT_ACCUMULATOR,
    WHY_F32_SUMS,
    accumulator_among,
    check_dtypes,
    default_accumulator,
)
from cutegen.plan.parts import CountedPlan, Mma, Operands
from cutegen.plan.predict import available_registers
from cutegen.plan.schedule.cluster import choose_cluster
from cutegen.plan.schedule.consumers import (
    COOPERATIVE,
    choose_consumers,
    choose_last_k_tiles,
    most_registers,
    pingpong,
)
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.gemm_plan import MmaPlan, step_opcodes, vector_of_k
from cutegen.spec import GemmSpec, Operand
from cutegen.spec.families import WGMMA, PartKeys, family_with
from cutegen.support.words import either, extents, plural

# Rules for wgmma: the operands that it reads, and the instruction.


def other_family() -> str:
    """Say which family multiplies what no wgmma does."""
    return f'family = "{family_with(Instruction.MMA_SYNC, Instruction.BULK_TENSOR)}" multiplies by mma.sync'


def check_operands(spec: GemmSpec, target: Target) -> None:
    """Raise SpecError for types and majors that no wgmma has."""
    a, b = spec.problem.a, spec.problem.b
    of_types = _of_types(a.dtype, b.dtype)
    if not of_types:
        raise _no_atom(spec)
    parts: tuple[tuple[str, Operand, OperandName], ...] = (("a", a, "A"), ("b", b, "B"))
    for name, operand, op in parts:
        if operand.major not in of_types[0].majors(op):
            way_out = ', or keep a copy of B: transposed = "once"' if name == "b" else ""
            elsewhere = spec.in_family(family_with(Instruction.CP_ASYNC))
            raise spec.error(
                f"problem.{name}.major",
                found=f'"{operand.major}" with {operand.dtype} operands',
                expected='"k": wgmma reads 8-bit operands only K-major',
                fix=f'major = "k"{way_out}; {elsewhere} accepts it, by plain loads instead of ldmatrix',
            )


def _from_shared() -> Iterator[MmaAtom]:
    """Return the forms that read both operands from shared memory."""
    return (atom for atom in WGMMA_ATOMS.values() if atom.a_source is OperandSource.SMEM)


@cache  # a search calls this for each candidate
def _of_types(a: str, b: str) -> tuple[MmaAtom, ...]:
    """Return those that multiply elements of such types."""
    return tuple(atom for atom in _from_shared() if (atom.a_dtype.name, atom.b_dtype.name) == (a, b))


def _no_atom(spec: GemmSpec) -> SpecError:
    a, b = spec.problem.a.dtype, spec.problem.b.dtype
    beside_a = list(dict.fromkeys(atom.b_dtype.name for atom in _from_shared() if atom.a_dtype.name == a))
    if beside_a:
        return spec.error(
            "problem.b.dtype",
            found=f'"{b}"',
            expected=f"{either(beside_a)} with A's {a}: wgmma mixes no other types",
            fix=f'write dtype = "{beside_a[0]}"',
        )
    known = list(dict.fromkeys(atom.a_dtype.name for atom in _from_shared()))
    others = {
        "tf32": f"{spec.in_family(family_with(Instruction.MMA_SYNC, Instruction.BULK_TENSOR))} multiplies by mma.sync",
        "f32": f"{spec.in_family(family_with(Instruction.FMA))} multiplies f32 by fma; tensor cores read them as tf32",
    }
    return spec.error(
        "problem.a.dtype",
        found=f'"{a}"',
        expected=f"{either(known)}: the CuTe DSL has no wgmma for other types",
        fix=others.get(a, "only C may be s32"),
    )


def choose_atom(spec: GemmSpec, cta_tile: Extents, warpgroups: Extents) -> Choice[MmaAtom]:
    """Choose the wgmma of the operands' types that has all of a warpgroup's columns."""
    _, n, k = cta_tile
    columns = n // (warpgroups[1] * column_waves(spec))
    of_types = _atoms_for(spec)
    fitting = next((atom for atom in of_types if atom.shape_mnk[1] == columns), None)
    if fitting is None:
        raise _no_columns(spec, cta_tile, warpgroups, of_types)
    if k % fitting.shape_mnk[2]:
        raise spec.error(
            "tile.cta",
            found=f"{extents(cta_tile)}: K = {k}",
            expected=f"K a multiple of {fitting.shape_mnk[2]}, the K of one wgmma",
            fix=f"K = {max(1, round(k / fitting.shape_mnk[2])) * fitting.shape_mnk[2]} is the nearest",
        )
    if spec.mma.atom is not None and spec.mma.atom != fitting.name:
        raise _other_atom(spec, WGMMA_ATOMS[spec.mma.atom], fitting, warpgroups)
    if spec.mma.atom is not None:
        return Choice(fitting, Decision.as_given("mma.atom", fitting.name))
    held = f"{columns} columns{' of each member of the pairs' if column_waves(spec) > 1 else ''}"
    why = f"{fitting.flops:,} operations per instruction: all {held} that a warpgroup has of the tile"
    if spec.problem.accumulator is None and fitting.c_dtype.name == DEFAULT_ACCUMULATOR:
        why += f"; {WHY_F32_SUMS}"
    in_registers = Rejected(
        fitting.name.replace("_SS", "_RS"),
        "A would occupy registers that sums need, in exchange for less shared memory traffic",
    )
    return Choice(fitting, Decision("mma.atom", fitting.name, why, rejected=(in_registers,)))


def _atoms_for(spec: GemmSpec) -> list[MmaAtom]:
    """Return the forms for the problem's types, narrow ones first. Raises SpecError for sums that none has."""
    a, b = spec.problem.a.dtype, spec.problem.b.dtype
    of_operands = _of_types(a, b)
    if not of_operands:
        raise _no_atom(spec)
    known = list(dict.fromkeys(atom.c_dtype.name for atom in of_operands))
    accumulator = accumulator_among(spec, known)
    fitting = [atom for atom in of_operands if atom.c_dtype.name == accumulator]
    if not fitting:
        raise spec.error(
            "problem.accumulator",
            found=f'"{accumulator}" with {a} operands',
            expected=f"{either(known)}: no wgmma sums products of {a} in {accumulator}",
            fix=f'accumulator = "{default_accumulator(known)}"',
        )
    return fitting


def _no_columns(spec: GemmSpec, cta_tile: Extents, warpgroups: Extents, atoms: list[MmaAtom]) -> SpecError:
    """Return the error if no form is as wide as a warpgroup's share of the tile."""
    across, widths = warpgroups[1], [atom.shape_mnk[1] for atom in atoms]
    nearest = min(widths, key=lambda width: abs(width * across - cta_tile[1])) * across
    shared = f", {plural(across, 'warpgroup')} along N" if across > 1 else ""
    return spec.error(
        "tile.cta",
        found=f"{extents(cta_tile)}: N = {cta_tile[1]}{shared}",
        expected=f"columns per warpgroup that one wgmma on {spec.problem.a.dtype} supports: {_run(widths)}",
        fix=f"N = {nearest} is the nearest",
    )


def _run(widths: list[int]) -> str:
    """Format a list of extents."""
    return f"{widths[0]} to {widths[-1]} in steps of {widths[-1] - widths[-2]}"


def _other_atom(spec: GemmSpec, atom: MmaAtom, fitting: MmaAtom, warpgroups: Extents) -> SpecError:
    """Return the error for an atom that does not suit the tile."""
    if atom.a_source is not OperandSource.SMEM:
        expected = "an atom that reads A from shared memory: no copy loads fragments of A to registers"
    elif (atom.a_dtype, atom.b_dtype, atom.c_dtype) != (fitting.a_dtype, fitting.b_dtype, fitting.c_dtype):
        types = " and ".join(dict.fromkeys((fitting.a_dtype.name, fitting.b_dtype.name)))
        expected = f"an atom for {types} operands and {fitting.c_dtype.name} sums"
    else:
        expected = f"all columns of a warpgroup in one instruction: N = {fitting.shape_mnk[1]}"
    columns = atom.shape_mnk[1] * warpgroups[1]
    fix = f"use {fitting.name}"
    if atom.shape_mnk[1] != fitting.shape_mnk[1]:
        fix += f", or a tile.cta with N = {columns}"
    return spec.error("mma.atom", found=atom.name, expected=expected, fix=fix)


def accumulator(spec: GemmSpec) -> DType:
    """Return the type of the sums."""
    return _atoms_for(spec)[0].c_dtype


# Register budget for the sums of warpgroups: of a thread's share of the tile, and of one instruction.


REGISTERS_BESIDE_SUMS = 32
REGISTERS_BESIDE_FACTORS = 16
"""The least beside sums and factors: 160 registers with 128 sums and 33 factors spill 8 to 44, with 3 factors none."""
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
    sums, most = sums_of(spec, warpgroups, cta_tile, target), _most_sums(spec, warpgroups, target)
    if sums > most:
        found = f"{sums} registers per thread for sums"
        return LackOfRoom(
            found=found,
            why=f"{found}, more than {most}",
            expected=f"at most {most}, with {REGISTERS_BESIDE_SUMS} for everything else",
            fix=_smaller_share(spec, cta_tile, fits_two=sums <= 2 * most),
        )
    columns = cta_tile[1] // (warpgroups[1] * column_waves(spec))
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


def column_waves(spec: GemmSpec) -> int:
    """Return in how many waves a warpgroup multiplies its columns, through one set of registers for partial sums.

    Scaled sums of pairs of columns are multiplied one member after the other.
    """
    pairs = spec.epilogue.pairs
    return 2 if pairs is not None and pairs.value.of == "n" and spec.problem.scale_a is not None else 1


def waves(spec: GemmSpec, warpgroups: Extents, cta_tile: Extents, target: Target) -> tuple[int, int]:
    """Return the waves along M and N in which a warpgroup multiplies its share, through one set for partial sums.

    Beside those of `column_waves`, one instruction's rows follow another's if scaled sums of all would not fit.
    """
    columns, rows = column_waves(spec), cta_tile[0] // (WGMMA_ROWS * warpgroups[0])
    scaled = spec.problem.scale_a
    if scaled is None or columns > 1 or scaled.block[1] != cta_tile[2]:
        return 1, columns
    at_once = 2 * _sums_of_share(spec, warpgroups, cta_tile)
    return (max(1, rows) if at_once > _most_sums(spec, warpgroups, target) else 1), 1


def _check_waves(spec: GemmSpec, cta_tile: Extents, warpgroups: Extents) -> None:
    """Raise SpecError for warpgroups with several blocks of rows, whose parts of C would not follow one another."""
    rows = WGMMA_ROWS * warpgroups[0]
    if column_waves(spec) > 1 and cta_tile[0] != rows:
        raise spec.error(
            "tile.cta",
            found=f"{extents(cta_tile)}: M = {cta_tile[0]}",
            expected=f"M = {rows}, {WGMMA_ROWS} rows for each warpgroup, which multiplies pairs in waves",
            fix=f"tile.cta = {[rows, *cta_tile[1:]]}",
        )


def sums_of(spec: GemmSpec, warpgroups: Extents, cta_tile: Extents, target: Target) -> int:
    """Return the registers per thread for the sums of its share of the tile, and for promoted sums."""
    sums = _sums_of_share(spec, warpgroups, cta_tile)
    return sums + sums // prod(waves(spec, warpgroups, cta_tile, target)) if promotes(spec) else sums


def _sums_of_share(spec: GemmSpec, warpgroups: Extents, cta_tile: Extents) -> int:
    return sum_registers(cta_tile[:2], accumulator(spec), WARPGROUP * warpgroups[0] * warpgroups[1])


LEAST_SCALED_TWICE = 64
"""Least sums of a thread for which scaled ones alternate between two sets: kernels of fewer stream an operand."""


def holds_factors(spec: GemmSpec, warpgroups: Extents, cta_tile: Extents, target: Target) -> bool:
    """Return whether a thread has registers for the factors of a k-tile beside its sums; True if there are none.

    The lanes of a row share its factors: a thread reads those of 2 rows of each wgmma, or of a quarter of its columns.
    """
    if spec.problem.scale_a is None:
        return True
    factors = sum(_factors_held(spec, warpgroups, cta_tile))
    needed = sums_of(spec, warpgroups, cta_tile, target) + factors + REGISTERS_BESIDE_FACTORS
    return needed <= most_registers(target, WARPGROUP * _groups(spec, warpgroups))


def _factors_held(spec: GemmSpec, warpgroups: Extents, cta_tile: Extents) -> tuple[int, int]:
    """Return the registers of a thread for the factors of a k-tile, of rows and of columns."""
    of_a, of_b = (spec.problem.factors(name) for name in OPERANDS)
    if of_a is None or of_b is None:
        return 0, 0
    rows, columns = cta_tile[0] // (WGMMA_ROWS * warpgroups[0]), cta_tile[1] // warpgroups[1]
    of_rows = 2 * rows if of_a.block[0] == 1 else rows
    return of_rows, columns // 4 if of_b.block[0] == 1 else columns // gcd(columns, of_b.block[0])


def promoted_sets(spec: GemmSpec, warpgroups: Extents, cta_tile: Extents, target: Target, promote_k: int) -> int:
    """Return the sets of registers for the tensor core's sums: two if each k-tile is promoted and both fit.

    Scaled sums need the factors of two k-tiles beside them.
    """
    one = _sums_of_share(spec, warpgroups, cta_tile)
    scaled, factors = spec.problem.scale_a is not None, sum(_factors_held(spec, warpgroups, cta_tile))
    if promote_k != cta_tile[2] or (scaled and (one < LEAST_SCALED_TWICE or _takes_one_set(spec))):
        return 1
    fit = 3 * one + 2 * factors <= _most_sums(spec, warpgroups, target)
    return 2 if fit and prod(waves(spec, warpgroups, cta_tile, target)) == 1 else 1


def _takes_one_set(spec: GemmSpec) -> bool:
    """Return whether the last k-tile of a part of K is cleared from its end on."""
    return spec.problem.groups is not None and spec.problem.groups.of == "k"


def sum_registers(extents_mn: tuple[int, int], element: DType, threads: int) -> int:
    """Return the registers of each of `threads` for so many sums."""
    return extents_mn[0] * extents_mn[1] * element.bits // (REGISTER_BITS * threads)


def _most_sums(spec: GemmSpec, warpgroups: Extents, target: Target) -> int:
    """Return the most registers of a consumer thread, less what it needs for everything else."""
    return most_registers(target, WARPGROUP * _groups(spec, warpgroups)) - REGISTERS_BESIDE_SUMS


def _most_sums_of_one(spec: GemmSpec, warpgroups: Extents, target: Target) -> int:
    """Return the most that the compiler allots to one instruction: the registers before setmaxnreg adds more."""
    return available_registers(target, WARPGROUP * (_groups(spec, warpgroups) + 1)) - REGISTERS_BESIDE_ONE_WGMMA


def _groups(spec: GemmSpec, warpgroups: Extents) -> int:
    """Return the number of consumer warpgroups: those of one tile, or both that take turns."""
    return warpgroups[0] * warpgroups[1] * (2 if pingpong(spec) else 1)


# Rules for the sums of 8-bit floats: the K after which the tensor core's sums are added to float32 registers, and how.
#
# The tensor core of sm_90 keeps about 14 bits of a sum of products of 8-bit floats: small later addends are lost.
# (DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437, section 3.3.2, which promotes every 128 too.)


DEFAULT_K = 128
MOST_FACTORS_OF_TURN = 8
"""Factors of a thread with which a loop that scales sums has turns of several k-tiles: with 17 beside 180 sums such a
turn spilled 104 bytes (ptxas 13, 256 x 120 for two warpgroups).
"""
SUMS, TWO_SETS, ONE_SET = "schedule.promoted_sums", "two sets in turn", "one set"
BEHIND = "the second warpgroup one k-tile later"


def promotes(spec: GemmSpec) -> bool:
    """Return whether a second set of registers holds promoted sums in addition to the tensor core's."""
    return _can_promote(spec) and spec.mma.promote_k != 0


def _can_promote(spec: GemmSpec) -> bool:
    """Return whether operands are 8-bit floats and sums float32."""
    element = dtype(spec.problem.a.dtype)
    return element.bits == 8 and not element.is_integer and _sums(spec) != "f16"


def _sums(spec: GemmSpec) -> str:
    """Name the type of the tensor core's sums."""
    return accumulator_among(spec, ("s32",) if dtype(spec.problem.a.dtype).is_integer else ("f32",))


def choose_promotion(spec: GemmSpec, cta_tile: Extents) -> Choice[int] | None:
    """The K between promotions, in whole k-tiles; None if neither the spec nor the types ask for any."""
    if spec.problem.scale_a is not None:
        return _scaled(spec, spec.problem.scale_a.block[1], cta_tile)
    asked, k = spec.mma.promote_k, cta_tile[2]
    if asked and not _can_promote(spec):
        raise spec.error(
            "mma.promote_k",
            found=f"{asked} with {spec.problem.a.dtype} operands and {_sums(spec)} sums",
            expected="8-bit floats and f32 sums: only these lose digits in the tensor core",
            fix="leave the key out",
        )
    if asked is not None and asked % k:
        raise spec.error(
            "mma.promote_k",
            found=f"{asked} with k-tiles of {k}",
            expected=f"a multiple of {k}: sums are promoted between k-tiles",
            fix=f"{max(1, round(asked / k)) * k} is the nearest; 0 promotes nothing",
        )
    if asked is not None:
        return Choice(asked, Decision.as_given("mma.promote_k", str(asked)))
    if not _can_promote(spec):
        return None
    chosen = max(DEFAULT_K // k, 1) * k
    why = (
        "the tensor core keeps about 14 bits of a sum of 8-bit floats: sums are added to float32 registers before they "
        "grow long, and restart from zero"
    )
    return Choice(chosen, Decision("mma.promote_k", str(chosen), why))


def _scaled(spec: GemmSpec, block_k: int, cta_tile: Extents) -> Choice[int]:
    """The K of a block: its sums are scaled when they are promoted. Raises SpecError for another, or other k-tiles."""
    asked = spec.mma.promote_k
    factors = spec.problem.scale_a
    if factors is not None and factors.in_atoms:
        raise spec.error(
            "problem.scale_a.dtype",
            found=f'"{factors.dtype}"',
            expected='"f32": threads scale sums by it',
            fix=f'family = "{family_with(Instruction.TCGEN05)}" reads factors of 8 bits',
        )
    if not _can_promote(spec):
        raise spec.error(
            "problem.scale_a",
            found=f"factors of blocks of {spec.problem.a.dtype} operands, with {_sums(spec)} sums",
            expected="8-bit floats and f32 sums: those of each block are scaled when they are added to others",
            fix="scale = {} with the ops scale_m and scale_n has factors of whole rows and columns",
        )
    if asked not in (None, block_k):
        raise spec.error(
            "mma.promote_k",
            found=f"{asked} with blocks of K = {block_k}",
            expected=f"{block_k}: the sums of each block are scaled when they are added to others",
            fix="leave the key out",
        )
    if block_k % cta_tile[2]:
        raise spec.error(
            "tile.cta",
            found=f"{extents(cta_tile)}: K = {cta_tile[2]}",
            expected=f"a divisor of {block_k}, the K of a block: k-tiles have factors of one",
            fix=f"tile.cta = {[*cta_tile[:2], block_k]}",
        )
    if cta_tile[2] != block_k and (column_waves(spec) > 1 or spec.schedule.slices > 1):
        in_waves = column_waves(spec) > 1
        what = "pairs, which are scaled in waves" if in_waves else "slices of K, which end between k-tiles"
        raise spec.error(
            "tile.cta",
            found=f"{extents(cta_tile)}: K = {cta_tile[2]}, with {what}",
            expected=f"K = {block_k}, that of a block",
            fix=f"tile.cta = {[*cta_tile[:2], block_k]}",
        )
    why = "the K of a block: its sums are scaled by a factor of A and a factor of B, and added to float32 registers"
    return Choice(block_k, Decision("mma.promote_k", str(block_k), why, given=asked is not None))


def choose_promoted_sums(
    sets: int,
    warpgroups: int,
    *,
    promote_k: int,
    k: int,
    pingpong: bool,
    scaled: bool = False,
    grouped: bool = False,
    waves: tuple[int, int] = (1, 1),
) -> Choice[bool] | None:
    """Return whether the second of two `warpgroups` that share a tile starts one k-tile of `k` after the first.

    Return None if sums are not promoted. The tensor core's sums use `sets` sets of registers, as many as fit. If tiles
    are `grouped`, a CTA may have none, and no k-tile to wait for.
    """
    if promote_k == 0:
        return None
    if sets == 1:
        alone = warpgroups == 1 and not pingpong
        why = (
            "no warpgroup multiplies while it promotes" if alone else "another warpgroup multiplies while one promotes"
        )
        lacking = (
            "no registers for a second set, and for the factors of two k-tiles"
            if scaled and promote_k == k
            else f"the sums of {promote_k // k} k-tiles accumulate in one set"
            if promote_k > k
            else "no registers for a second set"
        )
        if prod(waves) > 1:
            first, together = (
                ("each member of the pairs are scaled before the other is", "both members at once")
                if waves[1] > 1
                else (f"each {WGMMA_ROWS} rows are scaled before the next are", "all rows at once")
            )
            lacks = Rejected(together, f"{prod(waves)} times the registers for partial sums would not fit")
            why = f"the sums of {first} multiplied; {why}"
            return Choice(False, Decision(SUMS, f"{ONE_SET}, in {prod(waves)} waves", why, rejected=(lacks,)))
        return Choice(False, Decision(SUMS, ONE_SET, why, rejected=(Rejected(TWO_SETS, lacking),)))
    behind = warpgroups == 2 and not (pingpong or grouped)
    why = "a k-tile is multiplied into one set of registers while the sums of the other are promoted"
    rejected = [Rejected(ONE_SET, "tensor cores would wait for promotions")]
    if behind:
        together = "both would store C at the same time, and no warpgroup would multiply"
        rejected.append(Rejected("both warpgroups at the same k-tile", together))
    chosen = f"{TWO_SETS}, {BEHIND}" if behind else TWO_SETS
    return Choice(behind, Decision(SUMS, chosen, why, rejected=tuple(rejected)))


# Rules for the tile that warpgroups multiply, and the number that share it.
#
# One instruction multiplies 64 rows by all columns that a warpgroup has of the tile, since each instruction reads A
# from shared memory once: more columns need less shared memory bandwidth.


WARPGROUPS = (1, 2, 3)
"""Consumer warpgroups: four would leave each thread fewer registers than their tile needs."""


def choose_cta_tile(spec: GemmSpec) -> Choice[Extents]:
    """The extents along M, N and K that one CTA computes at a time."""
    if spec.tile.cta is not None:
        return Choice(spec.tile.cta, Decision.as_given("tile.cta", extents(spec.tile.cta)))
    element = dtype(spec.problem.a.dtype)
    scaled = spec.problem.scale_a
    m, n, k = chosen = (*_default_rows(spec), scaled.block[1] if scaled else LINE_BYTES // element.bytes)
    of_k = "a block of factors" if scaled else f"one {LINE_BYTES}-byte line"
    why = f"{m * n // (m + n)} multiply-adds per element fetched; {_shares(spec, m)}; {k} elements along K are {of_k}"
    return Choice(chosen, Decision("tile.cta", extents(chosen), why))


def _default_rows(spec: GemmSpec) -> tuple[int, int]:
    """Return rows and columns: as many as leave each thread registers for its sums."""
    if column_waves(spec) > 1:  # C has half of the columns
        return (WGMMA_ROWS, 256) if pingpong(spec) else (128, 256)
    if pingpong(spec):
        return (rows_of_warpgroup(spec), WGMMA_ROWS * 128 // rows_of_warpgroup(spec)) if promotes(spec) else (128, 128)
    if _computes_wide_parts(spec):
        return (128, 128) if spec.epilogue.pairs is None else (WGMMA_ROWS, 256)
    if rows_of_warpgroup(spec) > WGMMA_ROWS:
        return (256, 64) if promotes(spec) else (256, 128)
    return (128, 128) if promotes(spec) else (128, 256)


def _computes_wide_parts(spec: GemmSpec) -> bool:
    """Return whether a chain computes blocks of a quantized C beside all sums of a tile.

    With 128 sums a thread of two warpgroups, 64 values of a chain in f32 spilled 40 to 48 bytes: bf16, with a bias,
    with GELU, with SiLU and with pairs of columns (ptxas 13, sm_90a). Promoted sums leave room: their partial sums are
    dead by then. In a swapped product parts are as narrow as they need to be.
    """
    by_rows = spec.epilogue.quantize is not None and spec.problem.c.major == "n"
    return by_rows and bool(spec.epilogue.steps) and not promotes(spec)


def _shares(spec: GemmSpec, m: int) -> str:
    if pingpong(spec):
        return "each warpgroup has a whole tile"
    return "one warpgroup has all rows" if m == WGMMA_ROWS else f"two warpgroups have {m // 2} rows each"


def choose_warpgroups(spec: GemmSpec, cta_tile: Extents, target: Target) -> Choice[Extents]:
    """Choose the warpgroups along M, N and K: two if the tile's rows allow, so that one works while another waits.

    They lie along M, so that each has all columns, and A is read from shared memory once.
    """
    if spec.mma.atom_layout is not None:
        given = _given_warpgroups(spec, cta_tile)
        check_room(spec, given, cta_tile, target)
        return Choice(given, Decision.as_given("mma.atom_layout", extents(given), _skipping(spec, given).lstrip("; ")))
    m = cta_tile[0]
    numbers = (1,) if pingpong(spec) else WARPGROUPS
    rows = rows_of_warpgroup(spec)
    options = [(groups, 1, 1) for groups in numbers if m % (rows * groups) == 0]
    if not options:
        whose = "the rows of a wgmma" if rows == WGMMA_ROWS else f"{WGMMA_ROWS} rows of each member of the pairs"
        raise spec.error(
            "tile.cta",
            found=extents(cta_tile),
            expected=f"M a multiple of {rows}, {whose}",
            fix=f"M = {max(1, round(m / rows)) * rows} is the nearest; {other_family()} on 16 rows",
        )
    chosen = min(options, key=lambda option: _rank(spec, option, cta_tile, target))
    check_room(spec, chosen, cta_tile, target)
    rejected = tuple(
        Rejected(extents(option), _why_not(spec, option, chosen, cta_tile, target))
        for option in options
        if option != chosen
    )
    who = (
        "one warpgroup for the whole tile"
        if chosen[0] == 1
        else f"warpgroups, each with {m // chosen[0]} rows and all {cta_tile[1]} columns"
    )
    sums = sums_of(spec, chosen, cta_tile, target)
    why = f"{who}: {sums} registers per thread for sums{_skipping(spec, chosen)}"
    return Choice(chosen, Decision("mma.atom_layout", extents(chosen), why, rejected=rejected))


def _skipping(spec: GemmSpec, warpgroups: Extents) -> str:
    """Say that warpgroups skip tiles of whose groups they have no rows, if some may have none."""
    grouped = spec.problem.groups
    skips = grouped is not None and grouped.of == "m" and warpgroups[0] > 1
    return "; one that has no rows of a tile's group multiplies nothing" if skips else ""


def _k_tiles_per_turn(spec: GemmSpec, whole: bool, sets: int, waves: int, factors: int) -> int:
    """Return the k-tiles of a turn of the loop; `whole` k-tiles are promoted, with so many `factors` of a thread.

    The assembler interleaves the additions of one k-tile with the wait for the next.
    """
    if sets > 1:
        return PROMOTED_TILES
    if spec.problem.scale_a is None or not whole or factors > MOST_FACTORS_OF_TURN:
        return 1
    return PROMOTED_TILES if waves > 1 else SCALED_TILES


def _rank(spec: GemmSpec, option: Extents, cta_tile: Extents, target: Target) -> tuple[bool, int]:
    """Smaller is better: sums fit, then two warpgroups, then the fewest."""
    return lacks_room(spec, option, cta_tile, target) is not None, abs(option[0] - 2)


def _why_not(spec: GemmSpec, option: Extents, chosen: Extents, cta_tile: Extents, target: Target) -> str:
    if (lack := lacks_room(spec, option, cta_tile, target)) is not None:
        return lack.why
    if option[0] < chosen[0]:
        return "nothing would be multiplied while the warpgroup stores its part of C"
    return f"{option[0]} warpgroups, but {chosen[0]} suffice; fewer registers each"


def _given_warpgroups(spec: GemmSpec, cta_tile: Extents) -> Extents:
    """Return the layout that the spec requests. Raises SpecError if it does not divide the tile."""
    layout = spec.mma.atom_layout
    assert layout is not None
    m, n, k = layout
    if pingpong(spec) and layout != (1, 1, 1):
        raise spec.error(
            "mma.atom_layout",
            found=f"{extents(layout)} warpgroups, with ping-pong consumers",
            expected="1x1x1: each of the two has a tile of its own",
            fix='leave mma.atom_layout out, or schedule.consumers = "cooperative"',
        )
    if k != 1 or m * n not in WARPGROUPS:
        raise spec.error(
            "mma.atom_layout",
            found=f"{extents(layout)} warpgroups",
            expected=f"{either([str(groups) for groups in WARPGROUPS])} warpgroups, 1 along K: in family "
            f"{spec.family} the layout counts warpgroups of 128 threads, not warps",
            fix="use 2x1x1",
        )
    for mode, unit, found in ((0, WGMMA_ROWS * m, m), (1, n, n)):
        if cta_tile[mode] % unit:
            letter = "MN"[mode]
            raise spec.error(
                "mma.atom_layout",
                found=f"{extents(layout)}: {plural(found, 'warpgroup')} along {letter} of {extents(cta_tile)}",
                expected=f"a divisor of the CTA tile's {letter} = {cta_tile[mode]}, in units of {unit // found}",
                fix=f"{letter} = {max(1, round(cta_tile[mode] / unit)) * unit} is the nearest tile",
            )
    return layout


# `wgmma`: a warpgroup multiplies operands in shared memory asynchronously.


@dataclass(frozen=True, slots=True)
class Wgmma(Mma):
    """Every `wgmma.mma_async` of `cutegen/hardware/mma_atoms.py` that reads both operands from shared memory."""

    keys: ClassVar[PartKeys] = WGMMA

    def check(self, spec: GemmSpec, target: Target) -> None:
        """Raise SpecError for element types and majors that no wgmma has."""
        check_dtypes(spec, target)
        check_operands(spec, target)

    def choose(self, spec: GemmSpec, target: Target, cta_tile: Choice[Extents]) -> tuple[MmaPlan, tuple[Decision, ...]]:
        """Choose the warpgroups, and the atom that covers all columns of one."""
        consumers = choose_consumers(spec)
        warpgroups = choose_warpgroups(spec, cta_tile.value, target)
        check_warpgroups(spec, cta_tile.value, warpgroups.value)
        check_blocks(spec, cta_tile.value, warpgroups.value)
        _check_waves(spec, cta_tile.value, warpgroups.value)
        atom = choose_atom(spec, cta_tile.value, warpgroups.value)
        cluster = choose_cluster(spec, cta_tile.value, atom.value, prod(warpgroups.value))
        promotion = choose_promotion(spec, cta_tile.value)
        promote_k = promotion.value if promotion else 0
        last = choose_last_k_tiles(spec, warpgroups.value, cta_tile.value, promote_k)
        in_waves = waves(spec, warpgroups.value, cta_tile.value, target)
        sets = promoted_sets(spec, warpgroups.value, cta_tile.value, target, promote_k)
        sums = choose_promoted_sums(
            sets,
            prod(warpgroups.value),
            promote_k=promote_k,
            k=cta_tile.value[2],
            pingpong=consumers.value,
            scaled=spec.problem.scale_a is not None,
            grouped=spec.problem.groups is not None,
            waves=in_waves,
        )
        turns = Turns.TILES if consumers.value else Turns.LAST_K_TILES if last is not None and last.value else None
        groups = 2 if consumers.value else prod(warpgroups.value)
        choices = filter(None, (cta_tile, atom, warpgroups, consumers, last, cluster, promotion, sums))
        tiled_mma = TiledMma(atom.value, warpgroups.value)
        mma = MmaPlan(
            cta_tile=cta_tile.value,
            atom=atom.value,
            tiled_mma=tiled_mma,
            role=Role(name=MMA, threads=WARPGROUP * groups, groups=groups, turns=turns),
            accumulator=in_registers(
                tiled_mma,
                atom.value,
                cta_tile.value[:2],
                widths=columns_of(atom.value),
                promotion=Promotion(
                    promote_k,
                    sets,
                    staggered=sums is not None and sums.value,
                    waves=in_waves,
                    k_tiles_per_turn=_k_tiles_per_turn(
                        spec,
                        cta_tile.value[2] == promote_k,
                        sets,
                        prod(in_waves),
                        sum(_factors_held(spec, warpgroups.value, cta_tile.value)),
                    ),
                )
                if promote_k
                else None,
            ),
            cluster=cluster.value,
            skips_k_blocks=spec.problem.groups is not None and spec.problem.groups.of == "k" and not promote_k,
        )
        return mma, tuple(choice.decision for choice in choices)

    def counted(self, counts: dict[str, int], plan: CountedPlan) -> dict[str, int]:
        """Return the main loop's instructions; if K is cut into groups, with stores of zeros past a group's end.

        They are written for an only k-tile and for a last one, unless sums are promoted, and for what boxes have before
        a group. The last one's k-blocks are multiplied in a loop of their own, one at a time. Warpgroups that multiply
        tiles in turn load the ends once more, for the other one's next tile.
        """
        stores = plan.stores_of_rest
        if not stores:
            return counts
        written = 1 + plan.mma.skips_k_blocks + (vector_of_k(plan.operands) > 1)
        found = Counter(counts)
        if plan.mma.skips_k_blocks:
            # The k-tile before is waited for, and then each block.
            for action in (Action.MMA_FENCE, Action.MMA_COMMIT, Action.MMA_WAIT, Action.MMA_WAIT):
                found.update(step_opcodes(Step(action), plan.operands, plan.mma, plan.target))
            whole = step_opcodes(Step(Action.MULTIPLY), plan.operands, plan.mma, plan.target)
            found.update({opcode: count // plan.mma.k_blocks for opcode, count in whole.items()})
        loads = {"ld.global.b32": counts.get("ld.global.b32", 0) + 1} if plan.mma.role.alternates else {}
        return {**found, **loads, **{opcode: written * operands for opcode, operands in stores.items()}}

    def registers(self, target: Target, mma: MmaPlan, operands: Operands) -> int:
        """Accumulators, addresses and barriers: operands stay in shared memory."""
        return mma.accumulator.registers + REGISTERS_BESIDE_SUMS
