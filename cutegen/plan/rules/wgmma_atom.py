"""Rules for wgmma: the CTA tile, the instruction, and how many warpgroups share the tile out.

A warpgroup multiplies 64 rows by all columns that it has of the tile with one instruction, since A comes from shared
memory once for each of them: the more columns, the less of shared memory's rate it takes.
"""

from __future__ import annotations

from collections.abc import Iterator

from cutegen.algebra import OperandName
from cutegen.errors import SpecError
from cutegen.hardware import WGMMA_ATOMS, MmaAtom, OperandSource, Target, dtype
from cutegen.hardware.units import LINE_BYTES, REGISTER_BITS, WARPGROUP
from cutegen.plan.predict.occupancy import available_registers
from cutegen.plan.rules.consumers import pingpong
from cutegen.plan.rules.promotion import promotes
from cutegen.plan.rules.register_split import most_registers
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.spec import GemmSpec, Operand
from cutegen.support.words import either, extents, plural

Extents = tuple[int, int, int]

DEFAULT_ACCUMULATOR = "f32"
ROWS = 64
"""Rows of A that every wgmma multiplies (PTX ISA, "wgmma.mma_async": `.shape`)."""
WARPGROUPS = (1, 2, 3)
"""Warpgroups that multiply: four would leave each thread fewer registers than a tile of theirs needs."""
REGISTERS_BESIDE_SUMS = 32
"""What addresses, barriers and the epilogue took in practice."""
REGISTERS_BESIDE_ONE_WGMMA = 26
"""What ptxas 13 wants beside the sums of one instruction, of the registers that threads have at launch (C7602)."""
OTHER = 'family = "sm120" multiplies by mma.sync'


def choose_cta_tile(spec: GemmSpec) -> Choice[Extents]:
    """The extents along M, N and K that one CTA computes at a time."""
    if spec.tile.cta is not None:
        return Choice(spec.tile.cta, Decision("tile.cta", extents(spec.tile.cta), "given", given=True))
    element = dtype(spec.problem.a.dtype)
    m, n, k = chosen = (*_default_rows(spec), LINE_BYTES // element.bytes)
    why = (
        f"{m * n // (m + n)} multiply-adds for each element fetched; {_shares(spec, m)}; {k} "
        f"elements along K are one {LINE_BYTES}-byte line"
    )
    return Choice(chosen, Decision("tile.cta", extents(chosen), why))


def _default_rows(spec: GemmSpec) -> tuple[int, int]:
    """Rows and columns: as many as leave each thread registers for its sums."""
    if pingpong(spec):
        return (ROWS, 128) if promotes(spec) else (128, 128)
    return (128, 128) if promotes(spec) else (128, 256)


def _shares(spec: GemmSpec, m: int) -> str:
    return "a warpgroup has all of it" if pingpong(spec) else f"two warpgroups have {m // 2} rows each"


def check_operands(spec: GemmSpec, target: Target) -> None:
    """Raise SpecError for types and majors that no wgmma has."""
    a, b = spec.problem.a, spec.problem.b
    of_types = [atom for atom in _from_shared() if (atom.a_dtype.name, atom.b_dtype.name) == (a.dtype, b.dtype)]
    if not of_types:
        raise _no_atom(spec)
    parts: tuple[tuple[str, Operand, OperandName], ...] = (("a", a, "A"), ("b", b, "B"))
    for name, operand, op in parts:
        if operand.major not in of_types[0].majors(op):
            way_out = ', or keep a copy of B: transposed = "once"' if name == "b" else ""
            raise spec.error(
                f"problem.{name}.major",
                found=f'"{operand.major}" with {operand.dtype} operands',
                expected='"k": wgmma reads operands of 8 bits along K alone',
                fix=f'major = "k"{way_out}; {OTHER} and takes it',
            )


def _from_shared() -> Iterator[MmaAtom]:
    """The forms that read both operands from shared memory."""
    return (atom for atom in WGMMA_ATOMS.values() if atom.a_source is OperandSource.SMEM)


def _no_atom(spec: GemmSpec) -> SpecError:
    a, b = spec.problem.a.dtype, spec.problem.b.dtype
    beside_a = list(dict.fromkeys(atom.b_dtype.name for atom in _from_shared() if atom.a_dtype.name == a))
    if beside_a:
        return spec.error(
            "problem.b.dtype",
            found=f'"{b}"',
            expected=f"{either(beside_a)} beside A's {a}: wgmma mixes no others",
            fix=f'write dtype = "{beside_a[0]}"',
        )
    known = list(dict.fromkeys(atom.a_dtype.name for atom in _from_shared()))
    others = {"tf32": OTHER, "f32": 'family = "simt" multiplies f32 by fma; tensor cores read them as tf32'}
    return spec.error(
        "problem.a.dtype",
        found=f'"{a}"',
        expected=f"{either(known)}: the CuTe DSL has no wgmma for others",
        fix=others.get(a, "only C may be s32"),
    )


def choose_atom(spec: GemmSpec, cta_tile: Extents, warpgroups: Extents) -> Choice[MmaAtom]:
    """The wgmma of the operands' types that has all of a warpgroup's columns."""
    _, n, k = cta_tile
    columns = n // warpgroups[1]
    of_types = _atoms_for(spec)
    fitting = next((atom for atom in of_types if atom.shape_mnk[1] == columns), None)
    if fitting is None:
        raise _no_columns(spec, cta_tile, warpgroups, of_types)
    if k % fitting.shape_mnk[2]:
        raise spec.error(
            "tile.cta",
            found=f"{extents(cta_tile)}: K = {k}",
            expected=f"K a multiple of {fitting.shape_mnk[2]}, which one wgmma multiplies",
            fix=f"K = {max(1, round(k / fitting.shape_mnk[2])) * fitting.shape_mnk[2]} is the nearest",
        )
    if spec.mma.atom is not None and spec.mma.atom != fitting.name:
        raise _other_atom(spec, WGMMA_ATOMS[spec.mma.atom], fitting, warpgroups)
    if spec.mma.atom is not None:
        return Choice(fitting, Decision("mma.atom", fitting.name, "given", given=True))
    why = f"{fitting.flops:,} operations an instruction: all {columns} columns that a warpgroup has of the tile"
    if spec.problem.accumulator is None and fitting.c_dtype.name == DEFAULT_ACCUMULATOR:
        why += "; f32 sums, since rounding each partial sum to 16 bits loses digits as K grows"
    in_registers = Rejected(
        fitting.name.replace("_SS", "_RS"), "A would pass registers that sums need, for less traffic of shared memory"
    )
    return Choice(fitting, Decision("mma.atom", fitting.name, why, rejected=(in_registers,)))


def _atoms_for(spec: GemmSpec) -> list[MmaAtom]:
    """The forms for the problem's types, narrow ones first. Raises SpecError for sums that they have not."""
    a, b = spec.problem.a.dtype, spec.problem.b.dtype
    of_operands = [atom for atom in _from_shared() if (atom.a_dtype.name, atom.b_dtype.name) == (a, b)]
    if not of_operands:
        raise _no_atom(spec)
    known = list(dict.fromkeys(atom.c_dtype.name for atom in of_operands))
    default = DEFAULT_ACCUMULATOR if DEFAULT_ACCUMULATOR in known else known[0]
    named = WGMMA_ATOMS[spec.mma.atom].c_dtype.name if spec.mma.atom else default
    accumulator = spec.problem.accumulator or named
    fitting = [atom for atom in of_operands if atom.c_dtype.name == accumulator]
    if not fitting:
        raise spec.error(
            "problem.accumulator",
            found=f'"{accumulator}" with {a} operands',
            expected=f"{either(known)}: no wgmma sums products of {a} in {accumulator}",
            fix=f'accumulator = "{default}"',
        )
    return fitting


def _no_columns(spec: GemmSpec, cta_tile: Extents, warpgroups: Extents, atoms: list[MmaAtom]) -> SpecError:
    """No form is as wide as a warpgroup's share of the tile."""
    across, widths = warpgroups[1], [atom.shape_mnk[1] for atom in atoms]
    nearest = min(widths, key=lambda width: abs(width * across - cta_tile[1])) * across
    shared = f", {plural(across, 'warpgroup')} along N" if across > 1 else ""
    return spec.error(
        "tile.cta",
        found=f"{extents(cta_tile)}: N = {cta_tile[1]}{shared}",
        expected=f"columns that one wgmma on {spec.problem.a.dtype} has, for each warpgroup: {_run(widths)}",
        fix=f"N = {nearest} is the nearest",
    )


def _run(widths: list[int]) -> str:
    """A list of extents in few words."""
    return f"{widths[0]} to {widths[-1]} in steps of {widths[-1] - widths[-2]}"


def _other_atom(spec: GemmSpec, atom: MmaAtom, fitting: MmaAtom, warpgroups: Extents) -> SpecError:
    """The atom that the spec names, and the tile does not have."""
    if atom.a_source is not OperandSource.SMEM:
        expected = "an atom that reads A from shared memory: no copy brings fragments of A to registers"
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


def choose_warpgroups(spec: GemmSpec, cta_tile: Extents, target: Target) -> Choice[Extents]:
    """How many warpgroups lie along M, N and K: two where the tile's rows allow, so that one works while another waits.

    Along M, since each then has all columns, and shared memory is read for A once.
    """
    if spec.mma.atom_layout is not None:
        given = _given_warpgroups(spec, cta_tile)
        _check_sums(spec, given, cta_tile, target)
        return Choice(given, Decision("mma.atom_layout", extents(given), "given", given=True))
    m = cta_tile[0]
    numbers = (1,) if pingpong(spec) else WARPGROUPS
    options = [(groups, 1, 1) for groups in numbers if m % (ROWS * groups) == 0]
    if not options:
        raise spec.error(
            "tile.cta",
            found=extents(cta_tile),
            expected=f"M a multiple of {ROWS}, the rows of a wgmma",
            fix=f"M = {max(1, round(m / ROWS)) * ROWS} is the nearest; {OTHER} on 16 rows",
        )
    chosen = min(options, key=lambda option: _rank(spec, option, cta_tile, target))
    _check_sums(spec, chosen, cta_tile, target)
    rejected = tuple(
        Rejected(extents(option), _why_not(spec, option, chosen, cta_tile, target))
        for option in options
        if option != chosen
    )
    if pingpong(spec):
        why = f"one warpgroup for all of a tile: {sums_of(spec, chosen, cta_tile)} registers a thread for sums"
        return Choice(chosen, Decision("mma.atom_layout", extents(chosen), why))
    why = (
        f"warpgroups, each with {m // chosen[0]} rows and all {cta_tile[1]} columns: "
        f"{sums_of(spec, chosen, cta_tile)} registers a thread for sums"
    )
    return Choice(chosen, Decision("mma.atom_layout", extents(chosen), why, rejected=rejected))


def _rank(spec: GemmSpec, option: Extents, cta_tile: Extents, target: Target) -> tuple[bool, int]:
    """Smaller is better: sums have room, then two warpgroups, then the fewest."""
    groups = option[0]
    too_many = sums_of(spec, option, cta_tile) > _most_sums(spec, option, target)
    too_wide = sums_of_one(spec, option, cta_tile) > _most_sums_of_one(spec, option, target)
    return too_many or too_wide, abs(groups - 2)


def _why_not(spec: GemmSpec, option: Extents, chosen: Extents, cta_tile: Extents, target: Target) -> str:
    sums, most = sums_of(spec, option, cta_tile), _most_sums(spec, option, target)
    if sums > most:
        return f"{sums} registers a thread for sums, more than {most}"
    if (sums := sums_of_one(spec, option, cta_tile)) > (most := _most_sums_of_one(spec, option, target)):
        return f"{sums} registers for the sums of one instruction, more than {most} of those at launch"
    if option[0] < chosen[0]:
        return "nobody would multiply while the warpgroup stores its part of C"
    return f"{option[0]} warpgroups where {chosen[0]} do, with fewer registers each"


def _given_warpgroups(spec: GemmSpec, cta_tile: Extents) -> Extents:
    """The layout that the spec asks for. Raises SpecError where the tile is none for it."""
    layout = spec.mma.atom_layout
    assert layout is not None
    m, n, k = layout
    if pingpong(spec) and layout != (1, 1, 1):
        raise spec.error(
            "mma.atom_layout",
            found=f"{extents(layout)} warpgroups, and consumers that take turns",
            expected="1x1x1: each of the two has a tile of its own",
            fix='leave mma.atom_layout out, or schedule.consumers = "cooperative"',
        )
    if k != 1 or m * n not in WARPGROUPS:
        raise spec.error(
            "mma.atom_layout",
            found=f"{extents(layout)} warpgroups",
            expected=f"{either([str(groups) for groups in WARPGROUPS])} warpgroups, 1 along K: in family sm90 the "
            "layout counts warpgroups of 128 threads, not warps",
            fix="use 2x1x1",
        )
    for mode, unit, found in ((0, ROWS * m, m), (1, n, n)):
        if cta_tile[mode] % unit:
            letter = "MN"[mode]
            raise spec.error(
                "mma.atom_layout",
                found=f"{extents(layout)}: {plural(found, 'warpgroup')} along {letter} of {extents(cta_tile)}",
                expected=f"a divisor of the CTA tile's {letter} = {cta_tile[mode]}, in units of {unit // found}",
                fix=f"{letter} = {max(1, round(cta_tile[mode] / unit)) * unit} is the nearest tile",
            )
    return layout


def _check_sums(spec: GemmSpec, warpgroups: Extents, cta_tile: Extents, target: Target) -> None:
    """Raise SpecError where sums leave a thread no registers for the rest: they would spill."""
    sums, most = sums_of(spec, warpgroups, cta_tile), _most_sums(spec, warpgroups, target)
    if sums > most:
        raise spec.error(
            "tile.cta" if spec.mma.atom_layout is None else "mma.atom_layout",
            found=f"{extents(cta_tile)} for {extents(warpgroups)} warpgroups: {sums} registers a thread for sums",
            expected=f"at most {most} beside the {REGISTERS_BESIDE_SUMS} for everything else",
            fix="use a smaller tile" if spec.mma.atom_layout is None else "use more warpgroups, or a smaller tile.cta",
        )
    one, most_of_one = sums_of_one(spec, warpgroups, cta_tile), _most_sums_of_one(spec, warpgroups, target)
    if one > most_of_one:
        n = cta_tile[1] // warpgroups[1]
        raise spec.error(
            "tile.cta" if spec.mma.atom_layout is None else "mma.atom_layout",
            found=f"{extents(cta_tile)} for {extents(warpgroups)} warpgroups: {one} registers for one wgmma's sums",
            expected=f"at most {most_of_one} of those that a thread has at launch, {n * most_of_one // one // 8 * 8} "
            "columns a warpgroup",
            fix="use a narrower tile, or fewer warpgroups",
        )


def sums_of_one(spec: GemmSpec, warpgroups: Extents, cta_tile: Extents) -> int:
    """Registers a thread for the sums of one instruction, which has all columns of a warpgroup."""
    bits = _atoms_for(spec)[0].c_dtype.bits
    return ROWS * (cta_tile[1] // warpgroups[1]) * bits // (REGISTER_BITS * WARPGROUP)


def _most_sums_of_one(spec: GemmSpec, warpgroups: Extents, target: Target) -> int:
    """Ptxas allots an instruction what threads have at launch, before setmaxnreg gives them more."""
    return available_registers(target, WARPGROUP * (_groups(spec, warpgroups) + 1)) - REGISTERS_BESIDE_ONE_WGMMA


def _groups(spec: GemmSpec, warpgroups: Extents) -> int:
    """Warpgroups that multiply: those of one tile, or both that take turns."""
    return warpgroups[0] * warpgroups[1] * (2 if pingpong(spec) else 1)


def sums_of(spec: GemmSpec, warpgroups: Extents, cta_tile: Extents) -> int:
    """Registers a thread for the sums of its share of the tile, and for those that are promoted."""
    (m, n, _), threads = cta_tile, WARPGROUP * warpgroups[0] * warpgroups[1]
    sums = m * n * _atoms_for(spec)[0].c_dtype.bits // (REGISTER_BITS * threads)
    return 2 * sums if promotes(spec) else sums


def _most_sums(spec: GemmSpec, warpgroups: Extents, target: Target) -> int:
    return most_registers(target, WARPGROUP * _groups(spec, warpgroups)) - REGISTERS_BESIDE_SUMS
