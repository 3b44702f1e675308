"""What is asked of a kernel. The classes mirror a spec file's tables, their fields its keys; None is a key left out.

A part is only a record. `GemmSpec` judges all of it when it is made, so that a spec built in Python is held to what a
file is held to and fails with the same dotted key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, TypeAlias

from cutegen.contract.launch import GEMM, KINDS
from cutegen.errors import SpecError
from cutegen.hardware import (
    BULK_TENSOR,
    CP_ASYNC_ATOMS,
    DTYPES,
    LDMATRIX_ATOMS,
    MMA_ATOMS,
    TARGETS,
    UNIVERSAL,
    UNIVERSAL_BITS,
    WGMMA_ATOMS,
    Instruction,
    MmaAtom,
    dtype,
)
from cutegen.spec.checks import (
    MAX_SMEM_ELEMS,
    MAX_THREADS_PER_CTA,
    MAX_WARPS_PER_CTA,
    Boolean,
    ClusterExtents,
    ExpressionText,
    Extents,
    FamilyName,
    Integer,
    LayoutText,
    Line,
    Mismatch,
    Names,
    OneOf,
    SwizzleBits,
)
from cutegen.spec.families import FAMILIES
from cutegen.spec.schema import NOT_A_KEY, Part, mismatches
from cutegen.spec.steps import OPERANDS, OPS, Step, operands_of, steps
from cutegen.support.literals import alternatives, literal

MODES: Mapping[str, tuple[str, str]] = {"a": ("m", "k"), "b": ("n", "k"), "c": ("m", "n")}
"""The modes of each operand in CuTe's order: A is (M,K), B is (N,K), C is (M,N)."""


_CP_ASYNC_ATOMS = tuple(CP_ASYNC_ATOMS.values())
ATOMS: Mapping[str, MmaAtom] = {**MMA_ATOMS, **WGMMA_ATOMS}
"""What a spec can name: by warps, or by warpgroups."""
_ACCUMULATORS = tuple(sorted({atom.c_dtype.name for atom in ATOMS.values()}))

Text: TypeAlias = Annotated[str, Line()]
Flag: TypeAlias = Annotated[bool, Boolean()]
FamilyKey: TypeAlias = Annotated[str, FamilyName()]
KindName: TypeAlias = Annotated[str, OneOf(KINDS)]
DTypeName: TypeAlias = Annotated[str, OneOf(tuple(DTYPES))]
AccumulatorName: TypeAlias = Annotated[str, OneOf(_ACCUMULATORS, "tensor cores sum products in these types only")]
Mode: TypeAlias = Annotated[str, OneOf(("m", "n", "k"))]
Transposition: TypeAlias = Annotated[str, OneOf(("once",))]
AlignBytes: TypeAlias = Annotated[int, OneOf((1, 2, 4, 8, 16, 32, 64, 128))]
# Two stages of 8192 x 16 8-bit elements are 262,144 bytes, more than any target's shared memory.
TileExtents: TypeAlias = Annotated[tuple[int, int, int], Extents(8192)]
WarpExtents: TypeAlias = Annotated[tuple[int, int, int], Extents(MAX_WARPS_PER_CTA)]
StageCount: TypeAlias = Annotated[int, Integer(1, 8, "a k-tile lies in shared memory while it is multiplied")]
PromotedK: TypeAlias = Annotated[int, Integer(0, 8192, "0 promotes nothing")]
Tf32Rounding: TypeAlias = Annotated[str, OneOf(("truncate", "nearest"))]
MmaAtomName: TypeAlias = Annotated[
    str, OneOf(tuple(MMA_ATOMS), more=tuple(WGMMA_ATOMS), like="SM90_64x256x16_F32F16F16_SS")
]
SwizzleBMS: TypeAlias = Annotated[tuple[int, int, int], SwizzleBits()]
PadElems: TypeAlias = Annotated[int, Integer(0, 1024)]
TileLayout: TypeAlias = Annotated[str, LayoutText(example="Sw<3,3,3> o (8,(8,8)):(8,(1,64))", largest=MAX_SMEM_ELEMS)]
ThreadLayout: TypeAlias = Annotated[str, LayoutText(example="(16,8):(8,1)", largest=MAX_THREADS_PER_CTA, dense=True)]
G2sOp: TypeAlias = Annotated[str, OneOf((*sorted({atom.op for atom in _CP_ASYNC_ATOMS}), BULK_TENSOR, UNIVERSAL))]
CopyBits: TypeAlias = Annotated[int, OneOf(UNIVERSAL_BITS)]
SharedLoadName: TypeAlias = Annotated[str, OneOf((*LDMATRIX_ATOMS, UNIVERSAL))]
EpilogueOps: TypeAlias = Annotated[tuple[str, ...], Names(tuple(OPS))]
EpilogueExpression: TypeAlias = Annotated[str, ExpressionText(OPERANDS)]
RasterMode: TypeAlias = Annotated[str, OneOf(("m", "n"))]
RasterGroup: TypeAlias = Annotated[int, Integer(1, 1024)]
Reduction: TypeAlias = Annotated[str, OneOf(("workspace", "atomics"))]
ClusterCtas: TypeAlias = Annotated[tuple[int, int], ClusterExtents()]
Consumers: TypeAlias = Annotated[str, OneOf(("cooperative", "pingpong"))]
SliceCount: TypeAlias = Annotated[int, Integer(1, 64, "1 leaves K whole")]


@dataclass(frozen=True, slots=True)
class Operand(Part):
    """One matrix in global memory, contiguous along the mode `major`.

    Base address and leading stride are multiples of `align` bytes. Of B, `transposed` "once" has the kernel read a copy
    with the other major, which calls make of a B that is new or has changed, and keep.
    """

    dtype: DTypeName
    major: Mode
    align: AlignBytes | None = None
    transposed: Transposition | None = None

    def contradiction(self) -> Mismatch | None:
        """An aligned address begins a whole element."""
        element_bytes = dtype(self.dtype).bytes
        if self.align is None or self.align >= element_bytes:
            return None
        expected = f"at least {element_bytes}, the bytes of one {self.dtype}"
        return Mismatch(
            key="align",
            found=literal(self.align),
            expected=expected,
            fix="write align = 16, if addresses and leading strides are so aligned",
        )


@dataclass(frozen=True, slots=True)
class Extra(Part):
    """A matrix (M,N) of the epilogue. What is left out is as C has it."""

    dtype: DTypeName | None = None
    major: RasterMode | None = None
    align: AlignBytes | None = None


@dataclass(frozen=True, slots=True)
class Bias(Part):
    """A vector along M or N, added by the epilogue; its elements lie side by side."""

    dtype: DTypeName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem(Part):
    """C[M,N] = A[M,K] B[N,K], and what the epilogue reads and writes beside C."""

    a: Operand
    b: Operand
    c: Operand
    accumulator: AccumulatorName | None = None
    residual: Extra | None = None
    bias: Bias | None = None
    aux: Extra | None = None

    def contradiction(self) -> Mismatch | None:
        """An operand's major is one of its own two modes; an aligned address begins a whole element."""
        for name, modes in MODES.items():
            found = getattr(self, name).major
            if found not in modes:
                shape = ",".join(modes).upper()
                expected = f"{alternatives(modes)}, the modes of {name.upper()}({shape})"
                return Mismatch(key=f"{name}.major", found=literal(found), expected=expected)
        for name in ("a", "c"):
            if (asked := getattr(self, name).transposed) is not None:
                key, expected = f"{name}.transposed", "nothing: it is B of which a transposed copy can be kept"
                return Mismatch(key=key, found=literal(asked), expected=expected, fix="exchange A and B, and M and N")
        for name in ("residual", "aux"):
            extra = getattr(self, name)
            if extra is not None and extra.align is not None and (wrong := self.matrix(name).contradiction()):
                return replace(wrong, key=f"{name}.align")
        return None

    def matrix(self, name: str) -> Operand:
        """A matrix (M,N) of the epilogue with nothing left out: C itself is read as "c", others stand beside it."""
        extra = (None if name == "c" else getattr(self, name)) or Extra()
        element = extra.dtype or self.c.dtype
        align = extra.align
        if align is None and self.c.align is not None:
            align = max(self.c.align, dtype(element).bytes)
        return Operand(element, extra.major or self.c.major, align)


@dataclass(frozen=True, slots=True)
class Tile(Part):
    """What one CTA computes: extents along M, N and K in elements, and how many K tiles are in flight."""

    cta: TileExtents | None = None
    stages: StageCount | None = None


@dataclass(frozen=True, slots=True)
class Mma(Part):
    """CuTe's TiledMma: `atom_layout` is warps, or warpgroups of wgmma, along M, N and K; `permutation` is its tile.

    `tf32` is what becomes of the bits of an f32 operand that the tensor core does not read. Without tensor cores
    `threads` maps a position (m, n) to a thread, and is repeated over the tile of C. Of 8-bit floats, `promote_k` is
    the K that the tensor core sums before the sums are added to float32 registers; 0 is all of it.
    """

    atom: MmaAtomName | None = None
    atom_layout: WarpExtents | None = None
    permutation: TileExtents | None = None
    threads: ThreadLayout | None = None
    tf32: Tf32Rounding | None = None
    promote_k: PromotedK | None = None

    def contradiction(self) -> Mismatch | None:
        """The warps fit one CTA."""
        m, n, k = self.atom_layout or (1, 1, 1)
        if m * n * k <= MAX_WARPS_PER_CTA:
            return None
        found = f"{literal(self.atom_layout)}: {m} x {n} x {k} = {m * n * k} warps"
        return Mismatch(
            key="atom_layout", found=found, expected=f"at most {MAX_WARPS_PER_CTA} warps, {MAX_THREADS_PER_CTA} threads"
        )


@dataclass(frozen=True, slots=True)
class SmemLayout(Part):
    """How a tile lies in shared memory; with none of the three keys that is left to be chosen.

    `swizzle` is CuTe's Swizzle<B, M, S>, `pad` elements after each row, `layout` the atom in CuTe's notation.
    """

    swizzle: SwizzleBMS | None = None
    pad: PadElems | None = None
    layout: TileLayout | None = None

    def contradiction(self) -> Mismatch | None:
        """The three exclude each other."""
        given = [name for name in ("swizzle", "pad", "layout") if getattr(self, name) is not None]
        if len(given) < 2:
            return None
        found = f"{' and '.join(given)} together"
        return Mismatch(
            found=found,
            expected="one of swizzle, pad or layout",
            fix=f"keep {given[0]} and leave out {' and '.join(given[1:])}",
        )


@dataclass(frozen=True, slots=True)
class Smem(Part):
    """Shared memory of A and of B."""

    a: SmemLayout | None = None
    b: SmemLayout | None = None


@dataclass(frozen=True, slots=True)
class G2sCopy(Part):
    """One operand's copy from global to shared memory; `threads` maps a position in the tile to a thread."""

    op: G2sOp | None = None
    bits: CopyBits | None = None
    threads: ThreadLayout | None = None

    def contradiction(self) -> Mismatch | None:
        """The instruction exists in that width: `cp.async.cg` only moves 16 bytes (PTX ISA, cp.async)."""
        widths = tuple(atom.bits for atom in _CP_ASYNC_ATOMS if atom.op == self.op)
        if self.op in (BULK_TENSOR, UNIVERSAL) or None in (self.op, self.bits) or self.bits in widths:
            return None
        others: list[str] = sorted({atom.op for atom in _CP_ASYNC_ATOMS if atom.bits == self.bits}) or [UNIVERSAL]
        return Mismatch(
            key="bits",
            found=f"{self.bits} with op = {literal(self.op)}",
            expected=f"{alternatives(widths)} with {self.op}",
            fix=f"{alternatives(others)} moves {self.bits} bits",
        )


@dataclass(frozen=True, slots=True)
class G2s(Part):
    """Global to shared memory, A and B."""

    a: G2sCopy | None = None
    b: G2sCopy | None = None


@dataclass(frozen=True, slots=True)
class S2rCopy(Part):
    """One operand's copy from shared memory to registers: an `ldmatrix` atom by CUTLASS's name, or "universal"."""

    atom: SharedLoadName | None = None


@dataclass(frozen=True, slots=True)
class S2r(Part):
    """Shared memory to registers, A and B."""

    a: S2rCopy | None = None
    b: S2rCopy | None = None


@dataclass(frozen=True, slots=True)
class Epilogue(Part):
    """What becomes of an accumulator: `ops` in their order, then `expression`, all in f32 and rounded once to C.

    `smem` is how C leaves the CTA: staged through shared memory in that layout, or with False straight from registers.
    """

    smem: SmemLayout | Literal[False] | None = None
    ops: EpilogueOps | None = None
    expression: EpilogueExpression | None = None

    def contradiction(self) -> Mismatch | None:
        """A kernel has one bias."""
        if {"bias_n", "bias_m"} <= set(operands_of(self.steps)):
            fix = "the other can be a residual, a whole matrix"
            return Mismatch(found="bias_n and bias_m together", expected="one of them", fix=fix)
        return None

    @property
    def steps(self) -> tuple[Step, ...]:
        """The chain from an accumulator to C; empty when nothing is asked for."""
        return steps(self.ops, self.expression)

    @property
    def operands(self) -> tuple[str, ...]:
        """What the chain reads beside x, and "aux" when it stores."""
        return operands_of(self.steps)


@dataclass(frozen=True, slots=True)
class Raster(Part):
    """The order in which CTAs visit tiles: bands of `group` tiles along `along`, each swept over the other mode.

    With `zigzag` every second band is swept backwards, so that it begins where the last one ended.
    """

    along: RasterMode | None = None
    group: RasterGroup | None = None
    zigzag: Flag | None = None


@dataclass(frozen=True, slots=True)
class Schedule(Part):
    """How the tiles of C are spread over time, and over how many CTAs each: `split_k` of them share a tile's K.

    `reduction` is how their sums come together: through a workspace and in a fixed order, or by atomic additions to C.
    With `swap` the kernel multiplies B by A, which suits few rows of C.
    `cluster` are the CTAs along M and N that share what they copy.
    `consumers` are the warpgroups that multiply: "cooperative" on one tile, or "pingpong", each on a tile of its own.
    """

    raster: Raster | None = None
    split_k: SliceCount | None = None
    reduction: Reduction | None = None
    consumers: Consumers | None = None
    swap: Flag | None = None
    cluster: ClusterCtas | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmSpec(Part):
    """What is asked of one GEMM kernel. Raises SpecError with the dotted key when a value cannot stand.

    `name`, `description` and `file` are for people: two specs that ask for the same kernel are equal. A `family` that
    is left out is chosen for target and problem.

    >>> row = Operand("f16", "k")
    >>> GemmSpec(family="sm80", problem=Problem(a=row, b=row, c=Operand("f16", "n")), tile=Tile(stages=9), name="mine")
    Traceback (most recent call last):
        ...
    cutegen.errors.SpecError: mine: tile.stages: found 9; expected an integer, 1 to 8; the nearest is 8
    """

    family: FamilyKey | None = None
    kind: KindName = GEMM
    description: Text = field(default="", compare=False)
    problem: Problem
    tile: Tile = Tile()
    mma: Mma = Mma()
    smem: Smem = Smem()
    g2s: G2s = G2s()
    s2r: S2r = S2r()
    epilogue: Epilogue = Epilogue()
    schedule: Schedule = Schedule()
    name: str = field(default="", compare=False, metadata=NOT_A_KEY)
    file: str = field(default="", compare=False, metadata=NOT_A_KEY)

    def __post_init__(self) -> None:
        for key, wrong in mismatches(self):
            raise self.error(key, found=wrong.found, expected=wrong.expected, fix=wrong.fix, place=wrong.place)

    def contradiction(self) -> Mismatch | None:
        """Keys and copies are the family's; what the problem says of the epilogue's operands, the epilogue uses."""
        return (self._of_another_family(self.family) if self.family is not None else None) or self._unused()

    def _of_another_family(self, family: str) -> Mismatch | None:
        row = FAMILIES[family]
        for key, instead in row.without.items():
            if (found := self._value(key)) is not None:
                elsewhere = bool(row.instead) and key not in FAMILIES[row.instead].without
                return Mismatch(
                    key=key,
                    found=f'{literal(found)} in family "{family}"',
                    expected=f"no such key in this family: {instead}",
                    fix=f"leave {key} out" + (f', or family = "{row.instead}"' if elsewhere else ""),
                )
        if (named := self.mma.atom) is not None and (multiplies := ATOMS[named].instruction) not in row.needs:
            having = next(other.name for other in FAMILIES.values() if multiplies in other.needs and other.bulk_copies)
            return Mismatch(
                key="mma.atom",
                found=f"{named} in family {literal(family)}",
                expected=f"an atom of what this family multiplies by: {row.instructions}",
                fix=f'leave mma.atom out, or family = "{having}" multiplies by {multiplies}',
            )
        for name in ("a", "b"):
            copy = getattr(self.g2s, name)
            if copy is not None and copy.op == BULK_TENSOR and not FAMILIES[family].bulk_copies:
                return Mismatch(
                    key=f"g2s.{name}.op",
                    found=f'"{copy.op}" in family {family}',
                    expected=alternatives((*sorted({atom.op for atom in _CP_ASYNC_ATOMS}), UNIVERSAL)),
                    fix='family = "sm120" has bulk tensor copies',
                )
        return None

    def _value(self, key: str) -> object:
        """What stands at a dotted key, None where it or a table on the way is left out."""
        value: object = self
        for name in key.split("."):
            value = None if value is None else getattr(value, name)
        return value

    def _unused(self) -> Mismatch | None:
        asked = {name.partition("_")[0] for name in self.epilogue.operands}
        for name, use in (("residual", "residual"), ("bias", "bias_n or bias_m"), ("aux", "aux")):
            if getattr(self.problem, name) is not None and name not in asked:
                return Mismatch(
                    key=f"problem.{name}",
                    found=f"{name}, which the epilogue does not use",
                    expected=f"{use} in epilogue.ops or epilogue.expression",
                    fix=f"leave problem.{name} out",
                )
        return None

    @property
    def instructions(self) -> frozenset[Instruction]:
        """What a target must have for it: its family's, those that it names, and those that know its element types."""
        parts = (getattr(self.problem, name) for name in (*MODES, "residual", "bias", "aux"))
        of_types = (dtype(part.dtype).needs for part in parts if part is not None and part.dtype is not None)
        loads = (LDMATRIX_ATOMS.get(copy.atom or "") for copy in (self.s2r.a, self.s2r.b) if copy is not None)
        named = {atom.needs for atom in loads if atom is not None}
        if self.mma.atom is not None:
            named.add(ATOMS[self.mma.atom].instruction)
        of_family = frozenset() if self.family is None else FAMILIES[self.family].needs
        return of_family.union(named, *of_types)

    @property
    def needs(self) -> str:
        """The first target that has all of `instructions`; where none has, the first of those that lack the fewest."""
        return max(TARGETS, key=lambda name: len(TARGETS[name].instructions & self.instructions))

    def error(self, key: str, *, found: str, expected: str, fix: str = "", place: str = "") -> SpecError:
        """The error of this spec at the dotted `key`, to be raised."""
        file = self.file or self.name
        file = file if file.isprintable() else repr(file)  # a name made in Python may hold anything; an error is a line
        return SpecError(file=file, key=key, found=found, expected=expected, fix=fix, place=place)
