"""Candidates for a problem if bulk tensor copies feed `mma.sync`: tiles, and the constants of their model."""

from collections.abc import Iterator
from functools import partial

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS, Target, dtype
from cutegen.hardware.units import WARP
from cutegen.plan.epilogue.store import STAGES_BESIDE_TILE
from cutegen.plan.mma.atoms import choose_atom, choose_atom_layout, most_held
from cutegen.plan.operands.staging import STAGES, capacity_bytes
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
from cutegen.plan.values.operand import k_tile_bytes_of_each
from cutegen.spec import GemmSpec

# The tiles to compare if bulk tensor copies feed `mma.sync`, and the constants of the performance model.
#
# A CTA has its SM to itself, so every row has as many stages as fit with C's tile, up to the maximum.


CANDIDATES: tuple[Candidate, ...] = (
    Candidate((128, 256, 64), (2, 4, 1), 3),
    Candidate((256, 128, 64), (4, 2, 1), 3),
    Candidate((128, 192, 64), (2, 4, 1), 4),
    Candidate((192, 128, 64), (4, 2, 1), 4),
    Candidate((128, 128, 64), (2, 4, 1), 6),
    Candidate((64, 256, 64), (1, 4, 1), 4),
    Candidate((256, 64, 64), (4, 1, 1), 4),
    Candidate((128, 64, 64), (2, 2, 1), 8),
    Candidate((64, 128, 64), (2, 2, 1), 8),
    Candidate((64, 64, 64), (2, 2, 1), 8),
    Candidate((64, 64, 128), (2, 2, 1), 6),
    Candidate((32, 128, 64), (1, 4, 1), 8),
    Candidate((128, 32, 64), (4, 1, 1), 8),
    Candidate((32, 64, 128), (1, 4, 1), 8),
    Candidate((64, 32, 128), (4, 1, 1), 8),
    Candidate((32, 32, 128), (2, 2, 1), 8),
    Candidate((16, 128, 128), (1, 4, 1), 6),
    Candidate((16, 64, 128), (1, 4, 1), 8),
    Candidate((64, 16, 128), (4, 1, 1), 8),
    Candidate((16, 32, 128), (1, 2, 1), 8),
)

H200 = ModelConstants(
    overlap=0.522,
    k_tile_cycles=13.3,
    latency_cycles=2640.0,
    tile_cycles=476.0,
    fill_cycles=0.0,
    store_cycles_per_kib=57.9,
    sum_cycles=0.0,
    slice_cycles=0.0,
    sum_bytes_per_cycle=1.0,
    sharpness=2.17,
    launch_us=0.405,
    cta_us=0.00768,
    memory_share=0.894,
    torn_lines=0.05,
    write_share=0.5,
    torn_writes=0.05,
    clock_share=1.11,
)
"""Fitted to `tests/gpu/h200_tiles_sm120.json`, except for writes and unaligned lines, which are set by hand. Copies
cost no thread any work, and there are no slices of K to add.

The launch and device memory are fitted to launches in a graph, as for family `sm90`.
"""


# Candidates for a problem if bulk tensor copies feed `mma.sync`: tiles for the performance model.


def settled_for(spec: GemmSpec, target: Target, problem: ProblemShape) -> Iterator[Proposal]:
    """Return specs with tile, warps and stages filled in, the fastest for `problem` first."""
    rows = (row for row in _rows(spec, target) if _has_registers(row, spec, target))
    fitting = with_stages(spec, rows, partial(_most_stages, spec, target))
    gpu = GPUS[target.name]
    options = (
        Option(candidate, 1, estimate(work_of(spec, target, candidate), problem, gpu, H200)) for candidate in fitting
    )
    return settle(spec, target, problem, options, partial(_fits, spec, target))


def _fits(spec: GemmSpec, target: Target, candidate: Candidate) -> bool:
    return sum(k_tile_bytes_of_each(spec, candidate.cta)) * candidate.stages <= target.smem_per_cta_bytes


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
    stage_bytes, c_bytes = sum(k_tile_bytes_of_each(spec, cta)), cta[0] * cta[1] * dtype(spec.problem.c.dtype).bytes
    beside_c = (capacity_bytes(target) - c_bytes) // stage_bytes
    alone = capacity_bytes(target) // stage_bytes
    return min(beside_c if beside_c >= STAGES_BESIDE_TILE else alone, STAGES[-1])


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
