"""Estimates how long a kernel of warpgroups takes on a problem: ranks tiles, consumers, clusters and slices.

A k-tile takes a multiprocessor the longest of what its tensor cores, its shared memory, its copies, its share of the
L2 cache, and the latency of a copy over the stages that hide it take; these overlap in part. The CTAs of a cluster
read once what they share. Rows that begin between lines of the L2 cache take more of it. A persistent CTA fills its
stages once. Warpgroups that share a tile compute its chain and store it before they go on; those that take turns do so
while the other multiplies, which the chain holds up a little, all but the last tile. Device memory moves the operands
and the result at its rates meanwhile, and what a GPU does at full power for long lowers its clock.

The constants are fitted to times on an H200 (`docs/tile_model.md`), with two corrections for each kernel that was
measured there or on an H100; for other tiles only the rates of the hardware are known, and times are estimates. The
formula is arithmetic alone: `tests/gpu/fit_kernels.py` puts tensors in place of numbers, to follow its slope.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cutegen.algebra import Extents
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import Gpu
from cutegen.hardware.units import BANK_ROW_BYTES, LINE_BYTES, SCHEDULERS, WARP, WGMMA_ROWS
from cutegen.plan.search.tile_model import Estimate, larger, norm
from cutegen.plan.values.gemm_plan import SUM_BYTES

ISSUED = SCHEDULERS * WARP
"""Instructions on one element that a multiprocessor issues in a cycle: its schedulers one of a warp each."""
CHAIN_TOGETHER, CHAIN_ALONE = 0.55, 1.7
"""Cycles that a chain takes over those of its instructions: behind stores in part where all warpgroups compute it, and
with the latencies of a scheduler's only warp where one does. As measured on an H200 at 2048^3 with a bias and GELU: 0.8
us in 128x256 that two share, 1.2 in 128x128 ping-pong.
"""
CHAIN_BESIDE = 0.15
"""Share of a chain's cycles by which it holds up the multiplications of the other warpgroup, where they take turns with
tiles: GELU takes 1 % at 8192x8192x2048 and at 8192^3 on 128x144, 0 to 1 % at 16384x4096x4096 on 128x160 (an H100). With
a tenth 128x144 is chosen at 8192^3, which takes 1 to 4 % less there on a GPU that multiplies without a pause and 3 %
more on one that rests.
"""
HIDDEN_IN_TURNS, HIDDEN_OF_WIDEST = 0.2, 0.4
"""Share of the cycles for a result that multiplications hide where warpgroups take turns with a tile's last k-tiles:
the second where an instruction has the most columns, which keeps tensor cores busy alone. As measured on an H200, and
since the first warpgroup goes on without a pause on an H100. Nothing is counted of results of 4 bytes: s8 on an H100
takes 3 to 5 % longer with 128x256 than with 128x128 ping-pong at 2048^3, and 5 % longer at 4096^3.
"""
WIDEST = 256
"""Columns of the widest wgmma."""
SPREAD_LATENCY = 0.82
"""Share of a copy's latency that is left where no other CTA works in a TPC. Set by what choices cost on 178 problems of
an H100 (`docs/tile_orders.md`); with 0.78 to 0.85 they cost at most 0.3 % more.
"""
THIN_STORE = 1.0
"""Share that a result takes longer where its rows leave 16 bytes at a time: tiles whose N is an odd multiple of 8 have
parts of 8 columns, by plain stores. On an H100 384x5696x1088 takes 14.9 us with 192x88 and 11.5 with 192x96, 14.1 with
128x136 and 11.2 with 128x144. With 1 to 4 choices on 27 products there are the same.
"""
LEFT_TIMES = 2.0
"""What slices leave in a workspace counts so many times in device memory, written and read, where the operands
overflow L2. Set by 128x4096x14336, which takes 47 to 48 us on an H100 with two slices in a cluster, and 50 to 52 with
two to four through a workspace.
"""
PAIR, TOGETHER = 2, 8
"""Clusters of two fill a GPU; of larger ones a GPC holds whole ones alone, and one GPC has fewer multiprocessors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpgroupConstants:
    """Constants that were measured rather than looked up.

    `latency_cycles` pass from a copy's issue to its data, more by `peers_share` for each CTA that shares copies, and
    `turn_cycles` while the other warpgroup takes the tensor cores over. Of a result each KiB takes
    `store_cycles_per_kib`, and of exchanged operands `exchanged_store_share` more. Once take `fill_cycles_per_kib` of
    the first k-tile, `warpgroup_start_cycles` each warpgroup, `cluster_start_cycles` each CTA more in a cluster's row
    and column, and `crowd_cycles` each CTA more that wants the same first rows, where a cluster counts once.

    `arrived_bytes_per_cycle` reach one multiprocessor, `fetched_bytes_per_cycle` it asks L2 for, and
    `l2_bytes_per_cycle` leave the L2 cache for all of them. Rows that begin at multiples of 64, 32 and 16 bytes take
    `half_line_factor`, `quarter_line_factor` and `eighth_line_factor` times as much of that. Where K is split,
    `summed_bytes_per_cycle` are left and added, after `sum_us` times the root of how many CTAs wait for each other, and
    in a cluster `cluster_summed_bytes_per_cycle`, after `cluster_sum_us`.

    A launch takes `launch_us`, and each multiprocessor that has work `sm_us`. Reading gets `memory_share` of the device
    memory's peak and takes `torn_lines` more where rows do not begin with a line, writing `write_share` and
    `torn_writes`. `clock_share` is of the boost clock. A product of `power_us` takes half of `power_share` longer, and
    one that is much longer nearly all of it. `sharpness` is of the norm that joins what a k-tile waits for,
    `joined_sharpness` of that over multiprocessors and memory.
    """

    latency_cycles: float
    turn_cycles: float
    store_cycles_per_kib: float
    exchanged_store_share: float
    fill_cycles_per_kib: float
    warpgroup_start_cycles: float
    cluster_start_cycles: float
    crowd_cycles: float
    peers_share: float
    arrived_bytes_per_cycle: float
    fetched_bytes_per_cycle: float
    l2_bytes_per_cycle: float
    summed_bytes_per_cycle: float
    sum_us: float
    cluster_summed_bytes_per_cycle: float
    cluster_sum_us: float
    half_line_factor: float
    quarter_line_factor: float
    eighth_line_factor: float
    launch_us: float
    sm_us: float
    memory_share: float
    torn_lines: float
    write_share: float
    torn_writes: float
    clock_share: float
    power_share: float
    power_us: float
    sharpness: float
    joined_sharpness: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpgroupWork:
    """A kernel as the model sees it. `warpgroups` multiply: they share a tile, or with `pingpong` two have one each.

    `cluster` are its CTAs along M, N and K, `slices` those of K; `element_bytes` are A's and B's, `result_bytes` C's;
    `mma_flops` are of a multiprocessor in a cycle, `chain` are instructions on the way to C, of an element. Where a
    tile `ends_in_turns` its warpgroups multiply the last k-tiles one after the other, each by instructions of so many
    `columns`. Rows of a `thin` result leave 16 bytes at a time. A launch without clusters that leaves half of the GPU
    `spreads` its CTAs. Measured are `correction`, of a k-tile's cycles by the model, and `overall`, of the whole time.
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
    chain: float = 0.0
    columns: int = 0
    thin: bool = False
    ends_in_turns: bool = False
    spreads: bool = True
    correction: float = 1.0
    overall: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantities:
    """Work of a kernel for a problem, counted: the constants say how long each takes.

    Of a k-tile: cycles of the tensor cores and of shared memory, bytes that arrive, bytes that one CTA asks L2 for and
    those of all that work at once, the stages that hide a copy, and the CTAs it is shared with; `spread` is 1 where
    each CTA has a TPC for itself and fills a stage again, else 0. Of a tile: cycles of the chain on the way to C, and
    the share of those for its result that multiplications hide; `thin` is 1 for a thin one. `whole_lines`,
    `half_lines` ... are 1 for where rows of A and B begin, else 0. Of the launch: k-tiles of a slice, `rounds` of
    tiles, CTAs at once, KiB of the first k-tile and of a stored tile, bytes of operands and of results, and of slices
    that are added: those that a CTA reads in its cluster, and those of a tile in the workspace. `waits` are the root of
    the CTAs that share these, 0 of none, and `left_bytes` are those of all CTAs that leave L2 before they are read.
    """

    tensor_cycles: float
    shared_cycles: float
    arriving_bytes: float
    asked_bytes: float
    asked_by_all_bytes: float
    hiding_stages: float
    sharers: float
    spread: float
    whole_lines: float
    half_lines: float
    quarter_lines: float
    eighth_lines: float
    k_tiles: float
    rounds: float
    ctas: float
    crowd_ctas: float
    first_kib: float
    warpgroups: float
    cluster_steps: float
    stored_kib: float
    chain_cycles: float
    hidden_share: float
    thin: float
    exchanged: float
    turns: float
    operand_bytes: float
    result_bytes: float
    torn_results: float
    clustered: float
    far_bytes: float
    waits: float
    added_bytes: float
    left_bytes: float
    clock_per_us: float
    memory_bytes_per_us: float
    correction: float
    overall: float


def estimate(work: WarpgroupWork, problem: ProblemShape, gpu: Gpu, constants: WarpgroupConstants) -> Estimate:
    """The time of a launch among others, as in a CUDA graph. `problem` is what the kernel multiplies."""
    counted = quantities(work, problem, gpu)
    busy, memory = busy_us(counted, constants), memory_us(counted, constants)
    parts = k_tile_parts(counted, constants)
    bound = max(parts, key=lambda name: parts[name]) if busy > memory else "device memory"
    return Estimate(microseconds(counted, constants), bound)


def quantities(work: WarpgroupWork, problem: ProblemShape, gpu: Gpu) -> Quantities:
    """Count what a kernel does."""
    (m, n, k), (ctas_m, ctas_n, ctas_k) = work.cta, work.cluster
    along_m, along_n = -(-problem.m // (m * ctas_m)) * ctas_m, -(-problem.n // (n * ctas_n)) * ctas_n
    ctas = along_m * along_n * problem.batch * work.slices
    at_once = max(1, min(ctas, room_for(work.cluster, gpu)))
    rounds = -(-ctas // at_once)
    # Rows and columns beyond the problem's are not fetched.
    rows, columns, row_bytes = min(m, problem.m), min(n, problem.n), min(k, problem.k) * work.element_bytes
    mean_rows, mean_columns = problem.m / along_m, problem.n / along_n
    pitch_bytes, c_pitch_bytes = problem.k * work.element_bytes, problem.n * work.result_bytes
    if work.swap:
        c_pitch_bytes = problem.m * work.result_bytes
    begins = next(at for at in (LINE_BYTES, LINE_BYTES // 2, LINE_BYTES // 4, 1) if pitch_bytes % at == 0)
    stored_bytes = work.result_bytes if work.slices == ctas_k else SUM_BYTES
    tile_bytes, whole = m * n * SUM_BYTES, -(-problem.k // k)
    sharers = work.slices // ctas_k if work.slices > ctas_k else 0  # CTAs that add a tile, or share of one, together
    k_tiles = -(-whole // work.slices)
    return Quantities(
        tensor_cycles=2 * m * n * k / work.mma_flops,
        shared_cycles=(m + n * (m // WGMMA_ROWS)) * k * work.element_bytes / BANK_ROW_BYTES,
        arriving_bytes=(rows + columns) * row_bytes,
        asked_bytes=(rows / ctas_n + columns / ctas_m) * row_bytes,
        asked_by_all_bytes=(mean_rows / ctas_n + mean_columns / ctas_m) * row_bytes * ctas / rounds,
        hiding_stages=work.stages - 1,
        sharers=ctas_m + ctas_n - 2,
        spread=float(work.spreads and max(work.cluster) == 1 and 2 * ctas <= gpu.sms and k_tiles > work.stages),
        whole_lines=float(begins == LINE_BYTES),
        half_lines=float(begins == LINE_BYTES // 2),
        quarter_lines=float(begins == LINE_BYTES // 4),
        eighth_lines=float(begins == 1),
        k_tiles=k_tiles,
        rounds=rounds,
        ctas=at_once,
        crowd_ctas=max(min(along_m, at_once) / ctas_m, min(along_n, at_once) / ctas_n) - 1,
        first_kib=(rows + columns) * row_bytes / 1024,
        warpgroups=work.warpgroups,
        cluster_steps=ctas_m + ctas_n + ctas_k - 3,
        stored_kib=rows * columns * stored_bytes / 1024,
        chain_cycles=rows * columns * work.chain / ISSUED * (CHAIN_ALONE if work.pingpong else CHAIN_TOGETHER),
        hidden_share=_hidden(work),
        thin=float(work.thin),
        exchanged=float(work.swap),
        turns=float(work.pingpong),
        operand_bytes=float(problem.batch * (problem.m + problem.n) * pitch_bytes),
        result_bytes=float(problem.batch * problem.m * problem.n * work.result_bytes),
        torn_results=float(c_pitch_bytes % LINE_BYTES > 0),
        clustered=float(ctas_k > 1),
        far_bytes=tile_bytes * (ctas_k - 1) / ctas_k,
        waits=math.sqrt(sharers),
        added_bytes=tile_bytes / ctas_k if sharers else 0.0,
        left_bytes=ctas * tile_bytes / ctas_k if sharers and _overflows_l2(work, problem, gpu) else 0.0,
        clock_per_us=gpu.clock_hz / 1e6,
        memory_bytes_per_us=gpu.memory_bytes_per_s / 1e6,
        correction=work.correction,
        overall=work.overall,
    )


def room_for(cluster: Extents, gpu: Gpu) -> int:
    """Return how many CTAs of such clusters a GPU holds at once, about."""
    return gpu.sms if math.prod(cluster) <= PAIR else gpu.sms // TOGETHER * TOGETHER - TOGETHER


def _overflows_l2(work: WarpgroupWork, problem: ProblemShape, gpu: Gpu) -> bool:
    """Return whether A and B push out of L2 what slices leave, before it is added."""
    return problem.batch * (problem.m + problem.n) * problem.k * work.element_bytes > gpu.l2_bytes


def _hidden(work: WarpgroupWork) -> float:
    """The share of a result's cycles that the last k-tiles hide."""
    if not work.ends_in_turns or work.result_bytes >= SUM_BYTES:
        return 0.0
    return HIDDEN_OF_WIDEST if work.columns == WIDEST else HIDDEN_IN_TURNS


def microseconds(q: Quantities, constants: WarpgroupConstants) -> float:
    """The time of a launch."""
    clock = constants.clock_share * q.clock_per_us
    clustered = constants.cluster_sum_us + q.far_bytes / constants.cluster_summed_bytes_per_cycle / clock
    split = constants.sum_us * q.waits + q.added_bytes / constants.summed_bytes_per_cycle / clock
    around = constants.launch_us + constants.sm_us * q.ctas + q.clustered * clustered + split
    return (around + norm((busy_us(q, constants), memory_us(q, constants)), constants.joined_sharpness)) * q.overall


def busy_us(q: Quantities, constants: WarpgroupConstants) -> float:
    """The time of the multiprocessor with the most tiles, at the clock that long products leave it."""
    multiplied = q.k_tiles * norm(tuple(k_tile_parts(q, constants).values()), constants.sharpness) * q.correction
    share_more = constants.exchanged_store_share * q.exchanged + THIN_STORE * q.thin
    stored = constants.store_cycles_per_kib * q.stored_kib * (1 + share_more)
    # One warpgroup's multiplications, half of a tile's, hide no more than half of what they take: little of a short K.
    stored = larger(stored * (1 - q.hidden_share), stored - multiplied / 4) + q.chain_cycles
    together = q.rounds * (multiplied + stored)
    beside = multiplied + constants.turn_cycles + CHAIN_BESIDE * q.chain_cycles
    in_turns = q.rounds * larger(beside, (multiplied + stored) / 2) + stored
    cycles = _start(q, constants) + (1 - q.turns) * together + q.turns * in_turns
    us = cycles / (constants.clock_share * q.clock_per_us)
    return us * (1 + constants.power_share * us / (us + constants.power_us))


def k_tile_parts(q: Quantities, constants: WarpgroupConstants) -> dict[str, float]:
    """Cycles from one k-tile to the next, by what takes them."""
    lines, spread = _lines(q, constants), 1 - (1 - SPREAD_LATENCY) * q.spread
    return {
        "tensor cores": q.tensor_cycles,
        "shared memory": q.shared_cycles,
        "copies": q.arriving_bytes / constants.arrived_bytes_per_cycle,
        "L2 requests": q.asked_bytes * lines / constants.fetched_bytes_per_cycle,
        "the L2 cache": q.asked_by_all_bytes * lines / constants.l2_bytes_per_cycle,
        "latency": constants.latency_cycles * (1 + constants.peers_share * q.sharers) * spread / q.hiding_stages,
    }


def memory_us(q: Quantities, constants: WarpgroupConstants) -> float:
    """The time that device memory takes for each element once."""
    read = q.operand_bytes * (1 + constants.torn_lines * (1 - q.whole_lines)) / constants.memory_share
    written = q.result_bytes * (1 + constants.torn_writes * q.torn_results) / constants.write_share
    left = q.left_bytes * LEFT_TIMES * (1 / constants.memory_share + 1 / constants.write_share)
    return (read + written + left) / q.memory_bytes_per_us


def _start(q: Quantities, constants: WarpgroupConstants) -> float:
    """Until the first k-tile is multiplied, while so many CTAs want theirs."""
    return (
        constants.fill_cycles_per_kib * q.first_kib
        + constants.warpgroup_start_cycles * q.warpgroups
        + constants.cluster_start_cycles * q.cluster_steps
        + constants.crowd_cycles * q.crowd_ctas * _lines(q, constants)
    )


def _lines(q: Quantities, constants: WarpgroupConstants) -> float:
    """Return the L2 traffic of rows of A and B over that of rows that begin with a line."""
    torn = constants.half_line_factor * q.half_lines + constants.quarter_line_factor * q.quarter_lines
    return q.whole_lines + torn + constants.eighth_line_factor * q.eighth_lines
