"""The `sm80` family: mma.sync fed by ldmatrix from shared memory that a cp.async pipeline fills.

`plan_sm80` is the whole line of decisions, in order; each rule sees what earlier ones settled and nothing else.

    for_problem.py  what a problem settles first: tile and slices (candidates.py), by predicted time
    g2s.py          cp.async or plain copies, their width and threads

The tensor core, ldmatrix, shared layouts, stages, the order of tiles, the epilogue, predictions and proof are not this
family's alone: `cutegen/plan/`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cutegen.algebra import Layout, TiledMma
from cutegen.arch import MmaAtom, Target
from cutegen.plan import mma, traffic
from cutegen.plan.contract import kernel_name, launch_contract
from cutegen.plan.decision import Choice, Decision
from cutegen.plan.epilogue import choose_epilogue
from cutegen.plan.for_problem import first_that_holds
from cutegen.plan.fusion import choose_fusion
from cutegen.plan.gemm_plan import GemmPlan, OperandPlan, Predictions
from cutegen.plan.loop import Loop, pipelined
from cutegen.plan.occupancy import ctas_by_registers, estimate_registers, predict_occupancy
from cutegen.plan.operand import operand_tile
from cutegen.plan.operand_choices import OperandChoices, choose_layout
from cutegen.plan.permutation import choose_permutation
from cutegen.plan.pipeline import choose_raster, choose_stages, smem_offsets, tiles_in_flight
from cutegen.plan.predict import written_instructions
from cutegen.plan.problem import ProblemShape
from cutegen.plan.proof import prove
from cutegen.plan.s2r import choose_s2r
from cutegen.plan.sm80.for_problem import settled_for
from cutegen.plan.sm80.g2s import choose_g2s
from cutegen.plan.split_k import choose_split_k
from cutegen.plan.values.copies import VectorCopy
from cutegen.spec import GemmSpec


def plan_sm80(spec: GemmSpec, target: Target, problem: ProblemShape | None = None) -> GemmPlan:
    """Decide everything that `spec` leaves open, for `target` and a problem. Raises SpecError if it cannot be met."""
    mma.check_dtypes(spec, target)
    settled = settled_for(spec, target, problem) if problem else ()
    return first_that_holds(spec, settled, lambda filled: _decide(filled, target, problem))


def _decide(spec: GemmSpec, target: Target, problem: ProblemShape | None) -> GemmPlan:
    """The rules in their order."""
    cta_tile = mma.choose_cta_tile(spec)
    atom = mma.choose_atom(spec, cta_tile.value)
    tf32 = mma.choose_tf32_rounding(spec, atom.value)
    atom_layout = mma.choose_atom_layout(spec, cta_tile.value, atom.value, target)
    permutation = choose_permutation(spec, cta_tile.value, atom.value, atom_layout.value, target)
    tiled_mma = TiledMma(atom.value, Layout(atom_layout.value), permutation.value)
    split_k, split_decisions = choose_split_k(spec, cta_tile.value, tiled_mma.threads, atom.value)

    for_a = _choose_operand(spec, "a", cta_tile.value, tiled_mma, target)
    for_b = _choose_operand(spec, "b", cta_tile.value, tiled_mma, target)
    passing = for_a.passing_registers + for_b.passing_registers
    registers = estimate_registers(target, cta_tile.value, tiled_mma, atom.value, passing)
    stage_bytes = (for_a.smem.value.chosen.tile_bytes, for_b.smem.value.chosen.tile_bytes)
    resident = ctas_by_registers(target, tiled_mma.threads, registers)
    asynchronous = not (for_a.g2s.value.through_registers and for_b.g2s.value.through_registers)
    stages = choose_stages(spec, target, stage_bytes, resident, asynchronous=asynchronous)
    a, b = for_a.plan(stages.value), for_b.plan(stages.value)
    fusion, fusion_decisions = choose_fusion(spec)
    epilogue = choose_epilogue(spec, fusion, tiled_mma, cta_tile.value, target.smem_per_cta_bytes)

    loop = _loop(stages.value, cta_tile.value[2] // tiled_mma.tile_mnk[2], for_a.g2s.value, for_b.g2s.value)
    smem_b_offset_bytes, pipeline_bytes = smem_offsets(stage_bytes, stages.value)
    smem_bytes = max(pipeline_bytes, epilogue.value.smem.bytes if epilogue.value.smem else 0)
    occupancy = predict_occupancy(target, tiled_mma.threads, smem_bytes, registers)
    raster = choose_raster(spec, tiles_in_flight(problem, target, a, b, occupancy, split_k))
    mma_choices = (cta_tile, atom, *((tf32,) if tf32 else ()), atom_layout, permutation)
    copy_choices = (for_a.g2s, for_b.g2s, for_a.s2r, for_b.s2r, for_a.smem, for_b.smem)
    plan = GemmPlan(
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
        split_k=split_k,
        loop=loop,
        smem_bytes=smem_bytes,
        smem_b_offset_bytes=smem_b_offset_bytes,
        predictions=Predictions(
            wavefronts=traffic.predict_wavefronts(a, b, epilogue.value),
            line_writes=traffic.predict_line_writes(a, b),
            sectors={
                **traffic.predict_sectors(a, b, epilogue.value, tiled_mma, cta_tile.value),
                **traffic.predict_split_sectors(split_k, cta_tile.value),
            },
            instructions=_instructions(loop, (a, b), atom.value, tiled_mma, cta_tile.value, target),
            occupancy=occupancy,
        ),
        launch=launch_contract(spec, fusion, cta_tile.value, tiled_mma.threads, smem_bytes, split_k),
        decisions=(
            *_of(*mma_choices, *copy_choices, stages),
            *fusion_decisions,
            *_of(epilogue, raster),
            *split_decisions,
        ),
    )
    prove(plan)
    return plan


def _loop(stages: int, k_blocks: int, *copies: VectorCopy) -> Loop:
    """A turn takes as many k-tiles as there are stages, so that the stages are constants in a turn's addresses.

    On an H200 that is up to 10 % faster than one k-tile a turn (docs/performance.md). Plain copies keep a k-tile in
    registers, and the addresses of several do not fit beside it.
    """
    per_turn = 1 if any(copy.through_registers for copy in copies) else stages
    return pipelined(stages, k_blocks, per_turn, tuple(dict.fromkeys(copy.fetch for copy in copies)))


def _instructions(
    loop: Loop,
    operands: tuple[OperandPlan, OperandPlan],
    atom: MmaAtom,
    tiled_mma: TiledMma,
    cta_tile: mma.Extents,
    target: Target,
) -> dict[str, int]:
    """All that is predicted but plain loads of fragments, which the compiler joins as it likes."""
    counts = written_instructions(loop, operands, atom, tiled_mma, cta_tile, target)
    return {opcode: count for opcode, count in counts.items() if not opcode.startswith("ld.shared")}


def _of(*choices: Choice[Any]) -> Iterator[Decision]:
    return (choice.decision for choice in choices)


def _choose_operand(
    spec: GemmSpec, name: str, cta_tile: tuple[int, int, int], tiled_mma: TiledMma, target: Target
) -> OperandChoices[VectorCopy]:
    x = operand_tile(spec, name, cta_tile)
    g2s, s2r = choose_g2s(spec, x, tiled_mma.threads), choose_s2r(spec, x, tiled_mma, target)
    return choose_layout(spec, x, g2s, s2r, tiled_mma)
