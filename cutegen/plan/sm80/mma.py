"""Rules for the tensor core: CTA tile, MMA atom, warps, and the permutation that repeats the atom in registers."""

from __future__ import annotations

from cutegen.algebra import Layout, TiledMma
from cutegen.arch import MMA_ATOMS, MmaAtom
from cutegen.plan.decision import Choice, Decision, Rejected
from cutegen.plan.text import extents
from cutegen.spec import GemmSpec

DEFAULT_CTA_TILE = (128, 128, 64)
DEFAULT_ACCUMULATOR = "f32"
WARP_COUNTS = (4, 8, 16)
MAX_ACCUMULATOR_REGISTERS = 128


def choose_cta_tile(spec: GemmSpec) -> Choice[tuple[int, int, int]]:
    """The extents along M, N and K that one CTA computes at a time."""
    if spec.tile.cta is not None:
        return Choice(spec.tile.cta, Decision("tile.cta", extents(spec.tile.cta), "given", given=True))
    m, n, k = DEFAULT_CTA_TILE
    why = (
        f"each k-tile does {m * n * k:,} multiply-adds for {(m + n) * k:,} elements fetched, {m * n // (m + n)} for each; "
        f"a k-tile of {k} 16-bit elements is one 128-byte line"
    )
    return Choice(DEFAULT_CTA_TILE, Decision("tile.cta", extents(DEFAULT_CTA_TILE), why))


def choose_atom(spec: GemmSpec, cta_tile: tuple[int, int, int]) -> Choice[MmaAtom]:
    """The `mma.sync` of the operands' types with the longest K that leaves two k-blocks to double-buffer."""
    a, b = spec.problem.a.dtype, spec.problem.b.dtype
    accumulator = spec.problem.accumulator
    if a != b:
        raise spec.error(
            "problem.b.dtype",
            found=b,
            expected=f"{a}, since mma.sync takes A and B of one type",
            fix=f'write dtype = "{a}" for both',
        )
    if spec.mma.atom is not None:
        return _given_atom(spec, MMA_ATOMS[spec.mma.atom])
    accumulator = accumulator or DEFAULT_ACCUMULATOR
    fitting = [atom for atom in MMA_ATOMS.values() if _types(atom) == (a, b, accumulator)]
    if not fitting:
        known = sorted({atom.c_dtype.name for atom in MMA_ATOMS.values() if atom.a_dtype.name == a})
        raise spec.error(
            "problem.accumulator",
            found=f"{accumulator} with {a} operands",
            expected=f"{' or '.join(known)}: no mma.sync accumulates {a} in {accumulator}"
            if known
            else "f16 or bf16 operands",
        )
    fitting.sort(key=lambda atom: -atom.shape_mnk[2])
    usable = [atom for atom in fitting if cta_tile[2] >= 2 * atom.shape_mnk[2] and cta_tile[2] % atom.shape_mnk[2] == 0]
    if not usable:
        shortest = fitting[-1].shape_mnk[2]
        raise spec.error(
            "tile.cta",
            found=f"K = {cta_tile[2]}",
            expected=f"a multiple of {shortest} and at least {2 * shortest}: two k-blocks of {fitting[-1].name}",
            fix=f"K = {max(2 * shortest, -(-cta_tile[2] // shortest) * shortest)} is the nearest",
        )
    chosen = usable[0]
    rejected = tuple(Rejected(atom.name, _why_not(atom, chosen, cta_tile)) for atom in fitting if atom is not chosen)
    why = f"{a} operands, {accumulator} accumulators; {chosen.flops:,} operations an instruction, the most there are"
    return Choice(chosen, Decision("mma.atom", chosen.name, why, rejected=rejected))


def _types(atom: MmaAtom) -> tuple[str, str, str]:
    return atom.a_dtype.name, atom.b_dtype.name, atom.c_dtype.name


def _why_not(atom: MmaAtom, chosen: MmaAtom, cta_tile: tuple[int, int, int]) -> str:
    if atom.shape_mnk[2] > chosen.shape_mnk[2]:
        return f"a k-tile of {cta_tile[2]} does not hold two k-blocks of {atom.shape_mnk[2]}"
    return f"{atom.flops:,} operations an instruction against {chosen.flops:,}"


def _given_atom(spec: GemmSpec, atom: MmaAtom) -> Choice[MmaAtom]:
    wanted = (spec.problem.a.dtype, spec.problem.b.dtype, spec.problem.accumulator or atom.c_dtype.name)
    if _types(atom) != wanted:
        fitting = [row.name for row in MMA_ATOMS.values() if _types(row) == wanted]
        raise spec.error(
            "mma.atom",
            found=f"{atom.name}, which multiplies {_types(atom)[0]} by {_types(atom)[1]} into {_types(atom)[2]}",
            expected=f"an atom for {wanted[0]} by {wanted[1]} into {wanted[2]}",
            fix=f"use {' or '.join(fitting)}" if fitting else "no mma.sync has these types; change problem.accumulator",
        )
    return Choice(atom, Decision("mma.atom", atom.name, "given", given=True))


def choose_atom_layout(spec: GemmSpec, cta_tile: tuple[int, int, int], atom: MmaAtom) -> Choice[tuple[int, int, int]]:
    """How many warps lie along M, N and K.

    The fewest warps whose accumulators fit in registers, arranged so that the fewest fragments are read from shared memory: a
    warp row reads all of B and a warp column all of A, so a k-tile costs M * warps_n + N * warps_m fragment rows.
    """
    if spec.mma.atom_layout is not None:
        return _given_atom_layout(spec, cta_tile, atom)
    m, n, _ = cta_tile
    options = [
        (wm, warps // wm, 1)
        for warps in (1, 2, *WARP_COUNTS)
        for wm in (16, 8, 4, 2, 1)
        if warps % wm == 0 and m % (wm * atom.shape_mnk[0]) == 0 and n % (warps // wm * atom.shape_mnk[1]) == 0
    ]
    if not options:
        raise spec.error(
            "tile.cta",
            found=extents(cta_tile),
            expected=f"M a multiple of {atom.shape_mnk[0]} and N of {atom.shape_mnk[1]}, the atom's tile",
            fix=f"{extents(_rounded_up(cta_tile, atom))} is the nearest",
        )

    def rank(option: tuple[int, int, int]) -> tuple[bool, bool, int, int, int]:
        wm, wn, _ = option
        too_full = _accumulator_registers(cta_tile, atom, option) > MAX_ACCUMULATOR_REGISTERS
        return too_full, wm * wn < WARP_COUNTS[0], wm * wn, m * wn + n * wm, wn

    options.sort(key=rank)
    chosen = options[0]
    rejected = tuple(
        Rejected(extents(option), _why_not_warps(option, chosen, cta_tile, atom)) for option in options[1:6]
    )
    registers = _accumulator_registers(cta_tile, atom, chosen)
    why = (
        f"warp tiles of {m // chosen[0]} x {n // chosen[1]}; {registers} accumulator registers a thread of at most "
        f"{MAX_ACCUMULATOR_REGISTERS}; {m * chosen[1] + n * chosen[0]:,} fragment rows read per k-tile"
    )
    return Choice(chosen, Decision("mma.atom_layout", extents(chosen), why, rejected=rejected))


def _accumulator_registers(cta_tile: tuple[int, int, int], atom: MmaAtom, atom_layout: tuple[int, int, int]) -> int:
    elems = cta_tile[0] * cta_tile[1] // (32 * atom_layout[0] * atom_layout[1])
    return elems * atom.c_dtype.bits // 32


def _why_not_warps(
    option: tuple[int, int, int], chosen: tuple[int, int, int], cta_tile: tuple[int, int, int], atom: MmaAtom
) -> str:
    registers = _accumulator_registers(cta_tile, atom, option)
    if registers > MAX_ACCUMULATOR_REGISTERS:
        return f"{registers} accumulator registers a thread, more than {MAX_ACCUMULATOR_REGISTERS}"
    warps = option[0] * option[1]
    if warps != chosen[0] * chosen[1]:
        return (
            f"{warps} warps where {chosen[0] * chosen[1]} do"
            if warps > WARP_COUNTS[0]
            else "fewer warps than schedulers"
        )
    rows = cta_tile[0] * option[1] + cta_tile[1] * option[0]
    return f"{rows:,} fragment rows read per k-tile"


def _rounded_up(cta_tile: tuple[int, int, int], atom: MmaAtom) -> tuple[int, int, int]:
    m, n, k = (max(1, -(-extent // unit)) * unit for extent, unit in zip(cta_tile, atom.shape_mnk, strict=True))
    return m, n, k


def _given_atom_layout(spec: GemmSpec, cta_tile: tuple[int, int, int], atom: MmaAtom) -> Choice[tuple[int, int, int]]:
    layout = spec.mma.atom_layout
    assert layout is not None
    if layout[2] != 1:
        raise spec.error(
            "mma.atom_layout",
            found=extents(layout),
            expected="1 along K: warps that share a result would have to add their partial sums",
            fix=f"{extents((layout[0], layout[1], 1))} has no such sums; so has {extents((layout[0] * layout[2], layout[1], 1))}",
        )
    for mode, letter in ((0, "M"), (1, "N")):
        unit = layout[mode] * atom.shape_mnk[mode]
        if cta_tile[mode] % unit:
            raise spec.error(
                "mma.atom_layout",
                found=f"{extents(layout)}: {layout[mode]} warps x {atom.shape_mnk[mode]} = {unit} along {letter}",
                expected=f"a divisor of the CTA tile's {letter} = {cta_tile[mode]}",
                fix=f"{letter} = {max(1, round(cta_tile[mode] / unit)) * unit} is the nearest tile",
            )
    return Choice(layout, Decision("mma.atom_layout", extents(layout), "given", given=True))


def choose_permutation(
    spec: GemmSpec, cta_tile: tuple[int, int, int], atom: MmaAtom, atom_layout: tuple[int, int, int]
) -> Choice[tuple[int, int, int]]:
    """The tiled MMA's tile: more than warps x atom repeats the atom in a thread's registers, so that one ldmatrix feeds more of it."""
    base = tuple(warps * extent for warps, extent in zip(atom_layout, atom.shape_mnk, strict=True))
    if spec.mma.permutation is not None:
        return _given_permutation(spec, cta_tile, base)
    if cta_tile[2] % base[2] or cta_tile[2] < 2 * base[2]:
        raise spec.error(
            "tile.cta",
            found=f"{extents(cta_tile)}: K = {cta_tile[2]} with {atom.name}",
            expected=f"a multiple of the atom's K = {base[2]}, at least twice: one k-block is multiplied while the next is loaded",
            fix=f"K = {max(2, round(cta_tile[2] / base[2])) * base[2]} is the nearest",
        )
    n = 2 * base[1] if cta_tile[1] % (2 * base[1]) == 0 else base[1]
    k = 16 if cta_tile[2] % 16 == 0 and cta_tile[2] >= 32 else base[2]
    chosen = (base[0], n, k)
    repeats = [
        f"{letter} {new // old} times" for letter, new, old in (("N", n, base[1]), ("K", k, base[2])) if new > old
    ]
    if repeats:
        why = (
            f"warps x atom is {extents(base)}; repeated along {' and '.join(repeats)}, so that one ldmatrix.x4 feeds B"
        )
    else:
        why = f"warps x atom; the CTA tile {extents(cta_tile)} leaves no room for a repetition"
    rejected = (Rejected(extents(base), "an ldmatrix would load fewer matrices"),) if repeats else ()
    return Choice(chosen, Decision("mma.permutation", extents(chosen), why, rejected=rejected))


def _given_permutation(
    spec: GemmSpec, cta_tile: tuple[int, int, int], base: tuple[int, ...]
) -> Choice[tuple[int, int, int]]:
    permutation = spec.mma.permutation
    assert permutation is not None
    for letter, found, unit, extent in zip("MNK", permutation, base, cta_tile, strict=True):
        valid = [size for size in range(unit, extent + 1, unit) if extent % size == 0]
        if found not in valid:
            nearest = min(valid, key=lambda size: abs(size - found), default=unit)
            raise spec.error(
                "mma.permutation",
                found=f"{extents(permutation)}: {found} along {letter}",
                expected=f"a multiple of warps x atom = {unit} that divides the CTA tile's {letter} = {extent} (CuTe rounds up in silence)",
                fix=f"{nearest} is the nearest",
            )
    if cta_tile[2] < 2 * permutation[2]:
        raise spec.error(
            "mma.permutation",
            found=f"{extents(permutation)}: {permutation[2]} along K of a k-tile of {cta_tile[2]}",
            expected="at least two k-blocks in a k-tile, one multiplied while the next is loaded",
            fix=f"K = {base[2]} in the permutation"
            if cta_tile[2] >= 2 * base[2]
            else f"tile.cta with K = {2 * permutation[2]}",
        )
    return Choice(permutation, Decision("mma.permutation", extents(permutation), "given", given=True))


def tiled_mma(atom: MmaAtom, atom_layout: tuple[int, int, int], permutation: tuple[int, int, int]) -> TiledMma:
    """The three choices together."""
    return TiledMma(atom, Layout(atom_layout), permutation)
