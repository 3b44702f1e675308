"""`tcgen05.mma`: an elected thread multiplies tiles in shared memory, its CTA's or a pair's, into tensor memory."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

from cutegen.algebra import Extents, Layout, TiledMma
from cutegen.contract.launch import OPERANDS
from cutegen.contract.problem import QUANTIZED_BLOCK
from cutegen.errors import SpecError
from cutegen.hardware import MMA_ATOMS, TCGEN05_ATOMS, UNIVERSAL_FMA, Instruction, MmaAtom, Target, dtype, targets_with
from cutegen.hardware.factor_atoms import ATOM_COLUMNS, ATOM_ROWS, PER_WORD
from cutegen.hardware.tcgen05 import (
    COLUMNS,
    KINDS,
    LANES,
    PAIR,
    ROWS,
    columns_allocated,
    columns_of_sums,
    kind_of,
    load_of,
)
from cutegen.hardware.units import LINE_BYTES, WARP, WARPGROUP
from cutegen.plan.epilogue.pairs import MATRIX_COLUMNS, check_tile
from cutegen.plan.epilogue.quantized import check_blocks, check_drained
from cutegen.plan.kernel.accumulator import Accumulator, Home, in_registers
from cutegen.plan.kernel.pipeline import MMA, Role
from cutegen.plan.mma import blocks
from cutegen.plan.mma.atoms import (
    DEFAULT_ACCUMULATOR,
    WHY_F32_SUMS,
    accumulator_among,
    check_dtypes,
    default_accumulator,
)
from cutegen.plan.operands.factors import most_blocks
from cutegen.plan.parts import CountedPlan, Mma, Operands
from cutegen.plan.schedule.cluster import CLUSTER, MOST_SUMS_LEFT
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.gemm_plan import MmaPlan, vector_of_k
from cutegen.plan.values.operand import SIDES
from cutegen.spec import GemmSpec
from cutegen.spec.families import TCGEN05, PartKeys, family_with
from cutegen.support.words import either, extents, plural

DEFAULT_COLUMNS = 256
"""Columns of the default tile: one instruction reads A once for all of them."""
BUFFERS = 2
"""Tiles of sums in tensor memory: one is multiplied while the other is drained."""
FRAGMENT = "SM80_16x8x16_F32F16F16F32_TN"
"""An atom whose sums lie among the threads of a warp as `tcgen05.ld.16x256b` loads them: 16 lanes of 8 columns."""
DRAINED_COLUMNS = (8, 16, 32, 64, 128)
"""Columns that one load can have, of those that a part can have."""
COLUMNS_BESIDE_FACTORS, STAGES_OF_FACTORS = (192, 128), 4
"""Columns of the default tile if its blocks have factors, and the fewest stages that it leaves columns for: factors
need columns too.
"""
PAIRS_WITH_FACTORS = 2 * ATOM_ROWS
"""Columns of a tile if they are in pairs and have factors: of each member those of a whole atom."""
WHY_WHOLE_ATOMS: Mapping[int, str] = {
    1: "of one CTA no tcgen05.mma with factors has fewer",
    PAIR: "an atom of factors has those of 128 rows in 4 columns, of which a CTA with 64 rows would need the first 2, "
    "and its peer the last 2, but an instruction names one column for both",
}
"""The reason that a tile with factors has all rows of an atom, by the CTAs that multiply together."""
ALONE_WHY = "each CTA copies its own operands, and waits for no other"
PAIR_WHY_NOT = "each CTA would copy half of B, and read less of it from shared memory, but wait for its peer's copies"
REGISTERS = 128
"""Registers per thread: an epilogue's part, its chain and its addresses. 192 threads leave each more (an estimate)."""


# Rules: the operands that it multiplies, the tile, and the instruction that covers it.


def check_operands(spec: GemmSpec, target: Target) -> None:
    """Raise SpecError for types that no atom of the target multiplies, and majors that no descriptor reads."""
    a = spec.problem.a.dtype
    if blocks.scales_sums(spec):
        blocks.check_types(spec)
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
    if a == "tf32" and spec.problem.groups is not None and spec.problem.groups.of == "k":
        raise spec.error(
            "problem.groups",
            found=f'of = "k" with {a} operands',
            expected="elements of 8 or 16 bits: what follows a group becomes 0 in shared memory, where the DSL stores "
            f"no element of {a}",
            fix='problem.a.dtype = "bf16"',
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
    """Return the atoms of the spec's types, that read its factors or none."""
    problem, factors = spec.problem, spec.problem.scale_a
    asked = (None, None) if factors is None or not factors.in_atoms else (factors.dtype, factors.block[1])
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
    if blocks.scales_sums(spec):
        return blocks.choose_cta_tile(spec)
    element, sliced = dtype(spec.problem.a.dtype), spec.schedule.slices > 1
    scaled, k = spec.problem.scale_a is not None, LINE_BYTES // element.bytes
    fits = (each for each in COLUMNS_BESIDE_FACTORS if stages_of_factors(spec, each) >= STAGES_OF_FACTORS)
    columns = next(fits, ATOM_ROWS) if scaled else DEFAULT_COLUMNS
    if scaled and (grouped := spec.problem.groups) is not None and grouped.value.packs(("n",)):
        columns = ATOM_ROWS  # those of a group begin an atom
    if spec.epilogue.quantize is not None:
        columns -= columns % QUANTIZED_BLOCK[1]
    if scaled and spec.epilogue.pairs is not None:
        columns = PAIRS_WITH_FACTORS
    buffers = 1 if scaled and columns == DEFAULT_COLUMNS else BUFFERS
    of_columns = f"leave {COLUMNS - buffers * columns} of its columns for factors" if scaled else "all of its columns"
    half = Rejected(extents((ROWS, 128, k)), "reads A from shared memory twice as often: 128 bytes a cycle")
    if sliced and columns > MOST_SUMS_LEFT:
        half = Rejected(extents((ROWS, columns, k)), f"a thread would leave {columns} sums of a slice at once")
        columns, of_columns = MOST_SUMS_LEFT, "are what a thread leaves of a slice at once"
    chosen = ROWS, columns, k
    why = (
        f"{ROWS} rows are all lanes of tensor memory, and {buffers} x {columns} columns {of_columns}; "
        f"{chosen[2]} elements along K are one {LINE_BYTES}-byte line"
    )
    return Choice(chosen, Decision("tile.cta", extents(chosen), why, rejected=(half,)))


def stages_of_factors(spec: GemmSpec, columns: int) -> int:
    """Return the stages of one line along K whose factors have columns of tensor memory beside tiles of `columns`."""
    element = dtype(spec.problem.a.dtype)
    return (COLUMNS - BUFFERS * columns) // columns_of_stage(spec, (ROWS, columns, LINE_BYTES // element.bytes))


def columns_of_stage(spec: GemmSpec, cta_tile: Extents) -> int:
    """Return the columns of tensor memory for the factors of a k-tile; 0 if no instruction reads any."""
    factors, values = spec.problem.scale_a, dtype(spec.problem.a.dtype).values
    if factors is None or not factors.in_atoms:
        return 0
    m, n, k = cta_tile
    atoms = k * values // (factors.block[1] * PER_WORD)
    return ATOM_COLUMNS * atoms * (most_blocks(m, ATOM_ROWS) + most_blocks(n, ATOM_ROWS))


def choose_cta_group(spec: GemmSpec) -> Choice[int]:
    """The CTAs that multiply together: one, if the spec does not give a pair, or an atom of pairs."""
    key = "mma.cta_group"
    if (asked := spec.mma.cta_group) is not None:
        return Choice(asked, Decision.as_given(key, _ctas(asked)))
    if spec.mma.atom is not None:
        of_atom = TCGEN05_ATOMS[spec.mma.atom].ctas
        return Choice(of_atom, Decision(key, _ctas(of_atom), f"that {spec.mma.atom} is for"))
    return Choice(1, Decision(key, _ctas(1), ALONE_WHY, rejected=(Rejected(_ctas(PAIR), PAIR_WHY_NOT),)))


def _ctas(count: int) -> str:
    return "a pair" if count == PAIR else "1 CTA"


def choose_cluster(spec: GemmSpec, cta_group: int) -> Choice[Extents]:
    """The CTAs along M and N that share copies: a pair's at least. Raises SpecError for another number of them."""
    key, asked = "schedule.cluster", spec.schedule.cluster
    if asked is None:
        chosen = cta_group, 1, 1
        why = "the CTAs of a pair, neighbors along M" if cta_group == PAIR else ALONE_WHY
        m, n, _ = wider = 2 * cta_group, 1, 1
        rejected = (Rejected(extents(wider[:2]), f"reads B from L2 once for {m} tiles, but each CTA waits for others"),)
        return Choice(chosen, Decision(key, extents(chosen[:2]), why, rejected=rejected))
    m, n, along_k = (*asked, 1)[:3]
    if along_k != 1:
        raise spec.error(
            key,
            found=extents(asked),
            expected="1 along K: a persistent CTA multiplies all of a tile's K",
            fix=f"schedule.cluster = [{m}, {n}]",
        )
    if m % cta_group:
        raise spec.error(
            key,
            found=f"{extents((m, n))} with mma.cta_group = {cta_group}",
            expected="an even number along M: the CTAs of a pair are neighbors there",
            fix=f"schedule.cluster = [{m + 1}, {n}], or mma.cta_group = 1",
        )
    return Choice((m, n, 1), Decision.as_given(key, extents((m, n))))


def check_slices(spec: GemmSpec, cta_tile: Extents, cluster: Extents) -> None:
    """Raise SpecError for slices of K in clusters, and of tiles of which a thread would hold too many sums at once."""
    if spec.schedule.slices == 1:
        return
    if cluster != (1, 1, 1) or spec.schedule.reduction == CLUSTER:
        paired = cluster[0] == PAIR == spec.mma.cta_group
        key = "mma.cta_group" if paired else "schedule.cluster" if cluster != (1, 1, 1) else "schedule.reduction"
        raise spec.error(
            key,
            found=f"{extents(cluster[:2])} CTAs together, or a reduction in them, with schedule.split_k = "
            f"{spec.schedule.slices}",
            expected="one CTA at a time, and a workspace: each counts the slices of its own tile",
            fix=f"leave {key} out",
        )
    m, n, _ = cta_tile
    if m * n > MOST_SUMS_LEFT * WARPGROUP:
        raise spec.error(
            "tile.cta",
            found=f"{extents(cta_tile)} with schedule.split_k = {spec.schedule.slices}",
            expected=f"at most {MOST_SUMS_LEFT} sums of each of {WARPGROUP} threads, which leave them at once: "
            f"{m} x {n} / {WARPGROUP} = {m * n // WARPGROUP}",
            fix=f"tile.cta = [{m}, {MOST_SUMS_LEFT * WARPGROUP // m}, {cta_tile[2]}]",
        )


def check_pairs(spec: GemmSpec, cta_tile: Extents, ctas: int) -> None:
    """Raise SpecError for pairs of columns of whose two sums no thread can load both: those of a lane of tensor memory.

    The columns of one member are the first half of the tile's. The CTAs of a pair copy those of a member each.
    """
    if spec.epilogue.pairs is None:
        return
    if spec.epilogue.pairs.value.of == "m":
        raise spec.error(
            "epilogue.pairs",
            found=f"{spec.epilogue.pairs.value} with schedule.swap = true",
            expected="columns of the tile: as rows they are in two lanes of tensor memory, and a thread loads one",
            fix="leave schedule.swap out",
        )
    if blocks.scales_sums(spec):
        raise spec.error(
            "epilogue.pairs",
            found=f"{spec.epilogue.pairs.value} with factors of f32",
            expected="no factors: those of the columns of each member would be copied and added apart",
            fix="an activation of its own after the product",
        )
    if spec.problem.scale_a is not None and cta_tile[1] != PAIRS_WITH_FACTORS:
        raise spec.error(
            "tile.cta",
            found=f"{extents(cta_tile)} with epilogue.pairs: {cta_tile[1] // 2} columns of each member",
            expected=f"N = {PAIRS_WITH_FACTORS}: an instruction reads the factors of neighboring columns, so each "
            f"member has an atom of {ATOM_ROWS}",
            fix=f"tile.cta = {[cta_tile[0], PAIRS_WITH_FACTORS, cta_tile[2]]}",
        )
    if cta_tile[0] * ctas == ROWS and ctas == PAIR:
        raise spec.error(
            "tile.cta",
            found=f"{extents(cta_tile)} of a pair of CTAs with epilogue.pairs",
            expected=f"M = {ROWS}: of {cta_tile[0]} rows the second half of the columns is in other lanes",
            fix=f"tile.cta = {[ROWS, *cta_tile[1:]]}, or mma.cta_group = 1",
        )
    check_tile(spec, cta_tile, MATRIX_COLUMNS)


def choose_atom(spec: GemmSpec, cta_tile: Extents, ctas: int) -> Choice[MmaAtom]:
    """Choose the instruction that has all rows and columns of the tile of `ctas`. Raises SpecError if none has."""
    m, n, k = cta_tile
    known = list(dict.fromkeys(atom.c_dtype.name for atom in _of_types(spec)))
    sums = accumulator_among(spec, known)
    of_types = [atom for atom in _of_types(spec) if (atom.c_dtype.name, atom.ctas) == (sums, ctas)]
    if not of_types:
        raise spec.error(
            "problem.accumulator",
            found=f'"{sums}" with {spec.problem.a.dtype} operands',
            expected=f"{either(known)}: no tcgen05.mma sums products of {spec.problem.a.dtype} in {sums}",
            fix=f'accumulator = "{default_accumulator(known)}"',
        )
    kind = kind_of(of_types[0])
    beside = ", of which each CTA of a pair has half in shared memory" if ctas == PAIR else ""
    all_rows = sorted({atom.rows("C") for atom in of_types})
    known_n = sorted({atom.shape_mnk[1] for atom in of_types})
    if kind.factors is not None and m not in all_rows:
        beside = f"{beside}; {WHY_WHOLE_ATOMS[ctas]}"
    if m not in all_rows or n not in known_n:
        nearest = min(known_n, key=lambda columns: abs(columns - n))
        rows = min(all_rows, key=lambda rows: abs(rows - m))
        half = ", or half of them" if len(all_rows) > 1 else ""
        raise spec.error(
            "tile.cta",
            found=extents(cta_tile),
            expected=f"M = {ROWS}, the lanes of tensor memory{half}, and N a multiple of {known_n[0]} up to "
            f"{known_n[-1]}{beside}",
            fix=f"{extents((rows, nearest, k))} is the nearest",
        )
    atom_k, of_k = of_types[0].shape_mnk[2], "the K of one tcgen05.mma"
    if kind.block_k is not None:
        element = of_types[0].a_dtype
        values = "" if element.values == 1 else f", {plural(element.values, 'value')} each"
        atom_k = kind.block_k * PER_WORD // element.values
        of_k = f"that of {PER_WORD} factors of a row, which are one word{values}"
    if k % atom_k:
        raise spec.error(
            "tile.cta",
            found=f"{extents(cta_tile)}: K = {k}",
            expected=f"K a multiple of {atom_k}, {of_k}",
            fix=f"K = {max(1, round(k / atom_k)) * atom_k} is the nearest",
        )
    fitting = next(atom for atom in of_types if (atom.rows("C"), atom.shape_mnk[1]) == (m, n))
    if spec.mma.atom is not None and spec.mma.atom != fitting.name:
        raise spec.error(
            "mma.atom",
            found=spec.mma.atom,
            expected=f"{fitting.name}: all rows and columns of {_whose(ctas)} tile in one instruction, of its types",
            fix=f"use {fitting.name}, or leave the key out",
        )
    if spec.mma.atom is not None:
        return Choice(fitting, Decision.as_given("mma.atom", fitting.name))
    why = f"{fitting.flops:,} operations per instruction: all rows and columns of {_whose(ctas)} tile"
    if spec.problem.accumulator is None and fitting.c_dtype.name == DEFAULT_ACCUMULATOR:
        why += f"; {WHY_F32_SUMS}"
    return Choice(fitting, Decision("mma.atom", fitting.name, why))


def _whose(ctas: int) -> str:
    return "the pair's" if ctas == PAIR else "the"


def choose_accumulator(atom: MmaAtom, tile: tuple[int, int], of_factors: int = 0) -> Choice[Accumulator]:
    """The buffers of sums in tensor memory: as many tiles as its columns hold, at most two.

    They leave columns for the factors of a stage, `of_factors`.
    """
    rows, ctas = tile[0], atom.ctas
    columns = columns_of_sums(*tile, ctas)
    buffers = max(1, min(BUFFERS, (COLUMNS - of_factors) // columns))
    used = plural(buffers, "buffer")
    allocated = columns_allocated(buffers * columns)
    sums = replace(
        _as_loaded(tile, ctas),
        home=Home.TENSOR_MEMORY,
        dtype=atom.c_dtype,
        columns=columns,
        buffers=buffers,
        drain=load_of(rows, ctas, atom.c_dtype),
        widths=DRAINED_COLUMNS,
    )
    overlapped = "a tile is multiplied while the previous one is stored"
    other = Rejected("1 buffer", "no tile would be multiplied while another is drained")
    if buffers < BUFFERS:
        left = COLUMNS - BUFFERS * columns
        overlapped = "a tile is multiplied when the previous one is in registers"
        short = f"{left} columns would be left, and the factors of a stage have {of_factors}"
        other = Rejected(plural(BUFFERS, "buffer"), short)
    why = f"{overlapped}; {used} of {columns} columns, {allocated} of {COLUMNS} allocated, on {LANES} lanes"
    return Choice(sums, Decision("mma.accumulator", f"{used} in tensor memory", why, rejected=(other,)))


def _as_loaded(tile: tuple[int, int], ctas: int) -> Accumulator:
    """Return the sums as four warps receive them: a lane by each thread, or fragments of half of the lanes.

    With 64 rows, a pair has the second half of the columns in the other lanes: two warps have all rows of a half.
    """
    rows, columns = tile
    if rows * ctas < ROWS:
        fragment = MMA_ATOMS[FRAGMENT]
        loaded = in_registers(TiledMma(fragment, (WARPGROUP // fragment.threads, 1, 1)), fragment, tile)
        return replace(loaded, block=tile)
    halves = ROWS // rows
    return Accumulator(
        home=Home.TENSOR_MEMORY,
        dtype=UNIVERSAL_FMA.c_dtype,
        tile=tile,
        block=(rows, columns // halves),
        atom=UNIVERSAL_FMA,
        layout=Layout(((rows, halves), (1, 1, columns // halves)), ((1, columns // halves * rows), (0, 0, rows))),
        group_threads=rows,
    )


@dataclass(frozen=True, slots=True)
class Tcgen05(Mma):
    """Every `tcgen05.mma` of `cutegen/hardware/tcgen05.py`, by one CTA or a pair."""

    keys: ClassVar[PartKeys] = TCGEN05

    def check(self, spec: GemmSpec, target: Target) -> None:
        """Raise SpecError for element types that it does not multiply."""
        check_dtypes(spec, target)
        check_operands(spec, target)

    def choose(self, spec: GemmSpec, target: Target, cta_tile: Choice[Extents]) -> tuple[MmaPlan, tuple[Decision, ...]]:
        """Choose the atom that covers the tile, and the buffers of its sums."""
        check_drained(spec)
        cta_group = choose_cta_group(spec)
        atom, cluster = choose_atom(spec, cta_tile.value, cta_group.value), choose_cluster(spec, cta_group.value)
        check_slices(spec, cta_tile.value, cluster.value)
        check_pairs(spec, cta_tile.value, cta_group.value)
        tile = cta_tile.value[:2]
        if blocks.scales_sums(spec):
            blocks.check_tile(spec, target, cta_tile.value)
            sums, of_sums = blocks.choose_accumulator(spec, target, atom.value, tile)
        else:
            accumulator = choose_accumulator(atom.value, tile, columns_of_stage(spec, cta_tile.value))
            sums, of_sums = accumulator.value, (accumulator.decision,)
        check_blocks(spec, cta_tile.value, (1, sums.threads // sums.group_threads, 1))
        mma = MmaPlan(
            cta_tile=cta_tile.value,
            atom=atom.value,
            tiled_mma=TiledMma(atom.value, (1, 1, 1)),
            role=Role(name=MMA, threads=WARP),
            accumulator=sums,
            cluster=cluster.value,
        )
        before = (choice.decision for choice in (cta_tile, cta_group, atom))
        return mma, (*before, *of_sums, cluster.decision)

    def counted(self, counts: dict[str, int], plan: CountedPlan) -> dict[str, int]:
        """Return the main loop's instructions; if K is cut into groups, with stores of zeros past a group's end.

        If boxes begin before a group, they are written for that too, or with atoms of factors NaN to those of A.
        """
        stores = plan.stores_of_rest
        if stores and vector_of_k(plan.operands) > 1:
            stores += stores if all(x.is_multiplied for x in plan.operands) else Counter({"st.shared.b32": 1})
        return {**counts, **stores}

    def registers(self, target: Target, mma: MmaPlan, operands: Operands) -> int:
        """Those of an epilogue's thread: sums are in tensor memory, unless it adds those of blocks."""
        return REGISTERS if mma.accumulator.promotion is None else blocks.registers(target, mma.accumulator)
