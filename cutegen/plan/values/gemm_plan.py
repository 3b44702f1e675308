"""The fields of a finished plan: all that is needed to write, launch, explain and check one GEMM kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cutegen.algebra import (
    Extents,
    OperandName,
    TiledMma,
    modes,
    size,
)
from cutegen.contract.launch import LaunchContract
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import (
    DType,
    MmaAtom,
    Target,
)
from cutegen.hardware.units import WARP, WARPGROUP
from cutegen.plan.loop import MMA_ORDER, Action, Loop, Step
from cutegen.plan.values.copies import Landing, TileCopy
from cutegen.plan.values.decision import Decision
from cutegen.plan.values.epilogue import EpiloguePlan
from cutegen.plan.values.fragments import FragmentCopy, Fragments
from cutegen.plan.values.mma import MmaPlan
from cutegen.plan.values.smem import Sectors, SmemMap, SmemTile, Wavefronts
from cutegen.spec import GemmSpec


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
    g2s: TileCopy
    smem: SmemTile
    s2r: Fragments

    @property
    def major_mode(self) -> int:
        """Index of the contiguous mode in `modes`."""
        return self.modes.index(self.major)

    @property
    def fragment_copy(self) -> FragmentCopy:
        """The copy of its fragments to registers, where its multiplier takes them from there."""
        copy = self.s2r.by_source(copied=lambda copy: copy, described=lambda _: None)
        assert copy is not None, f"{self.name} is read in shared memory"
        return copy

    def loads(self, tiled_mma: TiledMma) -> Counter[str]:
        """Instructions that a warp, or a thread by itself, issues to load the fragments of one k-tile."""
        return self.s2r.opcodes(Step(Action.LOAD), self.operand, self.tile, self.dtype, tiled_mma)

    def landing(self, tiled_mma: TiledMma, target: Target) -> Landing:
        """Destination of its copies of a k-tile."""
        stage = self.smem.layout_of_one_stage
        return Landing(tile=self.tile, element=self.dtype, stage=stage, tiled_mma=tiled_mma, target=target)

    def opcodes(self, step: Step, tiled_mma: TiledMma, target: Target) -> Counter[str]:
        """Return what each thread, or warp, that takes part issues for it in a step on a k-tile."""
        copied = self.g2s.opcodes(step, self.landing(tiled_mma, target))
        return copied + self.s2r.opcodes(step, self.operand, self.tile, self.dtype, tiled_mma)


@dataclass(frozen=True, slots=True)
class RasterPlan:
    """The order in which CTAs visit tiles: bands of `group` tiles `along` one mode, each swept over the other mode."""

    along: str
    group: int
    zigzag: bool


SUM_BYTES = 4
"""A sum of a slice of K: f32, or s32 of integers."""
SUM_VECTOR_ELEMS = 4
"""Sums that a thread stores to the workspace, and loads from there, at once."""


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """K in `slices`, each for a CTA of its own, whose sums come together in a workspace, kept as `dtype`.

    The last of a tile's CTAs adds them, or where they are `shared` every one that can wait for the others adds a part.
    `in_flight` of the slices are loaded before the first of them is added. With `atomics` there is no workspace: each
    CTA adds its sums to C. Where the CTAs of a cluster have `clustered` slices of a tile, each adds its share of them
    in shared memory first, and what comes together in the workspace are the sums of `groups` clusters, share by share.
    """

    slices: int
    dtype: DType
    in_flight: int
    atomics: bool = False
    clustered: int = 1
    shared: bool = False

    @property
    def groups(self) -> int:
        """Number of sums of a share of a tile, or of a whole one, in the workspace; 1 where a cluster has all."""
        return self.slices // self.clustered

    @property
    def leaves_sums(self) -> bool:
        """True where anything goes through the workspace."""
        return not self.atomics and self.groups > 1

    def sums_bytes(self, cta_tile: Extents) -> int:
        """The sums of a whole tile, also where C's edge cuts it."""
        return cta_tile[0] * cta_tile[1] * self.dtype.bytes

    def slice_bytes(self, cta_tile: Extents) -> int:
        """Bytes that the CTA of one slice of one tile leaves in the workspace: the tile, or its share where
        clusters add.
        """
        return self.sums_bytes(cta_tile) // self.clustered if self.leaves_sums else 0

    def far_bytes(self, cta_tile: Extents) -> int:
        """Bytes that a CTA reads in the shared memory of its cluster's other CTAs: its share of their sums."""
        return self.sums_bytes(cta_tile) // self.clustered * (self.clustered - 1)

    def read_bytes(self, cta_tile: Extents) -> int:
        """Bytes that a CTA reads in the workspace after all others have left theirs, of a tile or of its share."""
        return (1 if self.shared else self.groups) * self.slice_bytes(cta_tile)


@dataclass(frozen=True, slots=True)
class RegisterSplit:
    """Registers a thread: of those that multiply, and of the warpgroup one warp of which copies.

    `reallocated` when the kernel moves them by `setmaxnreg`; without it every thread has as many.
    """

    mma: int
    producer: int
    reallocated: bool


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
    """Predictions of what the hardware will do.

    `wavefronts` are per CTA: of one k-tile for "g2s.a", "g2s.b", "s2r.a" and "s2r.b", or "mma.a" and "mma.b" where
    multiplications themselves read shared memory, of the whole tile for "epilogue.write" and "epilogue.read", and for
    "cluster.write" and "cluster.read" where a cluster adds slices of K. `line_writes` are "g2s.a" and "g2s.b" as an
    H200 counts 16-byte copies that bypass L1, by lines and not by banks alone. `sectors` likewise, for "g2s.a", "g2s.b"
    and "epilogue", and where K is split for the sums of one slice, "split_k.write" and "split_k.read". `instructions`
    counts opcodes as they stand in the PTX text, unrolled code as often as it is written.
    """

    wavefronts: Mapping[str, Wavefronts]
    line_writes: Mapping[str, Wavefronts]
    sectors: Mapping[str, Sectors]
    instructions: Mapping[str, int]
    occupancy: Occupancy


@dataclass(frozen=True, slots=True)
class Prefetch:
    """So many k-tiles of an operand, the first of a CTA's first tile, for which L2 is asked before they are copied."""

    operand: str
    k_tiles: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGemm:
    """All that is decided of a kernel of any family: a tiled MMA fed from shared memory, which copies fill.

    A plan made for a `problem` is right for every other too. Where `producer_threads` copy for those that multiply,
    `registers` says how the two share the multiprocessor's. Of the operands `evicted_first` the L2 cache gives up what
    is copied before it gives up anything else, and for the first k-tiles of those that are `prefetched` warps ask it
    while they wait.
    """

    spec: GemmSpec
    family: str
    target: Target
    problem: ProblemShape | None = None
    kernel_name: str
    mma: MmaPlan
    stages: int
    a: OperandPlan
    b: OperandPlan
    epilogue: EpiloguePlan
    raster: RasterPlan
    split_k: SplitPlan | None = None
    loop: Loop
    smem: SmemMap
    producer_threads: int = 0
    registers: RegisterSplit | None = None
    swapped: bool = False
    predictions: Predictions
    launch: LaunchContract
    decisions: tuple[Decision, ...]
    evicted_first: tuple[str, ...] = ()
    prefetched: tuple[Prefetch, ...] = ()

    @property
    def cta_tile(self) -> Extents:
        """M, N and K of a k-tile."""
        return self.mma.cta_tile

    @property
    def atom(self) -> MmaAtom:
        """The MMA instruction, and its layouts."""
        return self.mma.atom

    @property
    def tiled_mma(self) -> TiledMma:
        """The atom over all threads that share a tile."""
        return self.mma.tiled_mma

    @property
    def smem_bytes(self) -> int:
        """Dynamic shared memory of a CTA."""
        return self.smem.bytes

    @property
    def threads(self) -> int:
        """Threads of a CTA: those that multiply, and those that copy for them."""
        return self.mma.threads + self.producer_threads

    @property
    def through_registers(self) -> tuple[OperandPlan, ...]:
        """The operands, if any, that plain loads and stores bring to shared memory."""
        return tuple(x for x in (self.a, self.b) if x.g2s.through_registers)

    @property
    def asynchronous(self) -> bool:
        """True where any operand is copied by instructions that go on while threads multiply."""
        return not (self.a.g2s.through_registers and self.b.g2s.through_registers)

    @property
    def atoms_mnk(self) -> Extents:
        """Atoms side by side along M, N and K, each carried out by one of what `atoms_are`."""
        m, n, k = map(size, modes(self.tiled_mma.atom_layout))
        return m, n, k

    @property
    def atoms_are(self) -> str:
        """Unit that has an atom of its own: "threads", "warps" or "warpgroups"."""
        return {1: "threads", WARP: "warps", WARPGROUP: "warpgroups"}[self.atom.threads]

    @property
    def by_thread(self) -> bool:
        """True where each thread multiplies by itself, instead of a warp together."""
        return self.atom.threads == 1

    @property
    def tile_is_chosen(self) -> bool:
        """True where tile and warpgroups were chosen for sums that leave registers for everything else."""
        given = {decision.key for decision in self.decisions if decision.given}
        return not self.a.s2r.in_registers and not given & {"tile.cta", "mma.atom_layout"}

    def opcodes(self, step: Step) -> Counter[str]:
        """Return what each thread that takes part issues for a step on a whole k-tile; what a warp issues counts
        once.
        """
        return step_opcodes(step, (self.a, self.b), self.mma, self.target)


def step_opcodes(step: Step, operands: Iterable[OperandPlan], mma: MmaPlan, target: Target) -> Counter[str]:
    """Return what each thread that takes part issues for a step on a whole k-tile; a warp's joint instruction
    counts once.
    """
    counts: Counter[str] = Counter()
    for x in operands:
        counts += x.opcodes(step, mma.tiled_mma, target)
    if step.action is Action.MULTIPLY:
        (m, n, k), (atom_m, atom_n, atom_k) = mma.cta_tile, mma.atom.shape_mnk
        atoms = mma.tiled_mma.threads // size(mma.atom.thr_id)
        counts[mma.atom.ptx] += m * n * k // (atoms * atom_m * atom_n * atom_k)
    if step.action in MMA_ORDER:
        counts[step.action.value] += 1
    return counts
