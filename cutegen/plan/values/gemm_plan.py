"""The fields of a finished plan: all data to write, launch, explain and check one GEMM kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import fmean

from cutegen.algebra import Extents, TiledMma, modes, size
from cutegen.contract.launch import LaunchContract
from cutegen.contract.problem import Distribution, ProblemShape
from cutegen.contract.tensor_map import BOX_MULTIPLE_BYTES
from cutegen.hardware import Issuer, MmaAtom, Target
from cutegen.plan.kernel.accumulator import Accumulator
from cutegen.plan.kernel.memory import MemoryMap
from cutegen.plan.kernel.pipeline import AB, OF_FACTORS, Pipeline, Role
from cutegen.plan.kernel.program import MMA_ORDER, Action, KernelLoop, Step
from cutegen.plan.kernel.scheduler import SplitK, TileScheduler
from cutegen.plan.values.copies import shared_accesses
from cutegen.plan.values.decision import Decision
from cutegen.plan.values.epilogue import EpiloguePlan
from cutegen.plan.values.operand import Sectors, Wavefronts
from cutegen.plan.values.path import OperandPath
from cutegen.spec import GemmSpec

# Multiplication of a k-tile by a CTA: the atom, and the threads over which it is tiled.


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaPlan:
    """Multiplication of a k-tile by a CTA: the atom, and the threads over which it is tiled.

    Its sums are in `accumulator`. The threads of `role` multiply: those of one tiled MMA, or groups with a tiled MMA
    and a tile each. The CTAs of a `cluster` along M and N share copies, and those along K add the sums of as many
    slices. Pairs of CTAs, neighbors along M, multiply together if an instruction is for two. It
    `skips_k_blocks` that lie past a group's part of K.
    """

    cta_tile: Extents
    atom: MmaAtom
    tiled_mma: TiledMma
    role: Role
    accumulator: Accumulator
    rounds_to_tf32: bool = False
    cluster: Extents = (1, 1, 1)
    skips_k_blocks: bool = False

    @property
    def threads(self) -> int:
        """Threads of a CTA that multiply."""
        return self.role.threads

    @property
    def shares_copies(self) -> bool:
        """True if a copy of A or B is for several CTAs of a cluster."""
        return self.cluster[:2] != (1, 1)

    @property
    def multiplied(self) -> Extents:
        """Tile of C, and of K, that instructions multiply at a time: a CTA's, or a pair's."""
        m, n, k = self.cta_tile
        return m * self.atom.ctas, n, k

    @property
    def copied(self) -> Extents:
        """Rows of A, columns of B and K that a CTA has in shared memory: of a pair, each has half of B."""
        m, n, k = self.cta_tile
        return m, n // self.atom.ctas, k

    @property
    def sharing(self) -> tuple[int, int]:
        """CTAs of a cluster that have the same tile of A, and the same of B, or the same half of it."""
        m, n, _ = self.cluster
        return n, m // self.atom.ctas

    @property
    def sharing_factors(self) -> tuple[int, int]:
        """CTAs of a cluster that have the same factors of A, and the same of B: a CTA of a pair has all of B's."""
        m, n, _ = self.cluster
        return n, m

    @property
    def k_blocks(self) -> int:
        """Steps of the tiled MMA along K in a k-tile."""
        return self.cta_tile[2] // self.tiled_mma.tile_mnk[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """CTAs that fit on one SM, and the number that each resource alone allows; registers are an estimate."""

    ctas_per_sm: int
    by_threads: int
    by_smem: int
    by_registers: int
    registers_per_thread: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """Predictions of the hardware's behavior.

    `wavefronts` are per CTA: of one k-tile for "g2s.a", "g2s.b", "s2r.a" and "s2r.b", or "mma.a" and "mma.b" if the MMA
    itself reads shared memory; of the whole tile for "epilogue.write" and "epilogue.read", and for "cluster.write" and
    "cluster.read" if a cluster adds slices of K. `line_writes` are "g2s.a" and "g2s.b" as an H200 counts 16-byte copies
    that bypass L1, by lines and not only by banks. `sectors` has "g2s.a", "g2s.b" and "epilogue", and if K is split
    "split_k.write" and "split_k.read" for the sums of one slice. `instructions` counts opcodes in the PTX text,
    unrolled code as often as it is written.
    """

    wavefronts: Mapping[str, Wavefronts]
    line_writes: Mapping[str, Wavefronts]
    sectors: Mapping[str, Sectors]
    instructions: Mapping[str, int]
    occupancy: Occupancy


@dataclass(frozen=True, slots=True)
class Prefetch:
    """The first k-tiles of an operand of a CTA's first tile, prefetched to L2 before they are copied."""

    operand: str
    k_tiles: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGemm:
    """All decisions on a kernel of any family: a tiled MMA fed from shared memory, which copies fill.

    A plan made for a `problem` is correct for any other too. The L2 cache evicts lines of the operands `evicted_first`
    before all others, and waiting warps prefetch the first k-tiles of the `prefetched` operands to L2. With a `pace` a
    CTA requests a tile's k-tiles at most one per N clock cycles. `predicted_time` is that of the `problem`,
    None without one.
    """

    spec: GemmSpec
    family: str
    target: Target
    problem: ProblemShape | None = None
    predicted_time: PredictedTime | None = None
    kernel_name: str
    mma: MmaPlan
    stages: int
    operands: tuple[OperandPath, ...]
    epilogue: EpiloguePlan
    scheduler: TileScheduler
    loop: KernelLoop
    memory: MemoryMap
    swapped: bool = False
    predictions: Predictions
    launch: LaunchContract
    decisions: tuple[Decision, ...]
    evicted_first: tuple[str, ...] = ()
    prefetched: tuple[Prefetch, ...] = ()
    pace: int = 0

    @property
    def skips_rows(self) -> bool:
        """True if a warpgroup does not multiply a tile of whose group it has no rows."""
        groups, searched = self.scheduler.groups, self.scheduler.source.searched
        return searched and groups is not None and groups.of == "m" and self.tiled_mma.atom_layout.shape[0] > 1

    @property
    def k_vector(self) -> int:
        """Elements of K at whose multiples boxes of a group's part begin: 16 bytes of a K-major operand, else 1."""
        return vector_of_k(self.operands) if self.scheduler.cuts_k and self.scheduler.source.searched else 1

    @property
    def group_vector(self) -> int:
        """Elements of the groups' mode at whose multiples what a CTA copies of a group begins; 1 is any."""
        return self.k_vector if self.scheduler.cuts_k else self.scheduler.vector

    def operand(self, name: str) -> OperandPath:
        """Return the path of the operand of a role. Raises KeyError if there is none."""
        for x in self.operands:
            if x.name == name:
                return x
        raise KeyError(name)

    def pipeline_of(self, x: OperandPath) -> Pipeline | None:
        """Return the pipeline in whose stages k-tiles of an operand are: factors may have their own."""
        apart = None if x.is_multiplied else self.loop.pipeline(OF_FACTORS)
        return apart or self.loop.pipeline(AB)

    @property
    def a(self) -> OperandPath:
        """The path of A."""
        return self.operand("a")

    @property
    def b(self) -> OperandPath:
        """The path of B."""
        return self.operand("b")

    @property
    def shared_accesses(self) -> tuple[str, ...]:
        """Keys of accesses to shared memory, in the order of the kernel."""
        return shared_accesses(x.name for x in self.operands)

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
        return self.memory.bytes

    @property
    def tensor_memory(self) -> tuple[Columns, ...]:
        """The uses of a CTA's columns of tensor memory, in order; none if sums are in registers."""
        return columns_in_use(self.mma.accumulator, self.operands, self.stages)

    def columns_of(self, holds: str, number: int = 0) -> Columns:
        """Return the columns of a buffer of sums, or of an operand's factors of a stage. Raises KeyError."""
        for each in self.tensor_memory:
            if (each.holds, each.number) == (holds, number):
                return each
        raise KeyError(holds, number)

    @property
    def columns_of_load(self) -> int:
        """Columns of tensor memory that a thread loads at a time: of a part of C, or of some of its waves."""
        assert self.epilogue.parts is not None
        return self.mma.accumulator.columns_of_load(self.epilogue.parts.columns_of_wave)

    @property
    def threads_of_sums(self) -> int:
        """Threads that hold or receive sums: those that multiply, unless sums are in tensor memory."""
        return self.mma.accumulator.threads if self.tensor_memory else self.tiled_mma.threads

    @property
    def threads(self) -> int:
        """Threads of a CTA: of all roles."""
        return sum(role.threads for role in self.roles)

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles of a CTA, in the order of its warps."""
        return self.loop.roles

    @property
    def split_k(self) -> SplitK | None:
        """The slices of K; None if a CTA multiplies all of it."""
        return self.scheduler.split_k

    @property
    def slices(self) -> int:
        """CTAs that compute a tile, each for its own part of K: 1 without split-K."""
        return self.scheduler.slices

    @property
    def through_registers(self) -> tuple[OperandPath, ...]:
        """The operands, if any, that plain loads and stores copy to shared memory."""
        return tuple(x for x in self.operands if x.g2s.through_registers)

    @property
    def asynchronous(self) -> bool:
        """True if any operand is copied asynchronously."""
        return not all(x.g2s.through_registers for x in self.operands)

    @property
    def atoms_mnk(self) -> Extents:
        """Atoms along M, N and K, each executed by one unit of `atoms_are`."""
        m, n, k = map(size, modes(self.tiled_mma.atom_layout))
        return m, n, k

    @property
    def atoms_are(self) -> str:
        """Unit that executes an atom: "threads", "warps" or "warpgroups"."""
        return f"{self.atom.multiply.issued_by}s"

    @property
    def by_thread(self) -> bool:
        """True if each thread multiplies by itself, instead of a warp together."""
        return self.atom.multiply.issued_by is Issuer.THREAD

    @property
    def tile_is_chosen(self) -> bool:
        """True if tile and warpgroups were chosen so that sums leave registers for everything else."""
        given = {decision.key for decision in self.decisions if decision.given}
        return not any(x.s2r.in_registers for x in self.operands) and not given & {"tile.cta", "mma.atom_layout"}

    def opcodes(self, step: Step) -> Counter[str]:
        """Return the instructions of each participating thread for a step on a whole k-tile; a warp's count once."""
        return step_opcodes(step, self.operands, self.mma, self.target)


def vector_of_k(operands: Iterable[OperandPath]) -> int:
    """Return the elements of K at whose multiples boxes of A and B begin, if any of them is K-major; else 1."""
    k_major = (x for x in operands if x.is_multiplied and x.major_mode == 1)
    return max((BOX_MULTIPLE_BYTES // x.dtype.bytes for x in k_major), default=1)


def step_opcodes(step: Step, operands: Iterable[OperandPath], mma: MmaPlan, target: Target) -> Counter[str]:
    """Return the instructions of each participating thread for a step on a whole k-tile; a warp's count once."""
    counts: Counter[str] = Counter()
    for x in operands:
        counts += x.opcodes(step, mma.tiled_mma, target)
    if step.action is Action.MULTIPLY:
        (m, n, k), (atom_m, atom_n, atom_k) = mma.multiplied, mma.atom.shape_mnk
        atoms = mma.tiled_mma.threads // size(mma.atom.thr_id)
        counts[mma.atom.ptx] += m * n * k // (atoms * atom_m * atom_n * atom_k)
    if step.action in MMA_ORDER:
        counts[step.action.value] += 1
    return counts


SUMS = "sums"
"""The use of an accumulator's columns."""


@dataclass(frozen=True, slots=True)
class Columns:
    """`count` columns from `first` on. They hold `SUMS` of a tile, or an operand's factors of a k-tile.

    `number` is that of the buffer, or of the stage.
    """

    holds: str
    number: int
    first: int
    count: int

    @property
    def end(self) -> int:
        """The column after the last."""
        return self.first + self.count


def columns_in_use(sums: Accumulator, operands: Iterable[OperandPath], stages: int) -> tuple[Columns, ...]:
    """Return what a CTA's tensor memory holds, by columns; nothing if sums are in registers."""
    found = [*_counts(sums, tuple(operands), stages)] if sums.columns else []
    firsts = accumulate((count for *_, count in found), initial=0)
    return tuple(
        Columns(holds, number, first, count) for (holds, number, count), first in zip(found, firsts, strict=False)
    )


def _counts(sums: Accumulator, operands: tuple[OperandPath, ...], stages: int) -> Iterator[tuple[str, int, int]]:
    """Yield the use of consecutive columns, its number, and how many they are."""
    for buffer in range(sums.buffers):
        yield SUMS, buffer, sums.columns
    for stage in range(stages):
        for x in operands:
            if (copy := x.s2r.to_tmem) is not None:
                yield x.name, stage, copy.columns


SHOWN_DIGITS = 3
AT_LEAST = "at least"
"""The word for a time that only rates bound."""


@dataclass(frozen=True, slots=True)
class TimesOfSizes:
    """Microseconds of one launch over sizes of groups: those of named distributions, and of any sizes."""

    named: tuple[tuple[Distribution, float], ...]
    us_of: Callable[[Sequence[int]], float] = field(compare=False, repr=False)

    @property
    def mean_us(self) -> float:
        """The mean over the uneven ones of these distributions: by even ones a tile that just fits would win."""
        return fmean(us for each, us in self.named if not each.even)


@dataclass(frozen=True, slots=True)
class PredictedTime:
    """Microseconds of one launch on a target's reference GPU, and the word for them (`foretold`, or `AT_LEAST`).

    With groups they are the mean of those `of_sizes`, uneven distributions of their rows.
    """

    us: float
    how: str
    gpu: str
    of_sizes: TimesOfSizes | None = None

    def __str__(self) -> str:
        """Write it as a sentence has it.

        >>> print(PredictedTime(839.2, "estimated", "A100 (108 SMs)"))
        839 us estimated on A100 (108 SMs)
        >>> print(PredictedTime(12.0, AT_LEAST, "H200 (132 SMs)"))
        at least 12 us on H200 (132 SMs)
        """
        time = f"{AT_LEAST} {shown_us(self.us)}" if self.how == AT_LEAST else f"{shown_us(self.us)} {self.how}"
        return f"{time} on {self.gpu}"


def sizes_line(time: PredictedTime) -> tuple[str, ...]:
    """Return the sentence that says the times of sizes, and how much longer the worst takes than the best, if any.

    >>> of_sizes = TimesOfSizes(((Distribution.HOT, 2.0), (Distribution.ZIPF, 4.0)), sum)

    >>> print(*sizes_line(PredictedTime(4.0, "predicted", "", of_sizes)))
    sizes of groups: hot 2 us, zipf 4 us; kernels are chosen by the mean of zipf; the worst takes 2.00 times the best
    """
    if time.of_sizes is None:
        return ()
    listed = ", ".join(f"{each} {shown_us(us)}" for each, us in time.of_sizes.named)
    found = [us for _, us in time.of_sizes.named]
    uneven = ", ".join(each for each, _ in time.of_sizes.named if not each.even)
    worst = f"the worst takes {max(found) / min(found):.2f} times the best"
    return (f"sizes of groups: {listed}; kernels are chosen by the mean of {uneven}; {worst}",)


def shown_us(us: float) -> str:
    """Format microseconds with three digits, or as whole ones.

    >>> shown_us(12.345), shown_us(2345.6)
    ('12.3 us', '2,346 us')
    """
    return f"{us:,.{SHOWN_DIGITS}g} us" if us < 1000 else f"{us:,.0f} us"
