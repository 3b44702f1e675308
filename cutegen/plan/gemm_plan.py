"""A finished plan: all that is needed to write, launch, explain and check one GEMM kernel, and nothing undecided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cutegen.algebra import (
    Layout,
    LayoutExpr,
    OperandName,
    Swizzle,
    TiledCopy,
    TiledMma,
    compose,
    inner_layout,
    make_layout,
    mode,
    modes,
    size,
    with_inner,
)
from cutegen.arch import (
    BULK_TENSOR,
    UNIVERSAL,
    BulkTensorAtom,
    CopyAtom,
    CpAsyncAtom,
    DType,
    LdmatrixAtom,
    MmaAtom,
    Target,
)
from cutegen.plan import report
from cutegen.plan.decision import Decision, Rejected
from cutegen.plan.launch import LaunchContract
from cutegen.plan.main_loop import Slot
from cutegen.plan.problem import ProblemShape
from cutegen.spec import GemmSpec, Step


@dataclass(frozen=True, slots=True)
class Wavefronts:
    """Shared-memory cycles of one kind of access: the fewest that its bytes need, and those that its addresses need."""

    ideal: int
    predicted: int

    @property
    def ways(self) -> float:
        """How many times the ideal: 1 is free of bank conflicts, 8 is an 8-way conflict on every access."""
        return self.predicted / self.ideal


@dataclass(frozen=True, slots=True)
class Sectors:
    """32-byte sectors of global memory that one access of a whole tile touches, and the fewest that its bytes need."""

    ideal: int
    predicted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SmemCandidate:
    """One row of the ranking of shared-memory layouts: wavefronts are for one tile, written once and read once.

    `write` counts banks. `lines` are what the writes cost where copies bypass L1, by lines; None for other copies.
    """

    name: str
    atom: LayoutExpr
    swizzle: Swizzle | None
    pad_elems: int
    tile_bytes: int
    write: Wavefronts
    read: Wavefronts
    lines: Wavefronts | None = None

    @property
    def wavefronts(self) -> int:
        """What the ranking compares first: reads, and writes by line where copies are counted so."""
        return (self.lines or self.write).predicted + self.read.predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class SmemTile:
    """An operand's shared memory: `layout` maps (X, Y) or (X, Y, PIPE) coordinates to element offsets."""

    layout: LayoutExpr
    chosen: SmemCandidate
    bytes: int
    ranking: tuple[SmemCandidate, ...]

    @property
    def swizzle(self) -> Swizzle | None:
        """The swizzle, or None for a plain or padded layout."""
        return self.chosen.swizzle

    @property
    def pad_elems(self) -> int:
        """Elements added to each row or column of the contiguous mode."""
        return self.chosen.pad_elems

    @property
    def layout_of_one_stage(self) -> LayoutExpr:
        """The layout without its PIPE mode: (X, Y) -> element offset in the first stage."""
        inner = inner_layout(self.layout)
        return with_inner(self.layout, make_layout(mode(inner, 0), mode(inner, 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorCopy:
    """A copy between global and shared memory: each thread moves vectors of `bits` along the contiguous mode."""

    atom: CpAsyncAtom | CopyAtom
    bits: int
    threads: Layout
    values: Layout
    tiled_copy: TiledCopy

    @property
    def through_registers(self) -> bool:
        """Whether it is made of plain loads and stores, with the data in a thread's registers between the two."""
        return self.atom.name == UNIVERSAL

    def to_json(self) -> dict[str, Any]:
        """Instruction, width and threads, as a spec would write them."""
        op = self.atom.op if isinstance(self.atom, CpAsyncAtom) else self.atom.name
        return {"op": op, "bits": self.bits, "threads": report.spec_notation(self.threads)}


@dataclass(frozen=True, slots=True)
class BulkTensorCopy:
    """A copy of a tile between global and shared memory that one thread asks for, box after box.

    A box has the extents `box`, the contiguous mode first; `boxes` of them lie side by side along the contiguous mode.
    In shared memory a box's rows follow each other, permuted by Swizzle<swizzle_bits,4,3> on byte addresses.
    """

    atom: BulkTensorAtom
    box: tuple[int, int]
    boxes: int
    swizzle_bits: int

    @property
    def swizzle_bytes(self) -> int:
        """Length of the rows that are permuted, 0 for none, as a tensor map names its swizzle."""
        return 16 << self.swizzle_bits if self.swizzle_bits else 0

    @property
    def through_registers(self) -> bool:
        """Never: no thread holds what it copies."""
        return False

    def to_json(self) -> dict[str, Any]:
        """Instruction and boxes."""
        return {"op": BULK_TENSOR, "box": list(self.box), "boxes": self.boxes, "swizzle_bytes": self.swizzle_bytes}


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentCopy:
    """The copy from shared memory to the MMA's fragments: an `ldmatrix`, or plain loads of `bits`.

    Where it numbers a thread's values otherwise than the MMA, `order` maps its numbers to the MMA's in the tiled MMA's
    tile, and `view` (CPY, CPY_X, CPY_K) to those in the whole fragment.
    """

    atom: LdmatrixAtom | CopyAtom
    bits: int
    tiled_copy: TiledCopy
    order: Layout | None = None
    view: Layout | None = None
    rejected: tuple[Rejected, ...]

    @property
    def matrices(self) -> int | None:
        """Matrices per instruction; None for plain loads."""
        return self.atom.matrices if isinstance(self.atom, LdmatrixAtom) else None

    @property
    def registers(self) -> int | None:
        """Registers of 32 bits that one instruction fills in a thread; None for plain loads."""
        return self.atom.registers if isinstance(self.atom, LdmatrixAtom) else None

    @property
    def transpose(self) -> bool | None:
        """Whether the ldmatrix transposes; None for plain loads."""
        return self.atom.transpose if isinstance(self.atom, LdmatrixAtom) else None

    def retile(self, fragment: Layout) -> Layout:
        """A fragment (MMA, MMA_X, MMA_K) as this copy fills it: (CPY, CPY_X, CPY_K)."""
        return self.tiled_copy.retile(fragment) if self.view is None else compose(fragment, self.view)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandPlan:
    """A or B on its way from global memory to the tensor core; `tile` is its (X, K) share of the CTA tile."""

    name: str
    operand: OperandName
    dtype: DType
    modes: tuple[str, str]
    major: str
    align_bytes: int
    tile: tuple[int, int]
    g2s: VectorCopy | BulkTensorCopy
    smem: SmemTile
    s2r: FragmentCopy

    @property
    def major_mode(self) -> int:
        """Index of the contiguous mode in `modes`."""
        return self.modes.index(self.major)


@dataclass(frozen=True, slots=True)
class EpilogueTensor:
    """What the epilogue reads or writes beside C, by its name in the kernel: "source" (C as it was), "bias" ...

    Base address and leading stride are multiples of `align_bytes`.
    """

    name: str
    dtype: DType
    modes: tuple[str, ...]
    major: str
    align_bytes: int


@dataclass(frozen=True, slots=True)
class Fusion:
    """The chain `steps` from an accumulator to C, with the tensors and the scalars that it names.

    `source_behind_beta` says that C as it was is not read when beta is 0.
    """

    steps: tuple[Step, ...]
    tensors: tuple[EpilogueTensor, ...]
    scalars: tuple[str, ...]
    source_behind_beta: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EpiloguePlan:
    """C's way out: through shared memory `smem` and then by `store`, or straight from registers when both are None."""

    dtype: DType
    major: str
    align_bytes: int
    fusion: Fusion
    smem: SmemTile | None
    store: VectorCopy | BulkTensorCopy | None

    @property
    def major_mode(self) -> int:
        """Index of the contiguous mode in (M, N)."""
        return ("m", "n").index(self.major)


@dataclass(frozen=True, slots=True)
class RasterPlan:
    """The order in which CTAs visit tiles: bands of `group` tiles `along` one mode, each swept over the other mode."""

    along: str
    group: int
    zigzag: bool


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """K in `slices`, each for a CTA of its own; the last of a tile's CTAs adds all their sums, kept as `dtype`.

    `in_flight` of the slices are loaded before the first of them is added. With `atomics` there is no such last CTA:
    each adds its sums to C.
    """

    slices: int
    dtype: DType
    in_flight: int
    atomics: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """CTAs that fit on one SM, and what each resource alone would allow; registers are an estimate."""

    ctas_per_sm: int
    by_threads: int
    by_smem: int
    by_registers: int
    registers_per_thread: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """What the plan says the hardware will do.

    `wavefronts` are per CTA: of one k-tile for "g2s.a", "g2s.b", "s2r.a" and "s2r.b", of the whole tile for
    "epilogue.write" and "epilogue.read". `line_writes` are "g2s.a" and "g2s.b" as an H200 counts 16-byte copies that
    bypass L1, by lines and not by banks alone. `sectors` likewise, for "g2s.a", "g2s.b" and "epilogue", and where K is
    split for the sums of one slice, "split_k.write" and "split_k.read". `instructions`
    counts opcodes as they stand in the PTX text, unrolled code as often as it is written.
    """

    wavefronts: Mapping[str, Wavefronts]
    line_writes: Mapping[str, Wavefronts]
    sectors: Mapping[str, Sectors]
    instructions: Mapping[str, int]
    occupancy: Occupancy


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmPlan:
    """A finished plan of any family: a tiled MMA fed from shared memory, which copies from global memory fill.

    `main_loop` is the prologue and the first k-tiles in program order; unrolled, the loop takes `k_tiles_per_turn` at
    a time. `rounds_to_tf32` says that f32 operands are rounded in registers before they are multiplied. A plan made for
    a `problem` is right for every other too.
    """

    spec: GemmSpec
    target: Target
    problem: ProblemShape | None = None
    kernel_name: str
    cta_tile: tuple[int, int, int]
    stages: int
    atom: MmaAtom
    tiled_mma: TiledMma
    a: OperandPlan
    b: OperandPlan
    epilogue: EpiloguePlan
    raster: RasterPlan
    split_k: SplitPlan | None = None
    main_loop: tuple[Slot, ...]
    k_tiles_per_turn: int = 1
    smem_bytes: int
    smem_b_offset_bytes: int
    predictions: Predictions
    launch: LaunchContract
    decisions: tuple[Decision, ...]
    rounds_to_tf32: bool = False

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return self.tiled_mma.threads

    @property
    def through_registers(self) -> tuple[OperandPlan, ...]:
        """The operands, if any, that plain loads and stores bring to shared memory."""
        return tuple(x for x in (self.a, self.b) if x.g2s.through_registers)

    @property
    def asynchronous(self) -> bool:
        """Whether any operand is copied by instructions that go on while threads multiply."""
        return not (self.a.g2s.through_registers and self.b.g2s.through_registers)

    @property
    def atoms_mnk(self) -> tuple[int, int, int]:
        """Atoms side by side along M, N and K: warps, or threads where `by_thread`."""
        m, n, k = map(size, modes(self.tiled_mma.atom_layout))
        return m, n, k

    @property
    def by_thread(self) -> bool:
        """Whether each thread multiplies by itself, instead of a warp together."""
        return bool(size(self.atom.thr_id) == 1)

    def explain(self, *, everything: bool = False) -> str:
        """Every decision with its reason, what was rejected, ranked layouts and predictions, in 100 columns of text."""
        return report.explain(self, everything=everything)

    def to_json(self) -> dict[str, Any]:
        """The plan as plain tables: the content of an artifact's `plan.json`."""
        return report.plan_table(self)

    @property
    def k_blocks(self) -> int:
        """Steps of the tiled MMA along K in one k-tile."""
        return self.cta_tile[2] // self.tiled_mma.tile_mnk[2]
