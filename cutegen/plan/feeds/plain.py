"""Plain copies by every thread, one k-tile at a time, and plain loads straight from shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cutegen.hardware import Target
from cutegen.plan.feeds.vectors import overlaid
from cutegen.plan.kernel.program import KernelLoop
from cutegen.plan.main_loops import through_registers
from cutegen.plan.parts import Draft, Feed, Memory, Roles
from cutegen.plan.rules.operand_choices import OperandChoices
from cutegen.plan.rules.pipeline import pipeline_bytes
from cutegen.plan.rules.plain_copies import choose_copies
from cutegen.plan.rules.plain_epilogue import choose_store
from cutegen.plan.rules.plain_stages import choose_stages
from cutegen.plan.values.copies import VectorCopy
from cutegen.plan.values.mma import MmaPlan
from cutegen.plan.values.operand import OperandTile
from cutegen.plan.values.path import OperandPath
from cutegen.spec import GemmSpec
from cutegen.spec.families import PLAIN_COPIES, PartKeys


@dataclass(frozen=True, slots=True)
class Plain(Feed):
    """Loads and stores that every target has: one stage, or a second one that is filled while the first is read."""

    keys: ClassVar[PartKeys] = PLAIN_COPIES

    def operand(self, spec: GemmSpec, x: OperandTile, mma: MmaPlan, target: Target) -> OperandChoices[VectorCopy]:
        """The copy and the shared layout that cost the fewest wavefronts together."""
        return choose_copies(spec, x, mma.tiled_mma)

    def memory(self, draft: Draft) -> Memory:
        """One or two stages; C from registers, or through the stages' memory if the spec requests it."""
        spec, target, mma = draft.spec, draft.target, draft.mma
        stages = choose_stages(spec, target, draft.stage_bytes)
        stages_bytes = pipeline_bytes(draft.stage_bytes, stages.value)
        epilogue = choose_store(spec, draft.fusion, mma.tiled_mma, mma.cta_tile, target, stages_bytes)
        return overlaid(draft, stages, epilogue)

    def loop(self, roles: Roles, memory: Memory, mma: MmaPlan, operands: tuple[OperandPath, ...]) -> KernelLoop:
        """A k-tile is multiplied as a whole: no fragments are kept."""
        (role,), (ab,) = roles.roles, memory.pipelines
        return through_registers(role, ab)
