"""Candidates of warpgroup kernels for a problem, for the performance model.

Tiles come with their warpgroups and stages, the consumers' schedule, the cluster, whether A and B are swapped, and the
slices of K. Keys that the spec gives are kept.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from math import gcd, prod
from typing import Any

from cutegen.algebra import Extents
from cutegen.contract.problem import QUANTIZED_BLOCK, ProblemShape
from cutegen.contract.tensor_map import MAX_BOX_ELEMS
from cutegen.hardware import GPUS, Gpu, Instruction, Issuer, Target, dtype
from cutegen.hardware.units import LINE_BYTES, MAX_CLUSTER_CTAS, WARPGROUP, WGMMA_ROWS
from cutegen.plan import swapped
from cutegen.plan.epilogue.pairs import rows_of_warpgroup
from cutegen.plan.epilogue.store import BUFFERS, WIDTHS, chain_instructions
from cutegen.plan.kernel.accumulator import PROMOTED_TILES
from cutegen.plan.mainloop.l2 import LEAST_BYTES, goes_through_once, streams_of
from cutegen.plan.mma import wgmma
from cutegen.plan.operands.factors import factors_bytes
from cutegen.plan.operands.staging import DEEPEST, DOUBLE_BUFFERED, capacity_bytes
from cutegen.plan.schedule.cluster import ALONE, CLUSTER
from cutegen.plan.schedule.consumers import COOPERATIVE, PINGPONG, busy_alone, clears_begins, may_end_in_turns
from cutegen.plan.schedule.order import BAND, InFlight, in_flight_of
from cutegen.plan.search import tile_model, warpgroup_rows
from cutegen.plan.search.problem import Candidate, Option, Proposal, mma_flops, reduction_in, settle, tile_is_open
from cutegen.plan.search.tile_model import majors_of
from cutegen.plan.search.warpgroup_model import PAIR, WarpgroupWork, estimate
from cutegen.plan.search.warpgroup_rows import H200, PROMOTED_CORRECTIONS, KernelConfig, fitted_slices, is_small
from cutegen.plan.values.epilogue import largest_bytes
from cutegen.plan.values.operand import k_tile_bytes_of_each
from cutegen.spec import GemmSpec, Schedule

CLUSTERS = (ALONE, (2, 1, 1), (1, 2, 1))
REMEMBERED_SPECS = 16
"""Swapped specs that are kept: a search asks for few, with every row."""
JOINED_STAGES, JOINED_LINES = 5, 8
"""Two k-tiles of one line of K each become one if at least this many stages of it fit, and K is at least this many
lines long.

On an H100 this took 0.90 times as long on average with tiles of 64 rows, alone and in clusters
(`tests/gpu/h100_k_tiles.json`: K of 1592 to 7616); with four stages as long, with three longer. On an H200 tiles of up
to 48 columns took 0.73 to 0.95 times as long, wider ones 0.93 to 1.02; shorter K took up to 1.08 times as long. Slices
of K take as long in a cluster, which keeps k-tiles of a line, and 1.014 times as long through a workspace, on average
of eleven.
"""
THIN_BYTES = 16
"""Bytes of a row of C's parts at which a result takes longer (`THIN_STORE`)."""
NARROW_PARTS = 1.06
"""Correction of the whole time if CTAs add the slices of a tile part by part, and its rows are C's: parts are one
sector wide. Measured on an H100: 505 times of kernels with slices against those of swapped operands, whose parts are
lines.
"""
NARROW_SPAN = 1.1
"""Correction of a k-tile if rows of an N-major B are copied in spans narrower than a line. The model also counts each
span as read as often as spans fit in a line (`WarpgroupWork.conflicts`). Chosen with that by the cost of selections on
435 f16 problems of three pairs of majors on an H100 (`tests/gpu/h100_majors.json`).
"""
MOST_SUMS_OF_QUANTIZED = 176
"""Most sums of a thread that quantizes C. With 192 a swapped product of bf16 spilled 496 bytes, 112 with SiLU and 80
with a bias and GELU; with 176 up to 56 (ptxas 13, sm_90a). Up to 64 are tolerated.
"""
CLUSTERED_SLICES = 1.02
"""Factor on the whole time per doubling of the slices of K that a cluster adds, if A or B is not K-major: so measured
there.
"""


def settled_for(spec: GemmSpec, target: Target, problem: ProblemShape) -> Iterator[Proposal]:
    """Return specs with the open keys filled in, the fastest for `problem` first."""
    compared = compared_rows(spec, target, problem)
    return _ranked(spec, target, problem, _candidates(spec, target, problem, compared))


def space_for(spec: GemmSpec, target: Target, problem: ProblemShape) -> Iterator[Proposal]:
    """Return the same for all candidates of tuning, including kernels without a fitted time."""
    compared = compared_rows(spec, target, problem, warpgroup_rows.every_row())
    return _ranked(spec, target, problem, _candidates(spec, target, problem, compared, wide=True), apart=True)


def compared_rows(
    spec: GemmSpec, target: Target, problem: ProblemShape, others: Iterable[KernelConfig] = ()
) -> tuple[KernelConfig, ...]:
    """Return the rows that plans compare, with their corrections for the problem, then all `others`.

    A small product has rows of its own. The rest follows only if the spec gives keys that these may not have.
    """
    compared = (*warpgroup_rows.MEASURED, *_fitted(spec, target, problem))
    if spec.problem.groups is not None and spec.problem.groups.of == "m":
        compared = (*warpgroup_rows.OF_GROUPS, *compared)
    if is_streamed(spec, problem):
        few = warpgroup_rows.SCALED_FEW if spec.problem.scale_a else ()
        return tuple(map(as_streamed, warpgroup_rows.each_kernel_once((*few, *compared, *others))))
    if is_small(spec, problem):
        small = warpgroup_rows.rows_of(problem)
        compared = small if _leaves_kernel_open(spec) else (*small, *compared)
    return tuple(warpgroup_rows.each_kernel_once((*compared, *others)))


def _leaves_kernel_open(spec: GemmSpec) -> bool:
    """Return whether the spec gives no key of a row."""
    schedule = spec.schedule
    given = (schedule.consumers, schedule.cluster, schedule.swap, schedule.split_k, schedule.reduction)
    return tile_is_open(spec) and all(key is None for key in given)


def _fitted(spec: GemmSpec, target: Target, problem: ProblemShape) -> Iterator[KernelConfig]:
    """Yield rows whose slices of K, or N, follow from the problem, for the element size of their measurements."""
    if dtype(spec.problem.a.dtype).bits == 16:
        yield from map(warpgroup_rows.as_nearest, warpgroup_rows.fitted_rows(problem, GPUS[target.name]))
    yield from fitted_slices(problem, GPUS[target.name])


def _ranked(
    spec: GemmSpec,
    target: Target,
    problem: ProblemShape,
    candidates: Iterator[tuple[KernelConfig, Candidate]],
    *,
    apart: bool = False,
) -> Iterator[Proposal]:
    """Rank candidates, with two k-tiles in one if that is not slower; with `apart` the originals are kept too.

    Both have the predicted time of the original, except where corrections depend on the length of k-tiles.
    """
    options = (
        Option(each, row.slices, estimate_of(spec, target, problem, row, candidate, each))
        for row, candidate in candidates
        for each in dict.fromkeys((_joined(spec, target, problem, row, candidate), *((candidate,) if apart else ())))
    )
    return settle(spec, target, problem, options, partial(_fits, spec, target))


def estimate_of(
    spec: GemmSpec, target: Target, problem: ProblemShape, row: KernelConfig, candidate: Candidate, built: Candidate
) -> tile_model.Estimate:
    """Return the prediction for a row's candidate; `built` is its kernel, possibly with longer k-tiles."""
    multiplied = swapped.shape_multiplied(problem) if row.swap else problem
    share = _share_of_reads(spec, target, problem, multiplied, row.slices, built)
    work, gpu = work_of(spec, target, candidate, row), GPUS[target.name]
    predicted = estimate(replace(work, overall=work.overall * share), multiplied, gpu, H200)
    if row.slices > 1 or is_small(spec, problem):
        return predicted
    return replace(predicted, us=predicted.us * coincidence_factor(work, multiplied, gpu, predicted.us))


def _share_of_reads(
    spec: GemmSpec, target: Target, problem: ProblemShape, multiplied: ProblemShape, slices: int, built: Candidate
) -> float:
    """Return the factor on the model's time for a kernel, by its access pattern, if that was measured."""
    element = dtype(spec.problem.a.dtype)
    if is_streamed(spec, problem):
        in_flight = in_flight_of(multiplied, target, built.cta[:2], (element, element), slices, Instruction.WGMMA)
        return stream_factor(built, slices, in_flight, built.cta[2] * element.bytes)
    if is_of_middle_size(spec, problem):
        torn = tile_model.unaligned_operands(majors_of(spec), problem, tile_model.element_bytes_of(spec))
        return request_factor(built.cta, built.cluster, multiplied, torn=torn)
    return 1.0


def _joined(
    spec: GemmSpec, target: Target, problem: ProblemShape, row: KernelConfig, candidate: Candidate
) -> Candidate:
    """Return the candidate with two k-tiles in one, 256 bytes of each row at a time, if that is not slower."""
    (m, n, k), element_bytes = row.cta, dtype(spec.problem.a.dtype).bytes
    is_line = k * element_bytes == LINE_BYTES
    is_long = problem.k // row.slices * element_bytes >= JOINED_LINES * LINE_BYTES
    is_open = tile_is_open(spec) and (spec.mma.promote_k or 0) % (2 * k) == 0 and spec.problem.scale_a is None
    if is_small(spec, problem) or not (is_line and is_long and is_open and row.cluster[2] == 1):
        return candidate  # small products compare rows of both lengths
    joined = candidate_of(spec, target, replace(row, cta=(m, n, 2 * k)))
    return joined if joined.stages >= JOINED_STAGES else candidate


def _candidates(
    spec: GemmSpec, target: Target, problem: ProblemShape, compared: tuple[KernelConfig, ...], *, wide: bool = False
) -> Iterator[tuple[KernelConfig, Candidate]]:
    """Yield the rows that agree with the spec, each with the stages that it gives, else as many as fit."""
    rows = list(_for_elements(spec, compared))
    if not tile_is_open(spec):
        rows = list(_of_given_tile(spec, target, problem, rows))
        rows = [split for row in rows for split in warpgroup_rows.splits_of_given(row)] if wide else rows
    schedule = spec.schedule
    for key, open_value, asked in (
        ("consumers", COOPERATIVE, schedule.consumers),
        ("cluster", ALONE, _whole(schedule.cluster)),
        ("swap", False, schedule.swap),
    ):
        rows = _having(rows, key, open_value, asked)
    rows = [row for row in rows if wide or not _has_waves_of_rows(spec, target, problem, row)] or rows
    rows = [row for row in rows if _holds_factors(spec, target, row)] or rows
    for row in _added_as_asked(_of_whole_blocks(spec, rows), schedule):
        candidate = candidate_of(spec, target, row)
        if candidate.stages >= DOUBLE_BUFFERED:
            span = 1.0 if _span_bytes(spec, row) == LINE_BYTES else NARROW_SPAN
            fitted = _of_scaled(spec, problem, row)
            correction = fitted or row.correction * _of_bytes(spec, target, problem, row)
            yield replace(row, correction=correction * span), candidate


def _holds_factors(spec: GemmSpec, target: Target, row: KernelConfig) -> bool:
    """Return whether the registers of the row's threads hold the factors of blocks, if there are any."""
    if spec.problem.scale_a is None:  # known before a spec is made for each row
        return True
    multiplied = _multiplied(spec) if row.swap else spec
    asked = replace(multiplied, schedule=replace(spec.schedule, consumers=row.consumers))
    return wgmma.holds_factors(asked, (*row.warpgroups, 1), row.cta, target)


def _has_waves_of_rows(spec: GemmSpec, target: Target, problem: ProblemShape, row: KernelConfig) -> bool:
    """Return whether scaled sums of the row's tile do not fit at once: such kernels have no fitted time."""
    if spec.problem.scale_a is None or _of_scaled(spec, problem, row):
        return False
    multiplied = _multiplied(spec) if row.swap else spec
    asked = replace(multiplied, schedule=replace(spec.schedule, consumers=row.consumers))
    return wgmma.waves(asked, (*row.warpgroups, 1), row.cta, target)[0] > 1


def _of_whole_blocks(spec: GemmSpec, rows: list[KernelConfig]) -> list[KernelConfig]:
    """Return the rows whose warpgroups, or tiles if they are swapped, have whole blocks of a quantized C, else all.

    Of these, the ones whose threads have registers for a part's values beside their sums.
    """
    if spec.epilogue.quantize is None:
        return rows
    columns = QUANTIZED_BLOCK[1] * (1 if spec.epilogue.pairs is None else 2)
    whole = [row for row in rows if _has_whole_blocks(row, columns)]
    most = wgmma.MOST_SUMS if wgmma.promotes(spec) else MOST_SUMS_OF_QUANTIZED
    return [row for row in whole if prod(row.cta[:2]) // (WARPGROUP * prod(row.warpgroups)) <= most] or whole or rows


def _has_whole_blocks(row: KernelConfig, columns: int) -> bool:
    """Return whether the CTA that stores a part of a tile has all of the `columns` that a quantized C's blocks take."""
    (m, n, _), (along_m, along_n) = row.cta, row.warpgroups
    if not row.swap:
        of_each = m // (along_m * WGMMA_ROWS) * (n // along_n)
        return n % (columns * along_n) == 0 and of_each % (columns * row.cluster[2]) == 0
    return m % columns == 0 and (row.slices == 1 or (row.slices == row.cluster[2] and along_m % 2 == 0))


def _for_elements(spec: GemmSpec, compared: tuple[KernelConfig, ...]) -> Iterator[KernelConfig]:
    """Return rows written for 2-byte elements: rows of shared memory are 128 or 256 bytes for any type."""
    element_bytes = dtype(spec.problem.a.dtype).bytes
    if wgmma.promotes(spec):  # with three warpgroups, only those measured with promoted sums
        of_blocks = spec.epilogue.quantize is not None or _is_scaled_by_blocks(spec)
        of_pairs = spec.epilogue.pairs is not None and of_blocks
        compared = (
            *(row for row in compared if row.warpgroups != (3, 1)),
            *warpgroup_rows.PROMOTED,
            *(warpgroup_rows.QUANTIZED_PAIRS * of_pairs),
        )
        if _is_scaled_by_blocks(spec):
            # The box of a packed group's factors begins up to 3 before the tile, and warpgroups of pairs have 64 rows.
            shorter = spec.problem.groups is not None or spec.epilogue.pairs is not None
            scaled = (row for row in warpgroup_rows.SCALED if not shorter or row.cta[0] < MAX_BOX_ELEMS)
            compared = tuple(warpgroup_rows.each_kernel_once((*scaled, *compared)))
    for row in (found for each in compared if (found := _with_pairs(spec, each)) is not None):
        m, n, k = row.cta
        k = k * 2 // element_bytes
        if spec.problem.scale_a is None or spec.problem.scale_a.block[1] == k:
            yield replace(row, cta=(m, n, k))


@lru_cache(maxsize=REMEMBERED_SPECS)
def _multiplied(spec: GemmSpec) -> GemmSpec:
    """Return the spec of the swapped product, with any name: it is asked for with every row."""
    return swapped.as_multiplied(spec)


def _with_pairs(spec: GemmSpec, row: KernelConfig) -> KernelConfig | None:
    """Return the row with as many rows of both members in each warpgroup, if rows are in pairs; None if it cannot.

    If they are columns of a quantized C, the tile has a block of each member at least.
    """
    rows = rows_of_warpgroup(_multiplied(spec) if row.swap else spec)
    m, n, k = row.cta
    of_blocks = rows // WGMMA_ROWS * QUANTIZED_BLOCK[1] if row.swap and spec.epilogue.quantize is not None else 0
    m = max(m, rows, of_blocks)
    if m % rows:
        return None
    if rows == WGMMA_ROWS and m == row.cta[0]:
        return row
    groups = 1 if row.consumers == PINGPONG else m // rows
    fewer = warpgroup_rows.NEVER_MEASURED if groups < prod(row.warpgroups) else 1.0
    return replace(row, cta=(m, n, k), warpgroups=(groups, 1), correction=row.correction * fewer)


def _of_bytes(spec: GemmSpec, target: Target, problem: ProblemShape, row: KernelConfig) -> float:
    """Return the correction for 8-bit elements relative to f16."""
    if wgmma.promotes(spec):
        asked = replace(spec, schedule=replace(spec.schedule, consumers=row.consumers))
        scaled = spec.problem.scale_a is not None  # corrections of factors were measured with one set
        sets = 1 if scaled else wgmma.promoted_sets(asked, (*row.warpgroups, 1), row.cta, target, row.cta[2])
        promoted = PROMOTED_CORRECTIONS.get((row.consumers, prod(row.warpgroups), sets), warpgroup_rows.UNMEASURED)
        return promoted * (_of_factors(spec, problem, row) if scaled else 1.0)
    a, c = (dtype(each.dtype) for each in (spec.problem.a, spec.problem.c))
    return (
        warpgroup_rows.WIDE_EXCHANGED
        if (a.bytes, c.bytes) == (1, 4) and row.swap and row.consumers == PINGPONG
        else 1.0
    )


def _is_scaled_by_blocks(spec: GemmSpec) -> bool:
    """Return whether factors scale sums, and one of B many columns: with one for each, a thread reads dozens."""
    return spec.problem.scale_b is not None and spec.problem.scale_b.block[0] > 1


def _of_scaled(spec: GemmSpec, problem: ProblemShape, row: KernelConfig) -> float | None:
    """Return the whole correction of a row with scaled sums, if its kernel was measured with them."""
    if row.swap or row.slices > 1 or row.consumers == PINGPONG:
        return None
    if not _is_scaled_by_blocks(spec) or is_streamed(spec, problem):
        return None
    if spec.epilogue.pairs is not None:
        return _of_scaled_pairs(problem, row)
    found = warpgroup_rows.SCALED_CORRECTIONS.get((row.cta[:2], row.warpgroups, row.cluster))
    if found is None or spec.problem.groups is None or row.cluster == ALONE:
        return found
    return found * warpgroup_rows.SCALED_GROUPS_CLUSTERED


def _of_scaled_pairs(problem: ProblemShape, row: KernelConfig) -> float | None:
    """Return the same for pairs of columns, which are multiplied in waves of one member."""
    short, long = warpgroup_rows.SCALED_PAIRS.get((row.cta[:2], row.warpgroups), (None, None))
    return short if problem.k < warpgroup_rows.LONG_PAIRS * row.cta[2] else long


def _of_factors(spec: GemmSpec, problem: ProblemShape, row: KernelConfig) -> float:
    """Return the correction for sums that are scaled by factors of blocks, relative to promoted ones."""
    if row.swap and is_streamed(spec, problem):
        return 1.0
    if prod(row.warpgroups) == 3:
        return warpgroup_rows.SCALED_EXCHANGED if row.swap else 1.0
    k_tiles = -(-problem.k // (row.cta[2] * row.slices))
    short = warpgroup_rows.SCALED_SHORT if k_tiles < PROMOTED_TILES else 1.0
    if row.swap:
        return warpgroup_rows.SCALED_EXCHANGED * short
    return short * (
        warpgroup_rows.SCALED_BY_COLUMNS.get(row.cta[1], warpgroup_rows.SCALED_NARROW)
        if prod(row.warpgroups) == 2
        else 1.0
    )


def _span_bytes(spec: GemmSpec, row: KernelConfig) -> int:
    """Return the bytes along which rows of B are copied at most: a line, or less of an N-major B. A's are lines."""
    operand = spec.problem.a if row.swap else spec.problem.b
    if operand.major == "k":
        return LINE_BYTES
    return gcd(LINE_BYTES, row.cta[1] * dtype(operand.dtype).bytes)


def _of_majors(spec: GemmSpec, row: KernelConfig) -> float:
    """Return the factor on the whole time for operands that are not K-major."""
    return 1.0 if tile_model.is_k_major(spec) else tile_model.of_doublings(CLUSTERED_SLICES, row.cluster[2])


def _of_given_tile(
    spec: GemmSpec, target: Target, problem: ProblemShape, rows: list[KernelConfig]
) -> Iterator[KernelConfig]:
    """Return the spec's own tile, also swapped if C has fewer rows than an instruction: as `rows` have it, if they do.

    A given tile then gets the schedule and the cluster that a search which finds the same tile gives it. What `rows`
    lack is added without corrections: some tiles were only measured in clusters for large problems. Tiles of two joined
    k-tiles have no rows of their own.
    """
    if spec.tile.cta is None:
        return
    swaps = (False, True) if problem.m < WGMMA_ROWS else (False,)
    if spec.schedule.swap is not None:
        swaps = (spec.schedule.swap,)
    for consumers in (spec.schedule.consumers,) if spec.schedule.consumers else (COOPERATIVE, PINGPONG):
        if consumers == PINGPONG and spec.mma.atom_layout not in (None, (1, 1, 1)):
            continue
        asked = replace(spec, schedule=replace(spec.schedule, consumers=consumers))
        unasked = spec.schedule.consumers is None and consumers == PINGPONG
        if unasked and wgmma.lacks_room(asked, (1, 1, 1), spec.tile.cta, target) is not None:
            continue
        for swap in swaps:
            multiplied = swapped.as_multiplied(asked) if swap else asked
            if spec.tile.cta[0] % rows_of_warpgroup(multiplied) and len(swaps) > 1:
                continue
            warpgroups = wgmma.choose_warpgroups(multiplied, spec.tile.cta, target).value[:2]
            alike = (spec.tile.cta, warpgroups, consumers, 1, swap)
            found = [row for row in rows if (row.cta, row.warpgroups, row.consumers, row.slices, row.swap) == alike]
            yield from found
            having = {row.cluster for row in found}
            yield from (
                KernelConfig(spec.tile.cta, warpgroups, consumers, cluster, swap)
                for cluster in CLUSTERS
                if cluster not in having
            )


def _whole(cluster: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Return the cluster that a spec requests, along M, N and K."""
    return cluster and (*cluster, 1)[:3]


def _having(rows: list[KernelConfig], key: str, open_value: object, asked: object) -> list[KernelConfig]:
    """Return the rows with the value that the spec requests; if none has it, others with that value set.

    These are the rows with `open_value`, or all if another key has left none of them.
    """
    if asked is None:
        return rows
    having = [row for row in rows if getattr(row, key) == asked]
    others = [row for row in rows if getattr(row, key) == open_value] or rows
    changed: dict[str, Any] = {key: asked, "correction": warpgroup_rows.UNMEASURED}
    return having or [replace(row, **changed) for row in others]


def _added_as_asked(rows: list[KernelConfig], schedule: Schedule) -> list[KernelConfig]:
    """Return the rows with the slices that the spec requests, added as it requests."""
    if schedule.reduction is not None:  # warpgroups do not add slices by atomics
        rows = [row for row in rows if row.slices == 1 or reduction_in(row.cluster) == schedule.reduction]
    rows = _having(rows, "slices", 1, schedule.split_k)
    return [_in_cluster(row) for row in rows] if schedule.reduction == CLUSTER else rows


def _in_cluster(row: KernelConfig) -> KernelConfig:
    """Return the row with its slices in a cluster: as many as the rules choose if the cluster is open."""
    m, n, together = row.cluster
    most = next(
        (k for k in reversed(warpgroup_rows.CLUSTERED_SPLITS) if row.slices % k == 0 and k * m * n <= MAX_CLUSTER_CTAS),
        1,
    )
    return row if together > 1 else replace(row, cluster=(m, n, most))


def candidate_of(spec: GemmSpec, target: Target, row: KernelConfig) -> Candidate:
    """Return a row with the stages that the spec gives, else as many as fit."""
    return Candidate(
        cta=row.cta,
        atom_layout=(*row.warpgroups, 1),
        stages=spec.tile.stages or min(DEEPEST[-1], _most_stages(spec, target, row)),
        consumers=row.consumers,
        cluster=row.cluster,
        swap=row.swap,
        issued_by=Issuer.WARPGROUP,
    )


def _stage_bytes(spec: GemmSpec, cta: tuple[int, int, int], *, swap: bool) -> int:
    m, n, k = cta
    of_call = (n, m, k) if swap else cta
    return sum(k_tile_bytes_of_each(spec, of_call)) + factors_bytes(spec, of_call)


def _fits(spec: GemmSpec, target: Target, candidate: Candidate) -> bool:
    asked = replace(spec, schedule=replace(spec.schedule, consumers=candidate.consumers))
    stages_fit = _stage_bytes(spec, candidate.cta, swap=candidate.swap) * candidate.stages <= target.smem_per_cta_bytes
    return stages_fit and wgmma.lacks_room(asked, candidate.atom_layout, candidate.cta, target) is None


def _most_stages(spec: GemmSpec, target: Target, row: KernelConfig) -> int:
    """Return as many as fit with the parts of C: two per warpgroup, 64 rows by at most a line of elements."""
    parts_bytes = multiplying(row) * BUFFERS * WGMMA_ROWS * _part_row_bytes(spec, row)
    if row.swap and spec.epilogue.quantize is not None:
        rows = row.cta[0] // (1 if spec.epilogue.pairs is None else 2)
        parts_bytes += (2 if row.consumers == PINGPONG else 1) * largest_bytes((rows, row.cta[1]))
    return (capacity_bytes(target) - parts_bytes) // _stage_bytes(spec, row.cta, swap=row.swap)


def _part_row_bytes(spec: GemmSpec, row: KernelConfig) -> int:
    """Return the bytes of a row of C's parts, if its rows are the tile's."""
    c_bytes, columns = dtype(spec.problem.c.dtype).bytes, row.cta[1] // row.warpgroups[1]
    line = LINE_BYTES // c_bytes
    return c_bytes * next((wide for wide in WIDTHS if wide <= line and columns % wide == 0), columns)


def _of_parts(spec: GemmSpec, row: KernelConfig) -> float:
    """Return the correction for the narrow parts of C that CTAs sharing a tile need."""
    return NARROW_PARTS if row.slices > row.cluster[2] and _has_rows_of_c(spec, row) else 1.0


def _is_thin(spec: GemmSpec, row: KernelConfig) -> bool:
    """Return whether rows of C are the tile's, and are stored 16 bytes at a time."""
    return _has_rows_of_c(spec, row) and _part_row_bytes(spec, row) <= THIN_BYTES


def _has_rows_of_c(spec: GemmSpec, row: KernelConfig) -> bool:
    """Return whether rows of the tile are C's, swapped or not."""
    return (spec.problem.c.major == "n") != row.swap


def multiplying(row: KernelConfig) -> int:
    """Return the number of consumer warpgroups: those that share a tile, or the two of ping-pong."""
    return 2 if row.consumers == PINGPONG else row.warpgroups[0] * row.warpgroups[1]


def _ends_in_turns(spec: GemmSpec, row: KernelConfig) -> bool:
    """Return whether the row's warpgroups run the last k-tiles of a tile one after the other."""
    alone, warpgroups = row.consumers == PINGPONG, (*row.warpgroups, 1)
    may = may_end_in_turns(warpgroups, pingpong=alone, promotes=wgmma.promotes(spec), slices=row.slices)
    return may and busy_alone(warpgroups, row.cta) and not clears_begins(spec)


def work_of(spec: GemmSpec, target: Target, candidate: Candidate, row: KernelConfig) -> WarpgroupWork:
    """Return a row as the model sees it."""
    multiplied = _multiplied(spec) if row.swap else spec
    return WarpgroupWork(
        cta=row.cta,
        warpgroups=multiplying(row),
        pingpong=row.consumers == PINGPONG,
        swap=row.swap,
        stages=candidate.stages,
        cluster=row.cluster,
        slices=row.slices,
        element_bytes=tile_model.element_bytes_of(multiplied),
        result_bytes=dtype(spec.problem.c.dtype).bytes,
        mma_flops=mma_flops(spec, target, Instruction.WGMMA),
        majors=majors_of(multiplied),
        conflicts=LINE_BYTES // _span_bytes(spec, row),
        chain=chain_instructions(spec.epilogue.steps),
        columns=row.cta[1] // row.warpgroups[1],
        thin=_is_thin(spec, row),
        ends_in_turns=_ends_in_turns(spec, row),
        correction=row.correction,
        overall=row.overall * _of_parts(spec, row) * _of_majors(spec, row),
    )


# Factors on predicted times of warpgroup kernels, fitted to the model's errors.
#
# | factor | of | fitted to |
# |---|---|---|
# | `coincidence_factor` | CTAs whose requests for the same rows no longer coincide | `tests/gpu/h100_apart.json` |
# | `request_factor` | products of middle size, which L2 limits | `tests/gpu/h100_middle.json` |
# | `stream_factor` | few rows or columns times weights that L2 does not keep | `tests/gpu/h100_streams.json` |


# Corrects predicted times for CTAs that come apart, whose requests for the same rows no longer coincide.
#
# L2 serves requests of neighboring CTAs for the same lines as one if they arrive together, and delivers up to twice as
# much that way. The CTA that waits for device memory lets the others catch up. One with less to copy runs ahead of
# those that share its rows. Clusters that read the same rows run on different GPCs. The more a kernel depends on
# requests that coincide, the longer it takes then.
#
# `cutegen.plan.search.warpgroup_model` expects that all CTAs stay together. The exponents follow its errors against
# 5,629 of the times in `tests/gpu/h100_apart.json`. The older tables, of kernels in other tile orders, bear no larger
# ones.


COINCIDENT_SIDE = 2048
"""Rows or columns, the fewer of them, up to which nearly all products were measured. Larger ones lose as much as they
gain.
"""
APART_BYTES_PER_US = 6.0e6
"""Bytes that L2 delivers per microsecond if no requests coincide: of streams on an H100, 6.2e6."""
UNALIGNED_TRAFFIC = 1.25
"""Relative traffic of rows that are not aligned to lines."""
ALONG_SHORTER, UNNOTICED = 1.0, 0.15
"""Exponent per share of the rows of A and B that the last tile lacks, beyond this share, along the side with fewer
tiles.
"""
ALONG_LONGER = 0.2
"""The same along the other side, if all CTAs run at once, without clusters."""
ON_OTHER_GPCS = 0.15
"""Exponent per doubling of the clusters along the side with fewer tiles, up to a band of tiles."""


def coincidence_factor(work: WarpgroupWork, problem: ProblemShape, gpu: Gpu, us: float) -> float:
    """Return the factor on `us`, the predicted time of a kernel without slices of K for what it multiplies."""
    if min(problem.m, problem.n) > COINCIDENT_SIDE:
        return 1.0
    (m, n, _), (ctas_m, ctas_n, _) = work.cta, work.cluster
    tiles_m, tiles_n = -(-problem.m // m), -(-problem.n // n)
    clusters_m, clusters_n = -(-tiles_m // ctas_m), -(-tiles_n // ctas_n)
    rows, columns = problem.m * clusters_n, problem.n * clusters_m
    a_bytes, b_bytes = work.element_bytes
    whole, *_ = tile_model.shares_aligned(work.majors, problem, work.element_bytes, (rows, columns))
    asked_bytes = (
        problem.batch * (rows * a_bytes + columns * b_bytes) * problem.k * (whole + UNALIGNED_TRAFFIC * (1 - whole))
    )
    excess = asked_bytes / APART_BYTES_PER_US / us
    if excess <= 1:
        return 1.0
    asked_rows = m / ctas_n + n / ctas_m
    along_m = (tiles_m, clusters_m, (tiles_m * m - problem.m) / ctas_n / asked_rows)
    along_n = (tiles_n, clusters_n, (tiles_n * n - problem.n) / ctas_m / asked_rows)
    (tiles, clusters, lacks), (*_, lacks_other) = sorted((along_n, along_m), key=lambda side: side[0])
    of_band = min(1.0, BAND / tiles)  # CTAs of other bands read these rows at another time
    exponent = ALONG_SHORTER * max(0.0, lacks - UNNOTICED) * of_band
    if ctas_m * ctas_n > 1:
        exponent += ON_OTHER_GPCS * math.log2(min(clusters, BAND))
    elif tiles_m * tiles_n * problem.batch <= gpu.sms:
        exponent += ALONG_LONGER * lacks_other
    return float(excess**exponent)


# Corrections for products of middle size, which weight L2 requests, and tile area outside the result, more heavily.
#
# L2 limits most of them, and simultaneous requests of CTAs for the same lines are served once. The performance model
# cannot know how often that happens. These corrections are its errors against 3,968 times of 285 such f16 products on
# an H100, with kernels as planned (`tests/gpu/h100_middle.json`).


MIDDLE_FEWEST, MIDDLE_MOST = 2**27.5, 2**33.5
"""Multiply-adds of the measured products: below them the launch dominates, above them power."""
MIDDLE_MOST_RESULTS, MIDDLE_NARROWEST, MIDDLE_LEAST_K = 2**21.5, 64, 512
"""Limits of the same products: elements of C, rows and columns, and K."""
SOONER = 0.93
"""Factor on the whole time of all: kernels request their first k-tile sooner than those of the fit. It matters only
between families.
"""
ASKED, ROWS = 1.02, 128
"""Factor on the whole time per doubling of the rows of A and B that a CTA requests from L2, beyond a limit; a cluster
counts once.
"""
COVERED = 1.13
"""Factor on the whole time per doubling of the area of tiles over that of C: CTAs with a nearly empty tile run ahead of
those that share its rows, and requests no longer coincide (`docs/lab/hopper_experiments.md`).
"""
UNALIGNED_READERS = 1.02
"""Factor on the whole time per doubling of the clusters that read the same rows of the longer operand, if rows are not
aligned to lines.
"""
UNALIGNED_TOGETHER = 0.95
"""Factor on the whole time of clusters of more than two CTAs in that case."""


def is_of_middle_size(spec: GemmSpec, problem: ProblemShape) -> bool:
    """Return whether these corrections are fitted to such problems.

    Promoted sums are excluded, since they wait for each k-tile regardless of L2: ten products of e4m3 took 1.02 times
    as long with these corrections.
    """
    results = problem.batch * problem.m * problem.n
    has_sides = min(problem.m, problem.n) >= MIDDLE_NARROWEST and problem.k >= MIDDLE_LEAST_K
    has_size = results <= MIDDLE_MOST_RESULTS and MIDDLE_FEWEST <= results * problem.k <= MIDDLE_MOST
    return has_sides and has_size and not wgmma.promotes(spec)


def request_factor(cta: Extents, cluster: Extents, problem: ProblemShape, *, torn: bool) -> float:
    """Return the factor on the model's time for a kernel.

    `problem` is what it multiplies; `torn` operands have rows that are not aligned to lines.

    >>> request_factor((64, 64, 64), (1, 1, 1), ProblemShape(1024, 1024, 1024), torn=False) == SOONER
    True
    """
    (m, n, _), (ctas_m, ctas_n, _) = cta, cluster
    along_m, along_n = -(-problem.m // (m * ctas_m)), -(-problem.n // (n * ctas_n))
    covered = along_m * ctas_m * m * along_n * ctas_n * n
    share = SOONER * tile_model.of_doublings(ASKED, (m / ctas_n + n / ctas_m) / ROWS)
    share *= tile_model.of_doublings(COVERED, covered / (problem.m * problem.n))
    if torn:
        _, readers = max((problem.m, along_n), (problem.n, along_m))
        share *= tile_model.of_doublings(UNALIGNED_READERS, readers)
        if ctas_m * ctas_n > PAIR:
            share *= UNALIGNED_TOGETHER
    return share


# Corrections for a tile if one operand is a stream: few rows or columns times weights that L2 does not keep.
#
# Device memory limits such a product for any tile. A tile's own corrections, fitted to products of all kinds, have less
# weight there, and the access pattern of the stream matters: whether L2 evicts its lines first, how many bytes of a row
# are read at a time, and whether CTAs keep pace. Fitted to 5,537 times of 326 such f16 products on an H100
# (`tests/gpu/h100_streams.json`), with eviction and prefetches as planned.


STREAM_WIDEST, STREAM_SHORTEST = 256, 1024
"""Limits of the measured products: rows or columns that the stream is multiplied by, least extent of the stream, least
K.
"""
STREAM_SHARE = 0.4
"""Exponent of a tile's own corrections."""
GIVEN_UP_FIRST = 0.932
"""Factor on the whole time if L2 evicts the stream's lines first."""
LONGER_K_TILE = 0.953
"""Factor on the whole time per doubling of a k-tile beyond a line."""
STREAM_UNEVEN = 1.07
"""Factor on the whole time per doubling of the area of several tiles over that of the problem: their CTAs read the same
rows of the stream, and do not keep pace, of which `cutegen.plan.search.warpgroups` counts a part. Set by hand: 1.03 to
1.07 give selections as fast, but with 1.05 e4m3 takes a quarter longer at 192x8192x28672.
"""
STREAM_APART = 1.102
"""Factor on the whole time per doubling of the clusters that read the same rows: they go to the GPCs in turn."""
STREAM_CLUSTERED = 1.048
"""Factor on the whole time per doubling of the slices of K that a cluster adds."""
THROUGH_WORKSPACE = 1.068
"""Factor on the whole time for slices of K through a workspace."""
A_LITTLE_MORE, ALMOST_IDLE = 1.4, 1.088
"""Factor on the whole time if the CTAs are at most this multiple of those that the GPU holds: few remain for the second
wave, and they do not saturate memory.
"""
SHORTEST_TILE, SHORT = 64, 1.026
TALLEST_TILE, TALL = 128, 1.016
"""Factor on the whole time for a tile with fewer rows of the stream, or more."""


def is_streamed(spec: GemmSpec, problem: ProblemShape) -> bool:
    """Return whether these corrections are fitted to such problems.

    Rows of both operands must be aligned to lines: otherwise L2 is the limit. The smaller operand must not be M- or
    N-major, since its rows in a k-tile would be as many requests as the stream's, of few bytes each.
    """
    few, many = sorted((problem.m, problem.n))
    smaller = spec.problem.a if problem.m <= problem.n else spec.problem.b
    element_bytes = dtype(smaller.dtype).bytes
    is_large = (
        min(many, problem.k) >= STREAM_SHORTEST and problem.batch * many * problem.k * element_bytes >= LEAST_BYTES
    )
    has_lines = tile_model.has_lines(spec, problem)
    return few <= STREAM_WIDEST and is_large and smaller.major == "k" and has_lines


def as_streamed(row: KernelConfig) -> KernelConfig:
    """Return the row with its own corrections at their reduced weight."""
    return replace(row, correction=row.correction**STREAM_SHARE, overall=row.overall**STREAM_SHARE)


def stream_factor(candidate: Candidate, slices: int, in_flight: InFlight, k_tile_bytes: int) -> float:
    """Return the factor on the model's time for a kernel, by its access to the stream."""
    (m, n, _), (ctas_m, ctas_n, ctas_k), problem = candidate.cta, candidate.cluster, in_flight.problem
    along_m = problem.m >= problem.n
    own, beside, extent = (m, n, problem.n) if along_m else (n, m, problem.m)
    stream, sharing = ("a", ctas_n) if along_m else ("b", ctas_m)
    readers = streams_of(in_flight)[stream].readers
    share = tile_model.of_doublings(LONGER_K_TILE, k_tile_bytes / LINE_BYTES) * tile_model.of_doublings(
        STREAM_CLUSTERED, ctas_k
    )
    if goes_through_once(in_flight, stream):
        share *= GIVEN_UP_FIRST
    if readers > 1:
        share *= tile_model.of_doublings(STREAM_UNEVEN, readers * beside / extent)
    if ctas_m * ctas_n > 1 and readers > sharing:
        share *= tile_model.of_doublings(STREAM_APART, readers / sharing)
    if ctas_k == 1 and 1 < in_flight.rounds <= A_LITTLE_MORE:
        share *= ALMOST_IDLE
    if slices > ctas_k:
        share *= THROUGH_WORKSPACE
    if own < SHORTEST_TILE:
        share *= SHORT
    elif own > TALLEST_TILE:
        share *= TALL
    return share
