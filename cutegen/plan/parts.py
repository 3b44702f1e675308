"""The parts that a family of kernels is composed of, and what they answer: multiplier, feed and schedule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from cutegen.algebra import Extents
from cutegen.contract.problem import ProblemShape
from cutegen.contract.tensor_map import TensorMapContract
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
    """Registers a thread is launched with, and how they are shared out anew where a kernel does that."""

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
    """Multiplying part: the rules for its atom and its threads, and what its kernels' instructions are like."""

    def check(self, spec: GemmSpec, target: Target) -> None:
        """Raise SpecError for operands that it cannot multiply."""

    def choose(self, spec: GemmSpec, target: Target, cta_tile: Choice[Extents]) -> MmaPlan:
        """Atom and threads."""

    def registers(self, target: Target, mma: MmaPlan, operands: Operands) -> int:
        """An estimate of a thread's registers."""

    def counted(self, counts: dict[str, int], plan: CountedPlan) -> dict[str, int]:
        """Instructions of the main loop as those of the whole kernel: without what the compiler does as it likes."""


class Feed(Protocol):
    """Part that brings A and B to shared memory, and C out of it."""

    @property
    def holes(self) -> str:
        """Return what fills its templates."""

    @property
    def producer_threads(self) -> int:
        """Threads of a CTA that copy for those that multiply."""

    @property
    def reserved_bytes(self) -> int:
        """Shared memory that stages leave free, whatever the plan."""

    def check(self, spec: GemmSpec, target: Target, family: str) -> None:
        """Raise SpecError where the target does not allow it."""

    def registers(self, spec: GemmSpec, target: Target, mma: MmaPlan, estimate: int) -> Registers:
        """Return the registers of a thread, of which multiplying takes `estimate`."""

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
        """Stages, C's way out, and where in shared memory everything lies."""

    def loop(self, stages: int, mma: MmaPlan, a: OperandPlan, b: OperandPlan) -> Loop:
        """The main loop of one tile."""

    def maps(self, a: OperandPlan, b: OperandPlan, epilogue: EpiloguePlan) -> Iterator[TensorMapContract]:
        """The tensors that bulk tensor copies move."""


class Schedule(Protocol):
    """Part that shares out the tiles among CTAs, and the K of one tile."""

    @property
    def ctas_per_multiprocessor(self) -> int | None:
        """CTAs of a launch for each multiprocessor where they are persistent."""

    def check(self, spec: GemmSpec, problem: ProblemShape | None, family: str) -> None:
        """Raise SpecError for a spec that shares out work otherwise."""

    def order(self, spec: GemmSpec, mma: MmaPlan, in_flight: InFlight | None) -> Choice[RasterPlan]:
        """The order of the tiles."""

    def split(self, spec: GemmSpec, mma: MmaPlan) -> tuple[SplitPlan | None, tuple[Decision, ...]]:
        """The slices of K, and the decision on them."""

    def loop(self, of_a_tile: Loop) -> Loop:
        """The loop over tiles around the loop of a tile."""

    def spreads(self, mma: MmaPlan) -> bool:
        """True where CTAs that fill half of the GPU at most are on every second multiprocessor."""

    def decisions(self, along: str, mma: MmaPlan, in_flight: InFlight | None) -> tuple[Decision, ...]:
        """Return the decisions about it; tiles are visited `along` a mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedPlan:
    """Plan as predictions of instructions look at it."""

    a: OperandPlan
    b: OperandPlan
    epilogue: EpiloguePlan
    mma: MmaPlan
    target: Target
