"""Candidates for a problem if cp.async feeds `mma.sync`: tiles and slices, for the performance model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import prod

from cutegen.algebra import Layout, TiledMma
from cutegen.contract.launch import OPERANDS
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS, Instruction, Target, dtype
from cutegen.hardware.units import WARP
from cutegen.plan.predict.occupancy import estimate_registers, predict_occupancy
from cutegen.plan.rules.cluster import CLUSTER
from cutegen.plan.rules.epilogue import FEW_SUMS
from cutegen.plan.rules.mma import choose_atom, choose_atom_layout, choose_cta_tile
from cutegen.plan.rules.pipeline import DEFAULT_MAX_STAGES, DOUBLE_BUFFERED, STAGES, pipeline_bytes
from cutegen.plan.rules.register_staging import expected_registers, through_registers
from cutegen.plan.search.cp_async_tiles import CANDIDATES, H200, SPLITS
from cutegen.plan.search.options import (
    Candidate,
    Option,
    for_elements,
    mma_flops,
    tile_is_open,
    with_stages,
)
from cutegen.plan.search.problem import Settled, settle
from cutegen.plan.search.row_alignment import element_bytes_of, majors_of
from cutegen.plan.search.small_tiles import OF_MMA_SYNC, is_small
from cutegen.plan.search.tile_model import Work, estimate
from cutegen.plan.values.operand import k_tile_bytes
from cutegen.spec import GemmSpec


def settled_for(spec: GemmSpec, target: Target, problem: ProblemShape) -> Iterator[Settled]:
    """Return specs with the open keys filled in, the fastest for `problem` first."""
    return settle(spec, target, problem, _options(spec, target, problem), partial(_fits, spec, target))


def _options(spec: GemmSpec, target: Target, problem: ProblemShape) -> Iterator[Option]:
    gpu, schedule = GPUS[target.name], spec.schedule
    is_open = schedule.split_k is None and schedule.reduction != CLUSTER  # no cluster adds slices here
    small = is_small(spec, problem) and target.has(Instruction.WGMMA)  # measured beside kernels of `wgmma`
    splits = SPLITS if is_open else (schedule.split_k or 1,)
    for candidate in with_stages(spec, _rows(spec, target), partial(_most_stages, spec, target)):
        whole = work_of(spec, target, candidate, 1)
        if small:
            whole = replace(whole, overall=whole.overall * OF_MMA_SYNC)
        for slices in splits:
            estimated = estimate(replace(whole, slices=slices), problem, gpu, H200)
            yield Option(_for_one_k_tile(spec, candidate, slices, problem), slices, estimated)


def _for_one_k_tile(spec: GemmSpec, candidate: Candidate, slices: int, problem: ProblemShape) -> Candidate:
    """Return one stage for a K of one k-tile, which has no loop and nothing to prefetch.

    This applies to tiles with few sums per thread: on an H200 their launches of 2 us are 0.05 us shorter, others are
    longer.
    """
    (m, n, k), warps = candidate.cta, prod(candidate.atom_layout)
    single = slices == 1 and problem.k <= k and spec.tile.stages is None
    return replace(candidate, stages=1) if single and m * n <= FEW_SUMS * WARP * warps else candidate


def _fits(spec: GemmSpec, target: Target, candidate: Candidate) -> bool:
    return _smem_bytes(spec, candidate.cta, candidate.stages) <= target.smem_per_cta_bytes


def _rows(spec: GemmSpec, target: Target) -> Iterator[Candidate]:
    """Return the tiles to compare; only the spec's own if it gives one."""
    if tile_is_open(spec):
        yield from for_elements(CANDIDATES, dtype(spec.problem.a.dtype).bytes)
        return
    cta = choose_cta_tile(spec).value
    atom = choose_atom(spec, cta).value
    yield Candidate(cta, choose_atom_layout(spec, cta, atom, target).value, DEFAULT_MAX_STAGES)


def _most_stages(spec: GemmSpec, target: Target, cta: tuple[int, int, int]) -> int:
    """Return as many as fit; copies through registers gain nothing from a third stage."""
    asynchronous = not all(through_registers(spec, name) for name in OPERANDS)
    most = STAGES[-1] if asynchronous else DOUBLE_BUFFERED
    fitting = (stages for stages in STAGES if _smem_bytes(spec, cta, stages) <= target.smem_per_cta_bytes)
    return min(most, max(fitting, default=0))


def _smem_bytes(spec: GemmSpec, cta: tuple[int, int, int], stages: int) -> int:
    return pipeline_bytes(k_tile_bytes(spec, cta), stages)


def work_of(spec: GemmSpec, target: Target, candidate: Candidate, slices: int) -> Work:
    """Return a candidate as the model sees it. Raises SpecError if no MMA atom has the spec's types."""
    atom = choose_atom(spec, candidate.cta).value
    tiled_mma = TiledMma(atom, Layout(candidate.atom_layout))
    smem_bytes = _smem_bytes(spec, candidate.cta, candidate.stages)
    passing = expected_registers(spec, candidate.cta, tiled_mma.threads)
    registers = estimate_registers(target, candidate.cta, tiled_mma, atom, passing)
    return Work(
        cta=candidate.cta,
        warps=candidate.atom_layout[:2],
        stages=candidate.stages,
        slices=slices,
        ctas_per_sm=max(1, predict_occupancy(target, tiled_mma.threads, smem_bytes, registers).ctas_per_sm),
        element_bytes=element_bytes_of(spec),
        result_bytes=dtype(spec.problem.c.dtype).bytes,
        mma_flops=mma_flops(spec, target),
        majors=majors_of(spec),
        overall=candidate.overall,
    )
