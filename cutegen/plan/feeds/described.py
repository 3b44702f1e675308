"""Operands that the tensor core reads in shared memory, and C stored in parts, each by one warpgroup.

A warpgroup releases a stage when its multiplications are done, which it learns one k-tile later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cutegen.hardware import Target
from cutegen.plan.feeds.bulk import Bulk
from cutegen.plan.loop import Loop
from cutegen.plan.main_loops import multiplied_from_shared, promoted
from cutegen.plan.rules.bulk_boxes import check_rows, choose_bulk_copy
from cutegen.plan.rules.described_tiles import choose_described
from cutegen.plan.rules.operand_choices import OperandChoices
from cutegen.plan.rules.parted_epilogue import choose_parted_epilogue
from cutegen.plan.rules.pipeline import DEEPEST
from cutegen.plan.rules.register_split import LEAST_TO_COPY
from cutegen.plan.values.copies import BulkTensorCopy
from cutegen.plan.values.decision import Choice
from cutegen.plan.values.epilogue import EpiloguePlan, Fusion
from cutegen.plan.values.mma import MmaPlan
from cutegen.plan.values.operand import OperandTile
from cutegen.plan.values.path import OperandPath
from cutegen.spec import GemmSpec


@dataclass(frozen=True, slots=True)
class DescribedTiles(Bulk):
    """Only sums are in registers, so the producer warps can keep a few more."""

    holes: ClassVar[str] = "warpgroup"
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

    def loop(self, stages: int, mma: MmaPlan, operands: tuple[OperandPath, ...]) -> Loop:
        """One group of multiplications per k-tile, with a wait for each if its sums may be promoted."""
        if mma.promote_k:
            return promoted(stages, mma.k_blocks, mma.promoted_sets)
        return multiplied_from_shared(stages, mma.k_blocks, ends_in_turns=mma.ends_in_turns)
