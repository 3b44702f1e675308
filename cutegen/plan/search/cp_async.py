"""Candidates for a problem if cp.async feeds `mma.sync`: tiles and slices, and the constants of their model."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import prod

from cutegen.algebra import Layout, TiledMma
from cutegen.contract.launch import OPERANDS
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS, TARGETS, Instruction, Target, dtype
from cutegen.hardware.units import WARP
from cutegen.plan.epilogue.store import FEW_SUMS
from cutegen.plan.mma.atoms import choose_atom, choose_atom_layout, choose_cta_tile
from cutegen.plan.operands import staging
from cutegen.plan.predict import estimate_registers, predict_occupancy
from cutegen.plan.schedule.cluster import CLUSTER
from cutegen.plan.search.problem import (
    Candidate,
    Option,
    Proposal,
    for_elements,
    mma_flops,
    settle,
    tile_is_open,
    with_stages,
)
from cutegen.plan.search.tile_model import ModelConstants, Work, element_bytes_of, estimate, majors_of
from cutegen.plan.search.warpgroup_rows import OF_MMA_SYNC, is_small
from cutegen.plan.values.operand import k_tile_bytes_of_each
from cutegen.spec import GemmSpec

# The tiles to compare if cp.async feeds `mma.sync`, and the constants of the performance model for them.
#
# A list made by hand: every row was the fastest on some problem of `docs/lab/tile_model.md`, or replaces a row that
# does not fit a target's shared memory.


CANDIDATES: tuple[Candidate, ...] = (
    Candidate((256, 128, 64), (4, 2, 1), 3),
    Candidate((128, 256, 64), (2, 4, 1), 3),
    Candidate((128, 128, 64), (2, 2, 1), 3),
    Candidate((128, 128, 32), (2, 2, 1), 4),
    Candidate((64, 256, 64), (1, 4, 1), 3),
    Candidate((256, 64, 64), (4, 1, 1), 3),
    Candidate((128, 64, 64), (2, 2, 1), 4),
    Candidate((64, 128, 64), (2, 2, 1), 4),
    Candidate((64, 64, 64), (2, 2, 1), 4, overall=0.909),
    Candidate((64, 32, 64), (2, 2, 1), 6, overall=0.944),
    Candidate((32, 64, 64), (2, 2, 1), 6, overall=0.927),
    Candidate((32, 128, 64), (1, 4, 1), 4),
    Candidate((128, 32, 64), (4, 1, 1), 4, overall=0.952),
    Candidate((16, 128, 64), (1, 4, 1), 4),
    Candidate((128, 16, 64), (4, 1, 1), 4),
    Candidate((16, 64, 128), (1, 4, 1), 4, overall=1.01),
    Candidate((64, 16, 128), (4, 1, 1), 4, overall=1.01),
    Candidate((64, 64, 128), (2, 2, 1), 3),
    Candidate((32, 64, 128), (2, 2, 1), 4),
    Candidate((16, 32, 128), (1, 4, 1), 6, overall=0.991),
    Candidate((32, 32, 64), (2, 2, 1), 6, overall=0.945),
    Candidate((32, 32, 128), (2, 2, 1), 4, overall=0.974),
    Candidate((16, 32, 64), (1, 4, 1), 6, overall=0.988),
    Candidate((16, 32, 32), (1, 4, 1), 6, overall=0.931),
    Candidate((16, 16, 128), (1, 2, 1), 6, overall=1.09),
    Candidate((16, 16, 64), (1, 2, 1), 6, overall=0.969),
)

MEASURED = TARGETS["sm_90"]
"""The target that the rows and the constants were measured on."""

SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Numbers of slices of K to compare."""

H200 = ModelConstants(
    overlap=0.785,
    k_tile_cycles=121.0,
    latency_cycles=1150.0,
    tile_cycles=323.0,
    fill_cycles=4.24,
    store_cycles_per_kib=86.5,
    sum_cycles=700.0,
    slice_cycles=40.0,
    sum_bytes_per_cycle=90.0,
    sharpness=1.63,
    launch_us=0.302,
    cta_us=0.00213,
    memory_share=0.85,
    torn_lines=1.53,
    write_share=0.292,
    torn_writes=0.0645,
    clock_share=0.823,
)
"""Fitted to launches in a graph on an H200 by `tests/gpu/fit_kernels.py`, except for `memory_share` and adding slices,
which are set by hand: they limited no kernel of the sweep.
"""


# Candidates for a problem if cp.async feeds `mma.sync`: tiles and slices, for the performance model.


def settled_for(spec: GemmSpec, target: Target, problem: ProblemShape) -> Iterator[Proposal]:
    """Return specs with the open keys filled in, the fastest for `problem` first."""
    return settle(spec, target, problem, _options(spec, target, problem), partial(_fits, spec, target))


def _options(spec: GemmSpec, target: Target, problem: ProblemShape) -> Iterator[Option]:
    gpu, schedule = GPUS[target.name], spec.schedule
    is_open = schedule.split_k is None and schedule.reduction != CLUSTER  # no cluster adds slices here
    small = is_small(spec, problem) and target.has(Instruction.WGMMA)  # measured beside kernels of `wgmma`
    splits = SPLITS if is_open else (schedule.split_k or 1,)
    rows = with_stages(spec, _rows(spec, target), partial(_most_stages, spec, target))
    for candidate in (each for row in rows for each in (row, *_resident_as_measured(spec, target, row))):
        whole = work_of(spec, target, candidate, 1)
        if small:
            whole = replace(whole, overall=whole.overall * OF_MMA_SYNC)
        for slices in splits:
            estimated = estimate(replace(whole, slices=slices), problem, gpu, H200)
            built = _for_one_k_tile(spec, candidate, slices, problem)
            yield Option(built, slices, estimated, whole.ctas_per_sm)


def _resident_as_measured(spec: GemmSpec, target: Target, row: Candidate) -> Iterator[Candidate]:
    """Return the row with fewer stages, if it has the tile of plans without a problem and more of its CTAs fit then.

    So no plan without a problem is predicted to be faster than the selected one. An A100's SM has 164 KiB of shared
    memory, that of the GPU that rows are for 228: of 128x128x64 in three stages it has room for one CTA instead of two.
    Other rows keep their stages, since the constants are of kernels with those.
    """
    smaller = target.smem_per_sm_bytes < MEASURED.smem_per_sm_bytes
    if spec.tile.stages is not None or not smaller or row.cta != choose_cta_tile(spec).value:
        return
    measured = work_of(spec, MEASURED, row, 1).ctas_per_sm
    for stages in range(row.stages, staging.DOUBLE_BUFFERED - 1, -1):
        fewer = replace(row, stages=stages)
        if work_of(spec, target, fewer, 1).ctas_per_sm >= measured:
            if fewer != row:
                yield fewer
            return


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
    yield Candidate(cta, choose_atom_layout(spec, cta, atom, target).value, staging.DEFAULT_MAX_STAGES)


def _most_stages(spec: GemmSpec, target: Target, cta: tuple[int, int, int]) -> int:
    """Return as many as fit; copies through registers gain nothing from a third stage."""
    asynchronous = not all(staging.through_registers(spec, name) for name in OPERANDS)
    most = staging.STAGES[-1] if asynchronous else staging.DOUBLE_BUFFERED
    fitting = (stages for stages in staging.STAGES if _smem_bytes(spec, cta, stages) <= target.smem_per_cta_bytes)
    return min(most, max(fitting, default=0))


def _smem_bytes(spec: GemmSpec, cta: tuple[int, int, int], stages: int) -> int:
    return staging.pipeline_bytes(k_tile_bytes_of_each(spec, cta), stages)


def work_of(spec: GemmSpec, target: Target, candidate: Candidate, slices: int) -> Work:
    """Return a candidate as the model sees it. Raises SpecError if no MMA atom has the spec's types."""
    atom = choose_atom(spec, candidate.cta).value
    tiled_mma = TiledMma(atom, Layout(candidate.atom_layout))
    smem_bytes = _smem_bytes(spec, candidate.cta, candidate.stages)
    passing = staging.expected_registers(spec, candidate.cta, tiled_mma.threads)
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
