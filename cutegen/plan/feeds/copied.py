"""Loads fragments by ldmatrix from tiles of bulk tensor copies; stores C's whole tile through shared memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from cutegen.errors import SpecError
from cutegen.hardware import Instruction, Target
from cutegen.plan.feeds.bulk import Bulk
from cutegen.plan.geometry.smem_candidates import VECTOR_BYTES
from cutegen.plan.kernel.pipeline import Pipeline, Scope
from cutegen.plan.kernel.program import KernelLoop
from cutegen.plan.kernel.role import Role
from cutegen.plan.main_loops import epilogue, produced, stored_in_bulk
from cutegen.plan.parts import Memory, Roles
from cutegen.plan.rules.bulk_boxes import check_rows, choose_bulk_copy, full_lines, rank_boxes
from cutegen.plan.rules.bulk_epilogue import choose_epilogue
from cutegen.plan.rules.operand_choices import OperandChoices, fragment_access
from cutegen.plan.rules.pipeline import DEFAULT_MAX_STAGES
from cutegen.plan.rules.register_split import LEAST_TO_COPY
from cutegen.plan.rules.s2r import choose_s2r, targets_transposing, transposing
from cutegen.plan.values.copies import BulkTensorCopy
from cutegen.plan.values.decision import Choice, Decision
from cutegen.plan.values.epilogue import EpiloguePlan, Fusion
from cutegen.plan.values.mma import MmaPlan
from cutegen.plan.values.operand import OperandTile
from cutegen.plan.values.path import OperandPath
from cutegen.spec import GemmSpec
from cutegen.spec.families import COPIED_BOXES, PartKeys, family_with


@dataclass(frozen=True, slots=True)
class CopiedFragments(Bulk):
    """Warps read a stage, and each releases it when its last fragments are in registers."""

    keys: ClassVar[PartKeys] = COPIED_BOXES
    to_copy: ClassVar[tuple[int, ...]] = (LEAST_TO_COPY,)
    least_stages: ClassVar[int] = 1
    most_stages: ClassVar[int] = DEFAULT_MAX_STAGES

    def operand(self, spec: GemmSpec, x: OperandTile, mma: MmaPlan, target: Target) -> OperandChoices[BulkTensorCopy]:
        """Fragments decide the shared layout, and the layout decides the boxes."""
        check_rows(spec, x)
        s2r = choose_s2r(spec, x, mma.tiled_mma, target)
        if not s2r.value.by_ldmatrix:
            open_layout = replace(x, requested=(), vector_elems=VECTOR_BYTES // x.dtype.bytes)
            by_layout = choose_s2r(spec, open_layout, mma.tiled_mma, target).value.by_ldmatrix
            raise _no_plain_loads(spec, x, s2r.decision, target, by_layout=by_layout)
        read = fragment_access(x, s2r.value, mma.tiled_mma)
        smem = rank_boxes(spec, x, mma.tiled_mma, full_lines(x), read)
        return OperandChoices(x, choose_bulk_copy(spec, x, smem.value.chosen.atom), s2r, smem)

    def epilogue(
        self, spec: GemmSpec, fusion: Fusion, mma: MmaPlan, registers: int, stage_bytes: int, capacity_bytes: int
    ) -> Choice[EpiloguePlan]:
        """Store all of C's tile at once, if that leaves enough stages."""
        return choose_epilogue(spec, fusion, mma.tiled_mma, mma.cta_tile, stage_bytes, capacity_bytes)

    def c_store(self, mma: Role, epilogue: EpiloguePlan) -> Pipeline | None:
        """One buffer for all of C's tile, which all MMA warps write."""
        if epilogue.smem is None:
            return None
        return stored_in_bulk(mma, 1, epilogue.smem.bytes, scope=Scope.CTA)

    def loop(self, roles: Roles, memory: Memory, mma: MmaPlan, operands: tuple[OperandPath, ...]) -> KernelLoop:
        """Fragments are loaded one k-block ahead."""
        return produced(roles.roles, memory.pipelines, mma.k_blocks, epilogue(memory.pipelines, 1))


def _no_plain_loads(
    spec: GemmSpec, x: OperandTile, decision: Decision, target: Target, *, by_layout: bool
) -> SpecError:
    """Return the error if ldmatrix cannot load fragments, at the key of the atom, the shared layout or the major.

    `by_layout` if it could without the layout that the spec gives.
    """
    fix = f'family = "{family_with(Instruction.CP_ASYNC)}" has plain loads'
    if decision.given:
        return spec.error(f"s2r.{x.name}.atom", found='"universal"', expected="an ldmatrix", fix=fix)
    if by_layout:
        way_out = f"leave {x.smem_key} out, or {fix}"
        return spec.error(x.smem_key, found=decision.why, expected="what ldmatrix can load", fix=way_out)
    elsewhere = "" if transposing(x.dtype.bits, target) else targets_transposing(x.dtype.bits)
    return spec.error(
        f"problem.{x.name}.major",
        found=f'"{x.major}" for {target.name}: {decision.why}',
        expected='"k", or an operand that ldmatrix transposes',
        fix=f"{fix}, and {elsewhere} an ldmatrix for {x.dtype.name}" if elsewhere else fix,
    )
