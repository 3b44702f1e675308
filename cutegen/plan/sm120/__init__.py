"""The `sm120` family: mma.sync fed by ldmatrix from shared memory that bulk tensor copies (TMA) fill.

One warp asks for the copies and the others multiply; they meet at two barriers for each stage (mbarrier), and no thread
waits for a whole CTA. CTAs are persistent, so that the next tile's copies are under way while C leaves.

    for_problem.py  what a problem settles first: tile, warps and stages (candidates.py), by predicted time
    boxes.py        what one copy moves, and the shared layouts that it can write
    memory.py       what shared memory holds beside the stages
    epilogue.py     C's way out
    registers.py    how the multiprocessor's registers are shared out

The rest of the rules are every family's: `cutegen/plan/`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cutegen.algebra import Layout, TiledMma
from cutegen.arch import LdmatrixAtom, Target, dtype
from cutegen.errors import SpecError
from cutegen.plan import mma, traffic
from cutegen.plan.contract import kernel_name, launch_contract
from cutegen.plan.decision import Choice, Decision
from cutegen.plan.for_problem import first_that_holds
from cutegen.plan.fusion import choose_fusion
from cutegen.plan.gemm_plan import EpiloguePlan, GemmPlan, OperandPlan, Predictions
from cutegen.plan.loop import produced
from cutegen.plan.occupancy import predict_occupancy
from cutegen.plan.operand import OperandTile, operand_tile
from cutegen.plan.operand_choices import OperandChoices, fragment_access
from cutegen.plan.permutation import choose_permutation
from cutegen.plan.pipeline import choose_raster, choose_stages, tiles_in_flight
from cutegen.plan.predict import written_instructions
from cutegen.plan.problem import ProblemShape
from cutegen.plan.proof import prove
from cutegen.plan.s2r import choose_s2r, targets_transposing
from cutegen.plan.sm120.boxes import check_bulk, choose_boxes, choose_bulk_copy
from cutegen.plan.sm120.epilogue import choose_epilogue
from cutegen.plan.sm120.for_problem import settled_for
from cutegen.plan.sm120.memory import MOST_BARRIERS_BYTES, SMEM_ALIGN_BYTES, STAGE_BARRIERS_BYTES, capacity_bytes
from cutegen.plan.sm120.registers import WARPGROUP_THREADS, RegisterSplit, split_registers
from cutegen.plan.split_k import refuse_split_k
from cutegen.plan.tensor_map import TensorMapContract
from cutegen.plan.text import extents, round_up
from cutegen.plan.values.copies import BulkTensorCopy
from cutegen.spec import GemmSpec

DEFAULT_CTA_ROWS = (128, 256)
DEFAULT_CTA_ROWS_BESIDE_F16 = (128, 128)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sm120Plan(GemmPlan):
    """A finished plan of the `sm120` family. C's tile and the barriers have shared memory behind the stages."""

    registers: RegisterSplit
    smem_c_offset_bytes: int
    smem_barriers_offset_bytes: int

    @property
    def threads(self) -> int:
        """Threads of a CTA: those that multiply, and a warpgroup one warp of which copies."""
        return self.tiled_mma.threads + WARPGROUP_THREADS


def plan_sm120(spec: GemmSpec, target: Target, problem: ProblemShape | None = None) -> Sm120Plan:
    """Decide everything that `spec` leaves open, for `target` and a problem. Raises SpecError if it cannot be met."""
    _check_target(spec, target)
    refuse_split_k(spec, "a persistent CTA of family sm120 multiplies all of a tile's K")
    mma.check_dtypes(spec, target)
    settled = settled_for(spec, target, problem) if problem else ()
    return first_that_holds(spec, settled, lambda filled: _decide(filled, target, problem))


def _decide(spec: GemmSpec, target: Target, problem: ProblemShape | None) -> Sm120Plan:
    """The rules in their order."""
    cta_tile = _choose_cta_tile(spec, target)
    atom = mma.choose_atom(spec, cta_tile.value)
    tf32 = mma.choose_tf32_rounding(spec, atom.value)
    atom_layout = mma.choose_atom_layout(spec, cta_tile.value, atom.value, target)
    permutation = choose_permutation(spec, cta_tile.value, atom.value, atom_layout.value, target)
    tiled_mma = TiledMma(atom.value, Layout(atom_layout.value), permutation.value)
    threads = tiled_mma.threads + WARPGROUP_THREADS
    _check_threads(spec, target, threads)
    registers, registers_decision = split_registers(target, tiled_mma.threads)

    for_a = _choose_operand(spec, "a", cta_tile.value, tiled_mma, target)
    for_b = _choose_operand(spec, "b", cta_tile.value, tiled_mma, target)
    stage_bytes = (for_a.smem.value.chosen.tile_bytes, for_b.smem.value.chosen.tile_bytes)
    fusion, fusion_decisions = choose_fusion(spec)
    epilogue = choose_epilogue(spec, fusion, tiled_mma, cta_tile.value, sum(stage_bytes), capacity_bytes(target))
    c_bytes = epilogue.value.smem.bytes if epilogue.value.smem else 0
    reserved_bytes = round_up(c_bytes, SMEM_ALIGN_BYTES) + MOST_BARRIERS_BYTES
    stages = choose_stages(spec, target, stage_bytes, 1, reserved_bytes)
    a, b = for_a.plan(stages.value), for_b.plan(stages.value)

    b_offset_bytes = round_up(a.smem.bytes, SMEM_ALIGN_BYTES)
    c_offset_bytes = round_up(b_offset_bytes + b.smem.bytes, SMEM_ALIGN_BYTES)
    barriers_offset_bytes = round_up(c_offset_bytes + c_bytes, SMEM_ALIGN_BYTES)
    smem_bytes = barriers_offset_bytes + STAGE_BARRIERS_BYTES * stages.value
    occupancy = predict_occupancy(target, threads, smem_bytes, _registers_at_launch(target, threads))
    raster = choose_raster(spec, tiles_in_flight(problem, target, a, b, occupancy))
    loop = produced(stages.value, cta_tile.value[2] // tiled_mma.tile_mnk[2])
    mma_choices = (cta_tile, atom, *((tf32,) if tf32 else ()), atom_layout, permutation)
    copy_choices = (for_a.g2s, for_b.g2s, for_a.s2r, for_b.s2r, for_a.smem, for_b.smem)
    plan = Sm120Plan(
        spec=spec,
        target=target,
        problem=problem,
        kernel_name=kernel_name(spec),
        cta_tile=cta_tile.value,
        stages=stages.value,
        atom=atom.value,
        tiled_mma=tiled_mma,
        rounds_to_tf32=tf32 is not None and tf32.value,
        a=a,
        b=b,
        epilogue=epilogue.value,
        raster=raster.value,
        loop=loop,
        registers=registers,
        smem_bytes=smem_bytes,
        smem_b_offset_bytes=b_offset_bytes,
        smem_c_offset_bytes=c_offset_bytes,
        smem_barriers_offset_bytes=barriers_offset_bytes,
        predictions=Predictions(
            wavefronts=traffic.predict_wavefronts(a, b, epilogue.value),
            line_writes={},
            sectors=traffic.predict_sectors(a, b, epilogue.value, tiled_mma, cta_tile.value),
            instructions={
                **written_instructions(loop, (a, b), atom.value, tiled_mma, cta_tile.value, target),
                **epilogue.value.store_opcodes(),
            },
            occupancy=occupancy,
        ),
        launch=launch_contract(
            spec,
            fusion,
            cta_tile.value,
            threads,
            smem_bytes,
            ctas_per_multiprocessor=1,
            maps=tuple(_maps(a, b, epilogue.value)),
        ),
        decisions=(
            *_of(*mma_choices, *copy_choices, stages),
            *fusion_decisions,
            *_of(epilogue, raster),
            registers_decision,
            _persistence(raster.value.along),
        ),
    )
    prove(plan)
    return plan


def _of(*choices: Choice[Any]) -> Iterator[Decision]:
    return (choice.decision for choice in choices)


def _check_target(spec: GemmSpec, target: Target) -> None:
    if not target.has_bulk_tensor_copies:
        raise spec.error(
            "family",
            found=f'"sm120" for {target.name}',
            expected="sm_90 or later, which have bulk tensor copies",
            fix='--arch sm_90, or family = "sm80"',
        )


def _check_threads(spec: GemmSpec, target: Target, threads: int) -> None:
    if threads > target.threads_per_cta:
        raise spec.error(
            "mma.atom_layout",
            found=f"{threads - WARPGROUP_THREADS} threads that multiply, and {WARPGROUP_THREADS} for the copies",
            expected=f"at most {target.threads_per_cta} threads together",
        )


def _choose_cta_tile(spec: GemmSpec, target: Target) -> Choice[mma.Extents]:
    """The largest tile whose accumulators leave registers for fragments, with lines of 128 bytes along K."""
    if spec.tile.cta is not None:
        return mma.choose_cta_tile(spec)
    element = dtype(spec.problem.a.dtype)
    as_f16 = mma.becomes_f16(element, target)
    m, n = DEFAULT_CTA_ROWS_BESIDE_F16 if as_f16 else DEFAULT_CTA_ROWS
    chosen = (m, n, mma.LINE_BYTES // element.bytes)
    why = (
        f"{m * n // (m + n)} multiply-adds for each element fetched; each thread of 8 warps has {m * n // 256} "
        "registers of sums"
    )
    if as_f16:
        why += f", which leaves some to the f16 that {target.name} makes of {element.name}"
    return Choice(chosen, Decision("tile.cta", extents(chosen), why))


def _registers_at_launch(target: Target, threads: int) -> int:
    return min(target.registers_per_sm // threads // 8 * 8, target.registers_per_thread)


def _persistence(along: str) -> Decision:
    why = "one CTA fills a multiprocessor's registers; the next tile's copies are under way while C leaves"
    return Decision("schedule.persistent", f"one CTA a multiprocessor, tile after tile along {along}", why)


def _maps(a: OperandPlan, b: OperandPlan, epilogue: EpiloguePlan) -> Iterator[TensorMapContract]:
    for name, copy in (("a", a.g2s), ("b", b.g2s), ("c", epilogue.store)):
        if isinstance(copy, BulkTensorCopy):
            yield TensorMapContract(name, copy.box, copy.swizzle_bytes)


def _choose_operand(
    spec: GemmSpec, name: str, cta_tile: tuple[int, int, int], tiled_mma: TiledMma, target: Target
) -> OperandChoices[BulkTensorCopy]:
    """A's or B's copies: fragments decide the shared layout, and the layout decides the boxes."""
    x = operand_tile(spec, name, cta_tile)
    check_bulk(spec, x, asked="tile.cta")
    s2r = choose_s2r(spec, x, tiled_mma, target)
    if not isinstance(s2r.value.atom, LdmatrixAtom):
        raise _no_plain_loads(spec, x, s2r.decision, target)
    smem = choose_boxes(spec, x, fragment_access(x, s2r.value, tiled_mma))
    return OperandChoices(x, choose_bulk_copy(spec, x, smem.value.chosen.atom), s2r, smem)


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
