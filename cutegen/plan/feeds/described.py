"""Operands that the tensor core reads in shared memory, and C stored in parts, each by one warpgroup.

A warpgroup releases a stage when its multiplications are done, which it learns one k-tile later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cutegen.hardware import Target
from cutegen.plan.feeds.bulk import Bulk
from cutegen.plan.kernel.pipeline import Pipeline, Scope
from cutegen.plan.kernel.program import KernelLoop
from cutegen.plan.kernel.role import Role
from cutegen.plan.kernel.scheduler import SplitK
from cutegen.plan.main_loops import epilogue, multiplied_from_shared, promoted, stored_in_bulk
from cutegen.plan.parts import CopyPolicy, Memory, Roles
from cutegen.plan.rules.bulk_boxes import check_rows, choose_bulk_copy
from cutegen.plan.rules.described_tiles import choose_described
from cutegen.plan.rules.eviction import choose_eviction
from cutegen.plan.rules.operand_choices import OperandChoices
from cutegen.plan.rules.pace import choose_pace
from cutegen.plan.rules.parted_epilogue import choose_parted_epilogue
from cutegen.plan.rules.pipeline import DEEPEST
from cutegen.plan.rules.prefetch import choose_prefetch
from cutegen.plan.rules.programmatic import choose_programmatic
from cutegen.plan.rules.register_split import LEAST_TO_COPY
from cutegen.plan.rules.tile_order import InFlight
from cutegen.plan.values.copies import BulkTensorCopy
from cutegen.plan.values.decision import Choice
from cutegen.plan.values.epilogue import EpiloguePlan, Fusion
from cutegen.plan.values.mma import MmaPlan
from cutegen.plan.values.operand import OperandTile
from cutegen.plan.values.path import OperandPath
from cutegen.spec import GemmSpec
from cutegen.spec.families import DESCRIBED_BOXES, PartKeys


@dataclass(frozen=True, slots=True)
class DescribedTiles(Bulk):
    """Only sums are in registers, so the producer warps can keep a few more."""

    keys: ClassVar[PartKeys] = DESCRIBED_BOXES
    to_copy: ClassVar[tuple[int, ...]] = (40, 32, LEAST_TO_COPY)
    least_stages: ClassVar[int] = 2
    most_stages: ClassVar[int] = DEEPEST[-1]

    def operand(self, spec: GemmSpec, x: OperandTile, mma: MmaPlan, target: Target) -> OperandChoices[BulkTensorCopy]:
        """The layout decides the boxes and the descriptor."""
        check_rows(spec, x)
        smem, described = choose_described(spec, x, mma)
        m, n, _ = mma.cluster
        g2s = choose_bulk_copy(spec, x, smem.value.chosen.atom, shares=n if x.operand == "A" else m)
        return OperandChoices(x, g2s, described, smem)

    def epilogue(
        self, spec: GemmSpec, fusion: Fusion, mma: MmaPlan, registers: int, stage_bytes: int, capacity_bytes: int
    ) -> Choice[EpiloguePlan]:
        """Two parts per warpgroup, to leave memory for stages."""
        return choose_parted_epilogue(spec, fusion, mma, registers, stage_bytes, capacity_bytes)

    def c_store(self, mma: Role, epilogue: EpiloguePlan) -> Pipeline | None:
        """The buffers of each warpgroup, which writes them alone."""
        if epilogue.smem is None or epilogue.parts is None:
            return None
        buffers = epilogue.parts.buffers * epilogue.parts.warpgroups
        return stored_in_bulk(mma, buffers // mma.groups, epilogue.smem.bytes // buffers, scope=Scope.GROUP)

    def policy(
        self, spec: GemmSpec, target: Target, mma: MmaPlan, split_k: SplitK | None, in_flight: InFlight | None
    ) -> CopyPolicy:
        """The producer warp has a policy of the L2 cache, the warps that wait prefetch, and any of them can wait."""
        evicted_first, l2_decisions = choose_eviction(spec, in_flight)
        prefetched, prefetch_decisions = choose_prefetch(spec, mma, in_flight, evicted_first)
        pace, pace_decisions = choose_pace(spec, target, mma)
        programmatic, launch_decisions = choose_programmatic(spec, split_k)
        return CopyPolicy(
            evicted_first=evicted_first,
            prefetched=prefetched,
            pace=pace,
            programmatic=programmatic,
            of_l2=(*l2_decisions, *prefetch_decisions),
            of_time=(*pace_decisions, *launch_decisions),
        )

    def loop(self, roles: Roles, memory: Memory, mma: MmaPlan, operands: tuple[OperandPath, ...]) -> KernelLoop:
        """One group of multiplications per k-tile, with a wait for each if its sums may be promoted."""
        parts = memory.epilogue.value.parts
        assert parts is not None  # warpgroups store C only in parts
        kernel = roles.roles, memory.pipelines, mma.k_blocks, epilogue(memory.pipelines, parts.of_cta)
        if (promotion := mma.accumulator.promotion) is not None:
            return promoted(*kernel, sets=promotion.sets, staggered=promotion.staggered)
        return multiplied_from_shared(*kernel)
