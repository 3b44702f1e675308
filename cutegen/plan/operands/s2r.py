"""Rule for the copy from shared memory to fragments: an `ldmatrix`, or plain loads if none fits."""

from dataclasses import dataclass

from cutegen import hardware
from cutegen.algebra import Layout, TiledCopy, TiledMma
from cutegen.errors import SpecError
from cutegen.hardware import UNIVERSAL, LdmatrixAtom, Target, ldmatrix_atoms, ldmatrix_trace
from cutegen.hardware.ldmatrix import ROW_BYTES
from cutegen.hardware.units import REGISTER_BITS
from cutegen.plan.smem_layouts import rows_of_tile
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.fragments import FragmentCopy, LdmatrixLoads, PlainLoads
from cutegen.plan.values.operand import OperandTile
from cutegen.spec import GemmSpec
from cutegen.support.words import either, extents, plural

ROW_BITS = 8 * ROW_BYTES
TRANSPOSED_BITS = 16
TOO_FEW_VALS = "TiledCopy uses too few vals for selected CopyAtom"
PLAIN_LOADS = f'"{UNIVERSAL}"'
"""Plain loads, as a spec requests them."""


@dataclass(frozen=True, slots=True)
class FragmentDemands:
    """Requirements of an operand's fragments on the copy that fills them, on one target."""

    x: OperandTile
    tiled_mma: TiledMma
    target: Target

    @property
    def bits(self) -> int:
        """Bits of an element."""
        return self.x.dtype.bits

    @property
    def values(self) -> int:
        """V, the values of a thread in the tiled MMA's tile."""
        return self.tiled_mma.values(self.x.operand)

    @property
    def transposes(self) -> bool:
        """True if rows of shared memory do not run along k, as fragments do."""
        return self.x.major != "k"

    @property
    def row_elems(self) -> int:
        """Elements in a row of a matrix."""
        return ROW_BITS // self.bits

    @property
    def suited(self) -> tuple[LdmatrixAtom, ...]:
        """Every `ldmatrix` of the right orientation, largest first; empty if none transposes such elements."""
        return transposing(self.bits, self.target) if self.transposes else ldmatrix_atoms(transpose=False)

    def fits(self, atom: LdmatrixAtom) -> bool:
        """Return whether a thread's values fill the destinations (CuTe: "too few vals")."""
        return self.values % (self.per_matrix(atom) * atom.matrices) == 0

    @property
    def largest(self) -> LdmatrixAtom | None:
        """The `ldmatrix` with the most matrices that fits."""
        return next((atom for atom in self.suited if self.fits(atom)), None)

    def per_matrix(self, atom: LdmatrixAtom) -> int:
        """Values that a thread receives from one matrix."""
        return atom.registers // atom.matrices * REGISTER_BITS // self.bits

    def order(self, atom: LdmatrixAtom) -> Layout | None:
        """Order in which the copy numbers a thread's values; None if it is the MMA's."""
        return hardware.order_of_byte_loads(self.tiled_mma, self.x.operand) if atom.element_bits == 8 else None

    @property
    def plain_bits(self) -> int:
        """Bits of a plain load: a register holds neighbors along k (PTX ISA, "Matrix fragments for mma.m16n8k16")."""
        return self.bits * min(REGISTER_BITS // self.x.multiplied.bits, self.x.last_elems)


def transposing(bits: int, target: Target) -> tuple[LdmatrixAtom, ...]:
    """Every `ldmatrix` of `target` that transposes elements of so many bits, largest first."""
    atoms = ldmatrix_atoms(transpose=True, element_bits=bits)
    return tuple(atom for atom in atoms if target.has(atom.needs))


def choose_s2r(spec: GemmSpec, x: OperandTile, tiled_mma: TiledMma, target: Target) -> Choice[FragmentCopy]:
    """Choose the `ldmatrix` with the most matrices that a thread's values fill, transposing unless K-major.

    A row of a matrix is 16 contiguous bytes, and a thread receives 32 bits of 8 rows: 2 values of 16 bits, 4 of 8 bits
    or one of 32. With V values in the tiled MMA's tile, xN needs V to be a multiple of the values that a thread
    receives from its matrices (CuTe: "TiledCopy uses too few vals for selected CopyAtom"). 16-bit elements can be
    transposed, and on some targets 8-bit elements; any other operand that is not K-major uses plain loads.
    """
    fragments = FragmentDemands(x, tiled_mma, target)
    asked = spec.s2r.of(x.name).atom
    hinders = _hinders(fragments)
    copy: FragmentCopy
    if asked == UNIVERSAL or (asked is None and hinders):
        copy = _plain_loads(fragments)
        chosen, why = f"{UNIVERSAL}, {copy.bits} bits", hinders if asked is None else "given"
    else:
        atom = _ldmatrix(spec, fragments, asked)
        copy = _ldmatrix_loads(fragments, atom)
        fits = f"x{atom.matrices} is the widest: {fragments.values} values per thread fill whole x{atom.matrices} loads"
        chosen, why = atom.name, f"{fits}; {_orientation(fragments)}" if asked is None else "given"
    return Choice(copy, Decision(f"s2r.{x.name}", chosen, why, given=asked is not None, rejected=copy.rejected))


def _plain_loads(fragments: FragmentDemands) -> PlainLoads:
    x, bits = fragments.x, fragments.plain_bits
    atom = hardware.universal_atom(bits)
    tiled_copy = TiledCopy.for_mma(atom, fragments.tiled_mma, x.operand, x.dtype.bits)
    return PlainLoads(atom=atom, bits=bits, tiled_copy=tiled_copy, rejected=_rejected(fragments, None))


def _ldmatrix_loads(fragments: FragmentDemands, atom: LdmatrixAtom) -> LdmatrixLoads:
    x, tiled_mma, order = fragments.x, fragments.tiled_mma, fragments.order(atom)
    values = fragments.per_matrix(atom) * atom.matrices
    return LdmatrixLoads(
        atom=atom,
        bits=ROW_BITS,
        tiled_copy=TiledCopy.for_mma(atom, tiled_mma, x.operand, x.dtype.bits, order),
        order=order,
        view=order and hardware.view_in_order(tiled_mma, x.operand, x.extents, order, values),
        rejected=_rejected(fragments, atom),
    )


def _hinders(fragments: FragmentDemands) -> str:
    """Return why no `ldmatrix` can load this operand; empty if one can."""
    if converted := _converted(fragments):
        return converted
    if not fragments.suited:
        return _torn(fragments)
    if split := _split_rows(fragments):
        return split
    together = fragments.x.vector_elems
    if together < fragments.row_elems:
        kept = plural(together, "element")
        return f"the shared layout keeps only {kept} contiguous, an ldmatrix row has {fragments.row_elems}"
    return ""


def _converted(fragments: FragmentDemands) -> str:
    """Return why an operand that is converted in registers is loaded by elements; empty if it is not."""
    x = fragments.x
    if x.multiplied.bits == x.dtype.bits:
        return ""
    return (
        f"a thread converts its own {x.dtype.name} to {x.multiplied.name}, and an ldmatrix gives it neighbors' elements"
    )


def _split_rows(fragments: FragmentDemands) -> str:
    """Return why a row of 16 bytes along M or N is not one warp's; empty if it is, as rows of 8 elements always are."""
    smallest = fragments.suited[-1]
    if smallest.element_bits != 8:
        return ""
    x, tiled_mma = fragments.x, fragments.tiled_mma
    tile = tiled_mma.tile_of(x.operand)
    order = fragments.order(smallest)
    if fragments.fits(smallest) and ldmatrix_trace(tiled_mma, x.operand, Layout(tile), smallest, 8, order).legal:
        return ""
    return (
        f"rows of {fragments.row_elems} elements along {x.major} span two atoms of one warp, and the tiled MMA's "
        f"tile {extents(tiled_mma.tile_mnk)} has one"
    )


def _torn(fragments: FragmentDemands) -> str:
    """Return the effect of transposing 16-bit elements on other types."""
    bits = fragments.bits
    harm = "keeps pairs of them together" if bits < TRANSPOSED_BITS else "splits them in halves"
    return (
        f"rows of shared memory run along {fragments.x.major} and fragments along k, and ldmatrix.trans transposes "
        f"16-bit elements: with {bits} bits it {harm}"
    )


def targets_transposing(bits: int) -> str:
    """Return the targets whose `ldmatrix` transposes elements of so many bits; empty if none does.

    >>> targets_transposing(8), targets_transposing(32)
    ('sm_100, sm_103 or sm_120', '')
    """
    return either([target.name for target in hardware.TARGETS.values() if transposing(bits, target)])


def _orientation(fragments: FragmentDemands) -> str:
    if fragments.transposes:
        across = f"T, since rows of shared memory run along {fragments.x.major} and fragments along k"
        if fragments.bits == TRANSPOSED_BITS:
            return across
        return f"{across}, and ldmatrix of {fragments.target.name} transposes {fragments.bits}-bit elements"
    straight = "N, since rows of shared memory run along k as fragments do"
    if fragments.bits == TRANSPOSED_BITS:
        return straight
    return f"{straight}; 16 bytes are {fragments.row_elems} elements of {fragments.bits} bits"


def _rejected(fragments: FragmentDemands, chosen: LdmatrixAtom | None) -> tuple[Rejected, ...]:
    """Return every alternative to `chosen` (None for plain loads), and why it was rejected."""
    x, transposes = fragments.x, fragments.transposes
    tearing = () if fragments.suited else (_largest_of(fragments, ldmatrix_atoms(transpose=True)),)
    found = [
        Rejected(atom.name, _why_not(fragments, atom, chosen))
        for atom in (*fragments.suited, *tearing)
        if atom is not chosen
    ]
    wrong = _largest_of(fragments, ldmatrix_atoms(transpose=not transposes))
    wanted = x.name.replace("a", "m").replace("b", "n") if wrong.transpose else "k"
    found.append(Rejected(wrong.name, f"reads rows along {wanted}, but this operand is contiguous along {x.major}"))
    if not fragments.suited and (targets := targets_transposing(fragments.bits)):
        name = ldmatrix_atoms(transpose=True, element_bits=fragments.bits)[0].name
        found.append(
            Rejected(name, f"transposes {fragments.bits}-bit elements, on {targets}; this is {fragments.target.name}")
        )
    if chosen is not None:
        loads = REGISTER_BITS * chosen.registers // fragments.plain_bits
        found.append(Rejected(f"{UNIVERSAL}, {fragments.plain_bits} bits", f"{loads} loads per {chosen.name}"))
    return tuple(found)


def _largest_of(fragments: FragmentDemands, atoms: tuple[LdmatrixAtom, ...]) -> LdmatrixAtom:
    """Return the largest that would fit with the right orientation; else the smallest."""
    return next((atom for atom in atoms if fragments.fits(atom)), atoms[-1])


def _why_not(fragments: FragmentDemands, atom: LdmatrixAtom, chosen: LdmatrixAtom | None) -> str:
    if not fragments.fits(atom):
        multiple = f"{fragments.per_matrix(atom)} x {atom.matrices}"
        return f"{TOO_FEW_VALS}: V = {fragments.values} is not a multiple of {multiple}"
    if hinders := _hinders(fragments):
        return hinders
    if chosen is not None and atom.matrices < chosen.matrices:
        return f"{chosen.matrices // atom.matrices} times as many instructions as x{chosen.matrices}"
    return "not what the spec requests, though it needs fewer instructions"


def _ldmatrix(spec: GemmSpec, fragments: FragmentDemands, asked: str | None) -> LdmatrixAtom:
    """Return the requested one, else the largest. Raises SpecError if it cannot load this operand."""
    best = fragments.largest
    if asked is None:
        assert best is not None
        return best
    atom = hardware.LDMATRIX_ATOMS[asked]
    if converted := _converted(fragments):
        raise spec.error(f"s2r.{fragments.x.name}.atom", found=f"{asked}, though {converted}", expected=PLAIN_LOADS)
    if atom not in fragments.suited:
        raise _unsuited(spec, fragments, atom)
    key = f"s2r.{fragments.x.name}.atom"
    if best is None or atom.matrices > best.matrices:
        per_matrix = fragments.per_matrix(atom)
        raise spec.error(
            key,
            found=f"{asked}: {atom.matrices} matrices hold {per_matrix * atom.matrices} values per thread, "
            f"but the tiled MMA's tile has V = {fragments.values}",
            expected=f"V % ({per_matrix} x matrices) == 0 (CuTe: {TOO_FEW_VALS})",
            fix=f"use {best.name if best else PLAIN_LOADS}, or a larger mma.permutation",
        )
    if split := _split_rows(fragments):
        raise spec.error(
            key,
            found=f"{asked}, though {split}",
            expected=f"at least two atoms per warp along {fragments.x.major}",
            fix=f"a larger mma.permutation along {fragments.x.major}, or use {PLAIN_LOADS}",
        )
    row_elems = fragments.row_elems
    if fragments.x.vector_elems < row_elems:
        kept = plural(fragments.x.vector_elems, "element")
        raise spec.error(
            key,
            found=f"{asked} on a shared layout that keeps only {kept} contiguous",
            expected=f"rows of {row_elems} elements, 16 contiguous and aligned bytes",
            fix=f"use {PLAIN_LOADS}, or a pad that is a multiple of {row_elems}",
        )
    return atom


def _unsuited(spec: GemmSpec, fragments: FragmentDemands, atom: LdmatrixAtom) -> SpecError:
    """Return the error for an `ldmatrix` of the wrong orientation, or one that cannot transpose such elements."""
    if fragments.bits == atom.element_bits == TRANSPOSED_BITS:
        return _wrong_orientation(spec, fragments, atom)
    x, target = fragments.x, fragments.target
    if fragments.suited:
        expected, fix = _orientation(fragments), f"use {_like(fragments, atom).name}"
    else:
        expected, fix = PLAIN_LOADS, f'use {PLAIN_LOADS}, or problem.{x.name}.major = "k"'
        expected += f": {_torn(fragments)}"
        if targets := targets_transposing(fragments.bits):
            expected += f"; {targets} transpose {fragments.bits}-bit elements as well"
            fix += f", or --arch {targets.rpartition(' ')[2]}"
    return spec.error(
        f"s2r.{x.name}.atom",
        found=f"{atom.name} for {target.name}, on {x.dtype.name} that is {x.major.upper()}-major in shared memory",
        expected=expected,
        fix=fix,
    )


def _like(fragments: FragmentDemands, atom: LdmatrixAtom) -> LdmatrixAtom:
    """Return the nearest suitable `ldmatrix`: with as many matrices, or the most available."""
    fitting = [row for row in fragments.suited if fragments.fits(row)] or [fragments.suited[-1]]
    return next((row for row in fitting if row.matrices <= atom.matrices), fitting[-1])


def _wrong_orientation(spec: GemmSpec, fragments: FragmentDemands, atom: LdmatrixAtom) -> SpecError:
    """Return the error that names the rows that are not contiguous, in a tile without swizzle or padding."""
    x = fragments.x
    plain = rows_of_tile(x.extents, x.major_mode)
    wrong = _largest_of(fragments, ldmatrix_atoms(transpose=atom.transpose))
    rows = ldmatrix_trace(fragments.tiled_mma, x.operand, plain, wrong, fragments.bits).illegal_rows()
    return spec.error(
        f"s2r.{x.name}.atom",
        found=f"{atom.name} on an operand that is {x.major.upper()}-major in shared memory",
        expected=f"rows of {fragments.row_elems} contiguous elements, but {rows}",
        fix=f"use {_like(fragments, atom).name}",
    )
