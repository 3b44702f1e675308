"""The `simt` family: fused multiply-adds on shared memory that plain copies fill, after CuTe's sgemm_1.cu.

`plan_simt` is the whole line of decisions, in order; each rule sees what earlier ones settled and nothing else.

    tile.py       CTA tile, and the threads that share it out (tC)
    copies.py     who copies what (tA, tB), how wide, and in which shared layout
    stages.py     one k-tile at a time, or the next one on its way meanwhile
    epilogue.py   C's way out
    predict.py    how often each instruction stands in the PTX, the epilogue's among them

The preconditions of CuTe's gemm_device are the errors of tile.py and copies.py, by the names that they have there.
Shared layouts, the order of tiles, the epilogue, predictions and proof are every family's: `cutegen/plan/`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cutegen.arch import UNIVERSAL_FMA, Target
from cutegen.plan import traffic
from cutegen.plan.contract import kernel_name, launch_contract
from cutegen.plan.decision import Choice, Decision
from cutegen.plan.fusion import choose_fusion
from cutegen.plan.gemm_plan import GemmPlan, Predictions
from cutegen.plan.loop import through_registers
from cutegen.plan.mma import check_dtypes
from cutegen.plan.occupancy import predict_occupancy
from cutegen.plan.operand import operand_tile
from cutegen.plan.pipeline import choose_raster, smem_offsets, tiles_in_flight
from cutegen.plan.problem import ProblemShape
from cutegen.plan.proof import prove
from cutegen.plan.simt.copies import choose_copies
from cutegen.plan.simt.epilogue import choose_store
from cutegen.plan.simt.predict import estimate_registers, predict_instructions
from cutegen.plan.simt.stages import choose_stages
from cutegen.plan.simt.tile import check_possible, choose_cta_tile, choose_threads, tiled_fma
from cutegen.spec import GemmSpec


def plan_simt(spec: GemmSpec, target: Target, problem: ProblemShape | None = None) -> GemmPlan:
    """Decide everything that `spec` leaves open, for `target`; the order of tiles for `problem`.

    Raises SpecError where the spec cannot be met.
    """
    check_possible(spec)
    check_dtypes(spec, target)
    cta_tile = choose_cta_tile(spec)
    threads = choose_threads(spec, cta_tile.value, target)
    tiled_mma = tiled_fma(threads.value)

    for_a = choose_copies(spec, operand_tile(spec, "a", cta_tile.value), tiled_mma)
    for_b = choose_copies(spec, operand_tile(spec, "b", cta_tile.value), tiled_mma)
    stage_bytes = (for_a.smem.value.chosen.tile_bytes, for_b.smem.value.chosen.tile_bytes)
    stages = choose_stages(spec, target, stage_bytes)
    a, b = for_a.plan(stages.value), for_b.plan(stages.value)
    smem_b_offset_bytes, pipeline_bytes = smem_offsets(stage_bytes, stages.value)
    fusion, fusion_decisions = choose_fusion(spec)
    epilogue = choose_store(spec, fusion, tiled_mma, cta_tile.value, target, pipeline_bytes)

    smem_bytes = max(pipeline_bytes, epilogue.value.smem.bytes if epilogue.value.smem else 0)
    passing = for_a.passing_registers + for_b.passing_registers
    registers = estimate_registers(target, a, b, tiled_mma, cta_tile.value, passing)
    occupancy = predict_occupancy(target, tiled_mma.threads, smem_bytes, registers)
    raster = choose_raster(spec, tiles_in_flight(problem, target, a, b, occupancy))
    loop = through_registers(stages.value)
    copy_choices = (for_a.g2s, for_b.g2s, for_a.s2r, for_b.s2r, for_a.smem, for_b.smem)
    plan = GemmPlan(
        spec=spec,
        target=target,
        problem=problem,
        kernel_name=kernel_name(spec),
        cta_tile=cta_tile.value,
        stages=stages.value,
        atom=UNIVERSAL_FMA,
        tiled_mma=tiled_mma,
        a=a,
        b=b,
        epilogue=epilogue.value,
        raster=raster.value,
        loop=loop,
        smem_bytes=smem_bytes,
        smem_b_offset_bytes=smem_b_offset_bytes,
        predictions=Predictions(
            wavefronts=traffic.predict_wavefronts(a, b, epilogue.value),
            line_writes=traffic.predict_line_writes(a, b),
            sectors=traffic.predict_sectors(a, b, epilogue.value, tiled_mma, cta_tile.value),
            instructions=predict_instructions(loop, a, b, epilogue.value, target, tiled_mma, cta_tile.value),
            occupancy=occupancy,
        ),
        launch=launch_contract(spec, fusion, cta_tile.value, tiled_mma.threads, smem_bytes),
        decisions=(*_of(cta_tile, threads, *copy_choices, stages), *fusion_decisions, *_of(epilogue, raster)),
    )
    prove(plan)
    return plan


def _of(*choices: Choice[Any]) -> Iterator[Decision]:
    return (choice.decision for choice in choices)
