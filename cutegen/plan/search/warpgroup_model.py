"""How long a kernel whose warpgroups multiply takes on a problem, about: to rank tiles, consumers, clusters and slices.

A k-tile takes a multiprocessor the longest of what its tensor cores, its shared memory, its share of the L2 cache and
the latency of its copies over the stages that hide it take. A persistent CTA fills its stages once. Warpgroups that
share a tile store it before they go on; those that take turns store while the other multiplies, all but the last tile.
Device memory moves the operands at its rate meanwhile, and what a GPU does at full power lowers its clock.

The constants are fitted to times on an H200 (`docs/tile_model.md`), with a correction for each tile that was measured;
on other GPUs and for other tiles only the rates of the hardware are known: estimates.
"""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import Gpu
from cutegen.hardware.units import BANK_ROW_BYTES
from cutegen.plan.search.tile_model import SUM_BYTES, Estimate

ROWS = 64
"""Rows of A that every wgmma multiplies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpgroupConstants:
    """What was measured rather than looked up.

    In cycles: `k_tile_alone` and `k_tile_together` are a k-tile's waits where one warpgroup multiplies at a time and
    where several do; `latency` is from a copy's issue to its data; `turn` hands the tensor cores to the other
    warpgroup; `tile` is a tile's end and `store_per_kib` its result; `fill` a CTA's start; `sum` adds slices. In bytes a
    cycle: `fetched` reach one multiprocessor, `l2` leave the L2 cache for all of them, `summed` are added. `launch_us`
    is a launch, and `sm_us` each multiprocessor that has work. `memory_share` is of the device memory's peak,
    `clock_share` of the boost clock; `power` is the share that a long product at full rate takes longer, and `power_us`
    how long is long. `sharpness` and `joined` are the norms that join what a k-tile waits for, and the two times.
    """

    k_tile_alone: float
    k_tile_together: float
    latency: float
    turn: float
    tile: float
    store_per_kib: float
    fill: float
    sum: float
    summed: float
    fetched: float
    l2: float
    launch_us: float
    sm_us: float
    memory_share: float
    clock_share: float
    power: float
    power_us: float
    sharpness: float
    joined: float
    cluster_wait: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpgroupWork:
    """A kernel as the model sees it. `warpgroups` share a tile, or with `pingpong` two have a tile each.

    `cluster` are its CTAs along M and N, `slices` those of K; `element_bytes` are A's and B's, `result_bytes` C's;
    `mma_flops` are of a multiprocessor in a cycle. `correction` is measured: of the cycles that the model knows.
    """

    cta: tuple[int, int, int]
    warpgroups: int
    pingpong: bool
    stages: int
    cluster: tuple[int, int]
    slices: int
    element_bytes: int
    result_bytes: int
    mma_flops: float
    correction: float = 1.0


def estimate(work: WarpgroupWork, problem: ProblemShape, gpu: Gpu, constants: WarpgroupConstants) -> Estimate:
    """The time of a launch among others, as in a CUDA graph."""
    (m, n, k), (ctas_m, ctas_n) = work.cta, work.cluster
    tiles = -(-problem.m // (m * ctas_m)) * -(-problem.n // (n * ctas_n)) * ctas_m * ctas_n * problem.batch
    ctas = tiles * work.slices
    at_once = min(ctas, gpu.sms // (ctas_m * ctas_n) * ctas_m * ctas_n)
    rounds = -(-ctas // at_once)
    whole = -(-problem.k // k)
    k_tiles = -(-whole // work.slices)
    k_tile, bound = _k_tile_cycles(work, at_once, constants)
    multiplied = k_tiles * k_tile * work.correction
    stored = _stored_cycles(work, constants)
    if work.pingpong:
        each = max(multiplied + constants.turn, (multiplied + stored) / 2)
        cycles = constants.fill + rounds * each + stored
    else:
        cycles = constants.fill + rounds * (multiplied + stored)
    busy_us = cycles / (constants.clock_share * gpu.clock_hz / 1e6)
    busy_us *= 1 + constants.power * busy_us / (busy_us + constants.power_us)
    moved = problem.batch * (
        (problem.m + problem.n) * problem.k * work.element_bytes + problem.m * problem.n * work.result_bytes
    )
    memory_us = moved / (constants.memory_share * gpu.memory_bytes_per_s) * 1e6
    together = _norm((busy_us, memory_us), constants.joined)
    launch_us = constants.launch_us + constants.sm_us * at_once + _sum_us(work, gpu, constants)
    return Estimate(launch_us + together, bound if busy_us > memory_us else "device memory")


def _k_tile_cycles(work: WarpgroupWork, ctas: int, constants: WarpgroupConstants) -> tuple[float, str]:
    """Cycles from one k-tile to the next while so many CTAs work, and what most of them are for."""
    (m, n, k), (ctas_m, ctas_n) = work.cta, work.cluster
    row_bytes = k * work.element_bytes
    parts = {
        "tensor cores": 2 * m * n * k / work.mma_flops,
        "shared memory": (m + n * (m // ROWS)) * row_bytes / BANK_ROW_BYTES,
        "copies": max(
            (m + n) * row_bytes / constants.fetched,
            (m / ctas_n + n / ctas_m) * row_bytes * ctas / constants.l2,
        ),
        "latency": constants.latency / (work.stages - 1),
    }
    waits = constants.k_tile_together if work.warpgroups > 1 else constants.k_tile_alone
    if work.cluster != (1, 1):
        waits += constants.cluster_wait
    return waits + _norm(tuple(parts.values()), constants.sharpness), max(parts, key=lambda name: parts[name])


def _stored_cycles(work: WarpgroupWork, constants: WarpgroupConstants) -> float:
    """What a tile's result takes, or a slice's sums."""
    m, n, _ = work.cta
    kib = m * n * (work.result_bytes if work.slices == 1 else SUM_BYTES) / 1024
    return constants.tile + constants.store_per_kib * kib


def _sum_us(work: WarpgroupWork, gpu: Gpu, constants: WarpgroupConstants) -> float:
    """The last CTA's way through the sums of all slices."""
    if work.slices == 1:
        return 0.0
    m, n, _ = work.cta
    cycles = constants.sum + work.slices * m * n * SUM_BYTES / constants.summed
    return cycles / (constants.clock_share * gpu.clock_hz / 1e6)


def _norm(values: tuple[float, ...], sharpness: float) -> float:
    """What overlaps in part is more than the largest of it."""
    largest = max(values)
    return largest * sum((value / largest) ** sharpness for value in values) ** (1 / sharpness) if largest else 0.0
