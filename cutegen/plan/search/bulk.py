"""Candidates for a problem if bulk tensor copies feed `mma.sync`: tiles for the performance model."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS, Target, dtype
from cutegen.hardware.units import WARP
from cutegen.plan.rules.bulk_epilogue import WORTHWHILE_STAGES
from cutegen.plan.rules.bulk_memory import capacity_bytes
from cutegen.plan.rules.mma import choose_atom, choose_atom_layout, most_held
from cutegen.plan.rules.pipeline import STAGES
from cutegen.plan.search.bulk_tiles import CANDIDATES, H200
from cutegen.plan.search.options import Candidate, Option, for_elements, mma_flops, tile_is_open, with_stages
from cutegen.plan.search.problem import Settled, settle
from cutegen.plan.search.row_alignment import element_bytes_of, majors_of
from cutegen.plan.search.tile_model import Work, estimate
from cutegen.plan.values.operand import k_tile_bytes
from cutegen.spec import GemmSpec


def settled_for(spec: GemmSpec, target: Target, problem: ProblemShape) -> Iterator[Settled]:
    """Return specs with tile, warps and stages filled in, the fastest for `problem` first."""
    rows = (row for row in _rows(spec, target) if _has_registers(row, spec, target))
    fitting = with_stages(spec, rows, partial(_most_stages, spec, target))
    gpu = GPUS[target.name]
    options = (
        Option(candidate, 1, estimate(work_of(spec, target, candidate), problem, gpu, H200)) for candidate in fitting
    )
    return settle(spec, target, problem, options, partial(_fits, spec, target))


def _fits(spec: GemmSpec, target: Target, candidate: Candidate) -> bool:
    return sum(k_tile_bytes(spec, candidate.cta)) * candidate.stages <= target.smem_per_cta_bytes


def _rows(spec: GemmSpec, target: Target) -> Iterator[Candidate]:
    """Return the tiles to compare; only the spec's own if it gives one."""
    if tile_is_open(spec):
        yield from for_elements(CANDIDATES, dtype(spec.problem.a.dtype).bytes)
    elif spec.tile.cta is not None:
        atom = choose_atom(spec, spec.tile.cta).value
        yield Candidate(spec.tile.cta, choose_atom_layout(spec, spec.tile.cta, atom, target).value, STAGES[-1])


def _has_registers(candidate: Candidate, spec: GemmSpec, target: Target) -> bool:
    """Return whether sums leave registers for fragments."""
    (m, n, _), (warps_m, warps_n, _) = candidate.cta, candidate.atom_layout
    return m * n // (WARP * warps_m * warps_n) <= most_held(dtype(spec.problem.a.dtype), target)


def _most_stages(spec: GemmSpec, target: Target, cta: tuple[int, int, int]) -> int:
    """Return as many as fit with C's tile, if at least three; otherwise C is stored from registers."""
    stage_bytes, c_bytes = sum(k_tile_bytes(spec, cta)), cta[0] * cta[1] * dtype(spec.problem.c.dtype).bytes
    beside_c = (capacity_bytes(target) - c_bytes) // stage_bytes
    alone = capacity_bytes(target) // stage_bytes
    return min(beside_c if beside_c >= WORTHWHILE_STAGES else alone, STAGES[-1])


def work_of(spec: GemmSpec, target: Target, candidate: Candidate) -> Work:
    """Return a candidate as the model sees it."""
    return Work(
        cta=candidate.cta,
        warps=candidate.atom_layout[:2],
        stages=candidate.stages,
        slices=1,
        ctas_per_sm=1,
        element_bytes=element_bytes_of(spec),
        result_bytes=dtype(spec.problem.c.dtype).bytes,
        mma_flops=mma_flops(spec, target),
        majors=majors_of(spec),
        persistent=True,
        overall=candidate.overall,
    )
