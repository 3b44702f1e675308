"""Bulk tensor copies (TMA) that one producer warp issues.

The producer warp and the MMA warps synchronize through two mbarriers per stage; no thread waits for a whole CTA. The
MMA warps load fragments of a stage (`copied.py`), or read it in shared memory (`described.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar

from cutegen.contract.launch import OPERANDS
from cutegen.hardware import Instruction, Target, targets_with
from cutegen.hardware.units import WARP, WARPGROUP
from cutegen.plan.kernel.memory import ALWAYS, BARRIERS, Phase, Region, allocate, result_region, slices_region
from cutegen.plan.kernel.pipeline import MBARRIER_BYTES, Pipeline, mbarriers_bytes
from cutegen.plan.kernel.role import IDLE, PRODUCER, Role
from cutegen.plan.kernel.scheduler import SUM_BYTES
from cutegen.plan.main_loops import copied_in_bulk, slices_in_cluster, turns
from cutegen.plan.parts import Draft, Feed, Memory, Roles
from cutegen.plan.predict.occupancy import available_registers
from cutegen.plan.rules.bulk_boxes import check_align
from cutegen.plan.rules.bulk_memory import (
    FLAG_BYTES,
    MOST_BARRIERS_BYTES,
    SWIZZLE_PERIOD_BYTES,
    capacity_bytes,
    most_gap_bytes,
    stages_for_sums,
)
from cutegen.plan.rules.pipeline import choose_stages
from cutegen.plan.rules.register_split import split_registers
from cutegen.plan.values.decision import Choice
from cutegen.plan.values.epilogue import EpiloguePlan, Fusion
from cutegen.plan.values.mma import MmaPlan
from cutegen.spec import FAMILIES, GemmSpec
from cutegen.spec.families import family_with
from cutegen.support.words import either, round_up

INSTRUCTIONS = {Instruction.WGMMA: "wgmma", Instruction.BULK_TENSOR: "bulk tensor copies"}
"""Names of instructions that a target may lack, the rarest first."""


class Bulk(Feed):
    """One warp of a separate warpgroup copies: registers are reallocated per warpgroup.

    A subclass says how the MMA warps read a stage and store C. `to_copy` are the registers that a thread of the
    producer warpgroup may keep; `least_stages` are the fewest that avoid a deadlock.
    """

    __slots__ = ()
    reserved_bytes: ClassVar[int] = MOST_BARRIERS_BYTES
    to_copy: ClassVar[tuple[int, ...]]
    least_stages: ClassVar[int]
    most_stages: ClassVar[int]

    @abstractmethod
    def epilogue(
        self, spec: GemmSpec, fusion: Fusion, mma: MmaPlan, registers: int, stage_bytes: int, capacity_bytes: int
    ) -> Choice[EpiloguePlan]:
        """Choose the store path of C, given the bytes of a stage and the registers per thread."""

    @abstractmethod
    def c_store(self, mma: Role, epilogue: EpiloguePlan) -> Pipeline | None:
        """Return the pipeline of C's buffers, if C is stored from shared memory."""

    def check(self, spec: GemmSpec, target: Target, family: str) -> None:
        """Raise SpecError for a target that lacks an instruction of the family, or an operand that TMA cannot address.

        These are the operands of calls: a refusal names them before `schedule.swap` exchanges them.
        """
        needs, by_threads = FAMILIES[family].needs, family_with(Instruction.MMA_SYNC, Instruction.CP_ASYNC)
        if target.has(*needs):
            for name in OPERANDS:
                check_align(spec, name, f"{spec.in_family(by_threads)} copies from any address")
            return
        having = targets_with(*needs)
        lacking = next((words for each, words in INSTRUCTIONS.items() if each in needs and not target.has(each)), "")
        in_bulk = family_with(Instruction.MMA_SYNC, Instruction.BULK_TENSOR)
        other = in_bulk if target.has(*FAMILIES[in_bulk].needs) else by_threads
        raise spec.error(
            "family",
            found=f'"{family}" for {target.name}',
            expected=f"{either(having)}, which {'has' if len(having) == 1 else 'have'} {lacking}",
            fix=f'--arch {having[0]}, or family = "{other}"',
        )

    def roles(self, spec: GemmSpec, target: Target, mma: MmaPlan, estimate: int) -> Roles:
        """Split all registers of an SM between the consumers and the warpgroup of the producer warp."""
        threads = mma.threads + WARPGROUP
        if threads > target.threads_per_cta:
            raise spec.error(
                "mma.atom_layout",
                found=f"{mma.threads} consumer threads and {WARPGROUP} producer threads",
                expected=f"at most {target.threads_per_cta} threads in total",
            )
        split, decision = split_registers(target, mma.threads, to_copy=self.to_copy, wanted=estimate)
        of_mma, kept = (split.mma, split.producer) if split else (None, None)
        return Roles(
            roles=(
                replace(mma.role, registers=of_mma),
                Role(name=PRODUCER, threads=WARP, registers=kept),
                Role(name=IDLE, threads=WARPGROUP - WARP, registers=kept),
            ),
            registers_at_launch=available_registers(target, threads),
            decisions=(decision,),
        )

    def memory(self, draft: Draft) -> Memory:
        """Place C after the stages, which the next tile's copies fill while C is stored."""
        spec, target, mma = draft.spec, draft.target, draft.mma
        stage_bytes, gaps_bytes = sum(draft.stage_bytes), most_gap_bytes(draft.stage_bytes)
        capacity = capacity_bytes(target) - gaps_bytes
        role, producer, _ = draft.roles.roles
        of_thread = role.registers or draft.roles.registers_at_launch
        epilogue = self.epilogue(spec, draft.fusion, mma, of_thread, stage_bytes, capacity)
        c = epilogue.value.smem
        c_bytes = round_up(c.bytes, SWIZZLE_PERIOD_BYTES) if c else 0
        reserved_bytes = c_bytes + MOST_BARRIERS_BYTES + gaps_bytes
        least, why = self.least_stages, "a stage is released while the next one is being multiplied"
        if (for_sums := stages_for_sums(mma, stage_bytes)) > least:
            least, why = for_sums, "the stages hold a tile's sums while a cluster adds them"
        stages = choose_stages(
            spec, target, draft.stage_bytes, 1, reserved_bytes, most=self.most_stages, least=least, why_least=why
        )
        (m, n, k), (tile_m, tile_n, _) = mma.cluster, mma.cta_tile
        ab = copied_in_bulk(role, stages.value, stage_bytes, ctas=m + n - 1)
        store, sums_bytes = self.c_store(role, epilogue.value), tile_m * tile_n * SUM_BYTES
        added = (slices_in_cluster(role, producer, sums_bytes, ctas=m * n * k),) if k > 1 else ()
        pipelines = (ab, *turns(role), *((store,) if store else ()), *added)
        # One thread tells others by a flag that its CTA was the last.
        barriers_bytes = mbarriers_bytes(pipelines) + (FLAG_BYTES if spec.schedule.slices > 1 else 0)
        # No k-tile is copied while a cluster adds.
        filled = ALWAYS - {Phase.SLICES} if added else ALWAYS
        regions = [*draft.stage_regions(stages.value, SWIZZLE_PERIOD_BYTES, filled)]
        if added:
            regions.append(slices_region(sums_bytes, SWIZZLE_PERIOD_BYTES))
        if c is not None:
            regions.append(result_region(c_bytes, SWIZZLE_PERIOD_BYTES))
        regions.append(Region(name=BARRIERS, owner=BARRIERS, bytes=barriers_bytes, align_bytes=MBARRIER_BYTES))
        return Memory(stages=stages, epilogue=epilogue, regions=allocate(regions), pipelines=pipelines)
