"""Rules for wgmma: the operands that it reads, and the instruction."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from cutegen.algebra import Extents, OperandName
from cutegen.errors import SpecError
from cutegen.hardware import WGMMA_ATOMS, DType, Instruction, MmaAtom, OperandSource, Target
from cutegen.plan.rules.mma import DEFAULT_ACCUMULATOR, WHY_F32_SUMS, accumulator_among, default_accumulator
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.spec import GemmSpec, Operand
from cutegen.spec.families import family_with
from cutegen.support.words import either, extents, plural


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
    columns = n // warpgroups[1]
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
    why = f"{fitting.flops:,} operations per instruction: all {columns} columns that a warpgroup has of the tile"
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
