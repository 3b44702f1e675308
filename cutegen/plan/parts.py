"""The parts of a family of kernels and their decisions: multiplier, feed and schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from cutegen.algebra import Extents
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import Target
from cutegen.plan.loop import Loop
from cutegen.plan.rules.operand_choices import OperandChoices
from cutegen.plan.rules.tile_order import InFlight
from cutegen.plan.values.decision import Choice, Decision
from cutegen.plan.values.epilogue import EpiloguePlan, Fusion
from cutegen.plan.values.gemm_plan import OperandPlan, RasterPlan, RegisterSplit, SplitPlan
from cutegen.plan.values.mma import MmaPlan
from cutegen.plan.values.operand import OperandTile
from cutegen.plan.values.smem import SmemMap
from cutegen.spec import GemmSpec

Operands = tuple[OperandChoices[Any], OperandChoices[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Registers:
    """Registers of a thread at launch, and their reallocation if a kernel does that."""

    at_launch: int
    split: RegisterSplit | None = None
    decisions: tuple[Decision, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Contents of the shared memory of a CTA, and their places."""

    stages: Choice[int]
    epilogue: Choice[EpiloguePlan]
    smem: SmemMap


class Multiplier(Protocol):
    """Multiplier: the rules for its atom and its threads, and the instructions of its kernels."""

    def check(self, spec: GemmSpec, target: Target) -> None:
        """Raise SpecError for operands that it cannot multiply."""

    def choose(self, spec: GemmSpec, target: Target, cta_tile: Choice[Extents]) -> tuple[MmaPlan, tuple[Decision, ...]]:
        """Return atom and threads, and the decisions on them."""

    def registers(self, target: Target, mma: MmaPlan, operands: Operands) -> int:
        """An estimate of a thread's registers."""

    def counted(self, counts: dict[str, int], plan: CountedPlan) -> dict[str, int]:
        """Return the main loop's instructions that a kernel must have, without those that the compiler may merge."""


class Feed(Protocol):
    """Feed: copies A and B to shared memory, and stores C from it."""

    @property
    def holes(self) -> str:
        """Return what fills its templates."""

    @property
    def producer_threads(self) -> int:
        """Producer threads of a CTA."""

    @property
    def reserved_bytes(self) -> int:
        """Shared memory that stages leave free, whatever the plan."""

    def check(self, spec: GemmSpec, target: Target, family: str) -> None:
        """Raise SpecError if the target does not support it."""

    def registers(self, spec: GemmSpec, target: Target, mma: MmaPlan, estimate: int) -> Registers:
        """Return the registers of a thread, of which the multiplier needs `estimate`."""

    def operand(self, spec: GemmSpec, x: OperandTile, mma: MmaPlan, target: Target) -> OperandChoices[Any]:
        """The copies of A or B, and its shared layout."""

    def memory(
        self,
        spec: GemmSpec,
        target: Target,
        mma: MmaPlan,
        operands: Operands,
        fusion: Fusion,
        registers: Registers,
    ) -> Memory:
        """Choose the stages, the store path of C, and the map of shared memory."""

    def loop(self, stages: int, mma: MmaPlan, a: OperandPlan, b: OperandPlan) -> Loop:
        """The main loop of one tile."""


class Schedule(Protocol):
    """Schedule: distributes the tiles, and the K of one tile, among CTAs."""

    @property
    def ctas_per_multiprocessor(self) -> int | None:
        """CTAs per SM, if they are persistent."""

    def check(self, spec: GemmSpec, problem: ProblemShape | None, family: str) -> None:
        """Raise SpecError for a spec with another schedule."""

    def order(self, spec: GemmSpec, mma: MmaPlan, in_flight: InFlight | None) -> Choice[RasterPlan]:
        """The order of the tiles."""

    def split(self, spec: GemmSpec, mma: MmaPlan) -> tuple[SplitPlan | None, tuple[Decision, ...]]:
        """The slices of K, and the decision on them."""

    def loop(self, of_a_tile: Loop) -> Loop:
        """The loop over tiles around the loop of a tile."""

    def spreads(self, mma: MmaPlan) -> bool:
        """True if CTAs that fill at most half of the GPU run on every second SM."""

    def decisions(self, along: str, mma: MmaPlan, in_flight: InFlight | None) -> tuple[Decision, ...]:
        """Return its decisions; tiles are visited `along` a mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedPlan:
    """Plan as predictions of instructions see it."""

    a: OperandPlan
    b: OperandPlan
    epilogue: EpiloguePlan
    mma: MmaPlan
    target: Target
