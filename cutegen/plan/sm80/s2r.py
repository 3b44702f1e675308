"""Rule for the copy from shared memory to fragments: which `ldmatrix`, or plain loads where none can serve."""

from __future__ import annotations

from cutegen.algebra import Layout, OperandName, TiledCopy, TiledMma, ldmatrix_trace
from cutegen.arch import COPY_ATOMS, LdmatrixAtom, ldmatrix_atom, universal_atom
from cutegen.plan.decision import Choice, Decision, Rejected
from cutegen.plan.gemm_plan import FragmentCopy
from cutegen.spec import MODES, GemmSpec

UNIVERSAL = "universal"
MATRIX_COUNTS = (4, 2, 1)
ROW_ELEMS = 8
OPERANDS: dict[str, OperandName] = {"a": "A", "b": "B"}


def choose_s2r(
    spec: GemmSpec,
    name: str,
    *,
    tiled_mma: TiledMma,
    tile: tuple[int, int],
    major_mode: int,
    element_bits: int,
    smem_vector_elems: int,
) -> Choice[FragmentCopy]:
    """The `ldmatrix` with the most matrices that the thread's values fill, transposing when the operand is not K-major.

    An 8x8 matrix is 8 rows of 16 contiguous bytes. A thread receives two values of each matrix, so that with V values in
    the tiled MMA's tile, xN needs V % (2 N) == 0 (CuTe: "TiledCopy uses too few vals for selected CopyAtom").
    """
    given = getattr(spec.s2r, name)
    asked = given.atom if given is not None else None
    operand = OPERANDS[name]
    values = tiled_mma.values(operand)
    transpose = major_mode != 1
    rejected = _rejected(values, transpose)
    if asked == UNIVERSAL or (asked is None and smem_vector_elems < ROW_ELEMS):
        why = (
            ""
            if asked
            else f"the shared layout keeps only {smem_vector_elems} elements together; an ldmatrix row is {ROW_ELEMS}"
        )
        return _universal(tiled_mma, name, major_mode, element_bits, smem_vector_elems, why)
    if asked is None:
        atom = ldmatrix_atom(_largest(values), transpose=transpose)
    else:
        atom = _given_atom(spec, name, asked, tiled_mma, tile, major_mode, values, smem_vector_elems, element_bits)
    copy = FragmentCopy(
        atom=atom,
        bits=128,
        tiled_copy=TiledCopy.for_mma(atom, tiled_mma, operand, element_bits),
        rejected=tuple(r for r in rejected if r.what != atom.name),
    )
    orientation = "T, since its rows do not run along k" if transpose else "N, since its rows run along k"
    why = f"x{atom.matrices}, the most for which V = {values} is a multiple of 2 x {atom.matrices}; {orientation} in shared memory"
    return Choice(
        copy, Decision(f"s2r.{name}", atom.name, why if asked is None else "given", asked is not None, copy.rejected)
    )


def _largest(values: int) -> int:
    return next(count for count in MATRIX_COUNTS if values % (2 * count) == 0)


def _rejected(values: int, transpose: bool) -> tuple[Rejected, ...]:
    largest = _largest(values)
    found = []
    for count in MATRIX_COUNTS:
        if values % (2 * count):
            why = f"TiledCopy uses too few vals for selected CopyAtom: V = {values} is no multiple of 2 x {count}"
        else:
            why = f"{largest // count} times as many instructions as x{largest}"
        if count != largest:
            found.append(Rejected(ldmatrix_atom(count, transpose=transpose).name, why))
    direction = "along k" if not transpose else "across k"
    wrong = "N reads rows along k" if transpose else "T reads rows across k"
    found.append(
        Rejected(
            ldmatrix_atom(largest, transpose=not transpose).name, f"{wrong}, this operand is contiguous {direction}"
        )
    )
    return tuple(found)


def _universal(
    tiled_mma: TiledMma, name: str, major_mode: int, element_bits: int, smem_vector_elems: int, why: str
) -> Choice[FragmentCopy]:
    # A fragment holds two neighbours along k in one register (PTX ISA, mma.m16n8k16 fragments): 32 bits when k is contiguous.
    bits = 32 if major_mode == 1 and smem_vector_elems >= 32 // element_bits else element_bits
    atom = universal_atom(bits)
    copy = FragmentCopy(
        atom=atom, bits=bits, tiled_copy=TiledCopy.for_mma(atom, tiled_mma, OPERANDS[name], element_bits), rejected=()
    )
    chosen = f"{UNIVERSAL}, {bits} bits"
    return Choice(copy, Decision(f"s2r.{name}", chosen, why or "given", given=not why))


def _given_atom(
    spec: GemmSpec,
    name: str,
    asked: str,
    tiled_mma: TiledMma,
    tile: tuple[int, int],
    major_mode: int,
    values: int,
    smem_vector_elems: int,
    element_bits: int,
) -> LdmatrixAtom:
    atom = COPY_ATOMS[asked]
    assert isinstance(atom, LdmatrixAtom)
    key = f"s2r.{name}.atom"
    transpose = major_mode != 1
    if atom.transpose != transpose:
        plain = Layout(tile, (tile[1], 1)) if major_mode == 1 else Layout(tile)
        wrong = ldmatrix_atom(_largest(values), transpose=atom.transpose)
        trace = ldmatrix_trace(tiled_mma, OPERANDS[name], plain, wrong, element_bits)
        right = ldmatrix_atom(min(atom.matrices, _largest(values)), transpose=transpose)
        raise spec.error(
            key,
            found=f"{asked} on an operand that is {MODES[name][major_mode].upper()}-major in shared memory",
            expected=f"rows of 8 contiguous elements, but {trace.illegal_rows()}",
            fix=f"use {right.name}",
        )
    if values % (2 * atom.matrices):
        best = ldmatrix_atom(_largest(values), transpose=transpose)
        raise spec.error(
            key,
            found=f"{asked}: {atom.matrices} matrices are {2 * atom.matrices} values a thread, the tiled MMA's tile has V = {values}",
            expected="V % (2 x matrices) == 0; CuTe says: TiledCopy uses too few vals for selected CopyAtom",
            fix=f"use {best.name}, or a larger mma.permutation",
        )
    if smem_vector_elems < ROW_ELEMS:
        raise spec.error(
            key,
            found=f"{asked} on a shared layout that keeps only {smem_vector_elems} elements together",
            expected=f"rows of {ROW_ELEMS} elements, 16 contiguous bytes, aligned",
            fix='use "universal", or a pad that is a multiple of 8',
        )
    return atom
