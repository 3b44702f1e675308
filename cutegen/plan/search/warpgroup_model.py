"""Estimates how long a kernel of warpgroups takes on a problem: ranks tiles, consumers, clusters and slices.

A k-tile takes a multiprocessor the longest of what its tensor cores, its shared memory, its copies, its share of the
L2 cache, and the latency of a copy over the stages that hide it take; these overlap in part. The CTAs of a cluster read
once what they share. Rows that begin between lines of the L2 cache take more of it. A persistent CTA fills its stages
once. Warpgroups that share a tile store it before they go on; those that take turns store while the other multiplies,
all but the last tile. Device memory moves the operands at its rate meanwhile, and what a GPU does at full power for
long lowers its clock.

The constants are fitted to times on an H200 (`docs/tile_model.md`), with a correction for each kernel that was
measured; for other tiles only the rates of the hardware are known, and times are estimates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cutegen.algebra import Extents
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import Gpu
from cutegen.hardware.units import BANK_ROW_BYTES, LINE_BYTES
from cutegen.plan.search.tile_model import SUM_BYTES, Estimate

ROWS = 64
"""Rows of A that every wgmma multiplies."""
PAIR, TOGETHER = 2, 8
"""Clusters of two fill a GPU; of larger ones a GPC holds whole ones alone, and one GPC has fewer multiprocessors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpgroupConstants:
    """Constants that were measured rather than looked up.

    In cycles: `latency` is from a copy's issue to its data, `turn` hands the tensor cores to the other warpgroup,
    `store_per_kib` is of a result, and `exchanged_store` the share that one of exchanged operands takes more;
    `fill_per_kib` is of a CTA's first k-tile, `warpgroup_start` of each warpgroup, `cluster_start` of each CTA more
    in a cluster's row and column, and `crowd` of each CTA more that wants the same first rows, where a cluster
    counts once; `peers` is the share that `latency` grows by with each CTA that shares copies. In bytes a cycle:
    `arrived` reach one multiprocessor, `fetched` it asks L2 for, `l2` leave the L2 cache for all of them, `summed`
    are added where K is split, after `sum_us`, and `cluster_summed` in a cluster, after `cluster_sum_us`.
    `half_line`, `quarter_line` and `eighth_line` say how many times as much of the L2 cache rows take that begin at
    multiples of 64, 32 and 16 bytes. `launch_us` is a launch, and `sm_us` each multiprocessor that has work.
    `memory_share` is of the device memory's peak, which `torn_lines` take a share more of; `clock_share` is of the
    boost clock; `power` is the share that a product takes longer when it is long, and `power_us` is long.
    `sharpness` and `joined` are the norms that join what a k-tile waits for, and the two times.
    """

    latency: float
    turn: float
    store_per_kib: float
    exchanged_store: float
    fill_per_kib: float
    warpgroup_start: float
    cluster_start: float
    crowd: float
    peers: float
    arrived: float
    fetched: float
    l2: float
    summed: float
    sum_us: float
    cluster_summed: float
    cluster_sum_us: float
    half_line: float
    quarter_line: float
    eighth_line: float
    launch_us: float
    sm_us: float
    memory_share: float
    torn_lines: float
    clock_share: float
    power: float
    power_us: float
    sharpness: float
    joined: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpgroupWork:
    """A kernel as the model sees it. `warpgroups` multiply: they share a tile, or with `pingpong` two have one each.

    `cluster` are its CTAs along M and N, `slices` those of K; `element_bytes` are A's and B's, `result_bytes` C's;
    `mma_flops` are of a multiprocessor in a cycle. `correction` is measured: of a k-tile's cycles by the model.
    """

    cta: tuple[int, int, int]
    warpgroups: int
    pingpong: bool
    swap: bool
    stages: int
    cluster: Extents
    slices: int
    element_bytes: int
    result_bytes: int
    mma_flops: float
    correction: float = 1.0


def estimate(work: WarpgroupWork, problem: ProblemShape, gpu: Gpu, constants: WarpgroupConstants) -> Estimate:
    """The time of a launch among others, as in a CUDA graph. `problem` is what the kernel multiplies."""
    (m, n, k), (ctas_m, ctas_n, ctas_k) = work.cta, work.cluster
    tiles = -(-problem.m // (m * ctas_m)) * -(-problem.n // (n * ctas_n)) * ctas_m * ctas_n * problem.batch
    ctas = tiles * work.slices
    room = gpu.sms if ctas_m * ctas_n * ctas_k <= PAIR else gpu.sms // TOGETHER * TOGETHER - TOGETHER
    at_once = max(1, min(ctas, room))
    whole = -(-problem.k // k)
    k_tile, bound = _k_tile_cycles(work, problem, at_once, constants)
    multiplied = -(-whole // work.slices) * k_tile * work.correction
    cycles = _start_cycles(work, problem, at_once, constants) + _tiles_cycles(
        work, problem, -(-ctas // at_once), multiplied, constants
    )
    clock_per_us = constants.clock_share * gpu.clock_hz / 1e6
    busy_us = cycles / clock_per_us
    busy_us *= 1 + constants.power * busy_us / (busy_us + constants.power_us)
    memory_us = _memory_us(work, problem, gpu, constants)
    around_us = constants.launch_us + constants.sm_us * at_once
    around_us += _sum_us(work, clock_per_us, constants)
    return Estimate(
        around_us + _norm((busy_us, memory_us), constants.joined), bound if busy_us > memory_us else "device memory"
    )


def _k_tile_cycles(
    work: WarpgroupWork, problem: ProblemShape, ctas: int, constants: WarpgroupConstants
) -> tuple[float, str]:
    """Cycles from one k-tile to the next while so many CTAs work, and what most of them are for."""
    (m, n, k), (ctas_m, ctas_n, _) = work.cta, work.cluster
    row_bytes = k * work.element_bytes
    read_bytes = (m / ctas_n + n / ctas_m) * row_bytes * _lines(work, problem, constants)
    parts = {
        "tensor cores": 2 * m * n * k / work.mma_flops,
        "shared memory": (m + n * (m // ROWS)) * row_bytes / BANK_ROW_BYTES,
        "copies": (m + n) * row_bytes / constants.arrived,
        "L2 requests": read_bytes / constants.fetched,
        "the L2 cache": read_bytes * ctas / constants.l2,
        "latency": constants.latency * (1 + constants.peers * (ctas_m + ctas_n - 2)) / (work.stages - 1),
    }
    return _norm(tuple(parts.values()), constants.sharpness), max(parts, key=lambda name: parts[name])


def _lines(work: WarpgroupWork, problem: ProblemShape, constants: WarpgroupConstants) -> float:
    """Return the L2 traffic of rows of A and B over that of rows that begin with a line."""
    pitch_bytes = problem.k * work.element_bytes
    if pitch_bytes % LINE_BYTES == 0:
        return 1.0
    if pitch_bytes % (LINE_BYTES // 2) == 0:
        return constants.half_line
    return constants.eighth_line if pitch_bytes % (LINE_BYTES // 4) else constants.quarter_line


def _tiles_cycles(
    work: WarpgroupWork, problem: ProblemShape, rounds: int, multiplied: float, constants: WarpgroupConstants
) -> float:
    """A CTA's way through so many tiles: what it multiplies of each, and what it stores."""
    m, n, _ = work.cta
    result_bytes = work.result_bytes if work.slices == work.cluster[2] else SUM_BYTES
    stored = constants.store_per_kib * min(m, problem.m) * min(n, problem.n) * result_bytes / 1024
    if work.swap:
        stored *= 1 + constants.exchanged_store
    if not work.pingpong:
        return rounds * (multiplied + stored)
    return rounds * max(multiplied + constants.turn, (multiplied + stored) / 2) + stored


def _start_cycles(work: WarpgroupWork, problem: ProblemShape, ctas: int, constants: WarpgroupConstants) -> float:
    """Until the first k-tile is multiplied, while so many CTAs want theirs."""
    (m, n, k), (ctas_m, ctas_n, ctas_k) = work.cta, work.cluster
    along_m, along_n = -(-problem.m // (m * ctas_m)) * ctas_m, -(-problem.n // (n * ctas_n)) * ctas_n
    crowd = max(min(along_m, ctas) / ctas_m, min(along_n, ctas) / ctas_n) - 1
    return (
        constants.fill_per_kib * (m + n) * k * work.element_bytes / 1024
        + constants.warpgroup_start * work.warpgroups
        + constants.cluster_start * (ctas_m + ctas_n + ctas_k - 3)
        + constants.crowd * crowd * _lines(work, problem, constants)
    )


def _sum_us(work: WarpgroupWork, clock_per_us: float, constants: WarpgroupConstants) -> float:
    """Adding a tile's slices: in a cluster each CTA a share, and what clusters leave by one CTA through a workspace."""
    tile_bytes, clustered = work.cta[0] * work.cta[1] * SUM_BYTES, work.cluster[2]
    total_us = 0.0
    if clustered > 1:
        far_bytes = tile_bytes * (clustered - 1) / clustered
        total_us += constants.cluster_sum_us + far_bytes / constants.cluster_summed / clock_per_us
    if work.slices > clustered:
        total_us += constants.sum_us + work.slices // clustered * tile_bytes / constants.summed / clock_per_us
    return total_us


def _memory_us(work: WarpgroupWork, problem: ProblemShape, gpu: Gpu, constants: WarpgroupConstants) -> float:
    """Return the time that device memory takes for each element once."""
    operands = float((problem.m + problem.n) * problem.k * work.element_bytes)
    if problem.k * work.element_bytes % LINE_BYTES:
        operands *= 1 + constants.torn_lines
    moved = problem.batch * (operands + problem.m * problem.n * work.result_bytes)
    return moved / (constants.memory_share * gpu.memory_bytes_per_s) * 1e6


def _norm(values: tuple[float, ...], sharpness: float) -> float:
    """Join times that overlap in part: more than the largest of them."""
    largest = max(values)
    relative: float = sum((value / largest) ** sharpness for value in values)
    return largest * math.pow(relative, 1 / sharpness)
