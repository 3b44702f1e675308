"""Vector copies by every thread: cp.async, or plain loads and stores, and fragments by ldmatrix or plain loads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cutegen.hardware import Target
from cutegen.plan.kernel.program import KernelLoop
from cutegen.plan.main_loops import copied_by_threads, pipelined
from cutegen.plan.parts import Feed, Memory, Operands, Roles
from cutegen.plan.predict.occupancy import ctas_by_registers
from cutegen.plan.rules.epilogue import choose_epilogue
from cutegen.plan.rules.g2s import choose_g2s
from cutegen.plan.rules.operand_choices import OperandChoices, choose_layout
from cutegen.plan.rules.pipeline import choose_stages, pipeline_bytes
from cutegen.plan.rules.s2r import choose_s2r
from cutegen.plan.values.copies import VectorCopy
from cutegen.plan.values.decision import Choice
from cutegen.plan.values.epilogue import EpiloguePlan, Fusion
from cutegen.plan.values.mma import MmaPlan
from cutegen.plan.values.operand import OperandTile
from cutegen.plan.values.path import OperandPath
from cutegen.plan.values.smem import SmemMap
from cutegen.spec import GemmSpec


@dataclass(frozen=True, slots=True)
class Vectors(Feed):
    """A pipeline of as many stages as fit, and fragments that are loaded to registers."""

    holes: ClassVar[str] = "vectors"

    def operand(self, spec: GemmSpec, x: OperandTile, mma: MmaPlan, target: Target) -> OperandChoices[VectorCopy]:
        """The widest copy, the fragments' loads, and the shared layout that suits both best."""
        g2s, s2r = choose_g2s(spec, x, mma.tiled_mma.threads), choose_s2r(spec, x, mma.tiled_mma, target)
        return choose_layout(spec, x, g2s, s2r, mma.tiled_mma)

    def memory(
        self,
        spec: GemmSpec,
        target: Target,
        mma: MmaPlan,
        operands: Operands,
        fusion: Fusion,
        roles: Roles,
    ) -> Memory:
        """As many stages as keep the CTAs that registers allow resident; C's tile reuses them after the main loop."""
        stage_bytes = tuple(each.stage_bytes for each in operands)
        resident = ctas_by_registers(target, mma.tiled_mma.threads, roles.registers_at_launch)
        asynchronous = not all(each.g2s.value.through_registers for each in operands)
        stages = choose_stages(spec, target, stage_bytes, resident, asynchronous=asynchronous)
        epilogue = choose_epilogue(spec, fusion, mma.tiled_mma, mma.cta_tile, target.smem_per_cta_bytes)
        return overlaid(roles, stages, epilogue, stage_bytes)

    def loop(self, roles: Roles, memory: Memory, mma: MmaPlan, operands: tuple[OperandPath, ...]) -> KernelLoop:
        """Return as many k-tiles per turn as there are stages, so that stages are constants in the addresses.

        On an H200 that is up to 10 % faster than one k-tile per turn (docs/performance.md). Plain copies hold a k-tile
        in registers, which leaves no room for the addresses of several.
        """
        (role,), (ab,) = roles.roles, memory.pipelines
        per_turn = 1 if any(x.g2s.through_registers for x in operands) else ab.stages
        return pipelined(role, ab, mma.k_blocks, per_turn, tuple(dict.fromkeys(x.g2s.fetch for x in operands)))


def overlaid(roles: Roles, stages: Choice[int], epilogue: Choice[EpiloguePlan], stage_bytes: tuple[int, ...]) -> Memory:
    """A's stages, then B's; C's tile over both."""
    b_offset_bytes = pipeline_bytes(stage_bytes[:1], stages.value)
    c_bytes = epilogue.value.smem.bytes if epilogue.value.smem else 0
    smem = SmemMap(b_offset_bytes=b_offset_bytes, bytes=max(pipeline_bytes(stage_bytes, stages.value), c_bytes))
    (role,) = roles.roles
    ab = copied_by_threads(role, stages.value, sum(stage_bytes))
    return Memory(stages=stages, epilogue=epilogue, smem=smem, pipelines=(ab,))
