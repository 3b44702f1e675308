"""Predicts the time of a warpgroup kernel for a problem, to rank tiles, consumers, clusters and slices.

The time of a k-tile on an SM is the longest of the times of its tensor cores, its shared memory, its copies, its share
of the L2 cache, and the latency of a copy divided by the stages that hide it; these overlap in part. The CTAs of a
cluster read shared data once. Rows that are not aligned to lines of the L2 cache need more of its bandwidth. A
persistent CTA fills its stages once. Cooperative warpgroups compute the chain and store the tile before they continue.
Ping-pong warpgroups do so while the other multiplies, which the chain delays slightly, except for the last tile. Device
memory moves the operands and the result at its bandwidth meanwhile. Long work at full power lowers the clock.

The constants are fitted to times on an H200 (`docs/lab/tile_model.md`), with two corrections for each kernel measured
there or on an H100; for other tiles only the hardware rates are known, and times are estimates. The formula is pure
arithmetic: `tests/gpu/fit_kernels.py` evaluates it on tensors for its gradient.
"""

import math
from dataclasses import dataclass

from cutegen.algebra import Extents
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import Gpu
from cutegen.hardware.units import BANK_ROW_BYTES, SCHEDULERS, WARP, WGMMA_ROWS
from cutegen.plan.kernel.scheduler import SUM_BYTES
from cutegen.plan.search import tile_model

ISSUED = SCHEDULERS * WARP
"""Thread instructions that an SM issues per cycle: one warp instruction per scheduler."""
CHAIN_TOGETHER, CHAIN_ALONE = 0.55, 1.7
"""Cycles of a chain per cycle of its instructions: partly hidden by stores if all warpgroups compute it, and with the
latencies of a scheduler's only warp if one does. Measured on an H200 at 2048^3 with a bias and GELU: 0.8 us with a
cooperative 128x256 tile, 1.2 with 128x128 ping-pong.
"""
CHAIN_BESIDE = 0.15
"""Share of a chain's cycles by which it delays the multiplications of the other ping-pong warpgroup: GELU costs 1 % at
8192x8192x2048 and at 8192^3 with 128x144, 0 to 1 % at 16384x4096x4096 with 128x160 (H100). With a tenth, 128x144 is
selected at 8192^3, which takes 1 to 4 % less on a GPU that multiplies without pauses and 3 % more on one that rests
between launches.
"""
HIDDEN_IN_TURNS, HIDDEN_OF_WIDEST = 0.2, 0.4
"""Share of a result's cycles that multiplications hide if warpgroups take turns with a tile's last k-tiles; the second
value is for the widest instructions, which keep tensor cores busy alone. Measured on an H200, and on an H100 since the
first warpgroup continues without a pause. It is 0 for 4-byte results: s8 on an H100 takes 3 to 5 % longer with 128x256
than with 128x128 ping-pong at 2048^3, and 5 % longer at 4096^3.
"""
WIDEST = 256
"""Columns of the widest wgmma."""
SPREAD_LATENCY = 0.82
"""Share of a copy's latency that remains if no other CTA runs in a TPC. Set by the cost of selections on 178 problems
on an H100 (`docs/lab/tile_orders.md`); with 0.78 to 0.85 they cost at most 0.3 % more.
"""
THIN_STORE = 1.0
"""Relative extra time of a result whose rows are stored 16 bytes at a time: tiles whose N is an odd multiple of 8 have
parts of 8 columns, with plain stores. On an H100 384x5696x1088 takes 14.9 us with 192x88 and 11.5 with 192x96, 14.1
with 128x136 and 11.2 with 128x144. Values of 1 to 4 give the same selections on 27 products.
"""
LEFT_TIMES = 2.0
"""Factor on the device memory traffic of a workspace, written and read, if the operands overflow L2. Set by
128x4096x14336, which takes 47 to 48 us on an H100 with two slices in a cluster, and 50 to 52 with two to four through a
workspace.
"""
PAIR, TOGETHER = 2, 8
"""Clusters of two fill a GPU; larger ones must fit in a GPC, and one GPC has fewer SMs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpgroupConstants:
    """Constants that were measured rather than looked up.

    `latency_cycles` pass from a copy's issue to its data, plus a share of `peers_share` per CTA that shares copies;
    `turn_cycles` is a switch of the tensor cores to the other warpgroup. A KiB of a result takes
    `store_cycles_per_kib`, with swapped operands `exchanged_store_share` more. Startup costs are `fill_cycles_per_kib`
    of the first k-tile, `warpgroup_start_cycles` per warpgroup, `cluster_start_cycles` per further CTA in a cluster's
    row and column, and `crowd_cycles` per further CTA that reads the same first rows (a cluster counts once).

    `arrived_bytes_per_cycle` reach one SM, which requests `fetched_bytes_per_cycle` from L2; the L2 cache supplies
    `l2_bytes_per_cycle` to all SMs. Rows aligned to 64, 32 and 16 bytes need `half_line_factor`, `quarter_line_factor`
    and `eighth_line_factor` times as much. With a split K, `summed_bytes_per_cycle` are stored and added, after
    `sum_us` times the square root of the number of CTAs that wait for each other; in a cluster
    `cluster_summed_bytes_per_cycle`, after `cluster_sum_us`.

    A launch takes `launch_us`, and each SM with work `sm_us`. Reads get `memory_share` of the device memory's peak and
    take `torn_lines` more if rows are not aligned to lines, writes `write_share` and `torn_writes`. `clock_share` is
    the fraction of the boost clock. A product of `power_us` takes half of `power_share` longer, a much longer one
    nearly all of it. `sharpness` is the exponent of the norm over the limits of a k-tile, `joined_sharpness` that over
    SMs and memory.
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
    `majors` are the contiguous modes of A, B and C, and a read of B from shared memory counts `conflicts` times.
    `mma_flops` are per SM and cycle, `chain` is the epilogue's instructions per element. If a tile `ends_in_turns`, its
    warpgroups multiply the last k-tiles one after the other, with instructions of `columns` columns. Rows of a `thin`
    result are stored 16 bytes at a time. A launch without clusters that uses at most half of the GPU `spreads` its
    CTAs. Measured factors are `correction`, on the model's cycles of a k-tile, and `overall`, on the whole time.
    """

    cta: tuple[int, int, int]
    warpgroups: int
    pingpong: bool
    swap: bool
    stages: int
    cluster: Extents
    slices: int
    element_bytes: tile_model.ElementBytes
    result_bytes: int
    mma_flops: float
    majors: tile_model.Majors
    conflicts: int = 1
    chain: float = 0.0
    columns: int = 0
    thin: bool = False
    ends_in_turns: bool = False
    spreads: bool = True
    correction: float = 1.0
    overall: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantities:
    """Counted work of a kernel for a problem; the constants give the time of each item.

    Per k-tile: cycles of the tensor cores and of shared memory, bytes that arrive, bytes that one CTA and all CTAs at
    once request from L2, the stages that hide a copy, and the CTAs that share it; `spread` is 1 if each CTA has a TPC
    to itself and refills a stage, else 0. Per tile: cycles of the epilogue's chain, and the share of its result's
    cycles that multiplications hide; `thin` is 1 for a thin one. `whole_lines`, `half_lines` ... are the shares of A
    and B by the alignment of their rows. Per launch: k-tiles of a slice, `rounds` of tiles, CTAs at once, KiB of the
    first k-tile and of a stored tile, bytes of operands and of results, and of slices that are added: those that a CTA
    reads in its cluster, and those of a tile in the workspace. `waits` is the square root of the CTAs that share the
    latter, 0 for none, and `left_bytes` are those of all CTAs that L2 evicts before they are read.
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
    pingpong: float
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


def estimate(
    work: WarpgroupWork, problem: ProblemShape, gpu: Gpu, constants: WarpgroupConstants
) -> tile_model.Estimate:
    """Return the time of a launch among others, as in a CUDA graph. `problem` is what the kernel multiplies."""
    counted = quantities(work, problem, gpu)
    busy, memory = busy_us(counted, constants), memory_us(counted, constants)
    parts = k_tile_parts(counted, constants)
    bound = max(parts, key=lambda name: parts[name]) if busy > memory else tile_model.DEVICE_MEMORY
    return tile_model.Estimate(
        microseconds(counted, constants), bound, memory * work.overall, constants.joined_sharpness
    )


def quantities(work: WarpgroupWork, problem: ProblemShape, gpu: Gpu) -> Quantities:
    """Count what a kernel does."""
    (m, n, k), (ctas_m, ctas_n, ctas_k) = work.cta, work.cluster
    along_m, along_n = -(-problem.m // (m * ctas_m)) * ctas_m, -(-problem.n // (n * ctas_n)) * ctas_n
    ctas = along_m * along_n * problem.batch * work.slices
    at_once = max(1, min(ctas, room_for(work.cluster, gpu)))
    rounds = -(-ctas // at_once)
    a_bytes, b_bytes = work.element_bytes
    # Rows and columns beyond the problem's are not fetched.
    rows, columns, within_k = min(m, problem.m), min(n, problem.n), min(k, problem.k)
    mean_rows, mean_columns = problem.m / along_m, problem.n / along_n
    asked_rows, asked_columns = rows / ctas_n, columns / ctas_m
    whole_lines, half_lines, quarter_lines, eighth_lines = tile_model.shares_aligned(
        work.majors, problem, work.element_bytes, (asked_rows, asked_columns)
    )
    stored_bytes = work.result_bytes if work.slices == ctas_k else SUM_BYTES
    tile_bytes, whole = m * n * SUM_BYTES, -(-problem.k // k)
    sharers = work.slices // ctas_k if work.slices > ctas_k else 0  # CTAs that add a tile, or share of one, together
    k_tiles = -(-whole // work.slices)
    return Quantities(
        tensor_cycles=2 * m * n * k / work.mma_flops,
        shared_cycles=(m * a_bytes + n * (m // WGMMA_ROWS) * work.conflicts * b_bytes) * k / BANK_ROW_BYTES,
        arriving_bytes=(rows * a_bytes + columns * b_bytes) * within_k,
        asked_bytes=(asked_rows * a_bytes + asked_columns * b_bytes) * within_k,
        asked_by_all_bytes=(mean_rows / ctas_n * a_bytes + mean_columns / ctas_m * b_bytes) * within_k * ctas / rounds,
        hiding_stages=work.stages - 1,
        sharers=ctas_m + ctas_n - 2,
        spread=float(work.spreads and max(work.cluster) == 1 and 2 * ctas <= gpu.sms and k_tiles > work.stages),
        whole_lines=whole_lines,
        half_lines=half_lines,
        quarter_lines=quarter_lines,
        eighth_lines=eighth_lines,
        k_tiles=k_tiles,
        rounds=rounds,
        ctas=at_once,
        crowd_ctas=max(min(along_m, at_once) / ctas_m, min(along_n, at_once) / ctas_n) - 1,
        first_kib=(rows * a_bytes + columns * b_bytes) * within_k / 1024,
        warpgroups=work.warpgroups,
        cluster_steps=ctas_m + ctas_n + ctas_k - 3,
        stored_kib=rows * columns * stored_bytes / 1024,
        chain_cycles=rows * columns * work.chain / ISSUED * (CHAIN_ALONE if work.pingpong else CHAIN_TOGETHER),
        hidden_share=_hidden(work),
        thin=float(work.thin),
        exchanged=float(work.swap),
        pingpong=float(work.pingpong),
        operand_bytes=float(problem.batch * (problem.m * a_bytes + problem.n * b_bytes) * problem.k),
        result_bytes=float(problem.batch * problem.m * problem.n * work.result_bytes),
        torn_results=tile_model.torn_results(work.majors, problem, work.result_bytes),
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
    """Return the approximate number of CTAs of such clusters that a GPU holds at once if each CTA fills an SM.

    A cluster lies within one GPC of 16 or 18 SMs, or fewer. An H200, with 132 SMs, holds 66 clusters of two, 30 of four
    and 15 of eight (`cuOccupancyMaxActiveClusters`).
    """
    return gpu.sms if math.prod(cluster) <= PAIR else gpu.sms // TOGETHER * TOGETHER - TOGETHER


def _overflows_l2(work: WarpgroupWork, problem: ProblemShape, gpu: Gpu) -> bool:
    """Return whether A and B evict the sums of slices from L2 before they are added."""
    a_bytes, b_bytes = work.element_bytes
    return problem.batch * (problem.m * a_bytes + problem.n * b_bytes) * problem.k > gpu.l2_bytes


def _hidden(work: WarpgroupWork) -> float:
    """Return the share of a result's cycles that the last k-tiles hide."""
    if not work.ends_in_turns or work.result_bytes >= SUM_BYTES:
        return 0.0
    return HIDDEN_OF_WIDEST if work.columns == WIDEST else HIDDEN_IN_TURNS


def microseconds(q: Quantities, constants: WarpgroupConstants) -> float:
    """Return the time of a launch."""
    clock = constants.clock_share * q.clock_per_us
    clustered = constants.cluster_sum_us + q.far_bytes / constants.cluster_summed_bytes_per_cycle / clock
    split = constants.sum_us * q.waits + q.added_bytes / constants.summed_bytes_per_cycle / clock
    around = constants.launch_us + constants.sm_us * q.ctas + q.clustered * clustered + split
    return (
        around + tile_model.norm((busy_us(q, constants), memory_us(q, constants)), constants.joined_sharpness)
    ) * q.overall


def busy_us(q: Quantities, constants: WarpgroupConstants) -> float:
    """Return the time of the SM with the most tiles, at the reduced clock of long products."""
    multiplied = (
        q.k_tiles * tile_model.norm(tuple(k_tile_parts(q, constants).values()), constants.sharpness) * q.correction
    )
    share_more = constants.exchanged_store_share * q.exchanged + THIN_STORE * q.thin
    stored = constants.store_cycles_per_kib * q.stored_kib * (1 + share_more)
    # One warpgroup's multiplications, half of a tile's, hide at most half of their own time: little for a short K.
    stored = tile_model.larger(stored * (1 - q.hidden_share), stored - multiplied / 4) + q.chain_cycles
    together = q.rounds * (multiplied + stored)
    beside = multiplied + constants.turn_cycles + CHAIN_BESIDE * q.chain_cycles
    alternating = q.rounds * tile_model.larger(beside, (multiplied + stored) / 2) + stored
    cycles = _start(q, constants) + (1 - q.pingpong) * together + q.pingpong * alternating
    us = cycles / (constants.clock_share * q.clock_per_us)
    return us * (1 + constants.power_share * us / (us + constants.power_us))


def k_tile_parts(q: Quantities, constants: WarpgroupConstants) -> dict[str, float]:
    """Return the cycles from one k-tile to the next, by limit."""
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
    """Return the time of device memory to move each element once."""
    read = q.operand_bytes * (1 + constants.torn_lines * (1 - q.whole_lines)) / constants.memory_share
    written = q.result_bytes * (1 + constants.torn_writes * q.torn_results) / constants.write_share
    left = q.left_bytes * LEFT_TIMES * (1 / constants.memory_share + 1 / constants.write_share)
    return (read + written + left) / q.memory_bytes_per_us


def _start(q: Quantities, constants: WarpgroupConstants) -> float:
    """Return the cycles until the first k-tile is multiplied, while all CTAs load theirs."""
    return (
        constants.fill_cycles_per_kib * q.first_kib
        + constants.warpgroup_start_cycles * q.warpgroups
        + constants.cluster_start_cycles * q.cluster_steps
        + constants.crowd_cycles * q.crowd_ctas * _lines(q, constants)
    )


def _lines(q: Quantities, constants: WarpgroupConstants) -> float:
    """Return the L2 traffic of rows of A and B relative to rows aligned to lines."""
    torn = constants.half_line_factor * q.half_lines + constants.quarter_line_factor * q.quarter_lines
    return q.whole_lines + torn + constants.eighth_line_factor * q.eighth_lines
