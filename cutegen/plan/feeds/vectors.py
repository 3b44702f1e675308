"""Vector copies by every thread: cp.async, or plain loads and stores, and fragments by ldmatrix or plain loads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cutegen.hardware import Target
from cutegen.hardware.units import BANK_ROW_BYTES
from cutegen.plan.kernel.memory import Phase, allocate, result_region
from cutegen.plan.kernel.program import KernelLoop
from cutegen.plan.main_loops import copied_by_threads, pipelined
from cutegen.plan.parts import Draft, Feed, Memory, Roles
from cutegen.plan.predict.occupancy import ctas_by_registers
from cutegen.plan.rules.epilogue import choose_epilogue
from cutegen.plan.rules.g2s import choose_g2s
from cutegen.plan.rules.operand_choices import OperandChoices, choose_layout
from cutegen.plan.rules.pipeline import choose_stages
from cutegen.plan.rules.s2r import choose_s2r
from cutegen.plan.values.copies import VectorCopy
from cutegen.plan.values.decision import Choice
from cutegen.plan.values.epilogue import EpiloguePlan
from cutegen.plan.values.mma import MmaPlan
from cutegen.plan.values.operand import OperandTile
from cutegen.plan.values.path import OperandPath
from cutegen.spec import GemmSpec
from cutegen.spec.families import VECTORS, PartKeys


@dataclass(frozen=True, slots=True)
class Vectors(Feed):
    """A pipeline of as many stages as fit, and fragments that are loaded to registers."""

    keys: ClassVar[PartKeys] = VECTORS
    has_probe: ClassVar[bool] = True

    def operand(self, spec: GemmSpec, x: OperandTile, mma: MmaPlan, target: Target) -> OperandChoices[VectorCopy]:
        """The widest copy, the fragments' loads, and the shared layout that suits both best."""
        g2s, s2r = choose_g2s(spec, x, mma.tiled_mma.threads), choose_s2r(spec, x, mma.tiled_mma, target)
        return choose_layout(spec, x, g2s, s2r, mma.tiled_mma)

    def memory(self, draft: Draft) -> Memory:
        """As many stages as keep the CTAs that registers allow resident; C's tile reuses them after the main loop."""
        spec, target, mma = draft.spec, draft.target, draft.mma
        resident = ctas_by_registers(target, mma.tiled_mma.threads, draft.roles.registers_at_launch)
        asynchronous = not all(each.g2s.value.through_registers for each in draft.operands)
        stages = choose_stages(spec, target, draft.stage_bytes, resident, asynchronous=asynchronous)
        epilogue = choose_epilogue(spec, draft.fusion, mma.tiled_mma, mma.cta_tile, target.smem_per_cta_bytes)
        return overlaid(draft, stages, epilogue)

    def loop(self, roles: Roles, memory: Memory, mma: MmaPlan, operands: tuple[OperandPath, ...]) -> KernelLoop:
        """Return as many k-tiles per turn as there are stages, so that stages are constants in the addresses.

        On an H200 that is up to 10 % faster than one k-tile per turn (docs/performance.md). Plain copies hold a k-tile
        in registers, which leaves no room for the addresses of several.
        """
        (role,), (ab,) = roles.roles, memory.pipelines
        per_turn = 1 if any(x.g2s.through_registers for x in operands) else ab.stages
        return pipelined(role, ab, mma.k_blocks, per_turn, tuple(dict.fromkeys(x.g2s.fetch for x in operands)))


def overlaid(draft: Draft, stages: Choice[int], epilogue: Choice[EpiloguePlan]) -> Memory:
    """The stages of the operands, and C's tile in their place: a CTA has one tile, and stores C after its main loop."""
    c, (role,) = epilogue.value.smem, draft.roles.roles
    regions = [*draft.stage_regions(stages.value, BANK_ROW_BYTES, frozenset({Phase.K_TILES}))]
    if c is not None:
        regions.append(result_region(c.bytes, epilogue.value.dtype.bytes))
    return Memory(
        stages=stages,
        epilogue=epilogue,
        regions=allocate(regions),
        pipelines=(copied_by_threads(role, stages.value, sum(draft.stage_bytes)),),
    )
