"""Rule for the copy from shared memory to fragments: which `ldmatrix`, or plain loads where none can serve."""

from __future__ import annotations

from cutegen.algebra import Layout, TiledCopy, TiledMma, ldmatrix_trace
from cutegen.arch import COPY_ATOMS, UNIVERSAL, CopyAtom, LdmatrixAtom, ldmatrix_atom, universal_atom
from cutegen.errors import SpecError
from cutegen.plan.decision import Choice, Decision, Rejected
from cutegen.plan.gemm_plan import FragmentCopy
from cutegen.plan.operand import OperandTile
from cutegen.spec import GemmSpec

MATRIX_COUNTS = (4, 2, 1)
ROW_BITS = 128
REGISTER_BITS = 32
TRANSPOSED_BITS = 16
TOO_FEW_VALS = "TiledCopy uses too few vals for selected CopyAtom"


def choose_s2r(spec: GemmSpec, x: OperandTile, tiled_mma: TiledMma) -> Choice[FragmentCopy]:
    """The `ldmatrix` with the most matrices that a thread's values fill, transposing unless the operand is K-major.

    An 8x8 matrix is 8 rows of 16 contiguous bytes, of which a thread receives 32 bits: 2 values of 16 bits, 4 of 8 bits
    or one of 32. With V values in the tiled MMA's tile, xN needs V to be a multiple of N times as many (CuTe:
    "TiledCopy uses too few vals for selected CopyAtom"). What is transposed are 16-bit elements, so that an operand of
    another width which is not K-major is left to plain loads.
    """
    given = getattr(spec.s2r, x.name)
    asked = None if given is None else given.atom
    values, hinders = tiled_mma.values(x.operand), _hinders(x)
    atom: LdmatrixAtom | CopyAtom
    if asked == UNIVERSAL or (asked is None and hinders):
        atom, bits = universal_atom(_plain_bits(x)), _plain_bits(x)
        chosen, why = f"{UNIVERSAL}, {bits} bits", hinders if asked is None else "given"
    else:
        atom, bits = _ldmatrix(spec, x, asked, tiled_mma), ROW_BITS
        chosen = atom.name
        fits = f"x{atom.matrices}, the most with V = {values} a multiple of {_per_matrix(x)} x {atom.matrices}"
        why = f"{fits}; {_orientation(x)}" if asked is None else "given"
    rejected = _rejected(x, values, atom)
    copy = FragmentCopy(
        atom=atom,
        bits=bits,
        tiled_copy=TiledCopy.for_mma(atom, tiled_mma, x.operand, x.dtype.bits),
        rejected=rejected,
    )
    return Choice(copy, Decision(f"s2r.{x.name}", chosen, why, given=asked is not None, rejected=rejected))


def _row_elems(x: OperandTile) -> int:
    """Elements in a row of an 8x8 matrix."""
    return ROW_BITS // x.dtype.bits


def _per_matrix(x: OperandTile) -> int:
    """Values that a thread receives of one matrix."""
    return REGISTER_BITS // x.dtype.bits


def _hinders(x: OperandTile) -> str:
    """Why no `ldmatrix` can load this operand; empty when one can."""
    if _transposes(x) and not _can_transpose(x):
        return _torn(x)
    if x.vector_elems < _row_elems(x):
        return f"the shared layout keeps only {x.vector_elems} elements together, an ldmatrix row is {_row_elems(x)}"
    return ""


def _can_transpose(x: OperandTile) -> bool:
    return x.dtype.bits == TRANSPOSED_BITS


def _torn(x: OperandTile) -> str:
    """What transposing 16-bit elements does to others."""
    harm = "keeps pairs of them together" if x.dtype.bits < TRANSPOSED_BITS else "tears them in halves"
    return (
        f"rows of shared memory run along {x.major} and fragments along k, and ldmatrix.trans exchanges 16-bit "
        f"elements: of {x.dtype.bits} bits it {harm}"
    )


def _transposes(x: OperandTile) -> bool:
    return x.major != "k"


def _orientation(x: OperandTile) -> str:
    if _transposes(x):
        return f"T, since rows of shared memory run along {x.major} and fragments along k"
    straight = "N, since rows of shared memory run along k as fragments do"
    if _can_transpose(x):
        return straight
    return f"{straight}, 16 bytes being {_row_elems(x)} elements of {x.dtype.bits} bits"


def _largest(x: OperandTile, values: int) -> LdmatrixAtom:
    """The largest `ldmatrix` whose destinations the values fill, in the orientation that the operand needs."""
    count = next(count for count in MATRIX_COUNTS if values % (_per_matrix(x) * count) == 0)
    return ldmatrix_atom(count, transpose=_transposes(x))


def _plain_bits(x: OperandTile) -> int:
    """Bits of a plain load: a register holds neighbours along k (PTX ISA, "Matrix fragments for mma.m16n8k16")."""
    if _transposes(x):
        return x.dtype.bits
    return x.dtype.bits * min(_per_matrix(x), x.vector_elems)


def _rejected(x: OperandTile, values: int, chosen: LdmatrixAtom | CopyAtom) -> tuple[Rejected, ...]:
    """Every other way to load this operand, and why it was not taken."""
    best = _largest(x, values)
    wrong = ldmatrix_atom(best.matrices, transpose=not best.transpose)
    wanted = x.name.replace("a", "m").replace("b", "n") if wrong.transpose else "k"
    counts = MATRIX_COUNTS if _can_transpose(x) or not best.transpose else (best.matrices,)
    found = [
        Rejected(atom.name, _why_not(x, values, atom, chosen))
        for atom in (ldmatrix_atom(count, transpose=best.transpose) for count in counts)
        if atom is not chosen
    ]
    found.append(Rejected(wrong.name, f"it reads rows along {wanted}, this operand is contiguous along {x.major}"))
    if best.transpose and x.dtype.bits < TRANSPOSED_BITS:
        found.append(
            Rejected("ldmatrix.m16n16.trans.b8", "only sm_100 and sm_120 have it; a kernel here suits all targets")
        )
    if isinstance(chosen, LdmatrixAtom):
        loads = REGISTER_BITS * chosen.matrices // _plain_bits(x)
        found.append(Rejected(f"{UNIVERSAL}, {_plain_bits(x)} bits", f"{loads} loads for each {chosen.name}"))
    return tuple(found)


def _why_not(x: OperandTile, values: int, atom: LdmatrixAtom, chosen: LdmatrixAtom | CopyAtom) -> str:
    if values % (_per_matrix(x) * atom.matrices):
        return f"{TOO_FEW_VALS}: V = {values} is no multiple of {_per_matrix(x)} x {atom.matrices}"
    if hinders := _hinders(x):
        return hinders
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
    if not _can_transpose(x) and (atom.transpose or best.transpose):
        raise _cannot_transpose(spec, x, atom, best)
    if atom.transpose != best.transpose:
        raise _wrong_orientation(spec, x, atom, best, tiled_mma)
    if atom.matrices > best.matrices:
        raise spec.error(
            f"s2r.{x.name}.atom",
            found=f"{asked}: {atom.matrices} matrices are {_per_matrix(x) * atom.matrices} values a thread, "
            f"but the tiled MMA's tile has V = {tiled_mma.values(x.operand)}",
            expected=f"V % ({_per_matrix(x)} x matrices) == 0 (CuTe: {TOO_FEW_VALS})",
            fix=f"use {best.name}, or a larger mma.permutation",
        )
    if x.vector_elems < _row_elems(x):
        raise spec.error(
            f"s2r.{x.name}.atom",
            found=f"{asked} on a shared layout that keeps only {x.vector_elems} elements together",
            expected=f"rows of {_row_elems(x)} elements, 16 contiguous and aligned bytes",
            fix=f'use "{UNIVERSAL}", or a pad that is a multiple of {_row_elems(x)}',
        )
    return atom


def _cannot_transpose(spec: GemmSpec, x: OperandTile, atom: LdmatrixAtom, best: LdmatrixAtom) -> SpecError:
    if best.transpose:
        expected, fix = f'"{UNIVERSAL}": {_torn(x)}', f'use "{UNIVERSAL}", or problem.{x.name}.major = "k"'
    else:
        right = ldmatrix_atom(min(atom.matrices, best.matrices), transpose=False)
        expected, fix = _orientation(x), f"use {right.name}"
    return spec.error(
        f"s2r.{x.name}.atom",
        found=f"{atom.name} on {x.dtype.name} that is {x.major.upper()}-major in shared memory",
        expected=expected,
        fix=fix,
    )


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
        expected=f"rows of {_row_elems(x)} contiguous elements, but {rows}",
        fix=f"use {right.name}",
    )
