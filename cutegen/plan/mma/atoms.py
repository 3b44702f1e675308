"""Rules for the tensor core: CTA tile, MMA atom, and warps."""

from collections.abc import Sequence
from dataclasses import dataclass

from cutegen.algebra import Extents
from cutegen.contract.launch import OPERANDS
from cutegen.errors import SpecError
from cutegen.hardware import MMA_ATOMS, SM_RATES, DType, MmaAtom, Target, dtype, targets_with
from cutegen.hardware.units import LINE_BYTES, REGISTER_BITS, SCHEDULERS, WARP
from cutegen.plan.operands.staging import expected_registers
from cutegen.plan.predict import available_registers
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.spec import GemmSpec
from cutegen.spec.values import ATOMS
from cutegen.support.words import either, extents

DEFAULT_CTA_ROWS = (128, 128)
DEFAULT_ACCUMULATOR = "f32"
WHY_F32_SUMS = "f32 sums, since rounding each partial sum to 16 bits loses digits as K grows"
WARP_COUNTS = (1, 2, 4, 8, 16)
MAX_HELD_REGISTERS = 128
MAX_HELD_REGISTERS_BESIDE_F16 = 64
NARROWEST_COPY_BITS = 32


def choose_cta_tile(spec: GemmSpec) -> Choice[Extents]:
    """The extents along M, N and K that one CTA computes at a time."""
    if spec.tile.cta is not None:
        return Choice(spec.tile.cta, Decision.as_given("tile.cta", extents(spec.tile.cta)))
    element = dtype(spec.problem.a.dtype)
    m, n, k = chosen = (*DEFAULT_CTA_ROWS, LINE_BYTES // element.bytes)
    why = (
        f"{m * n // (m + n)} multiply-adds per element fetched: {m * n * k:,} for {(m + n) * k:,} in a k-tile, "
        f"whose {k} {element.bits}-bit elements along K are one {LINE_BYTES}-byte line"
    )
    return Choice(chosen, Decision("tile.cta", extents(chosen), why))


def choose_atom(spec: GemmSpec, cta_tile: Extents) -> Choice[MmaAtom]:
    """Choose the `mma.sync` of the operands' types with the longest K that leaves two k-blocks to double-buffer."""
    fitting = _atoms_for(spec)
    if spec.mma.atom is not None:
        atom = MMA_ATOMS[spec.mma.atom]
        if atom not in fitting:
            raise _mismatched(spec, atom, fitting)
        _check_k(spec, cta_tile, atom)
        return Choice(atom, Decision.as_given("mma.atom", atom.name))
    usable = [atom for atom in fitting if _double_buffers(cta_tile, atom)]
    if not usable:
        _check_k(spec, cta_tile, fitting[-1])
    chosen = usable[0]
    rejected = tuple(Rejected(atom.name, _why_not(atom, chosen, cta_tile)) for atom in fitting if atom is not chosen)
    why = f"{chosen.flops:,} operations per instruction on {_operands(chosen)} operands with {chosen.c_dtype.name} sums"
    if spec.problem.accumulator is None and chosen.c_dtype.name == DEFAULT_ACCUMULATOR and chosen.a_dtype.bits <= 16:
        why += f"; {WHY_F32_SUMS}"
    if chosen.c_dtype.is_integer:
        why += ", which saturate instead of wrapping"
    return Choice(chosen, Decision("mma.atom", chosen.name, why, rejected=rejected))


def _atoms_for(spec: GemmSpec) -> list[MmaAtom]:
    """The atoms of the problem's types, longest K first. Raises SpecError when there is none."""
    a, b = spec.problem.a.dtype, spec.problem.b.dtype
    of_operands = [atom for atom in MMA_ATOMS.values() if (atom.a_dtype.name, atom.b_dtype.name) == (a, b)]
    if not of_operands:
        raise _no_atom(spec, a, b)
    known = sorted({atom.c_dtype.name for atom in of_operands})
    accumulator = accumulator_among(spec, known)
    fitting = [atom for atom in of_operands if atom.c_dtype.name == accumulator]
    if not fitting:
        raise spec.error(
            "problem.accumulator",
            found=f'"{accumulator}" with {a} operands',
            expected=f"{' or '.join(known)}: no mma.sync sums products of {a} in {accumulator}",
            fix=f'accumulator = "{known[0]}"',
        )
    return sorted(fitting, key=lambda atom: -atom.shape_mnk[2])


def accumulator_among(spec: GemmSpec, known: Sequence[str]) -> str:
    """Return the type of the sums: the spec's, else that of its atom, else the default of those `known`."""
    named = ATOMS[spec.mma.atom].c_dtype.name if spec.mma.atom else default_accumulator(known)
    return spec.problem.accumulator or named


def default_accumulator(known: Sequence[str]) -> str:
    """Return f32 if there is an atom with such sums."""
    return DEFAULT_ACCUMULATOR if DEFAULT_ACCUMULATOR in known else known[0]


def _no_atom(spec: GemmSpec, a: str, b: str) -> SpecError:
    beside_a = sorted({atom.b_dtype.name for atom in MMA_ATOMS.values() if atom.a_dtype.name == a})
    if beside_a:
        wanted = " or ".join(f'"{name}"' for name in beside_a)
        return spec.error(
            "problem.b.dtype",
            found=f'"{b}"',
            expected=f"{wanted} as A has, since mma.sync takes A and B of one type"
            if len(beside_a) == 1
            else f"{wanted} with A's {a}: mma.sync mixes no other types",
            fix=f'write dtype = "{a}" for both',
        )
    known = list(dict.fromkeys(atom.a_dtype.name for atom in MMA_ATOMS.values()))
    return spec.error(
        "problem.a.dtype",
        found=f'"{a}"',
        expected=f"{' or '.join(known)} operands: there is no mma.sync for others",
        fix='tensor cores read f32 elements as tf32, 11 significant bits: write dtype = "tf32" if that suffices'
        if a == "f32"
        else "only C may be s32",
    )


def check_dtypes(spec: GemmSpec, target: Target) -> None:
    """Raise SpecError for an element type that `target` does not support, or that no array has."""
    for name in ("a", "b", "c", "residual", "bias", "scale", "aux"):
        part = getattr(spec.problem, name)
        if part is None or part.dtype is None:
            continue
        element = dtype(part.dtype)
        if not target.has(*element.needs):
            having = targets_with(*element.needs)
            raise spec.error(
                f"problem.{name}.dtype",
                found=f'"{element.name}" for {target.name}',
                expected=f"{either(having)}, whose instructions support {element.name}",
                fix=f"build for one of those, such as --arch {having[0]}, or use f16 or bf16",
            )
        if name not in OPERANDS and element.in_memory != element.name:
            raise spec.error(
                f"problem.{name}.dtype",
                found=f'"{element.name}", which is how tensor cores read {element.in_memory} operands',
                expected="a type that the epilogue reads or writes",
                fix=f'write dtype = "{element.in_memory}"',
            )


def choose_tf32_rounding(spec: GemmSpec, atom: MmaAtom) -> Choice[bool] | None:
    """Return whether f32 operands are rounded to tf32 in registers; None if there are none.

    Raises SpecError if the spec gives mma.tf32 and has no such operands.
    """
    asked = spec.mma.tf32
    if atom.a_dtype.name != "tf32":
        if asked is not None:
            raise spec.error(
                "mma.tf32",
                found=f'"{asked}" with {atom.a_dtype.name} operands',
                expected='operands of dtype "tf32", f32 elements whose low bits the tensor core ignores',
                fix="leave mma.tf32 out",
            )
        return None
    truncated = (
        "the tensor core reads 19 bits of an f32 and ignores 13: an error up to 2^-10 of each element, towards zero"
    )
    rounded = "cvt.rna.tf32 on each element in registers: an error up to 2^-11 of each element, either way"
    if asked == "nearest":
        rejected = Rejected("truncate", truncated)
        return Choice(True, Decision.as_given("mma.tf32", "nearest", rounded, (rejected,)))
    why = f"{'given; ' if asked else 'as in CUTLASS; '}{truncated}"
    rejected = Rejected("nearest", f"{rounded}, at the cost of one instruction per register of a fragment")
    return Choice(False, Decision("mma.tf32", "truncate", why, given=asked is not None, rejected=(rejected,)))


def _mismatched(spec: GemmSpec, atom: MmaAtom, fitting: list[MmaAtom]) -> SpecError:
    wanted = fitting[0]
    return spec.error(
        "mma.atom",
        found=f"{atom.name}, which is for {_operands(atom)} operands and {atom.c_dtype.name} sums",
        expected=f"an atom for {_operands(wanted)} operands and {wanted.c_dtype.name} sums",
        fix=f"use {' or '.join(row.name for row in fitting)}",
    )


def _operands(atom: MmaAtom) -> str:
    return " and ".join(dict.fromkeys((atom.a_dtype.name, atom.b_dtype.name)))


def _double_buffers(cta_tile: Extents, atom: MmaAtom) -> bool:
    k = atom.shape_mnk[2]
    return cta_tile[2] % k == 0 and cta_tile[2] >= 2 * k


def _check_k(spec: GemmSpec, cta_tile: Extents, atom: MmaAtom) -> None:
    if not _double_buffers(cta_tile, atom):
        k = atom.shape_mnk[2]
        raise spec.error(
            "tile.cta",
            found=f"{extents(cta_tile)}: K = {cta_tile[2]} with {atom.name}",
            expected=f"K a multiple of the atom's {k} and at least {2 * k}: "
            "one k-block is multiplied while the next is loaded",
            fix=f"K = {max(2, round(cta_tile[2] / k)) * k} is the nearest",
        )


def _why_not(atom: MmaAtom, chosen: MmaAtom, cta_tile: Extents) -> str:
    if atom.shape_mnk[2] > chosen.shape_mnk[2]:
        return f"a k-tile of {cta_tile[2]} does not hold two or more k-blocks of {atom.shape_mnk[2]}"
    return f"{atom.flops:,} operations per instruction against {chosen.flops:,}"


@dataclass(frozen=True, slots=True)
class _Warps:
    """Warps along M, N and K that share a CTA tile, and what each thread then holds and copies."""

    layout: Extents
    spec: GemmSpec
    cta_tile: Extents
    atom: MmaAtom

    @property
    def count(self) -> int:
        """Warps of a CTA."""
        return self.layout[0] * self.layout[1]

    @property
    def sums(self) -> int:
        """Registers of a thread for its sums."""
        return self.cta_tile[0] * self.cta_tile[1] * self.atom.c_dtype.bits // (REGISTER_BITS * WARP * self.count)

    @property
    def passing(self) -> int:
        """Registers of a thread for the next k-tile, if plain loads and stores copy it."""
        return expected_registers(self.spec, self.cta_tile, WARP * self.count)

    @property
    def copied_bits(self) -> int:
        """Bits that each thread copies of a k-tile of the smaller operand."""
        return min(self.cta_tile[:2]) * self.cta_tile[2] * self.atom.a_dtype.bits // (WARP * self.count)

    @property
    def fragment_rows(self) -> int:
        """Rows of A and B that all warps read: those of A per warp along N, those of B per warp along M."""
        return self.cta_tile[0] * self.layout[1] + self.cta_tile[1] * self.layout[0]

    @property
    def held(self) -> str:
        """The registers that a thread holds throughout the main loop, in words."""
        beside = f", {self.passing} for the next k-tile" if self.passing else ""
        return f"{self.sums} registers per thread for sums{beside}"

    def available(self, target: Target) -> int:
        """Return the registers that each thread of a CTA can have."""
        return available_registers(target, WARP * self.count)

    def rank(self, target: Target, most: int) -> tuple[int, ...]:
        """Return the sort key, the smallest is best; a thread may hold `most` registers."""
        return (
            self.sums > self.available(target),
            self.copied_bits < NARROWEST_COPY_BITS,
            self.sums + self.passing > most,
            self.count < SCHEDULERS,
            self.count,
            self.fragment_rows,
            self.layout[1],
        )

    def why_not(self, chosen: "_Warps", most: int) -> str:
        """Return why `chosen` is better."""
        if self.copied_bits < NARROWEST_COPY_BITS:
            return "a thread would copy less than 4 bytes of an operand's k-tile"
        if self.sums + self.passing > most:
            return f"{self.held}, more than {most}"
        if self.count < chosen.count:
            return f"only {self.count} of the {SCHEDULERS} schedulers would have a warp"
        if self.count > chosen.count:
            return f"{self.count} warps, but {chosen.count} suffice"
        return f"{self.fragment_rows} fragment rows read per k-tile"


def choose_atom_layout(spec: GemmSpec, cta_tile: Extents, atom: MmaAtom, target: Target) -> Choice[Extents]:
    """Choose how many warps lie along M, N and K.

    Choose at least one warp per scheduler, and no more than needed for a thread's data to fit in registers. Arrange
    them so that the fewest fragments are read from shared memory: each warp reads its own rows of A and of B.
    """
    if spec.mma.atom_layout is not None:
        given = _given_atom_layout(spec, cta_tile, atom)
        _check_sums(_Warps(given.value, spec, cta_tile, atom), target)
        return given
    m, n, _ = cta_tile
    options = [
        _Warps((wm, warps // wm, 1), spec, cta_tile, atom)
        for warps in WARP_COUNTS
        for wm in reversed(WARP_COUNTS)
        if warps % wm == 0 and m % (wm * atom.shape_mnk[0]) == 0 and n % (warps // wm * atom.shape_mnk[1]) == 0
    ]
    if not options:
        raise spec.error(
            "tile.cta",
            found=extents(cta_tile),
            expected=f"M a multiple of {atom.shape_mnk[0]} and N of {atom.shape_mnk[1]}, the atom's tile",
            fix=f"{extents(_rounded_up(cta_tile, atom))} is the next",
        )
    most = most_held(atom.a_dtype, target)
    chosen, *others = sorted(options, key=lambda option: option.rank(target, most))
    _check_sums(chosen, target)
    rejected = tuple(Rejected(extents(option.layout), option.why_not(chosen, most)) for option in others)
    why = (
        f"warp tiles of {m // chosen.layout[0]} x {n // chosen.layout[1]}; {chosen.fragment_rows} fragment rows read "
        f"per k-tile; {chosen.held}{_why_few(atom.a_dtype, target)}"
    )
    return Choice(chosen.layout, Decision("mma.atom_layout", extents(chosen.layout), why, rejected=rejected))


def _check_sums(warps: _Warps, target: Target) -> None:
    """Raise SpecError if a thread's sums alone exceed its registers: they would all spill."""
    spec, registers = warps.spec, warps.available(target)
    if warps.sums > registers:
        tile, is_open = f"{extents(warps.cta_tile)} for {extents(warps.layout)} warps", spec.mma.atom_layout is None
        raise spec.error(
            "tile.cta" if is_open else "mma.atom_layout",
            found=f"{tile}: {warps.sums:,} registers per thread for sums",
            expected=f"at most {registers}, the registers of each of {WARP * warps.count} threads on {target.name}",
            fix="use a smaller tile" if is_open else "use more warps, or a smaller tile.cta",
        )


def becomes_f16(element: DType, target: Target) -> bool:
    """Return whether `target` converts such operands, 8-bit floats, to f16 in registers before it multiplies them."""
    return element.is_float8 and SM_RATES[target.name].float8_as_f16


def most_held(element: DType, target: Target) -> int:
    """Return the registers that a thread may hold throughout the main loop; fragments and addresses need the rest."""
    return MAX_HELD_REGISTERS_BESIDE_F16 if becomes_f16(element, target) else MAX_HELD_REGISTERS


def _why_few(element: DType, target: Target) -> str:
    """Return why a thread may hold fewer registers, if so."""
    if not becomes_f16(element, target):
        return ""
    most = most_held(element, target)
    return f", at most {most}, since {target.name} converts 8-bit floats to f16 in registers"


def _rounded_up(cta_tile: Extents, atom: MmaAtom) -> Extents:
    m, n, k = (-(-extent // unit) * unit for extent, unit in zip(cta_tile, atom.shape_mnk, strict=True))
    return m, n, k


def _given_atom_layout(spec: GemmSpec, cta_tile: Extents, atom: MmaAtom) -> Choice[Extents]:
    layout = spec.mma.atom_layout
    assert layout is not None
    m, n, k = layout
    if k != 1:
        raise spec.error(
            "mma.atom_layout",
            found=extents(layout),
            expected="1 along K: warps along K would have to add their sums",
            fix=f"use {extents((m, n, 1))} or {extents((m * k, n, 1))}",
        )
    for mode, letter in enumerate("MN"):
        unit = layout[mode] * atom.shape_mnk[mode]
        if cta_tile[mode] % unit:
            raise spec.error(
                "mma.atom_layout",
                found=f"{extents(layout)}: {layout[mode]} warps x {atom.shape_mnk[mode]} = {unit} along {letter}",
                expected=f"a divisor of the CTA tile's {letter} = {cta_tile[mode]}",
                fix=f"{letter} = {max(1, round(cta_tile[mode] / unit)) * unit} is the nearest tile",
            )
    return Choice(layout, Decision.as_given("mma.atom_layout", extents(layout)))
