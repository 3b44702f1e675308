"""What is compared for a problem where warpgroups multiply: tiles, as the model of time sees them."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import Instruction, Target, dtype
from cutegen.plan import swapped
from cutegen.plan.rules.bulk_memory import capacity_bytes
from cutegen.plan.rules.parted_epilogue import BUFFERS
from cutegen.plan.rules.pipeline import STAGES
from cutegen.plan.rules.warpgroups import choose_warpgroups
from cutegen.plan.rules.wgmma_sums import ROWS
from cutegen.plan.search.problem import (
    Candidate,
    Option,
    Settled,
    for_elements,
    mma_flops,
    settle,
    tile_is_open,
    with_stages,
)
from cutegen.plan.search.tile_model import Work
from cutegen.plan.search.warpgroup_tiles import CANDIDATES, FETCHED_BYTES, H200
from cutegen.plan.values.decision import Decision
from cutegen.spec import GemmSpec


def settled_for(spec: GemmSpec, target: Target, problem: ProblemShape) -> Iterator[Settled]:
    """Specs with tile, warpgroups and stages filled in, the fastest for `problem` first.

    Where C has fewer rows than an instruction, the exchanged product is compared too.
    """
    asked = spec.schedule.swap
    as_given = () if asked else _settled(spec, target, problem)
    narrow = problem.m < ROWS if asked is None else asked
    exchanged = _exchanged(spec, target, problem) if narrow else ()
    return heapq.merge(as_given, exchanged, key=lambda one: one.predicted_us)


def _exchanged(spec: GemmSpec, target: Target, problem: ProblemShape) -> Iterator[Settled]:
    """The same of the kernels that multiply B by A."""
    asked, shape = spec.schedule.swap, swapped.shape_multiplied(problem)
    for one in _settled(swapped.as_multiplied(spec), target, shape):
        schedule = replace(one.spec.schedule, swap=True)
        filled = replace(spec, tile=one.spec.tile, mma=one.spec.mma, schedule=schedule)
        yield replace(one, spec=filled, decisions=partial(_and_why, one, problem if asked is None else None))


def _and_why(one: Settled, problem: ProblemShape | None) -> Mapping[str, Decision]:
    """The decisions, and where the problem had the operands exchanged, that."""
    return {**one.decisions(), **({swapped.KEY: swapped.decide(problem)} if problem else {})}


def _settled(spec: GemmSpec, target: Target, problem: ProblemShape) -> Iterator[Settled]:
    fitting = with_stages(spec, _rows(spec, target), partial(_most_stages, spec, target))
    options = (Option(candidate, work_of(spec, target, candidate)) for candidate in fitting)
    return settle(spec, target, problem, options, H200, partial(_fits, spec, target))


def _rows(spec: GemmSpec, target: Target) -> Iterator[Candidate]:
    """The tiles that are compared; only the spec's own where it names one."""
    if tile_is_open(spec):
        yield from for_elements(CANDIDATES, dtype(spec.problem.a.dtype).bytes)
    elif spec.tile.cta is not None:
        warpgroups = choose_warpgroups(spec, spec.tile.cta, target).value
        yield Candidate(spec.tile.cta, warpgroups, STAGES[-1], "warpgroups")


def _stage_bytes(spec: GemmSpec, cta: tuple[int, int, int]) -> int:
    return (cta[0] + cta[1]) * cta[2] * dtype(spec.problem.a.dtype).bytes


def _fits(spec: GemmSpec, target: Target, candidate: Candidate) -> bool:
    return _stage_bytes(spec, candidate.cta) * candidate.stages <= target.smem_per_cta_bytes


def _most_stages(spec: GemmSpec, target: Target, cta: tuple[int, int, int]) -> int:
    """As many as fit beside the parts of C, a line of elements wide, that two warpgroups keep."""
    parts_bytes = 2 * BUFFERS * ROWS * min(128, cta[1] * dtype(spec.problem.c.dtype).bytes)
    return min((capacity_bytes(target) - parts_bytes) // _stage_bytes(spec, cta), STAGES[-1])


def work_of(spec: GemmSpec, target: Target, candidate: Candidate) -> Work:
    """A candidate as the model sees it: each 64 rows of A read all of B, and each warpgroup along N all of A."""
    (m, n, k), (_, across, _) = candidate.cta, candidate.atom_layout
    element_bytes = dtype(spec.problem.a.dtype).bytes
    return Work(
        cta=candidate.cta,
        warps=candidate.atom_layout[:2],
        stages=candidate.stages,
        slices=spec.schedule.split_k or 1,
        ctas_per_sm=1,
        element_bytes=element_bytes,
        result_bytes=dtype(spec.problem.c.dtype).bytes,
        mma_flops=mma_flops(spec, target, Instruction.WGMMA),
        persistent=True,
        shared_bytes=(m * across + n * (m // ROWS)) * k * element_bytes,
        fetched_bytes=FETCHED_BYTES,
    )
