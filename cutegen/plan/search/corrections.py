"""Factors on predicted times of warpgroup kernels, fitted to the model's errors.

| factor | of | fitted to |
|---|---|---|
| `coincidence_factor` | CTAs whose requests for the same rows no longer coincide | `tests/gpu/h100_apart.json` |
| `request_factor` | products of middle size, which L2 limits | `tests/gpu/h100_middle.json` |
| `stream_factor` | few rows or columns times weights that L2 does not keep | `tests/gpu/h100_streams.json` |
"""

from __future__ import annotations

import math
from dataclasses import replace

from cutegen.algebra import Extents
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import Gpu, dtype
from cutegen.hardware.units import LINE_BYTES
from cutegen.plan.mainloop.l2 import LEAST_BYTES, goes_through_once, streams_of
from cutegen.plan.mma.wgmma import promotes
from cutegen.plan.schedule.order import BAND, InFlight
from cutegen.plan.search.problem import Candidate
from cutegen.plan.search.row_alignment import element_bytes_of, majors_of, shares_aligned, unaligned_operands
from cutegen.plan.search.tile_model import of_doublings
from cutegen.plan.search.warpgroup_model import PAIR, WarpgroupWork
from cutegen.plan.search.warpgroup_rows import KernelConfig
from cutegen.spec import GemmSpec

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
    whole, *_ = shares_aligned(work.majors, problem, work.element_bytes, (rows, columns))
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
    return has_sides and has_size and not promotes(spec)


def request_factor(cta: Extents, cluster: Extents, problem: ProblemShape, *, torn: bool) -> float:
    """Return the factor on the model's time for a kernel.

    `problem` is what it multiplies; `torn` operands have rows that are not aligned to lines.

    >>> request_factor((64, 64, 64), (1, 1, 1), ProblemShape(1024, 1024, 1024), torn=False) == SOONER
    True
    """
    (m, n, _), (ctas_m, ctas_n, _) = cta, cluster
    along_m, along_n = -(-problem.m // (m * ctas_m)), -(-problem.n // (n * ctas_n))
    covered = along_m * ctas_m * m * along_n * ctas_n * n
    share = SOONER * of_doublings(ASKED, (m / ctas_n + n / ctas_m) / ROWS)
    share *= of_doublings(COVERED, covered / (problem.m * problem.n))
    if torn:
        _, readers = max((problem.m, along_n), (problem.n, along_m))
        share *= of_doublings(UNALIGNED_READERS, readers)
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
rows of the stream, and do not keep pace, of which `cutegen.plan.search.corrections` counts a part. Set by hand: 1.03 to
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
    has_lines = not unaligned_operands(majors_of(spec), problem, element_bytes_of(spec))
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
    share = of_doublings(LONGER_K_TILE, k_tile_bytes / LINE_BYTES) * of_doublings(STREAM_CLUSTERED, ctas_k)
    if goes_through_once(in_flight, stream):
        share *= GIVEN_UP_FIRST
    if readers > 1:
        share *= of_doublings(STREAM_UNEVEN, readers * beside / extent)
    if ctas_m * ctas_n > 1 and readers > sharing:
        share *= of_doublings(STREAM_APART, readers / sharing)
    if ctas_k == 1 and 1 < in_flight.rounds <= A_LITTLE_MORE:
        share *= ALMOST_IDLE
    if slices > ctas_k:
        share *= THROUGH_WORKSPACE
    if own < SHORTEST_TILE:
        share *= SHORT
    elif own > TALLEST_TILE:
        share *= TALL
    return share
