"""The parts of a family of kernels and their decisions: MMA, main loop and schedule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from cutegen.algebra import Extents
from cutegen.contract.launch import OPERANDS
from cutegen.contract.problem import Groups, ProblemShape
from cutegen.hardware import Target
from cutegen.plan.kernel.memory import MemoryMap, Phase, Region
from cutegen.plan.kernel.pipeline import AB, THREADS, Pipeline, Role
from cutegen.plan.kernel.program import KernelLoop
from cutegen.plan.kernel.scheduler import SplitK, TileOrder, TileScheduler, TileSource
from cutegen.plan.operands.shared_memory import vector_of_groups
from cutegen.plan.operands.staging import OperandChoices
from cutegen.plan.schedule.cluster import check_dynamic, is_dynamic
from cutegen.plan.schedule.groups import check_groups
from cutegen.plan.schedule.order import InFlight
from cutegen.plan.values.decision import Choice, Decision
from cutegen.plan.values.epilogue import EpiloguePlan, Fusion
from cutegen.plan.values.gemm_plan import MmaPlan, Occupancy, Prefetch
from cutegen.plan.values.operand import OperandTile, operand_tile
from cutegen.plan.values.path import OperandPath
from cutegen.spec import GemmSpec
from cutegen.spec.families import PartKeys
from cutegen.support.words import round_up

Operands = tuple[OperandChoices[Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """The roles of a CTA in the order of its warps, and the registers of a thread at launch."""

    roles: tuple[Role, ...]
    registers_at_launch: int
    decisions: tuple[Decision, ...] = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """Decisions that precede the layout of memory."""

    spec: GemmSpec
    target: Target
    mma: MmaPlan
    operands: Operands
    fusion: Fusion
    roles: Roles

    @property
    def stage_bytes(self) -> tuple[int, ...]:
        """Bytes of each operand's tile in one stage."""
        return tuple(each.stage_bytes for each in self.operands)

    def stage_regions(self, stages: int, align_bytes: int, phases: frozenset[Phase]) -> Iterator[Region]:
        """Yield the memory of each operand's stages, in whole multiples of `align_bytes`."""
        for each in self.operands:
            stages_bytes = round_up(each.stage_bytes * stages, align_bytes)
            yield Region(name=each.tile.name, owner=AB, bytes=stages_bytes, align_bytes=align_bytes, phases=phases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Contents of the shared memory of a CTA, their places, and the pipelines that use them."""

    stages: Choice[int]
    epilogue: Choice[EpiloguePlan]
    regions: MemoryMap
    pipelines: tuple[Pipeline, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPolicy:
    """Hints of a CTA's copies to the L2 cache, and the times at which it issues them.

    Lines of `evicted_first` operands leave L2 before all others, and waiting warps prefetch the first k-tiles of the
    `prefetched` ones. With a `pace` a CTA requests k-tiles at most one per N clock cycles. A `programmatic`
    kernel may begin before its predecessor on the stream ends, and waits for that end before it accesses memory, except
    for the first k-tiles of operands that it copies `ahead`.
    """

    evicted_first: tuple[str, ...] = ()
    prefetched: tuple[Prefetch, ...] = ()
    pace: int = 0
    programmatic: bool = False
    ahead: tuple[str, ...] = ()
    of_l2: tuple[Decision, ...] = ()
    of_time: tuple[Decision, ...] = ()


class Mma(ABC):
    """Multiplier: the rules for its atom and its threads, and the instructions of its kernels.

    `keys` are what specs know of it.
    """

    __slots__ = ()
    keys: ClassVar[PartKeys]

    @abstractmethod
    def check(self, spec: GemmSpec, target: Target) -> None:
        """Raise SpecError for operands that it cannot multiply."""

    @abstractmethod
    def choose(self, spec: GemmSpec, target: Target, cta_tile: Choice[Extents]) -> tuple[MmaPlan, tuple[Decision, ...]]:
        """Return atom and threads, and the decisions on them."""

    @abstractmethod
    def registers(self, target: Target, mma: MmaPlan, operands: Operands) -> int:
        """An estimate of a thread's registers."""

    def counted(self, counts: dict[str, int], plan: CountedPlan) -> dict[str, int]:
        """Return the main loop's instructions that a kernel must have, without those that the compiler may merge."""
        return counts


class Mainloop(ABC):
    """Feed: copies A and B to shared memory, and stores C from it.

    `keys` are what specs know of it. `reserved_bytes` of shared memory stay free of stages, whatever the plan.
    `has_probe` means that a kernel of its loads alone exists.
    """

    __slots__ = ()
    keys: ClassVar[PartKeys]
    has_probe: ClassVar[bool] = False
    reserved_bytes: ClassVar[int] = 0

    def check(self, spec: GemmSpec, target: Target, family: str) -> None:  # noqa: B027 - every target has plain copies
        """Raise SpecError if the target does not support it."""

    def as_copied(self, spec: GemmSpec) -> GemmSpec:
        """Return the spec with the alignments of copies: those of addresses and strides, unless groups shift them."""
        return spec

    def roles(self, spec: GemmSpec, target: Target, mma: MmaPlan, estimate: int) -> Roles:
        """Return one role, unless there are others: all threads copy and multiply, with `estimate` registers."""
        return Roles(roles=(Role(name=THREADS, threads=mma.threads),), registers_at_launch=estimate)

    def operands(self, spec: GemmSpec, mma: MmaPlan, target: Target) -> Operands:
        """The operands of a k-tile: A and B, and what else a main loop copies with them."""
        types = zip(OPERANDS, (mma.atom.a_dtype, mma.atom.b_dtype), strict=True)
        tiles = (replace(operand_tile(spec, x, mma.copied), multiplied=element) for x, element in types)
        return tuple(self.operand(spec, x, mma, target) for x in tiles)

    @abstractmethod
    def operand(self, spec: GemmSpec, x: OperandTile, mma: MmaPlan, target: Target) -> OperandChoices[Any]:
        """The copies of A or B, and its shared layout."""

    @abstractmethod
    def memory(self, draft: Draft) -> Memory:
        """Choose the stages, the store path of C, the map of shared memory, and the pipelines."""

    def policy(
        self, spec: GemmSpec, target: Target, mma: MmaPlan, split_k: SplitK | None, in_flight: InFlight | None
    ) -> CopyPolicy:
        """Return how copies treat L2, and when they are issued: at once, without hints, by default."""
        return CopyPolicy()

    @abstractmethod
    def loop(self, roles: Roles, memory: Memory, mma: MmaPlan, operands: tuple[OperandPath, ...]) -> KernelLoop:
        """The loop of a CTA that has one tile."""


class Schedule(ABC):
    """Schedule: distributes the tiles, and the K of one tile, among CTAs, which take them from `source`.

    Tiles of groups, whose sizes the device has, come from `source_of_groups`, dynamic ones from `source_taken_over`.
    Kernels `short_of_l2` are limited by the requests to L2, which the CTAs of a GPC can share.
    """

    __slots__ = ()
    source: ClassVar[TileSource]
    source_of_groups: ClassVar[TileSource | None] = None
    source_taken_over: ClassVar[TileSource | None] = None

    @property
    @abstractmethod
    def keys(self) -> PartKeys:
        """The schedule as specs know it."""

    @property
    def short_of_l2(self) -> bool:
        """True if requests to L2 limit its kernels."""
        return False

    @abstractmethod
    def check(self, spec: GemmSpec, problem: ProblemShape | None, family: str) -> None:
        """Raise SpecError for a spec with another schedule."""

    @abstractmethod
    def order(self, spec: GemmSpec, mma: MmaPlan, in_flight: InFlight | None) -> Choice[TileOrder]:
        """The order of the tiles."""

    @abstractmethod
    def split(self, spec: GemmSpec, mma: MmaPlan) -> tuple[SplitK | None, tuple[Decision, ...]]:
        """The slices of K, and the decision on them."""

    def resident(self, occupancy: Occupancy) -> int:
        """Return the persistent CTAs of an SM for tiles of groups."""
        return 1

    def choose(
        self, spec: GemmSpec, mma: MmaPlan, split_k: SplitK | None, in_flight: InFlight | None, occupancy: Occupancy
    ) -> Choice[TileScheduler]:
        """Return the tile scheduler, with the decision on the order of the tiles."""
        order, source = self.order(spec, mma, in_flight), self.source
        if (grouped := spec.problem.groups) is not None:
            check_groups(spec, mma)
            assert self.source_of_groups is not None, "specs refuse groups in a family without a source of their tiles"
            source = self.source_of_groups
        if is_dynamic(spec):
            check_dynamic(spec, mma)
            assert self.source_taken_over is not None, "specs refuse dynamic tiles in a family without them"
            source = self.source_taken_over
        scheduler = TileScheduler(
            order=order.value,
            source=source,
            split_k=split_k,
            spread=grouped is None and self.spreads(mma),
            groups=None if grouped is None else grouped.value,
            resident=1 if grouped is None else self.resident(occupancy),
            vector=vector_of_groups(spec) if source.searched else 1,
        )
        return Choice(scheduler, order.decision)

    def spreads(self, mma: MmaPlan) -> bool:
        """True if CTAs that fill at most half of the GPU run on every second SM."""
        return False

    def decisions(self, mma: MmaPlan, scheduler: TileScheduler, in_flight: InFlight | None) -> tuple[Decision, ...]:
        """Return its other decisions, if any."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedPlan:
    """Plan as predictions of instructions see it."""

    operands: tuple[OperandPath, ...]
    epilogue: EpiloguePlan
    mma: MmaPlan
    target: Target
    groups: Groups | None = None

    @property
    def stores_of_rest(self) -> Counter[str]:
        """Stores that set elements past the end of a group's part of K to 0, where they are written once."""
        cuts_k = self.groups is not None and self.groups.of == "k"
        return Counter(f"st.shared.b{x.dtype.bits if x.major == 'k' else 64}" for x in self.operands if cuts_k)
