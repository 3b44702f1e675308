"""Predicts the time of a kernel for a problem, to rank tiles and slices: a model with a few measured constants.

An SM runs as many CTAs at once as fit. A k-tile needs cycles of tensor cores and of shared memory, which overlap in
part, more so with more warps. It takes at least the copies' latency divided by the stages that hide it. A CTA first
fills its stages and finally stores its tile; a persistent one computes many tiles, and fills its stages once. Device
memory moves the operands and the result at its bandwidth, independently of the SMs.

Each family has its own constants, fitted to times on an H200 (`docs/lab/tile_model.md`); for other GPUs only the
hardware rates are replaced. The formula is pure arithmetic: `tests/gpu/fit_kernels.py` evaluates it on tensors for its
gradient.
"""

import math
from dataclasses import dataclass
from typing import TypeAlias

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import Gpu, dtype
from cutegen.hardware.units import BANK_ROW_BYTES, LINE_BYTES, SCHEDULERS, WARP
from cutegen.plan.kernel.scheduler import SUM_BYTES
from cutegen.spec import GemmSpec
from cutegen.spec.values import Mode

# Alignment of the rows of A, B and C in global memory: a row is what is contiguous, along an operand's major mode.
#
# Rows that do not begin on a line of the L2 cache are read as more sectors, and lines that two rows share are requested
# twice. In a problem of contiguous matrices, a row begins wherever the extent of the major mode puts it.


Majors: TypeAlias = tuple[Mode, Mode, Mode]
"""Contiguous modes of A, B and C, of the product that a kernel multiplies."""
K_MAJOR: Majors = ("k", "k", "n")
ElementBytes: TypeAlias = tuple[int, int]
"""Bytes of an element of A, and of B."""
ALIGNMENTS = (LINE_BYTES, LINE_BYTES // 2, LINE_BYTES // 4, 1)


def majors_of(spec: GemmSpec) -> Majors:
    """Return the contiguous modes of the spec's operands and result."""
    return spec.problem.a.major, spec.problem.b.major, spec.problem.c.major


def element_bytes_of(spec: GemmSpec) -> ElementBytes:
    """Return the bytes of an element of A, and of B."""
    return dtype(spec.problem.a.dtype).bytes, dtype(spec.problem.b.dtype).bytes


def has_lines(spec: GemmSpec, problem: ProblemShape) -> bool:
    """Return whether every row of A and B begins on a line of the L2 cache."""
    return not unaligned_operands(majors_of(spec), problem, element_bytes_of(spec))


def is_k_major(spec: GemmSpec) -> bool:
    """Return whether K is contiguous in A and in B."""
    return majors_of(spec)[:2] == K_MAJOR[:2]


def shares_aligned(
    majors: Majors, problem: ProblemShape, element_bytes: ElementBytes, sizes: tuple[float, float]
) -> tuple[float, ...]:
    """Return the shares of A and B whose rows are aligned to a line, half of one, a quarter, and less.

    `sizes` are the relative sizes of what is read of A and B.

    >>> shares_aligned(("k", "n", "n"), ProblemShape(8, 96, 64), (2, 2), (1.0, 3.0))
    (0.25, 0.75, 0.0, 0.0)
    """
    a_bytes, b_bytes = _row_bytes(majors, problem, element_bytes)
    of_a, of_b = _alignment(a_bytes), _alignment(b_bytes)
    if of_a == of_b:
        return tuple(float(each == of_a) for each in ALIGNMENTS)
    shares = {of_a: sizes[0] / sum(sizes), of_b: sizes[1] / sum(sizes)}
    return tuple(shares.get(each, 0.0) for each in ALIGNMENTS)


def unaligned_operands(majors: Majors, problem: ProblemShape, element_bytes: ElementBytes) -> bool:
    """Return whether rows of A or of B are not aligned to lines."""
    return any(row_bytes % LINE_BYTES for row_bytes in _row_bytes(majors, problem, element_bytes))


def torn_results(majors: Majors, problem: ProblemShape, result_bytes: int) -> float:
    """Return 1 if rows of C are not aligned to lines, else 0."""
    return float(problem.extents[majors[2]] * result_bytes % LINE_BYTES > 0)


def _row_bytes(majors: Majors, problem: ProblemShape, element_bytes: ElementBytes) -> tuple[int, int]:
    extents = problem.extents
    return extents[majors[0]] * element_bytes[0], extents[majors[1]] * element_bytes[1]


def _alignment(row_bytes: int) -> int:
    return next(each for each in ALIGNMENTS if row_bytes % each == 0)


COPY_BYTES = 16
"""Bytes per copy of a thread: the widest `cp.async`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConstants:
    """Constants that were measured rather than looked up.

    `overlap` is the share of the lesser of tensor and shared-memory cycles that the greater does not hide with one warp
    per scheduler, and half of that with two. `k_tile_cycles` is the cost of a k-tile's barrier and bookkeeping,
    `latency_cycles` the time from a copy's issue to its data. `tile_cycles` is the cost of a tile's start and end,
    `store_cycles_per_kib` that of its result, `fill_cycles` that of each copy of a thread before the first k-tile.
    `sum_cycles`, `slice_cycles` for each slice and `sum_bytes_per_cycle` are for adding slices. `cta_us` is the cost
    per CTA of a launch, and `launch_us` the rest of it. `memory_share` is the fraction of the device memory's peak for
    reads, and `write_share` that for writes; unaligned rows cost `torn_lines` and `torn_writes` more. `clock_share` is
    the fraction of the boost clock, `sharpness` the exponent of the norm that joins the bounds.
    """

    overlap: float
    k_tile_cycles: float
    latency_cycles: float
    tile_cycles: float
    fill_cycles: float
    store_cycles_per_kib: float
    sum_cycles: float
    slice_cycles: float
    sum_bytes_per_cycle: float
    sharpness: float
    launch_us: float
    cta_us: float
    memory_share: float
    torn_lines: float
    write_share: float
    torn_writes: float
    clock_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A kernel as the model sees it: its tile, its warps along M and N, stages, slices of K, CTAs per SM.

    `persistent` CTAs compute one tile after the other. `element_bytes` are those of A and of B, `result_bytes` of C;
    `majors` are their contiguous modes, `mma_flops` are per SM and cycle. `overall` is a measured factor on the whole
    time.
    """

    cta: tuple[int, int, int]
    warps: tuple[int, int]
    stages: int
    slices: int
    ctas_per_sm: int
    element_bytes: ElementBytes
    result_bytes: int
    mma_flops: float
    majors: Majors
    persistent: bool = False
    overall: float = 1.0


DEVICE_MEMORY = "device memory"
"""The bound of a kernel that device memory limits, not SMs."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Microseconds, and the bound that determines them.

    Of device memory alone they would be `memory_us`; a norm with the exponent `sharpness` joins them with those of SMs.
    """

    us: float
    bound: str
    memory_us: float = 0.0
    sharpness: float = 1.0

    def busier(self, factor: float) -> float:
        """Return the microseconds if SMs had `factor` times the work, and device memory as much as before.

        >>> Estimate(6.0, "SMs", 4.0).busier(1.5), Estimate(4.0, "device memory", 4.0).busier(2.0)
        (9.0, 4.0)
        """
        if self.bound != DEVICE_MEMORY:
            return factor * self.us
        memory_us = min(self.memory_us, self.us)
        of_sms = (self.us**self.sharpness - memory_us**self.sharpness) ** (1 / self.sharpness)
        return norm((factor * of_sms, memory_us), self.sharpness)


@dataclass(frozen=True, slots=True, kw_only=True)
class TileQuantities:
    """Counted work of a kernel for a problem; the constants give the time of each item.

    Per k-tile of one CTA: cycles of the tensor cores and of shared memory (the `greater` and the `lesser`), the stages
    that hide a copy, and `single`, 1 for a one-stage kernel. Per fullest SM: full rounds and their CTAs, and the last
    round. Per launch: k-tiles of a slice, a thread's copies that fill the stages and how often, KiB of a stored tile,
    bytes of operands, results and slices, and the `added_slices`, 0 for a single one.
    """

    greater: float
    lesser: float
    warps: float
    hiding_stages: float
    single: float
    k_tiles: float
    full_rounds: float
    full_ctas: float
    last_rounds: float
    last_ctas: float
    fills: float
    copies: float
    stored_kib: float
    split: float
    added_slices: float
    added_bytes: float
    ctas: float
    operand_bytes: float
    torn_operands: float
    result_bytes: float
    torn_results: float
    clock_per_us: float
    memory_bytes_per_us: float
    overall: float


def estimate(work: Work, problem: ProblemShape, gpu: Gpu, constants: ModelConstants) -> Estimate:
    """Return the time of one launch."""
    counted = quantities(work, problem, gpu)
    busy, memory = busy_us(counted, constants), memory_us(counted, constants)
    bound = "SMs" if busy >= memory else DEVICE_MEMORY
    return Estimate(microseconds(counted, constants), bound, memory * work.overall, constants.sharpness)


def quantities(work: Work, problem: ProblemShape, gpu: Gpu) -> TileQuantities:
    """Count what a kernel does."""
    (m, n, k), (warps_m, warps_n) = work.cta, work.warps
    tiles = -(-problem.m // m) * -(-problem.n // n) * problem.batch
    full, rest = divmod(-(-tiles * work.slices // gpu.sms), work.ctas_per_sm)
    whole = -(-problem.k // k)
    k_tiles = -(-whole // work.slices)
    a_bytes, b_bytes = work.element_bytes
    stage_bytes = (m * a_bytes + n * b_bytes) * k
    loaded_bytes = stage_bytes + (m * warps_n * a_bytes + n * warps_m * b_bytes) * k
    cycles = 2 * m * n * k / work.mma_flops, loaded_bytes / BANK_ROW_BYTES
    whole_lines, *_ = shares_aligned(work.majors, problem, work.element_bytes, (problem.m, problem.n))
    stored_bytes = work.result_bytes if work.slices == 1 else SUM_BYTES
    return TileQuantities(
        greater=max(cycles),
        lesser=min(cycles),
        warps=warps_m * warps_n / SCHEDULERS,
        hiding_stages=max(1, work.stages - 1),
        single=float(work.stages == 1),
        k_tiles=k_tiles,
        full_rounds=full,
        full_ctas=work.ctas_per_sm,
        last_rounds=float(rest > 0),
        last_ctas=max(1, rest),
        fills=1 if work.persistent else full + (rest > 0),
        copies=min(work.stages, k_tiles) * stage_bytes / (COPY_BYTES * WARP * warps_m * warps_n),
        stored_kib=m * n * stored_bytes / 1024,
        split=float(work.slices > 1),
        added_slices=float(work.slices if work.slices > 1 else 0),
        added_bytes=float(work.slices * m * n * SUM_BYTES),
        ctas=min(tiles * work.slices, gpu.sms) if work.persistent else tiles * work.slices,
        operand_bytes=float(problem.batch * (problem.m * a_bytes + problem.n * b_bytes) * problem.k),
        torn_operands=1 - whole_lines,
        result_bytes=float(problem.batch * problem.m * problem.n * work.result_bytes),
        torn_results=torn_results(work.majors, problem, work.result_bytes),
        clock_per_us=gpu.clock_hz / 1e6,
        memory_bytes_per_us=gpu.memory_bytes_per_s / 1e6,
        overall=work.overall,
    )


def microseconds(q: TileQuantities, constants: ModelConstants) -> float:
    """Return the time of a launch."""
    # Work on several resources overlaps in part: the bounds are joined by a norm, which exceeds the largest of them.
    together = norm((busy_us(q, constants), memory_us(q, constants)), constants.sharpness)
    # The last CTA adds the sums of all slices, and every CTA counts itself in the same word.
    fixed = constants.sum_cycles + constants.slice_cycles * q.added_slices
    adding = q.split * (fixed + q.added_bytes / constants.sum_bytes_per_cycle)
    around = constants.launch_us + constants.cta_us * q.ctas + adding / (constants.clock_share * q.clock_per_us)
    return (around + together) * q.overall


def busy_us(q: TileQuantities, constants: ModelConstants) -> float:
    """Return the time of the fullest SM."""
    # Outside of a tile's k-tiles: mainly, a CTA stores its result or sums.
    stored = constants.tile_cycles + constants.store_cycles_per_kib * q.stored_kib
    full = q.k_tiles * _k_tile_cycles(q, q.full_ctas, constants) + stored
    last = q.k_tiles * _k_tile_cycles(q, q.last_ctas, constants) + stored
    # A CTA's first copies: it issues those of the stages that K fills, and waits for the first.
    filling = constants.fill_cycles * q.copies + constants.latency_cycles
    cycles = q.full_rounds * full + q.last_rounds * last + q.fills * filling
    return cycles / (constants.clock_share * q.clock_per_us)


def memory_us(q: TileQuantities, constants: ModelConstants) -> float:
    """Return the time of device memory to move each element once, and one latency."""
    read = q.operand_bytes * (1 + constants.torn_lines * q.torn_operands) / constants.memory_share
    written = q.result_bytes * (1 + constants.torn_writes * q.torn_results) / constants.write_share
    latency_us = constants.latency_cycles / (constants.clock_share * q.clock_per_us)
    return (read + written) / q.memory_bytes_per_us + latency_us


def _k_tile_cycles(q: TileQuantities, at_once: float, constants: ModelConstants) -> float:
    """Return the cycles in which each of the CTAs that share an SM completes one k-tile."""
    one = q.greater + constants.overlap / (at_once * q.warps) * q.lesser
    # With one stage, only the work of other CTAs hides the latency.
    hidden = constants.latency_cycles / q.hiding_stages + q.single * one
    return larger(at_once * one + constants.k_tile_cycles / at_once, hidden)


def larger(first: float, second: float) -> float:
    """Return the larger of two by arithmetic, which the fit can differentiate.

    >>> larger(2.0, 3.0)
    3.0
    """
    return (first + second + abs(first - second)) / 2


def norm(values: tuple[float, ...], sharpness: float) -> float:
    """Join times that overlap in part; the result exceeds the largest.

    >>> norm((3.0, 4.0), 2.0)
    5.0
    """
    joined: float = sum(value**sharpness for value in values) ** (1 / sharpness)
    return joined


def of_doublings(each: float, times: float) -> float:
    """Return `each` to the power of log2(`times`).

    >>> of_doublings(3.0, 4.0)
    9.0
    """
    return math.pow(each, math.log2(times))
