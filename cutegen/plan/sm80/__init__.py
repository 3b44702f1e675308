"""The `sm80` family: mma.sync fed by ldmatrix from shared memory that a cp.async pipeline fills.

`plan_sm80` is the whole line of decisions, in order; each rule sees what earlier ones settled and nothing else.

    for_problem.py  what a problem settles before all that: tile and slices (candidates.py), by predicted time (model.py)
    mma.py        CTA tile, atom, warps, permutation
    operand.py    what the spec says of one operand's tile, its shared layout among it (shapes.py)
    g2s.py        cp.async, its width and its threads (vectors.py)
    s2r.py        ldmatrix, or plain loads
    smem.py       shared layouts, ranked for those two copies
    pipeline.py   stages, and the order of tiles
    split_k.py    over how many CTAs a tile's K is spread
    fusion.py     what becomes of an accumulator on its way to C
    epilogue.py   C's way out
    predict.py    what all that will cost (occupancy.py)
    proof.py      all of it proved again from the algebra (access.py)
    main_loop.py  what the template's loop issues in which order, for people to look at
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cutegen.algebra import Layout, TiledMma, ldmatrix_trace
from cutegen.arch import GPUS, LdmatrixAtom, Target
from cutegen.errors import SpecError
from cutegen.plan.decision import Choice, Decision
from cutegen.plan.gemm_plan import (
    FragmentCopy,
    Fusion,
    GemmPlan,
    Occupancy,
    OperandPlan,
    Predictions,
    SplitPlan,
    VectorCopy,
)
from cutegen.plan.launch import COUNTERS, SUMS, LaunchContract, SplitContract, TensorContract, gemm_parameters
from cutegen.plan.problem import ProblemShape
from cutegen.plan.raster import TileGrid
from cutegen.plan.sm80 import mma, predict
from cutegen.plan.sm80.access import by_warp, fragment_loads, vectors
from cutegen.plan.sm80.epilogue import choose_epilogue
from cutegen.plan.sm80.for_problem import settled_for
from cutegen.plan.sm80.fusion import choose_fusion
from cutegen.plan.sm80.g2s import choose_g2s
from cutegen.plan.sm80.occupancy import ctas_by_registers, estimate_registers, predict_occupancy
from cutegen.plan.sm80.operand import OperandTile, align_bytes, operand_tile
from cutegen.plan.sm80.pipeline import InFlight, choose_raster, choose_stages, smem_offsets
from cutegen.plan.sm80.proof import prove
from cutegen.plan.sm80.s2r import choose_s2r
from cutegen.plan.sm80.smem import Access, SmemRanking, choose_smem, lay_out
from cutegen.plan.sm80.split_k import bytes_per_slice, choose_split_k
from cutegen.spec import MODES, GemmSpec

LONGEST_KERNEL_NAME = 60


def plan_sm80(spec: GemmSpec, target: Target, problem: ProblemShape | None = None) -> GemmPlan:
    """Decide everything that `spec` leaves open, for `target` and a problem. Raises SpecError if it cannot be met."""
    if problem is None:
        return _decide(spec, target, None)
    first: SpecError | None = None
    for settled in settled_for(spec, target, problem):
        try:
            return _with_decisions(spec, _decide(settled.spec, target, problem), settled.decisions)
        except SpecError as error:
            first = first or error
            if not settled.decisions:
                break
    assert first is not None
    raise first


def _with_decisions(spec: GemmSpec, plan: GemmPlan, settled: Mapping[str, Decision]) -> GemmPlan:
    """The plan as one of `spec`, which left open what the problem settled."""
    return replace(plan, spec=spec, decisions=tuple(settled.get(found.key, found) for found in plan.decisions))


def _decide(spec: GemmSpec, target: Target, problem: ProblemShape | None) -> GemmPlan:
    """The rules in their order."""
    cta_tile = mma.choose_cta_tile(spec)
    atom = mma.choose_atom(spec, cta_tile.value)
    atom_layout = mma.choose_atom_layout(spec, cta_tile.value, atom.value)
    permutation = mma.choose_permutation(spec, cta_tile.value, atom.value, atom_layout.value)
    tiled_mma = TiledMma(atom.value, Layout(atom_layout.value), permutation.value)
    registers = estimate_registers(target, cta_tile.value, tiled_mma, atom.value)

    for_a = _choose_operand(spec, "a", cta_tile.value, tiled_mma)
    for_b = _choose_operand(spec, "b", cta_tile.value, tiled_mma)
    stage_bytes = (for_a.smem.value.chosen.tile_bytes, for_b.smem.value.chosen.tile_bytes)
    stages = choose_stages(spec, target, stage_bytes, ctas_by_registers(target, tiled_mma.threads, registers))
    a, b = for_a.plan(stages.value), for_b.plan(stages.value)
    fusion, fusion_decisions = choose_fusion(spec)
    epilogue = choose_epilogue(spec, fusion, tiled_mma, cta_tile.value, target.smem_per_cta_bytes)
    split_k, split_decisions = choose_split_k(spec, tiled_mma, cta_tile.value)

    smem_b_offset_bytes, pipeline_bytes = smem_offsets(stage_bytes, stages.value)
    smem_bytes = max(pipeline_bytes, epilogue.value.smem.bytes if epilogue.value.smem else 0)
    occupancy = predict_occupancy(target, tiled_mma.threads, smem_bytes, registers)
    raster = choose_raster(spec, problem and _in_flight(problem, target, a, b, split_k, occupancy))
    mma_choices = (cta_tile, atom, atom_layout, permutation)
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
        a=a,
        b=b,
        epilogue=epilogue.value,
        raster=raster.value,
        split_k=split_k,
        smem_bytes=smem_bytes,
        smem_b_offset_bytes=smem_b_offset_bytes,
        predictions=Predictions(
            wavefronts=predict.predict_wavefronts(a, b, epilogue.value),
            line_writes=predict.predict_line_writes(a, b),
            sectors={
                **predict.predict_sectors(a, b, epilogue.value, tiled_mma, cta_tile.value),
                **predict.predict_split_sectors(split_k, cta_tile.value),
            },
            instructions=predict.predict_instructions(a, b, atom.value, tiled_mma, cta_tile.value, stages.value),
            occupancy=occupancy,
        ),
        launch=_launch_contract(spec, fusion, cta_tile.value, tiled_mma.threads, smem_bytes, split_k),
        decisions=(
            *_of(*mma_choices, *copy_choices, stages),
            *fusion_decisions,
            *_of(epilogue, raster),
            *split_decisions,
        ),
    )
    prove(plan)
    return plan


def _in_flight(
    problem: ProblemShape,
    target: Target,
    a: OperandPlan,
    b: OperandPlan,
    split_k: SplitPlan | None,
    occupancy: Occupancy,
) -> InFlight:
    slices, gpu = split_k.slices if split_k else 1, GPUS[target.name]
    share = -(-problem.k // slices)
    grid = TileGrid(
        tiles_m=-(-problem.m // a.tile[0]),
        tiles_n=-(-problem.n // b.tile[0]),
        bytes_a=a.tile[0] * share * a.dtype.bytes,
        bytes_b=b.tile[0] * share * b.dtype.bytes,
    )
    return InFlight(
        problem=problem, gpu=gpu, grid=grid, passes=slices * problem.batch, ctas=gpu.sms * occupancy.ctas_per_sm
    )


def _of(*choices: Choice[Any]) -> Iterator[Decision]:
    return (choice.decision for choice in choices)


def kernel_name(spec: GemmSpec) -> str:
    """What the PTX entry is called after: the spec's name with all but letters, digits and _ replaced.

    >>> from cutegen.spec import load_spec
    >>> kernel_name(load_spec("sm80_hgemm_tn"))
    'sm80_hgemm_tn'
    """
    name = re.sub(r"\W", "_", spec.name, flags=re.ASCII)[:LONGEST_KERNEL_NAME] or "gemm"
    return f"_{name}" if name[0].isdigit() else name


def _launch_contract(
    spec: GemmSpec,
    fusion: Fusion,
    cta_tile: tuple[int, int, int],
    threads: int,
    smem_bytes: int,
    split_k: SplitPlan | None,
) -> LaunchContract:
    extras = (TensorContract(x.name, x.dtype.name, x.modes, x.major, x.align_bytes) for x in fusion.tensors)
    tensors = (*(_tensor(spec, name) for name in "abc"), *extras)
    return LaunchContract(
        entry=f"{kernel_name(spec)}_0",  # the DSL numbers the kernels of a module
        tensors=tensors,
        scalars=fusion.scalars,
        epilogue=tuple(step.text for step in fusion.steps),
        parameters=gemm_parameters(tensors, fusion.scalars, (SUMS, COUNTERS) if split_k else ()),
        cta_tile=cta_tile[:2],
        threads=threads,
        dynamic_smem_bytes=smem_bytes,
        split=SplitContract(split_k.slices, bytes_per_slice(split_k, cta_tile)) if split_k else None,
    )


def _tensor(spec: GemmSpec, name: str) -> TensorContract:
    operand = getattr(spec.problem, name)
    return TensorContract(name, operand.dtype, MODES[name], operand.major, align_bytes(operand))


@dataclass(frozen=True, slots=True)
class _OperandChoices:
    """All that is settled for A or B before the number of stages is, which depends on a stage's bytes."""

    tile: OperandTile
    g2s: Choice[VectorCopy]
    s2r: Choice[FragmentCopy]
    smem: Choice[SmemRanking]

    def plan(self, stages: int) -> OperandPlan:
        """The operand's part of the plan."""
        x = self.tile
        return OperandPlan(
            name=x.name,
            operand=x.operand,
            dtype=x.dtype,
            modes=MODES[x.name],
            major=x.major,
            align_bytes=x.align_bytes,
            tile=x.extents,
            g2s=self.g2s.value,
            smem=lay_out(self.smem.value, x.extents, stages),
            s2r=self.s2r.value,
        )


def _choose_operand(spec: GemmSpec, name: str, cta_tile: tuple[int, int, int], tiled_mma: TiledMma) -> _OperandChoices:
    """A's or B's copies and shared layout.

    A layout that the spec writes down limits the copies; else the copies come first and the layout is ranked for them.
    """
    x = operand_tile(spec, name, cta_tile)
    g2s = choose_g2s(spec, x, tiled_mma.threads)
    s2r = choose_s2r(spec, x, tiled_mma)
    write = Access(by_warp(vectors(g2s.value.threads, g2s.value.values, x.extents)[..., 0]), g2s.value.bits // 8)
    return _OperandChoices(x, g2s, s2r, choose_smem(x, write, _fragment_access(x, s2r.value, tiled_mma)))


def _fragment_access(x: OperandTile, s2r: FragmentCopy, tiled_mma: TiledMma) -> Access:
    """Which addresses the lanes of each fragment load have: of an ldmatrix, 8 lanes for each matrix."""
    if isinstance(s2r.atom, LdmatrixAtom):
        trace = ldmatrix_trace(tiled_mma, x.operand, Layout(x.extents), s2r.atom, x.dtype.bits)
        return Access(trace.source_coords[:, :, : 8 * s2r.atom.matrices, 0], 16)
    loads = fragment_loads(tiled_mma, x.operand, x.extents, s2r.bits // x.dtype.bits)
    return Access(by_warp(loads[..., 0]), s2r.bits // 8)
