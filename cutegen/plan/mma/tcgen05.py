"""`tcgen05.mma`: one elected thread multiplies tiles in shared memory into tensor memory; its rules, tile and atom."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from cutegen.algebra import Extents, Layout, TiledMma
from cutegen.contract.launch import OPERANDS
from cutegen.errors import SpecError
from cutegen.hardware import TCGEN05_ATOMS, UNIVERSAL_FMA, Instruction, MmaAtom, Target, dtype, targets_with
from cutegen.hardware.factor_atoms import PER_WORD
from cutegen.hardware.tcgen05_atoms import COLUMNS, KINDS, LANES, ROWS, columns_allocated, kind_of
from cutegen.hardware.units import LINE_BYTES, WARP, WARPGROUP
from cutegen.plan.kernel.accumulator import Accumulator, Home
from cutegen.plan.kernel.role import MMA, Role
from cutegen.plan.mma.atom import (
    DEFAULT_ACCUMULATOR,
    WHY_F32_SUMS,
    accumulator_among,
    check_dtypes,
    default_accumulator,
)
from cutegen.plan.parts import Mma, Operands
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.gemm_plan import MmaPlan
from cutegen.plan.values.operand import SIDES
from cutegen.spec import GemmSpec
from cutegen.spec.families import TCGEN05, PartKeys, family_with
from cutegen.support.words import either, extents, plural

DEFAULT_COLUMNS = 256
"""Columns of the default tile: one instruction reads A once for all of them."""
BUFFERS = 2
"""Tiles of sums in tensor memory: one is multiplied while the other is drained."""
DRAIN = "tcgen05.ld.sync.aligned.32x32b"
"""Loads sums of a part: thread i of a warp receives columns of lane i of the warp's quarter (PTX ISA, "tcgen05.ld")."""
DRAINED_COLUMNS = (8, 16, 32, 64, 128)
"""Columns that one load can have, of those that a part can have."""
COLUMNS_BESIDE_FACTORS, MOST_COLUMNS_BESIDE_FACTORS = 192, 224
"""Columns of the default tile if its blocks have factors, and the most of any tile: factors need columns too."""
REGISTERS = 128
"""Registers per thread: an epilogue's part, its chain and its addresses. 192 threads leave each more (an estimate)."""


# Rules: the operands that it multiplies, the tile, and the instruction that covers it.


def check_operands(spec: GemmSpec, target: Target) -> None:
    """Raise SpecError for types that no atom of the target multiplies, and majors that no descriptor reads."""
    a = spec.problem.a.dtype
    of_types = _of_types(spec)
    if not of_types:
        raise _no_atom(spec)
    kind = kind_of(of_types[0])
    if not target.has(*kind.needs):
        having = targets_with(*kind.needs)
        raise spec.error(
            "problem.a.dtype",
            found=f'"{a}" for {target.name}',
            expected=f"{either(having)}: ptxas has .kind::{kind.name} for no other target",
            fix=f"--arch {having[0]}, or {_elsewhere(spec)}",
        )
    for name in OPERANDS:
        major, majors = spec.problem.operand(name).major, of_types[0].majors(SIDES[name])
        element = dtype(spec.problem.operand(name).dtype)
        if major not in majors:
            raise spec.error(
                f"problem.{name}.major",
                found=f'"{major}" of {element.name}',
                expected=f'"{majors[0]}": family {spec.family} transposes no elements of {element.bits} bits',
                fix=f"lay {name.upper()} out with K contiguous, or {_elsewhere(spec)}",
            )


def _no_atom(spec: GemmSpec) -> SpecError:
    a, b = spec.problem.a.dtype, spec.problem.b.dtype
    if (factors := spec.problem.scale_a) is not None:
        scaled = [kind for kind in KINDS.values() if kind.factors is not None]
        return spec.error(
            "problem.scale_a",
            found=f"{factors} of {a} and {b} operands",
            expected=either([f"{x.factors} of blocks of 1x{x.block_k} of {either(list(x.codes))}" for x in scaled]),
            fix='scale = {} with the ops "scale_m" and "scale_n" has factors of whole rows and columns',
        )
    beside_a = list(dict.fromkeys(atom.b_dtype.name for atom in TCGEN05_ATOMS.values() if atom.a_dtype.name == a))
    if beside_a:
        return spec.error(
            "problem.b.dtype",
            found=f'"{b}"',
            expected=f"{either(beside_a)} with A's {a}: tcgen05.mma mixes no other types",
            fix=f'write dtype = "{beside_a[0]}"',
        )
    known = list(dict.fromkeys(atom.a_dtype.name for atom in TCGEN05_ATOMS.values()))
    others = {"f32": f"{spec.in_family(family_with(Instruction.FMA))} multiplies f32 by fma; tensor cores read tf32"}
    return spec.error(
        "problem.a.dtype",
        found=f'"{a}"',
        expected=f"{either(known)}: tcgen05.mma multiplies no other types here",
        fix=others.get(a, "only C may be s32"),
    )


def _elsewhere(spec: GemmSpec) -> str:
    in_bulk = family_with(Instruction.MMA_SYNC, Instruction.BULK_TENSOR)
    return f"{spec.in_family(in_bulk)} multiplies by mma.sync"


def _of_types(spec: GemmSpec) -> tuple[MmaAtom, ...]:
    """Return the atoms of the spec's types, with its factors or without."""
    problem, factors = spec.problem, spec.problem.scale_a
    asked = (None, None) if factors is None else (factors.dtype, factors.block[1])
    return _of(problem.a.dtype, problem.b.dtype, asked)


@cache  # a search calls this for each candidate
def _of(a: str, b: str, factors: tuple[str | None, int | None]) -> tuple[MmaAtom, ...]:
    return tuple(
        atom
        for atom in TCGEN05_ATOMS.values()
        if (atom.a_dtype.name, atom.b_dtype.name) == (a, b)
        and (kind_of(atom).factors, kind_of(atom).block_k) == factors
    )


def choose_cta_tile(spec: GemmSpec) -> Choice[Extents]:
    """The extents along M, N and K that one CTA computes at a time."""
    if spec.tile.cta is not None:
        return Choice(spec.tile.cta, Decision.as_given("tile.cta", extents(spec.tile.cta)))
    element = dtype(spec.problem.a.dtype)
    scaled = spec.problem.scale_a is not None
    columns = COLUMNS_BESIDE_FACTORS if scaled else DEFAULT_COLUMNS
    chosen = ROWS, columns, LINE_BYTES // element.bytes
    of_columns = f"leave {COLUMNS - BUFFERS * columns} of its columns for factors" if scaled else "all of its columns"
    why = (
        f"{ROWS} rows are all lanes of tensor memory, and {BUFFERS} x {columns} columns {of_columns}; "
        f"{chosen[2]} elements along K are one {LINE_BYTES}-byte line"
    )
    half = Rejected(extents((ROWS, 128, chosen[2])), "reads A from shared memory twice as often: 128 bytes a cycle")
    return Choice(chosen, Decision("tile.cta", extents(chosen), why, rejected=(half,)))


def choose_atom(spec: GemmSpec, cta_tile: Extents) -> Choice[MmaAtom]:
    """Choose the instruction that has all of the tile's rows and columns. Raises SpecError if none has."""
    m, n, k = cta_tile
    known = list(dict.fromkeys(atom.c_dtype.name for atom in _of_types(spec)))
    sums = accumulator_among(spec, known)
    of_types = [atom for atom in _of_types(spec) if atom.c_dtype.name == sums]
    if not of_types:
        raise spec.error(
            "problem.accumulator",
            found=f'"{sums}" with {spec.problem.a.dtype} operands',
            expected=f"{either(known)}: no tcgen05.mma sums products of {spec.problem.a.dtype} in {sums}",
            fix=f'accumulator = "{default_accumulator(known)}"',
        )
    kind = kind_of(of_types[0])
    known_n = [columns for columns in kind.columns if kind.factors is None or columns <= MOST_COLUMNS_BESIDE_FACTORS]
    if m != ROWS or n not in known_n:
        nearest = min(known_n, key=lambda columns: abs(columns - n))
        beside = "" if kind.factors is None else ", which leaves columns for factors"
        raise spec.error(
            "tile.cta",
            found=extents(cta_tile),
            expected=f"M = {ROWS}, the lanes of tensor memory, and N a multiple of {known_n[0]} up to {known_n[-1]}"
            + beside,
            fix=f"{extents((ROWS, nearest, k))} is the nearest",
        )
    atom_k, of_k = of_types[0].shape_mnk[2], "the K of one tcgen05.mma"
    if kind.block_k is not None:
        atom_k, of_k = kind.block_k * PER_WORD, f"that of {PER_WORD} factors of a row, which are one word"
    if k % atom_k:
        raise spec.error(
            "tile.cta",
            found=f"{extents(cta_tile)}: K = {k}",
            expected=f"K a multiple of {atom_k}, {of_k}",
            fix=f"K = {max(1, round(k / atom_k)) * atom_k} is the nearest",
        )
    fitting = next(atom for atom in of_types if atom.shape_mnk[1] == n)
    if spec.mma.atom is not None and spec.mma.atom != fitting.name:
        raise spec.error(
            "mma.atom",
            found=spec.mma.atom,
            expected=f"{fitting.name}: all rows and columns of the tile in one instruction, of its types",
            fix=f"use {fitting.name}, or leave the key out",
        )
    if spec.mma.atom is not None:
        return Choice(fitting, Decision.as_given("mma.atom", fitting.name))
    why = f"{fitting.flops:,} operations per instruction: all rows and columns of the tile"
    if spec.problem.accumulator is None and fitting.c_dtype.name == DEFAULT_ACCUMULATOR:
        why += f"; {WHY_F32_SUMS}"
    return Choice(fitting, Decision("mma.atom", fitting.name, why))


def choose_accumulator(atom: MmaAtom, tile: tuple[int, int]) -> Choice[Accumulator]:
    """The buffers of sums in tensor memory: as many tiles as its columns hold, at most two."""
    rows, columns = tile
    allocated = columns_allocated(BUFFERS * columns)
    sums = Accumulator(
        home=Home.TENSOR_MEMORY,
        dtype=atom.c_dtype,
        tile=tile,
        block=tile,
        atom=UNIVERSAL_FMA,
        layout=Layout((WARPGROUP, (1, 1, columns)), (1, (0, 0, rows))),
        buffers=BUFFERS,
        drain=DRAIN,
        widths=DRAINED_COLUMNS,
    )
    why = (
        f"a tile is multiplied while the previous one is stored; {plural(BUFFERS, 'buffer')} of {columns} columns, "
        f"{allocated} of {COLUMNS} allocated, on {LANES} lanes"
    )
    alone = Rejected("1 buffer", "no tile would be multiplied while another is drained")
    return Choice(sums, Decision("mma.accumulator", f"{BUFFERS} buffers in tensor memory", why, rejected=(alone,)))


@dataclass(frozen=True, slots=True)
class Tcgen05(Mma):
    """Every `tcgen05.mma` of `cutegen/hardware/tcgen05_atoms.py`, by one CTA."""

    keys: ClassVar[PartKeys] = TCGEN05

    def check(self, spec: GemmSpec, target: Target) -> None:
        """Raise SpecError for element types that it does not multiply."""
        check_dtypes(spec, target)
        check_operands(spec, target)

    def choose(self, spec: GemmSpec, target: Target, cta_tile: Choice[Extents]) -> tuple[MmaPlan, tuple[Decision, ...]]:
        """Choose the atom that covers the tile, and the buffers of its sums."""
        atom = choose_atom(spec, cta_tile.value)
        accumulator = choose_accumulator(atom.value, cta_tile.value[:2])
        mma = MmaPlan(
            cta_tile=cta_tile.value,
            atom=atom.value,
            tiled_mma=TiledMma(atom.value, (1, 1, 1)),
            role=Role(name=MMA, threads=WARP),
            accumulator=accumulator.value,
        )
        return mma, tuple(choice.decision for choice in (cta_tile, atom, accumulator))

    def registers(self, target: Target, mma: MmaPlan, operands: Operands) -> int:
        """Those of an epilogue's thread: sums are in tensor memory."""
        return REGISTERS
