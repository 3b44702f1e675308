"""Estimates how long a kernel takes on a problem: a model with a handful of measured constants, to rank tiles and
slices.

A multiprocessor works on up to as many CTAs at once as fit. A k-tile of each takes tensor cores and shared memory their
cycles, which overlap in part, the more the more warps there are, and no less than the copies' latency over the stages
that hide it. A CTA fills its stages first and stores its tile at last; a persistent one goes through many tiles, and
fills its stages once. Device memory moves the operands at its rate, whatever the multiprocessors do.

Each family has constants of its own, fitted to times on an H200 (`docs/tile_model.md`); on other GPUs only the rates
are theirs.
"""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import Gpu
from cutegen.hardware.units import BANK_ROW_BYTES, SCHEDULERS, WARP

COPY_BYTES = 16
SUM_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConstants:
    """Constants that were measured rather than looked up.

    `overlap` is the share of the lesser of tensor and shared-memory cycles that does not hide behind the greater one
    where each scheduler has one warp, and half that where it has two; `k_tile_cycles` a k-tile's barrier and
    bookkeeping; `latency_cycles` from a copy's issue to its data; `tile_cycles` a tile's start and end,
    `store_cycles_per_kib` its result; `fill_cycles` each copy of a thread before the first k-tile; `sum_cycles` and
    `sum_bytes_per_cycle` are of adding slices; `sm_us` is of each multiprocessor that has work, and `launch_us` the
    rest of a launch; `memory_share` and `clock_share` are of the device memory's peak and of the boost clock;
    `sharpness` is the norm that joins the bounds.
    """

    overlap: float
    k_tile_cycles: float
    latency_cycles: float
    tile_cycles: float
    fill_cycles: float
    store_cycles_per_kib: float
    sum_cycles: float
    sum_bytes_per_cycle: float
    sharpness: float
    launch_us: float
    sm_us: float
    memory_share: float
    clock_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A kernel as the model sees it: its tile, its warps along M and N, stages, slices of K, CTAs a multiprocessor.

    `persistent` CTAs stay, and take one tile after the other. `element_bytes` are those of A and B, `result_bytes`
    those of C; `mma_flops` are of a multiprocessor in a cycle. `shared_bytes` pass through shared memory for a k-tile,
    where that is not what warps load of fragments and copies write; `fetched_bytes` come from L2 in a cycle at most,
    where that is known.
    """

    cta: tuple[int, int, int]
    warps: tuple[int, int]
    stages: int
    slices: int
    ctas_per_sm: int
    element_bytes: int
    result_bytes: int
    mma_flops: float
    persistent: bool = False
    shared_bytes: int | None = None
    fetched_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """Microseconds, and what bounds them."""

    us: float
    bound: str


def estimate(work: Work, problem: ProblemShape, gpu: Gpu, constants: ModelConstants) -> Estimate:
    """The time of one launch."""
    m, n, k = work.cta
    tiles = -(-problem.m // m) * -(-problem.n // n) * problem.batch
    k_tiles = -(-problem.k // k)
    longest = -(-k_tiles // work.slices)
    clock_per_us = constants.clock_share * gpu.clock_hz / 1e6

    rounds = _rounds(tiles * work.slices, gpu.sms, work.ctas_per_sm)
    busy = sum(
        count * (longest * _k_tile_cycles(work, at_once, constants) + _tile_cycles(work, constants))
        for count, at_once in rounds
    )
    fills = 1 if work.persistent else sum(count for count, _ in rounds)
    busy += fills * _fill_cycles(work, constants)
    least_bytes = problem.batch * (
        (problem.m + problem.n) * problem.k * work.element_bytes + problem.m * problem.n * work.result_bytes
    )
    times = {
        "multiprocessors": busy / clock_per_us,
        "device memory": least_bytes / (constants.memory_share * gpu.memory_bytes_per_s) * 1e6
        + constants.latency_cycles / clock_per_us,
    }
    bound = max(times, key=lambda name: times[name])
    # Work on several resources overlaps in part: the bounds count as a norm, which is more than the largest of them.
    together = sum(time**constants.sharpness for time in times.values()) ** (1 / constants.sharpness)
    tail = _reduction_cycles(work, constants) / clock_per_us
    launch_us = constants.launch_us + constants.sm_us * min(tiles * work.slices, gpu.sms)
    return Estimate(launch_us + together + tail, bound)


def _rounds(ctas: int, sms: int, ctas_per_sm: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """(rounds, CTAs at once) of the fullest multiprocessor: those in which it is full, and a last one with the rest."""
    whole, rest = divmod(-(-ctas // sms), ctas_per_sm)
    return (whole, ctas_per_sm), (int(rest > 0), max(1, rest))


def _k_tile_cycles(work: Work, at_once: int, constants: ModelConstants) -> float:
    """Cycles in which each of the CTAs that share a multiprocessor gets one k-tile done."""
    (m, n, k), (warps_m, warps_n) = work.cta, work.warps
    stage_bytes = (m + n) * k * work.element_bytes
    tensor = 2 * m * n * k / work.mma_flops
    loaded_bytes = stage_bytes + (m * warps_n + n * warps_m) * k * work.element_bytes
    shared = (loaded_bytes if work.shared_bytes is None else work.shared_bytes) / BANK_ROW_BYTES
    if work.fetched_bytes is not None:
        shared = max(shared, stage_bytes / work.fetched_bytes)
    warps_per_scheduler = at_once * warps_m * warps_n / SCHEDULERS
    exposed = constants.overlap / warps_per_scheduler * min(tensor, shared)
    work_cycles = at_once * (max(tensor, shared) + exposed)
    if work.stages == 1:  # only the other CTAs' work hides the latency
        hidden = constants.latency_cycles + work_cycles / at_once
    else:
        hidden = constants.latency_cycles / (work.stages - 1)
    return max(work_cycles + constants.k_tile_cycles / at_once, hidden)


def _tile_cycles(work: Work, constants: ModelConstants) -> float:
    """Return the cycles around a tile's k-tiles: above all, a CTA stores its result or sums."""
    m, n, _ = work.cta
    stored_kib = m * n * (work.result_bytes if work.slices == 1 else SUM_BYTES) / 1024
    return constants.tile_cycles + constants.store_cycles_per_kib * stored_kib


def _fill_cycles(work: Work, constants: ModelConstants) -> float:
    """A CTA's first copies: it asks for every stage, and waits for the first."""
    (m, n, k), (warps_m, warps_n) = work.cta, work.warps
    copies = (m + n) * k * work.element_bytes / (COPY_BYTES * WARP * warps_m * warps_n)
    return constants.fill_cycles * work.stages * copies + constants.latency_cycles


def _reduction_cycles(work: Work, constants: ModelConstants) -> float:
    """The last CTA's way through the sums of all slices."""
    if work.slices == 1:
        return 0.0
    sums = work.slices * work.cta[0] * work.cta[1] * SUM_BYTES
    return constants.sum_cycles + sums / constants.sum_bytes_per_cycle
