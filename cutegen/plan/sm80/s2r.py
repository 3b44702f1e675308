"""Rule for the copy from shared memory to fragments: which `ldmatrix`, or plain loads where none can serve."""

from __future__ import annotations

from cutegen.algebra import Layout, TiledCopy, TiledMma, ldmatrix_trace
from cutegen.arch import COPY_ATOMS, CopyAtom, LdmatrixAtom, ldmatrix_atom, universal_atom
from cutegen.errors import SpecError
from cutegen.plan.decision import Choice, Decision, Rejected
from cutegen.plan.gemm_plan import FragmentCopy
from cutegen.plan.operand import OperandTile
from cutegen.spec import GemmSpec

UNIVERSAL = "universal"
MATRIX_COUNTS = (4, 2, 1)
ROW_ELEMS = 8
TOO_FEW_VALS = "TiledCopy uses too few vals for selected CopyAtom"


def choose_s2r(spec: GemmSpec, x: OperandTile, tiled_mma: TiledMma) -> Choice[FragmentCopy]:
    """The `ldmatrix` with the most matrices that a thread's values fill, transposing unless the operand is K-major.

    An 8x8 matrix is 8 rows of 16 contiguous bytes. A thread receives two values of each matrix, so that with V values
    in the tiled MMA's tile, xN needs V % (2 N) == 0 (CuTe: "TiledCopy uses too few vals for selected CopyAtom").
    """
    given = getattr(spec.s2r, x.name)
    asked = None if given is None else given.atom
    values = tiled_mma.values(x.operand)
    atom: LdmatrixAtom | CopyAtom
    if asked == UNIVERSAL or (asked is None and x.vector_elems < ROW_ELEMS):
        atom, bits = universal_atom(_plain_bits(x)), _plain_bits(x)
        chosen = f"{UNIVERSAL}, {bits} bits"
        why = f"the shared layout keeps only {x.vector_elems} elements together, an ldmatrix row is {ROW_ELEMS}"
    else:
        atom, bits = _ldmatrix(spec, x, asked, tiled_mma), 128
        chosen = atom.name
        why = f"x{atom.matrices}, the most with V = {values} a multiple of 2 x {atom.matrices}; {_orientation(x)}"
    rejected = _rejected(x, values, atom)
    copy = FragmentCopy(
        atom=atom,
        bits=bits,
        tiled_copy=TiledCopy.for_mma(atom, tiled_mma, x.operand, x.dtype.bits),
        rejected=rejected,
    )
    why = why if asked is None else "given"
    return Choice(copy, Decision(f"s2r.{x.name}", chosen, why, given=asked is not None, rejected=rejected))


def _transposes(x: OperandTile) -> bool:
    return x.major != "k"


def _orientation(x: OperandTile) -> str:
    if _transposes(x):
        return f"T, since rows of shared memory run along {x.major} and fragments along k"
    return "N, since rows of shared memory run along k as fragments do"


def _largest(x: OperandTile, values: int) -> LdmatrixAtom:
    """The largest `ldmatrix` whose destinations the values fill, in the orientation that the operand needs."""
    count = next(count for count in MATRIX_COUNTS if values % (2 * count) == 0)
    return ldmatrix_atom(count, transpose=_transposes(x))


def _plain_bits(x: OperandTile) -> int:
    """Bits of a plain load: a register holds two neighbours along k (PTX ISA, fragments of mma.m16n8k16)."""
    return x.dtype.bits if _transposes(x) or x.vector_elems < 2 else 2 * x.dtype.bits


def _rejected(x: OperandTile, values: int, chosen: LdmatrixAtom | CopyAtom) -> tuple[Rejected, ...]:
    """Every other way to load this operand, and why it was not taken."""
    best = _largest(x, values)
    wrong = ldmatrix_atom(best.matrices, transpose=not best.transpose)
    wanted = x.name.replace("a", "m").replace("b", "n") if wrong.transpose else "k"
    found = [
        Rejected(atom.name, _why_not(x, values, atom, chosen))
        for atom in (ldmatrix_atom(count, transpose=best.transpose) for count in MATRIX_COUNTS)
        if atom is not chosen
    ]
    found.append(Rejected(wrong.name, f"it reads rows along {wanted}, this operand is contiguous along {x.major}"))
    if isinstance(chosen, LdmatrixAtom):
        loads = 2 * chosen.matrices * x.dtype.bits // _plain_bits(x)
        found.append(Rejected(f"{UNIVERSAL}, {_plain_bits(x)} bits", f"{loads} loads for each {chosen.name}"))
    return tuple(found)


def _why_not(x: OperandTile, values: int, atom: LdmatrixAtom, chosen: LdmatrixAtom | CopyAtom) -> str:
    if values % (2 * atom.matrices):
        return f"{TOO_FEW_VALS}: V = {values} is no multiple of 2 x {atom.matrices}"
    if x.vector_elems < ROW_ELEMS:
        return f"the shared layout keeps only {x.vector_elems} elements together, an ldmatrix row is {ROW_ELEMS}"
    if isinstance(chosen, LdmatrixAtom) and atom.matrices < chosen.matrices:
        return f"{chosen.matrices // atom.matrices} times as many instructions as x{chosen.matrices}"
    return "not what the spec asks for, though it takes fewer instructions"


def _ldmatrix(spec: GemmSpec, x: OperandTile, asked: str | None, tiled_mma: TiledMma) -> LdmatrixAtom:
    """The one asked for, else the largest. Raises SpecError for one that cannot serve."""
    best = _largest(x, tiled_mma.values(x.operand))
    if asked is None:
        return best
    atom = COPY_ATOMS[asked]
    assert isinstance(atom, LdmatrixAtom)
    if atom.transpose != best.transpose:
        raise _wrong_orientation(spec, x, atom, best, tiled_mma)
    if atom.matrices > best.matrices:
        raise spec.error(
            f"s2r.{x.name}.atom",
            found=f"{asked}: {atom.matrices} matrices are {2 * atom.matrices} values a thread, "
            f"but the tiled MMA's tile has V = {tiled_mma.values(x.operand)}",
            expected=f"V % (2 x matrices) == 0 (CuTe: {TOO_FEW_VALS})",
            fix=f"use {best.name}, or a larger mma.permutation",
        )
    if x.vector_elems < ROW_ELEMS:
        raise spec.error(
            f"s2r.{x.name}.atom",
            found=f"{asked} on a shared layout that keeps only {x.vector_elems} elements together",
            expected=f"rows of {ROW_ELEMS} elements, 16 contiguous and aligned bytes",
            fix=f'use "{UNIVERSAL}", or a pad that is a multiple of {ROW_ELEMS}',
        )
    return atom


def _wrong_orientation(
    spec: GemmSpec, x: OperandTile, atom: LdmatrixAtom, best: LdmatrixAtom, tiled_mma: TiledMma
) -> SpecError:
    """Names the rows that would not be contiguous, in a tile without swizzle or padding."""
    plain = Layout(x.extents, (x.extents[1], 1)) if x.major_mode == 1 else Layout(x.extents)
    wrong = ldmatrix_atom(best.matrices, transpose=atom.transpose)
    rows = ldmatrix_trace(tiled_mma, x.operand, plain, wrong, x.dtype.bits).illegal_rows()
    right = ldmatrix_atom(min(atom.matrices, best.matrices), transpose=best.transpose)
    return spec.error(
        f"s2r.{x.name}.atom",
        found=f"{atom.name} on an operand that is {x.major.upper()}-major in shared memory",
        expected=f"rows of {ROW_ELEMS} contiguous elements, but {rows}",
        fix=f"use {right.name}",
    )
