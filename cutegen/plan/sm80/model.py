"""How long a kernel takes on a problem, about: a model with a handful of measured constants, to rank tiles and slices.

A multiprocessor works on up to as many CTAs at once as fit. A k-tile of each takes tensor cores and shared memory their
cycles, which overlap in part, and no less than the copies' latency over the stages that hide it. A CTA has a prologue
and an epilogue around its k-tiles. L2 and device memory, whatever the multiprocessors do, move their bytes at a rate.

The constants were fitted to times on an H200 (`docs/tile_model.md`); on other GPUs only the rates are theirs.
"""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.arch import Gpu, SmRates
from cutegen.plan.problem import ProblemShape

BANK_LINE_BYTES = 128
SUM_BYTES = 4
UNKNOWN_MMA_FLOPS = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConstants:
    """What was measured rather than looked up.

    `overlap` is the share of the lesser of tensor and shared-memory cycles that does not hide behind the greater one;
    `k_tile_cycles` a k-tile's barrier and bookkeeping; `latency_cycles` from a copy's issue to its data; `cta_cycles` a
    CTA's start and end; `store_cycles_per_kib` the epilogue's; `sum_bytes_per_cycle` how fast one CTA adds slices;
    `launch_us` the rest of a launch; `memory_share` of the device memory's peak.
    """

    overlap: float = 0.35
    k_tile_cycles: float = 120.0
    latency_cycles: float = 1100.0
    cta_cycles: float = 1500.0
    store_cycles_per_kib: float = 40.0
    sum_bytes_per_cycle: float = 40.0
    l2_bytes_per_cycle: float = 48.0
    launch_us: float = 2.5
    memory_share: float = 0.8
    clock_share: float = 0.88


H200 = ModelConstants()


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A kernel as the model sees it: its tile, its warps along M and N, stages, slices of K, CTAs a multiprocessor.

    `element_bytes` are those of A and B, `result_bytes` those of C.
    """

    cta: tuple[int, int, int]
    warps: tuple[int, int]
    stages: int
    slices: int
    ctas_per_sm: int
    element_bytes: int
    result_bytes: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """Microseconds, and what bounds them."""

    us: float
    bound: str


def estimate(work: Work, problem: ProblemShape, gpu: Gpu, rates: SmRates, constants: ModelConstants = H200) -> Estimate:
    """The time of one launch."""
    m, n, k = work.cta
    tiles = -(-problem.m // m) * -(-problem.n // n) * problem.batch
    k_tiles = -(-problem.k // k)
    longest = -(-k_tiles // work.slices)
    clock_per_us = constants.clock_share * gpu.clock_hz / 1e6

    busy = sum(
        longest * _k_tile_cycles(work, at_once, rates, constants) + _cta_cycles(work, constants)
        for at_once in _rounds(tiles * work.slices, gpu.sms, work.ctas_per_sm)
    )
    stage_bytes = (m + n) * k * work.element_bytes
    through_l2 = tiles * k_tiles * stage_bytes + _sums_bytes(work, tiles)
    least_bytes = problem.batch * (
        (problem.m + problem.n) * problem.k * work.element_bytes + problem.m * problem.n * work.result_bytes
    )
    times = {
        "multiprocessors": busy / clock_per_us,
        "L2": through_l2 / (constants.l2_bytes_per_cycle * gpu.sms) / clock_per_us,
        "device memory": least_bytes / (constants.memory_share * gpu.memory_bytes_per_s) * 1e6
        + constants.latency_cycles / clock_per_us,
    }
    bound = max(times, key=lambda name: times[name])
    tail = _reduction_cycles(work, constants) / clock_per_us
    return Estimate(constants.launch_us + times[bound] + tail, bound)


def _rounds(ctas: int, sms: int, ctas_per_sm: int) -> list[int]:
    """How many CTAs the fullest multiprocessor works on at once, one round after the other."""
    fullest = -(-ctas // sms)
    whole, rest = divmod(fullest, ctas_per_sm)
    return [ctas_per_sm] * whole + ([rest] if rest else [])


def _k_tile_cycles(work: Work, at_once: int, rates: SmRates, constants: ModelConstants) -> float:
    """Cycles in which each of the CTAs that share a multiprocessor gets one k-tile done."""
    (m, n, k), (warps_m, warps_n) = work.cta, work.warps
    stage_bytes = (m + n) * k * work.element_bytes
    tensor = m * n * k * work.element_bytes / (rates.mma_flops or UNKNOWN_MMA_FLOPS)  # f32 takes twice as long as f16
    shared = (stage_bytes + (m * warps_n + n * warps_m) * k * work.element_bytes) / BANK_LINE_BYTES
    work_cycles = at_once * (max(tensor, shared) + constants.overlap * min(tensor, shared))
    copied = at_once * stage_bytes / constants.l2_bytes_per_cycle
    hidden = constants.latency_cycles / (work.stages - 1)
    return max(work_cycles + constants.k_tile_cycles / at_once, copied, hidden)


def _cta_cycles(work: Work, constants: ModelConstants) -> float:
    stored_kib = work.cta[0] * work.cta[1] * (work.result_bytes if work.slices == 1 else SUM_BYTES) / 1024
    return constants.cta_cycles + constants.latency_cycles + constants.store_cycles_per_kib * stored_kib


def _sums_bytes(work: Work, tiles: int) -> int:
    return 0 if work.slices == 1 else 2 * tiles * work.slices * work.cta[0] * work.cta[1] * SUM_BYTES


def _reduction_cycles(work: Work, constants: ModelConstants) -> float:
    """The last CTA's way through the sums of all slices."""
    if work.slices == 1:
        return 0.0
    sums = work.slices * work.cta[0] * work.cta[1] * SUM_BYTES
    return constants.cta_cycles / 2 + sums / constants.sum_bytes_per_cycle
