"""Bulk tensor copies (TMA) that one warp asks for, and fragments by ldmatrix.

That warp and those that multiply meet at two barriers for each stage (mbarrier); no thread waits for a whole CTA.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cutegen.contract.tensor_map import TensorMapContract
from cutegen.errors import SpecError
from cutegen.hardware import Instruction, Target, targets_with
from cutegen.hardware.units import WARPGROUP
from cutegen.plan.loop import Loop, produced
from cutegen.plan.parts import Memory, Multiplied, Operands, Registers
from cutegen.plan.predict.occupancy import available_registers
from cutegen.plan.rules.bulk_boxes import check_bulk, choose_boxes, choose_bulk_copy
from cutegen.plan.rules.bulk_epilogue import choose_epilogue
from cutegen.plan.rules.bulk_memory import (
    MOST_BARRIERS_BYTES,
    STAGE_BARRIERS_BYTES,
    SWIZZLE_PERIOD_BYTES,
    capacity_bytes,
)
from cutegen.plan.rules.operand_choices import OperandChoices, fragment_access
from cutegen.plan.rules.pipeline import choose_stages
from cutegen.plan.rules.register_split import split_registers
from cutegen.plan.rules.s2r import choose_s2r, targets_transposing
from cutegen.plan.values.copies import BulkTensorCopy
from cutegen.plan.values.decision import Decision
from cutegen.plan.values.gemm_plan import EpiloguePlan, Fusion, OperandPlan
from cutegen.plan.values.operand import OperandTile
from cutegen.spec import GemmSpec
from cutegen.support.words import either, round_up


@dataclass(frozen=True, slots=True)
class Bulk:
    """A warpgroup of its own copies, by one of its warps: registers are given out by warpgroups."""

    holes: str = "bulk"
    producer_threads: int = WARPGROUP
    reserved_bytes: int = MOST_BARRIERS_BYTES

    def check(self, spec: GemmSpec, target: Target, family: str) -> None:
        """Raise SpecError for a target without bulk tensor copies."""
        if not target.has(Instruction.BULK_TENSOR):
            having = targets_with(Instruction.BULK_TENSOR)
            raise spec.error(
                "family",
                found=f'"{family}" for {target.name}',
                expected=f"{either(having)}, which have bulk tensor copies",
                fix=f'--arch {having[0]}, or family = "sm80"',
            )

    def registers(self, spec: GemmSpec, target: Target, by: Multiplied, estimate: int) -> Registers:
        """All of a multiprocessor's, shared out between the threads that multiply and those that copy."""
        threads = by.tiled_mma.threads + self.producer_threads
        if threads > target.threads_per_cta:
            raise spec.error(
                "mma.atom_layout",
                found=f"{by.tiled_mma.threads} threads that multiply, and {self.producer_threads} for the copies",
                expected=f"at most {target.threads_per_cta} threads together",
            )
        split, decision = split_registers(target, by.tiled_mma.threads)
        return Registers(at_launch=available_registers(target, threads), split=split, decisions=(decision,))

    def operand(self, spec: GemmSpec, x: OperandTile, by: Multiplied, target: Target) -> OperandChoices[BulkTensorCopy]:
        """Fragments decide the shared layout, and the layout decides the boxes."""
        check_bulk(spec, x, asked="tile.cta")
        s2r = choose_s2r(spec, x, by.tiled_mma, target)
        if not s2r.value.by_ldmatrix:
            raise _no_plain_loads(spec, x, s2r.decision, target)
        smem = choose_boxes(spec, x, by.tiled_mma, fragment_access(x, s2r.value, by.tiled_mma))
        return OperandChoices(x, choose_bulk_copy(spec, x, smem.value.chosen.atom), s2r, smem)

    def memory(
        self,
        spec: GemmSpec,
        target: Target,
        by: Multiplied,
        operands: Operands,
        fusion: Fusion,
        registers: Registers,
    ) -> Memory:
        """C has memory of its own behind the stages, which the next tile's copies fill while it leaves."""
        for_a, for_b = operands
        stage_bytes = (for_a.smem.value.chosen.tile_bytes, for_b.smem.value.chosen.tile_bytes)
        capacity = capacity_bytes(target)
        epilogue = choose_epilogue(spec, fusion, by.tiled_mma, by.cta_tile, sum(stage_bytes), capacity)
        c_bytes = epilogue.value.smem.bytes if epilogue.value.smem else 0
        reserved_bytes = round_up(c_bytes, SWIZZLE_PERIOD_BYTES) + MOST_BARRIERS_BYTES
        stages = choose_stages(spec, target, stage_bytes, 1, reserved_bytes)
        a, b = for_a.plan(stages.value), for_b.plan(stages.value)
        b_offset_bytes = round_up(a.smem.bytes, SWIZZLE_PERIOD_BYTES)
        c_offset_bytes = round_up(b_offset_bytes + b.smem.bytes, SWIZZLE_PERIOD_BYTES)
        barriers_offset_bytes = round_up(c_offset_bytes + c_bytes, SWIZZLE_PERIOD_BYTES)
        return Memory(
            stages=stages,
            epilogue=epilogue,
            b_offset_bytes=b_offset_bytes,
            c_offset_bytes=c_offset_bytes,
            barriers_offset_bytes=barriers_offset_bytes,
            total_bytes=barriers_offset_bytes + STAGE_BARRIERS_BYTES * stages.value,
        )

    def loop(self, stages: int, k_blocks: int, a: OperandPlan, b: OperandPlan) -> Loop:
        """One warp that copies beside those that multiply."""
        return produced(stages, k_blocks)

    def maps(self, a: OperandPlan, b: OperandPlan, epilogue: EpiloguePlan) -> Iterator[TensorMapContract]:
        """A, B, and C where it leaves through shared memory."""
        for name, copy in (("a", a.g2s), ("b", b.g2s), ("c", epilogue.store)):
            yield from copy.tensor_maps(name) if copy else ()


def _no_plain_loads(spec: GemmSpec, x: OperandTile, decision: Decision, target: Target) -> SpecError:
    """Fragments come by ldmatrix or not at all: the key at fault is the atom, the shared layout or the major."""
    fix = 'family = "sm80" has plain loads'
    if decision.given:
        return spec.error(f"s2r.{x.name}.atom", found='"universal"', expected="an ldmatrix", fix=fix)
    if x.major == "k":
        return spec.error(x.smem_key, found=decision.why, expected="what ldmatrix can load", fix=fix)
    elsewhere = targets_transposing(x.dtype.bits)
    return spec.error(
        f"problem.{x.name}.major",
        found=f'"{x.major}" for {target.name}: {decision.why}',
        expected='"k", or an operand that ldmatrix transposes',
        fix=f"{fix}, and {elsewhere} an ldmatrix for {x.dtype.name}" if elsewhere else fix,
    )
