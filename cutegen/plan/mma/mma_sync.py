"""`mma.sync`: a warp multiplies fragments that its threads hold in registers; the tile that a thread repeats."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cutegen.algebra import Extents, Layout, TiledMma, offsets, parse_layout, size, spec_notation
from cutegen.hardware import UNIVERSAL, MmaAtom, Target, dtype
from cutegen.plan.epilogue.pairs import check_rows_of_pairs, check_tile
from cutegen.plan.kernel.accumulator import in_registers
from cutegen.plan.kernel.pipeline import MMA, Role
from cutegen.plan.mma.atoms import check_dtypes, choose_atom, choose_atom_layout, choose_tf32_rounding
from cutegen.plan.operands.s2r import transposing
from cutegen.plan.parts import CountedPlan, Mma, Operands
from cutegen.plan.predict import estimate_registers
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.gemm_plan import MmaPlan
from cutegen.spec import GemmSpec
from cutegen.spec.families import MMA_SYNC, PartKeys
from cutegen.support.words import extents, plural, span

# Rule for the tiled MMA's tile: how a thread repeats the atom in its registers, and the columns of a warp.


Permutation = tuple[int | Layout, int | Layout, int]

K_BLOCK_BYTES = 32
"""Bytes of a row of A or B: two rows of ldmatrix."""


def choose_permutation(
    spec: GemmSpec, cta_tile: Extents, atom: MmaAtom, atom_layout: Extents, target: Target
) -> Choice[Permutation]:
    """Choose the tiled MMA's tile: beyond warps x atom, a thread repeats the atom, and one ldmatrix feeds several.

    Its extents, and the layouts of M and N, may be given. Otherwise the atoms of the warps are interleaved along N,
    unless B is loaded in rows of 16 bytes along N. Raises SpecError for given ones that do not fit.
    """
    found = _choose_extents(spec, cta_tile, atom, atom_layout)
    m, n, k = found.value
    pairs = n // (2 * atom_layout[1] * atom.shape_mnk[1])
    in_pairs = _takes_pairs(spec, target) and pairs * 2 * atom_layout[1] * atom.shape_mnk[1] == n
    columns = _in_pairs(atom.shape_mnk[1], atom_layout[1], pairs) if in_pairs else n
    asked = spec.mma.permutation or (m, n, k)
    given = tuple(map(_as_layout, asked))
    if isinstance(asked[1], str) and isinstance(columns, Layout) and not _alike(given[1], columns):
        raise spec.error(
            "mma.permutation",
            found=f'"{asked[1]}" along N',
            expected=f'"{spec_notation(columns)}": an ldmatrix of 8-bit elements loads a warp\'s atoms in pairs',
            fix=f'{n} instead, or s2r.b.atom = "{UNIVERSAL}"',
        )
    if any(isinstance(part, Layout) for part in given):
        return _given_layouts(given, atom, atom_layout)
    if isinstance(columns, int):
        return Choice((m, n, k), found.decision)
    chosen = f"{extents(found.value)}, N as {spec_notation(columns)}"
    why = f"{found.decision.why}; a warp's atoms lie in pairs along N, as an ldmatrix of 8-bit elements loads them"
    decision = Decision("mma.permutation", chosen, why, found.decision.given, found.decision.rejected)
    return Choice((m, columns, k), decision)


def _as_layout(part: int | str) -> int | Layout:
    """Return a mode of the spec's permutation: its extent if it permutes nothing, else its layout."""
    if isinstance(part, int):
        return part
    layout = parse_layout(part)
    assert isinstance(layout, Layout)
    return size(layout) if np.array_equal(offsets(layout), np.arange(size(layout))) else layout


def _given_layouts(given: tuple[int | Layout, ...], atom: MmaAtom, atom_layout: Extents) -> Choice[Permutation]:
    """Return the spec's layouts of M and N, and say which rows and columns each warp then has."""
    m, n, k = given
    shown = (spec_notation(part) if isinstance(part, Layout) else str(part) for part in given)
    why = "; ".join(
        f"of {size(part)} {what} " + ", ".join(f"warp {i} has {span(held)}" for i, held in enumerate(of_warps))
        for what, part, of_warps in (
            (what, part, _of_warps(part, length, warps))
            for what, part, length, warps in zip(("rows", "columns"), (m, n), atom.shape_mnk, atom_layout, strict=False)
            if isinstance(part, Layout)
        )
    )
    decision = Decision.as_given("mma.permutation", " x ".join(shown), why)
    assert isinstance(k, int)
    return Choice((m, n, k), decision)


def _alike(part: int | Layout, other: Layout) -> bool:
    places = offsets(part) if isinstance(part, Layout) else np.arange(part)
    return np.array_equal(places, offsets(other))


def _of_warps(permuted: Layout, length: int, warps: int) -> list[list[int]]:
    """Return the places of the tile that each warp along a mode has; an atom covers `length` of them.

    >>> _of_warps(Layout((8, 2, 2), (1, 16, 8)), 8, 2)[1] == [*range(16, 32)]
    True
    """
    blocks = offsets(permuted).reshape(-1, warps, length)  # [repetition, warp, place in the atom]
    return [np.sort(blocks[:, warp], axis=None).tolist() for warp in range(warps)]


def _takes_pairs(spec: GemmSpec, target: Target) -> bool:
    """Return whether an ldmatrix that transposes bytes loads B."""
    b, plain = spec.problem.b, spec.s2r.of("b").atom == UNIVERSAL
    bits = dtype(b.dtype).bits
    return b.major == "n" and bits == 8 and not plain and bool(transposing(bits, target))


def _in_pairs(columns: int, warps: int, pairs: int) -> Layout:
    """Column of the tile by (column of the atom, warp, atom of the pair, pair).

    >>> _in_pairs(8, 2, 1)
    Layout((8, 2, 2), (1, 16, 8))
    """
    shape, stride = (columns, warps, 2, pairs), (1, 2 * columns, columns, 2 * columns * warps)
    return Layout(shape[: 3 + (pairs > 1)], stride[: 3 + (pairs > 1)])


def _choose_extents(spec: GemmSpec, cta_tile: Extents, atom: MmaAtom, atom_layout: Extents) -> Choice[Extents]:
    base = (atom_layout[0] * atom.shape_mnk[0], atom_layout[1] * atom.shape_mnk[1], atom.shape_mnk[2])
    if spec.mma.permutation is not None:
        return _given_extents(spec, spec.mma.permutation, cta_tile, base)
    of_member = cta_tile[1] // (1 if spec.epilogue.pairs is None else 2)
    n = 2 * base[1] if of_member % (2 * base[1]) == 0 else base[1]
    k_block = K_BLOCK_BYTES // atom.a_dtype.bytes
    k = k_block if cta_tile[2] % k_block == 0 and cta_tile[2] >= 2 * k_block else base[2]
    chosen = (base[0], n, k)
    if chosen == base:
        why = f"warps x atom; the CTA tile {extents(cta_tile)} leaves no room to repeat it"
        return Choice(chosen, Decision("mma.permutation", extents(chosen), why))
    repeats = [
        f"{new // old} times along {letter}"
        for letter, new, old in zip("NK", (n, k), base[1:], strict=True)
        if new > old
    ]
    why = f"warps x atom is {extents(base)}; {' and '.join(repeats)}, so that one ldmatrix feeds more atoms"
    rejected = (Rejected(extents(base), "each ldmatrix would load fewer matrices"),)
    return Choice(chosen, Decision("mma.permutation", extents(chosen), why, rejected=rejected))


def _given_extents(
    spec: GemmSpec, given: tuple[int | str, int | str, int], cta_tile: Extents, base: Extents
) -> Choice[Extents]:
    m, n, k = (part if isinstance(part, int) else size(parse_layout(part)) for part in given)
    for letter, found, unit, extent in zip("MNK", (m, n, k), base, cta_tile, strict=True):
        # A k-tile holds at least two k-blocks: one is multiplied while the next is loaded.
        longest = extent // 2 if letter == "K" else extent
        valid = [size for size in range(unit, longest + 1, unit) if extent % size == 0]
        if found not in valid:
            twice = " at least twice" if letter == "K" else ""
            raise spec.error(
                "mma.permutation",
                found=f"{extents((m, n, k))}: {found} along {letter}",
                expected=f"a multiple of warps x atom = {unit} that divides the CTA tile's {letter} = {extent}{twice} "
                "(CuTe rounds up silently)",
                fix=f"{min(valid, key=lambda size: abs(size - found))} is the nearest",
            )
    as_extents = "; ".join(f'"{part}" permutes nothing' for part in given if isinstance(part, str))
    return Choice((m, n, k), Decision.as_given("mma.permutation", extents((m, n, k)), as_extents))


def _columns_of_member(atom_layout: Extents, permutation: Permutation) -> tuple[int, str]:
    """Return the columns of each member of pairs that a tile has at least, and whose: a thread has both of a pair then.

    Columns as far apart as the tiled MMA is wide are in one thread.
    """
    columns = int(size(permutation[1])) if isinstance(permutation[1], Layout) else permutation[1]
    return columns, f", as many as the tiled MMA has of {plural(atom_layout[1], 'warp')} along N"


# `mma.sync`: a warp multiplies fragments that its threads hold in registers.


@dataclass(frozen=True, slots=True)
class MmaSync(Mma):
    """Every `mma.sync` of `cutegen/hardware/mma_atoms.py`."""

    keys: ClassVar[PartKeys] = MMA_SYNC

    def check(self, spec: GemmSpec, target: Target) -> None:
        """Raise SpecError for element types that the target does not have."""
        check_dtypes(spec, target)
        check_rows_of_pairs(spec)

    def choose(self, spec: GemmSpec, target: Target, cta_tile: Choice[Extents]) -> tuple[MmaPlan, tuple[Decision, ...]]:
        """Choose the atom, the warps, and how a warp repeats the atom in its registers."""
        atom = choose_atom(spec, cta_tile.value)
        tf32 = choose_tf32_rounding(spec, atom.value)
        atom_layout = choose_atom_layout(spec, cta_tile.value, atom.value, target)
        permutation = choose_permutation(spec, cta_tile.value, atom.value, atom_layout.value, target)
        check_tile(spec, cta_tile.value, *_columns_of_member(atom_layout.value, permutation.value))
        choices = (cta_tile, atom, *((tf32,) if tf32 else ()), atom_layout, permutation)
        tiled_mma = TiledMma(atom.value, atom_layout.value, permutation.value)
        mma = MmaPlan(
            cta_tile=cta_tile.value,
            atom=atom.value,
            tiled_mma=tiled_mma,
            role=Role(name=MMA, threads=tiled_mma.threads),
            accumulator=in_registers(tiled_mma, atom.value, cta_tile.value[:2]),
            rounds_to_tf32=tf32 is not None and tf32.value,
        )
        return mma, tuple(choice.decision for choice in choices)

    def registers(self, target: Target, mma: MmaPlan, operands: Operands) -> int:
        """Accumulators, two buffers of fragments, data on its way to shared memory, and addresses."""
        passing = sum(each.passing_registers for each in operands)
        return estimate_registers(target, mma.cta_tile, mma.tiled_mma, mma.atom, passing)

    def counted(self, counts: dict[str, int], plan: CountedPlan) -> dict[str, int]:
        """All but plain loads of fragments, which the compiler may merge."""
        return {opcode: count for opcode, count in counts.items() if not opcode.startswith("ld.shared")}
