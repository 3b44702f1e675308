"""Corrections for a tile if one operand is a stream: few rows or columns times weights that L2 does not keep.

Device memory limits such a product for any tile. A tile's own corrections, fitted to products of all kinds, have less
weight there, and the access pattern of the stream matters: whether L2 evicts its lines first, how many bytes of a row
are read at a time, and whether CTAs keep pace. Fitted to 5,537 times of 326 such f16 products on an H100
(`tests/gpu/h100_streams.json`), with eviction and prefetches as planned.
"""

from __future__ import annotations

from dataclasses import replace

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import dtype
from cutegen.hardware.units import LINE_BYTES
from cutegen.plan.rules.eviction import LEAST_BYTES, goes_through_once, streams_of
from cutegen.plan.rules.tile_order import InFlight
from cutegen.plan.search.options import Candidate
from cutegen.plan.search.row_alignment import element_bytes_of, majors_of, torn_operands
from cutegen.plan.search.tile_model import of_doublings
from cutegen.plan.search.warpgroup_tiles import Row
from cutegen.spec import GemmSpec

WIDEST, SHORTEST = 256, 1024
"""Limits of the measured products: rows or columns that the stream is multiplied by, least extent of the stream, least
K.
"""
SHARE = 0.4
"""Exponent of a tile's own corrections."""
GIVEN_UP_FIRST = 0.932
"""Factor on the whole time if L2 evicts the stream's lines first."""
LONGER_K_TILE = 0.953
"""Factor on the whole time per doubling of a k-tile beyond a line."""
UNEVEN = 1.07
"""Factor on the whole time per doubling of the area of several tiles over that of the problem: their CTAs read the same
rows of the stream, and do not keep pace, of which `cutegen.plan.search.coincidence` counts a part. Set by hand: 1.03 to
1.07 give selections as fast, but with 1.05 e4m3 takes a quarter longer at 192x8192x28672.
"""
APART = 1.102
"""Factor on the whole time per doubling of the clusters that read the same rows: they go to the GPCs in turn."""
CLUSTERED = 1.048
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
    is_large = min(many, problem.k) >= SHORTEST and problem.batch * many * problem.k * element_bytes >= LEAST_BYTES
    has_lines = not torn_operands(majors_of(spec), problem, element_bytes_of(spec))
    return few <= WIDEST and is_large and smaller.major == "k" and has_lines


def as_streamed(row: Row) -> Row:
    """Return the row with its own corrections at their reduced weight."""
    return replace(row, correction=row.correction**SHARE, overall=row.overall**SHARE)


def of_stream(candidate: Candidate, slices: int, in_flight: InFlight, k_tile_bytes: int) -> float:
    """Return the factor on the model's time for a kernel, by its access to the stream."""
    (m, n, _), (ctas_m, ctas_n, ctas_k), problem = candidate.cta, candidate.cluster, in_flight.problem
    along_m = problem.m >= problem.n
    own, beside, extent = (m, n, problem.n) if along_m else (n, m, problem.m)
    stream, sharing = ("a", ctas_n) if along_m else ("b", ctas_m)
    readers = streams_of(in_flight)[stream].readers
    share = of_doublings(LONGER_K_TILE, k_tile_bytes / LINE_BYTES) * of_doublings(CLUSTERED, ctas_k)
    if goes_through_once(in_flight, stream):
        share *= GIVEN_UP_FIRST
    if readers > 1:
        share *= of_doublings(UNEVEN, readers * beside / extent)
    if ctas_m * ctas_n > 1 and readers > sharing:
        share *= of_doublings(APART, readers / sharing)
    if ctas_k == 1 and 1 < in_flight.rounds <= A_LITTLE_MORE:
        share *= ALMOST_IDLE
    if slices > ctas_k:
        share *= THROUGH_WORKSPACE
    if own < SHORTEST_TILE:
        share *= SHORT
    elif own > TALLEST_TILE:
        share *= TALL
    return share
