"""Bulk tensor copies (TMA) that one producer warp issues.

The producer warp and the MMA warps synchronize through two mbarriers per stage; no thread waits for a whole CTA. The
MMA warps load fragments of a stage (`copied.py`), or read it in shared memory (`described.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from cutegen.hardware import Instruction, Target, targets_with
from cutegen.hardware.units import WARPGROUP
from cutegen.plan.parts import Feed, Memory, Operands, Registers
from cutegen.plan.predict.occupancy import available_registers
from cutegen.plan.rules.bulk_boxes import check_align
from cutegen.plan.rules.bulk_memory import (
    MOST_BARRIERS_BYTES,
    STAGE_BARRIERS_BYTES,
    SWIZZLE_PERIOD_BYTES,
    capacity_bytes,
    stages_for_sums,
)
from cutegen.plan.rules.pipeline import choose_stages
from cutegen.plan.rules.register_split import split_registers
from cutegen.plan.values.decision import Choice
from cutegen.plan.values.epilogue import EpiloguePlan, Fusion
from cutegen.plan.values.mma import MmaPlan
from cutegen.plan.values.smem import SmemMap
from cutegen.spec import FAMILIES, GemmSpec
from cutegen.support.words import either, round_up

INSTRUCTIONS = {Instruction.WGMMA: "wgmma", Instruction.BULK_TENSOR: "bulk tensor copies"}
"""Names of instructions that a target may lack, the rarest first."""
OTHERS = ("sm120", "sm80")
"""Families for such targets, the fastest first."""


class Bulk(Feed):
    """One warp of a separate warpgroup copies: registers are reallocated per warpgroup.

    A subclass says how the MMA warps read a stage and store C. `to_copy` are the registers that a thread of the
    producer warpgroup may keep; `least_stages` are the fewest that avoid a deadlock.
    """

    __slots__ = ()
    producer_threads: ClassVar[int] = WARPGROUP
    reserved_bytes: ClassVar[int] = MOST_BARRIERS_BYTES
    to_copy: ClassVar[tuple[int, ...]]
    least_stages: ClassVar[int]
    most_stages: ClassVar[int]

    @abstractmethod
    def epilogue(
        self, spec: GemmSpec, fusion: Fusion, mma: MmaPlan, registers: int, stage_bytes: int, capacity_bytes: int
    ) -> Choice[EpiloguePlan]:
        """Choose the store path of C, given the bytes of a stage and the registers per thread."""

    def check(self, spec: GemmSpec, target: Target, family: str) -> None:
        """Raise SpecError for a target that lacks an instruction of the family, or an operand that TMA cannot address.

        These are the operands of calls: a refusal names them before `schedule.swap` exchanges them.
        """
        needs = FAMILIES[family].needs
        if target.has(*needs):
            for name in "ab":
                check_align(spec, name, f"{spec.in_family('sm80')} copies from any address")
            return
        having = targets_with(*needs)
        lacking = next((words for each, words in INSTRUCTIONS.items() if each in needs and not target.has(each)), "")
        other = next((name for name in OTHERS if target.has(*FAMILIES[name].needs)), OTHERS[-1])
        raise spec.error(
            "family",
            found=f'"{family}" for {target.name}',
            expected=f"{either(having)}, which {'has' if len(having) == 1 else 'have'} {lacking}",
            fix=f'--arch {having[0]}, or family = "{other}"',
        )

    def registers(self, spec: GemmSpec, target: Target, mma: MmaPlan, estimate: int) -> Registers:
        """Split all registers of an SM between consumer and producer threads."""
        threads = mma.threads + self.producer_threads
        if threads > target.threads_per_cta:
            raise spec.error(
                "mma.atom_layout",
                found=f"{mma.threads} consumer threads and {self.producer_threads} producer threads",
                expected=f"at most {target.threads_per_cta} threads in total",
            )
        split, decision = split_registers(target, mma.threads, to_copy=self.to_copy, wanted=estimate)
        return Registers(at_launch=available_registers(target, threads), split=split, decisions=(decision,))

    def memory(
        self,
        spec: GemmSpec,
        target: Target,
        mma: MmaPlan,
        operands: Operands,
        fusion: Fusion,
        registers: Registers,
    ) -> Memory:
        """Place C after the stages, which the next tile's copies fill while C is stored."""
        why = "a stage is released while the next one is being multiplied"
        for_a, for_b = operands
        stage_bytes = (for_a.stage_bytes, for_b.stage_bytes)
        # B and C begin at a period of the swizzle, after a gap if stages are not a multiple of it.
        gaps_bytes = SWIZZLE_PERIOD_BYTES * sum(each % SWIZZLE_PERIOD_BYTES > 0 for each in stage_bytes)
        capacity = capacity_bytes(target) - gaps_bytes
        of_thread = registers.split.mma if registers.split else registers.at_launch
        epilogue = self.epilogue(spec, fusion, mma, of_thread, sum(stage_bytes), capacity)
        c_bytes = epilogue.value.smem.bytes if epilogue.value.smem else 0
        reserved_bytes = round_up(c_bytes, SWIZZLE_PERIOD_BYTES) + MOST_BARRIERS_BYTES + gaps_bytes
        least, most = self.least_stages, self.most_stages
        if (for_sums := stages_for_sums(mma, sum(stage_bytes))) > least:
            least, why = for_sums, "the stages hold a tile's sums while a cluster adds them"
        stages = choose_stages(spec, target, stage_bytes, 1, reserved_bytes, most=most, least=least, why_least=why)
        a, b = for_a.plan(stages.value), for_b.plan(stages.value)
        b_offset_bytes = round_up(a.smem.bytes, SWIZZLE_PERIOD_BYTES)
        c_offset_bytes = round_up(b_offset_bytes + b.smem.bytes, SWIZZLE_PERIOD_BYTES)
        barriers_offset_bytes = round_up(c_offset_bytes + c_bytes, SWIZZLE_PERIOD_BYTES)
        # Barriers that order the warpgroups, or a flag by which one thread tells others that its CTA was the last.
        beside_stages = mma.takes_turns or spec.schedule.slices > 1
        smem = SmemMap(
            b_offset_bytes=b_offset_bytes,
            c_offset_bytes=c_offset_bytes,
            barriers_offset_bytes=barriers_offset_bytes,
            bytes=barriers_offset_bytes + STAGE_BARRIERS_BYTES * (stages.value + beside_stages),
        )
        return Memory(stages=stages, epilogue=epilogue, smem=smem)
