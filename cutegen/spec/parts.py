"""The tables of a spec file as records, their keys as fields; None is an omitted key. `GemmSpec` validates them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from cutegen.contract.problem import Groups, Pairs
from cutegen.hardware import BULK_TENSOR, CP_ASYNC_ATOMS, UNIVERSAL, dtype
from cutegen.hardware.units import MAX_THREADS_PER_CTA
from cutegen.spec import values
from cutegen.spec.checks import MAX_WARPS_PER_CTA, Mismatch
from cutegen.spec.schema import NOT_A_KEY, Part
from cutegen.spec.steps import Step, operands_of, steps
from cutegen.support.words import alternatives, literal

MODES: Mapping[str, tuple[str, str]] = {"a": ("m", "k"), "b": ("n", "k"), "c": ("m", "n")}
"""The modes of each operand in CuTe's order: A is (M,K), B is (N,K), C is (M,N)."""
DEFAULT_ALIGN_BYTES = 16
"""Default alignment of an operand: the widest access of a thread."""


@dataclass(frozen=True, slots=True)
class Operand(Part):
    """One matrix in global memory, contiguous along the mode `major`.

    Base address and leading stride are multiples of `align` bytes. With `transposed` "once" the kernel reads a copy of
    B with the other major: a call makes it if B is new or has changed, and caches it.
    """

    dtype: values.OperandDTypeName
    major: values.Mode
    align: values.AlignBytes | None = None
    transposed: values.Transposition | None = None

    def contradiction(self) -> Mismatch | None:
        """Check that an aligned address begins an element."""
        element_bytes = dtype(self.dtype).bytes
        if self.align is None or self.align >= element_bytes:
            return None
        expected = f"at least {element_bytes}, the bytes of one {self.dtype}"
        return Mismatch(
            key="align",
            found=literal(self.align),
            expected=expected,
            fix="write align = 16, if addresses and leading strides have that alignment",
        )


@dataclass(frozen=True, slots=True)
class Extra(Part):
    """A matrix (M,N) of the epilogue. Omitted keys are those of C."""

    dtype: values.DTypeName | None = None
    major: values.RasterMode | None = None
    align: values.AlignBytes | None = None


@dataclass(frozen=True, slots=True)
class Bias(Part):
    """A vector along M or N, added by the epilogue; its elements are contiguous. Both vectors have one type."""

    dtype: values.DTypeName | None = None


@dataclass(frozen=True, slots=True)
class Scale(Part):
    """A factor per row of C, per column, or both; f32 by default."""

    dtype: values.ScaleDTypeName | None = None


@dataclass(frozen=True, slots=True)
class Factors(Part):
    """Factors of blocks of A or B: one for `block` rows and elements of K, contiguous along the mode `major`.

    Without `major` it is the mode of the rows if each has its own, else K. Base address and leading stride are
    multiples of `align` bytes. Those of 8 bits are in atoms of 128 rows by 4 factors, and have no major.
    """

    block: values.FactorBlock
    dtype: values.FactorDTypeName = "f32"
    major: values.Mode | None = None
    align: values.AlignBytes | None = None

    def __str__(self) -> str:
        major = "" if self.major is None else f", major = {literal(self.major)}"
        dtype = "" if self.dtype == "f32" else f", dtype = {literal(self.dtype)}"
        align = "" if self.align is None else f", align = {self.align}"
        return f"{{ block = {literal(self.block)}{dtype}{major}{align} }}"

    @property
    def has_map(self) -> bool:
        """True if a tensor map can describe them, whose addresses and strides are multiples of 16 bytes."""
        return (self.align or DEFAULT_ALIGN_BYTES) >= DEFAULT_ALIGN_BYTES

    @property
    def in_atoms(self) -> bool:
        """True if they are of 8 bits, as tensor memory has them."""
        return self.dtype != "f32"

    def contradiction(self) -> Mismatch | None:
        """Check that an aligned address begins a factor, or an atom, and that atoms are of rows, and have no major."""
        begin_bytes = DEFAULT_ALIGN_BYTES if self.in_atoms else dtype(self.dtype).bytes
        if self.align is not None and self.align < begin_bytes:
            what = "a vector of an atom" if self.in_atoms else f"one {self.dtype}"
            expected = f"at least {begin_bytes}, the bytes of {what}"
            return Mismatch(key="align", found=literal(self.align), expected=expected, fix=f"align = {begin_bytes}")
        if self.in_atoms and self.block[0] != 1:
            fix = f"block = {literal((1, self.block[1]))}"
            return Mismatch(key="block", found=literal(self.block), expected="1 row: each has its own factor", fix=fix)
        if self.in_atoms and self.major is not None:
            expected = "nothing: 128 rows by 4 factors lie in one atom"
            return Mismatch(key="major", found=literal(self.major), expected=expected, fix="leave the key out")
        return None


@dataclass(frozen=True, slots=True)
class Grouped(Part):
    """The mode `of` a call that belongs to groups whose sizes the device has: rows of A and C, columns, or parts of K.

    "packed" groups follow one another, by their ends; "padded" ones each have room for the whole extent, by their
    sizes.
    """

    of: values.GroupedMode
    layout: values.GroupsLayout = "packed"

    def contradiction(self) -> Mismatch | None:
        """Check that parts of K are packed."""
        if (self.of, self.layout) != ("k", "padded"):
            return None
        found, expected = '"padded" groups of k', '"packed": parts of K follow one another in A and in B'
        return Mismatch(key="layout", found=found, expected=expected, fix="a batch has room for every part of K")

    def __str__(self) -> str:
        return f"{{ of = {literal(self.of)}, layout = {literal(self.layout)} }}"

    @property
    def value(self) -> Groups:
        """The groups as kernels and launches have them."""
        return Groups(self.of, self.layout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem(Part):
    """C[M,N] = A[M,K] B[N,K], and the epilogue's tensors besides C; with `groups` one such product for each.

    `scale_a` and `scale_b` are factors of blocks of A and B: the product is that of the scaled operands.
    """

    a: Operand
    b: Operand
    c: Operand
    accumulator: values.AccumulatorName | None = None
    residual: Extra | None = None
    bias: Bias | None = None
    scale: Scale | None = None
    aux: Extra | None = None
    groups: Grouped | None = None
    scale_a: Factors | None = None
    scale_b: Factors | None = None

    def contradiction(self) -> Mismatch | None:
        """Check that an operand's major is one of its own two modes, and an aligned address begins an element."""
        for name, modes in MODES.items():
            found = self.operand(name).major
            if found not in modes:
                shape = ",".join(modes).upper()
                expected = f"{alternatives(modes)}, the modes of {name.upper()}({shape})"
                return Mismatch(key=f"{name}.major", found=literal(found), expected=expected)
        for name in ("a", "c"):
            if (asked := self.operand(name).transposed) is not None:
                key, expected = f"{name}.transposed", "nothing: only B can have a transposed copy"
                return Mismatch(key=key, found=literal(asked), expected=expected, fix="swap A and B, and M and N")
        if self.groups is not None and self.b.transposed is not None:
            expected = "nothing: with groups B has a matrix for each, or a part of K"
            fix = "pass weights of the other major, or leave out groups"
            return Mismatch(key="b.transposed", found=literal(self.b.transposed), expected=expected, fix=fix)
        if wrong := self._of_factors():
            return wrong
        for name in ("residual", "aux"):
            extra = getattr(self, name)
            if extra is not None and extra.align is not None and (wrong := self.matrix(name).contradiction()):
                return replace(wrong, key=f"{name}.align")
        return None

    def _of_factors(self) -> Mismatch | None:
        """Check that both operands have factors, of blocks as long along K, each with a major of its own modes."""
        a, b = self.scale_a, self.scale_b
        if a is None or b is None:
            if a is b:
                return None
            key, other = ("scale_b", a) if b is None else ("scale_a", b)
            expected = "factors of both A and B: sums of a block of K are multiplied by one of each"
            return Mismatch(key=key, found="nothing", expected=expected, fix=f"add {key} = {other}")
        if a.block[1] != b.block[1]:
            expected = f"K = {a.block[1]}, as the blocks of A: sums are scaled by both at once"
            fix = f"block = {literal((b.block[0], a.block[1]))}"
            return Mismatch(key="scale_b.block", found=literal(b.block), expected=expected, fix=fix)
        if a.dtype != b.dtype:
            expected = f"{literal(a.dtype)}, as the factors of A: one instruction reads both, or none"
            return Mismatch(
                key="scale_b.dtype", found=literal(b.dtype), expected=expected, fix=f"dtype = {literal(a.dtype)}"
            )
        if self.groups is not None and (wrong := self._of_grouped_factors(self.groups, a, b)):
            return wrong
        for name, factors in {"a": a, "b": b}.items():
            if factors.major is not None and factors.major not in MODES[name]:
                expected = f"{alternatives(MODES[name])}, the modes of {name.upper()}"
                return Mismatch(key=f"scale_{name}.major", found=literal(factors.major), expected=expected)
        return None

    @staticmethod
    def _of_grouped_factors(groups: Grouped, a: Factors, b: Factors) -> Mismatch | None:
        """Check that no group begins within a block: parts of K have atoms of factors for themselves."""
        if groups.of == "k":
            if a.in_atoms:
                return None
            expected = "groups of m or n beside factors of f32: parts of K would begin within a block"
            return Mismatch(key="groups", found=str(groups), expected=expected, fix="leave problem.groups out")
        name, factors = ("a", a) if groups.of == "m" else ("b", b)
        if groups.layout == "packed" and factors.block[0] > 1:
            expected = f"[1, {factors.block[1]}] with {groups.value}: one may begin at any row of {name.upper()}"
            fix = 'repeat each factor for its rows, or layout = "padded"'
            return Mismatch(key=f"scale_{name}.block", found=literal(factors.block), expected=expected, fix=fix)
        return None

    def factors(self, name: str) -> Factors | None:
        """Return the factors of A or B with all keys, None if it has none."""
        factors: Factors | None = getattr(self, f"scale_{name}")
        if factors is None or factors.major is not None or factors.in_atoms:
            return factors
        rows, k = MODES[name]
        return replace(factors, major=rows if factors.block[0] == 1 else k)

    def operand(self, name: str) -> Operand:
        """Return A, B or C."""
        operand: Operand = getattr(self, name)
        return operand

    def matrix(self, name: str) -> Operand:
        """Return a matrix (M,N) of the epilogue with all keys: "c" is C itself, others are separate."""
        extra = (None if name == "c" else getattr(self, name)) or Extra()
        element = extra.dtype or self.c.dtype
        align = extra.align
        if align is None and self.c.align is not None:
            align = max(self.c.align, dtype(element).bytes)
        return Operand(element, extra.major or self.c.major, align)


@dataclass(frozen=True, slots=True)
class Tile(Part):
    """The CTA tile: extents along M, N and K in elements, and how many K tiles are in flight."""

    cta: values.TileExtents | None = None
    stages: values.StageCount | None = None


@dataclass(frozen=True, slots=True)
class Mma(Part):
    """CuTe's TiledMma: `atom_layout` is warps, or warpgroups of wgmma, along M, N and K; `permutation` is its tile.

    Of each mode the permutation has the extent, or of M and N a layout. `tf32` is the treatment of the bits of an f32
    operand that the tensor core does not read. Without tensor cores `threads` maps a position (m, n) to a thread, and
    is repeated over the tile of C. For 8-bit floats, `promote_k` is the K that the tensor core sums before the sums are
    added to float32 registers; 0 is all of it. `cta_group` CTAs multiply together, 1 or 2.
    """

    atom: values.MmaAtomName | None = None
    atom_layout: values.WarpExtents | None = None
    permutation: values.PermutedTile | None = None
    threads: values.ThreadLayout | None = None
    tf32: values.Tf32Rounding | None = None
    promote_k: values.PromotedK | None = None
    cta_group: values.CtaGroup | None = None

    def contradiction(self) -> Mismatch | None:
        """Check that the warps fit in one CTA."""
        m, n, k = self.atom_layout or (1, 1, 1)
        if m * n * k <= MAX_WARPS_PER_CTA:
            return None
        found = f"{literal(self.atom_layout)}: {m} x {n} x {k} = {m * n * k} warps"
        return Mismatch(
            key="atom_layout", found=found, expected=f"at most {MAX_WARPS_PER_CTA} warps, {MAX_THREADS_PER_CTA} threads"
        )


@dataclass(frozen=True, slots=True)
class SmemLayout(Part):
    """Layout of a tile in shared memory; with none of the three keys it is chosen.

    `swizzle` is CuTe's Swizzle<B, M, S>, `pad` the elements after each row, `layout` the atom in CuTe's notation.
    """

    swizzle: values.SwizzleBMS | None = None
    pad: values.PadElems | None = None
    layout: values.TileLayout | None = None

    def contradiction(self) -> Mismatch | None:
        """Check that at most one of the three is given."""
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
    """One operand's copy from global to shared memory; `threads` maps a position in the tile to a thread.

    `l2` is the eviction priority of copied lines in the L2 cache. `prefetch` is the number of k-tiles at the beginning
    of a CTA's first tile that are prefetched to L2 before they are copied.
    """

    op: values.G2sOp | None = None
    bits: values.CopyBits | None = None
    threads: values.ThreadLayout | None = None
    l2: values.L2Eviction | None = None
    prefetch: values.PrefetchedKTiles | None = None

    def contradiction(self) -> Mismatch | None:
        """Check that the instruction exists in that width: `cp.async.cg` only moves 16 bytes (PTX ISA, cp.async)."""
        widths = tuple(atom.bits for atom in CP_ASYNC_ATOMS.values() if atom.op == self.op)
        if self.op in (BULK_TENSOR, UNIVERSAL) or None in (self.op, self.bits) or self.bits in widths:
            return None
        others: list[str] = sorted({atom.op for atom in CP_ASYNC_ATOMS.values() if atom.bits == self.bits}) or [
            UNIVERSAL
        ]
        return Mismatch(
            key="bits",
            found=f"{self.bits} with op = {literal(self.op)}",
            expected=f"{alternatives(widths)} with {self.op}",
            fix=f"{alternatives(others)} moves {self.bits} bits",
        )


@dataclass(frozen=True, slots=True)
class G2sFactors(Part):
    """The copy of the factors of A or of B to shared memory: boxes, or elements by the lanes of the producer warp."""

    op: values.FactorsOp | None = None


@dataclass(frozen=True, slots=True)
class G2s(Part):
    """Global to shared memory: A and B, and the factors of their blocks."""

    a: G2sCopy | None = None
    b: G2sCopy | None = None
    scale_a: G2sFactors | None = None
    scale_b: G2sFactors | None = None

    def of_factors(self, name: str) -> G2sFactors:
        """Return the copy of the factors of A or of B; if it has no table here, its key is left out."""
        copy: G2sFactors | None = getattr(self, f"scale_{name}")
        return copy or G2sFactors()

    def of(self, name: str) -> G2sCopy:
        """Return the copy of an operand; if it has no table here, all of its keys are left out."""
        copy: G2sCopy | None = getattr(self, name, None)
        return copy or G2sCopy()


@dataclass(frozen=True, slots=True)
class S2rCopy(Part):
    """One operand's copy from shared memory to registers: an `ldmatrix` atom by CUTLASS's name, or "universal"."""

    atom: values.SharedLoadName | None = None


@dataclass(frozen=True, slots=True)
class S2r(Part):
    """Shared memory to registers, A and B."""

    a: S2rCopy | None = None
    b: S2rCopy | None = None

    def of(self, name: str) -> S2rCopy:
        """Return the copy of an operand; if it has no table here, its key is left out."""
        copy: S2rCopy | None = getattr(self, name, None)
        return copy or S2rCopy()


_WIDTHS: Mapping[str, int | None] = {"halves": None, "interleaved": 1}
"""Columns of a member that follow one another, by the name of their order; None is half of all."""


@dataclass(frozen=True, slots=True)
class Paired(Part):
    """The order of B's columns if `expression` is over pairs of them, gate and up; the `first` of each pair begins.

    `layout` is "halves", all columns of one and then of the other, "interleaved", one of each in turn, or the number
    of each in turn. In the spec of a swapped product they are `of` rows of A, "m".
    """

    layout: values.PairsLayout
    first: values.PairsMember
    of: Literal["m", "n"] = field(default="n", metadata=NOT_A_KEY)

    @property
    def value(self) -> Pairs:
        """The pairs as kernels and launches have them."""
        width = _WIDTHS[self.layout] if isinstance(self.layout, str) else self.layout
        return Pairs(self.first, width, self.of)

    @classmethod
    def ordered_as(cls, pairs: Pairs) -> Self:
        """Return them as a spec has them."""
        named = {width: name for name, width in _WIDTHS.items()}
        return cls(named.get(pairs.width, pairs.width or 0), pairs.first, pairs.of)


@dataclass(frozen=True, slots=True)
class Quantized(Part):
    """C as 8-bit floats with a factor for each 128 columns of a row, which the kernel writes too.

    A factor is the largest magnitude of its block, at least 1e-4, divided by the largest finite value of `dtype`; with
    the `scale` "ue8m0" it is rounded up to a power of two.
    """

    dtype: values.QuantizedDType
    scale: values.ResultScale = "f32"

    def __str__(self) -> str:
        return f"{{ dtype = {literal(self.dtype)}, scale = {literal(self.scale)} }}"


_OPS_OF_C = {
    "beta": "write + beta * c in the expression",
    "residual": "write + residual in the expression",
    "aux": "leave aux out: it would have both columns of each pair",
}
"""Ops with a matrix of C's shape, and the way out if C has one column for each pair of sums."""


@dataclass(frozen=True, slots=True)
class Epilogue(Part):
    """Path of an accumulator to C: `ops` in order, then `expression`, all in f32 and rounded once to C.

    `smem` is the store path of C: staged through shared memory in that layout, or with False straight from registers.
    With `pairs` the expression is over a pair of columns, and C has half of B's columns; the ops change both alike.
    `quantize` follows all of them.
    """

    smem: SmemLayout | Literal[False] | None = None
    ops: values.EpilogueOps | None = None
    expression: values.EpilogueExpression | None = None
    pairs: Paired | None = None
    quantize: Quantized | None = None

    def contradiction(self) -> Mismatch | None:
        """Check that an expression over pairs comes with their order, and that no op before it has C's shape."""
        last = self.steps[-1] if self.expression is not None else None
        takes_pair = last is not None and last.takes_pair
        if takes_pair and self.pairs is None:
            fix = 'add pairs = { layout = "halves", first = "gate" }, in the order of the weight'
            return Mismatch(key="pairs", found="nothing", expected="the order of gate and up in B's columns", fix=fix)
        if self.pairs is None:
            return None
        if not takes_pair:
            found = "nothing" if self.expression is None else literal(self.expression)
            expected = 'an expression over x, the gate, and y, the up: "x, y -> silu(x) * y"'
            return Mismatch(key="expression", found=found, expected=expected, fix="leave pairs out")
        for op, fix in _OPS_OF_C.items():
            if op in (self.ops or ()):
                expected = "ops that change each sum of a pair alike, before the expression"
                return Mismatch(key="ops", found=f"{literal(op)} with pairs", expected=expected, fix=fix)
        return None

    @property
    def steps(self) -> tuple[Step, ...]:
        """The chain from an accumulator to C; empty if none is requested."""
        return steps(self.ops, self.expression)

    @property
    def operands(self) -> tuple[str, ...]:
        """Operands that the chain reads besides x, and "aux" if it stores."""
        return operands_of(self.steps)


@dataclass(frozen=True, slots=True)
class Raster(Part):
    """The order in which CTAs visit tiles: bands of `group` tiles along `along`, each swept over the other mode.

    With `zigzag` every second band is swept backwards, so that it begins where the last one ended.
    """

    along: values.RasterMode | None = None
    group: values.RasterGroup | None = None
    zigzag: values.Flag | None = None


@dataclass(frozen=True, slots=True)
class Schedule(Part):
    """Schedule of the tiles of C, and the CTAs of each: `split_k` of them share a tile's K.

    `reduction` is how their sums are added: through a workspace in a fixed order, the same but first in the shared
    memory of a cluster, or by atomic additions to C. With `swap` the kernel multiplies B by A, which suits few rows of
    C. `cluster` are the CTAs along M and N that share copies, and along K those that add a tile's slices. `consumers`
    is the schedule of the MMA warpgroups: "cooperative" on one tile, or "pingpong", each on its own tile.
    `programmatic` launches may begin before their predecessor on the stream has ended; with "weights" they copy
    `weights` before that, B, which is A in the spec of a swapped product. With a `pace` a CTA requests a
    tile's k-tiles at most one per N clock cycles. `tiles` of running CTAs are "static", or "dynamic": those of CTAs
    that have not started.
    """

    raster: Raster | None = None
    split_k: values.SliceCount | None = None
    reduction: values.Reduction | None = None
    consumers: values.Consumers | None = None
    swap: values.Flag | None = None
    cluster: values.ClusterCtas | None = None
    programmatic: values.Programmatic | None = None
    pace: values.PaceCycles | None = None
    tiles: values.Tiles | None = None
    weights: str = field(default="b", metadata=NOT_A_KEY)

    @property
    def slices(self) -> int:
        """Slices of K; one by default."""
        return self.split_k or 1
