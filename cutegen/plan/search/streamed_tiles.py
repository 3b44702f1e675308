"""Corrections of a tile where one operand is a stream: few rows or columns by weights that L2 does not keep.

Device memory bounds such a product whatever the tile. A tile's own corrections, fitted to products of all kinds, count
for less there, and how the stream is read counts beside: whether L2 gives its lines up first, by how many bytes of a
row at a time, by CTAs that keep pace. Fitted to 5,537 times of 326 such products on an H100, of f16
(`tests/gpu/h100_streams.json`), by kernels whose lines L2 gives up, and prefetches, as plans have it.
"""

from __future__ import annotations

from dataclasses import replace

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import dtype
from cutegen.hardware.units import LINE_BYTES
from cutegen.plan.rules.eviction import LEAST_BYTES, goes_through_once, streams_of
from cutegen.plan.rules.tile_order import InFlight
from cutegen.plan.search.options import Candidate
from cutegen.plan.search.tile_model import of_doublings
from cutegen.plan.search.warpgroup_tiles import Row
from cutegen.spec import GemmSpec

WIDEST, SHORTEST = 256, 1024
"""Rows or columns that the stream is multiplied by, and the least of its own and of K, of the products measured."""
SHARE = 0.4
"""Power to which a tile's own corrections count."""
GIVEN_UP_FIRST = 0.932
"""Of the whole, where L2 gives up the stream's lines first."""
LONGER_K_TILE = 0.953
"""Of the whole, for each doubling of a k-tile beyond a line."""
UNEVEN = 1.116
"""Of the whole, for each doubling of what several tiles cover beside what the problem has: their CTAs read the same
rows of the stream, and do not keep pace."""
APART = 1.102
"""Of the whole, for each doubling of the clusters that read the same rows: they go to the GPCs in turn."""
CLUSTERED = 1.048
"""Of the whole, for each doubling of the slices of K that a cluster adds."""
THROUGH_WORKSPACE = 1.068
"""Of the whole, of slices of K that go through a workspace."""
A_LITTLE_MORE, ALMOST_IDLE = 1.4, 1.088
"""Of the whole, for CTAs up to so many times those that the GPU holds: few are left for the second round, and they do
not fill its memory."""
SHORTEST_TILE, SHORT = 64, 1.026
TALLEST_TILE, TALL = 128, 1.016
"""Of the whole, for a tile with fewer rows of the stream, or more."""


def is_streamed(spec: GemmSpec, problem: ProblemShape) -> bool:
    """Return whether the problem is of those that these corrections are fitted to.

    Rows begin with a line: of others L2 is the limit. Nor is the smaller operand one that lies along M or N, whose rows
    in a k-tile are requests of few bytes each, as many as the stream's.
    """
    few, many = sorted((problem.m, problem.n))
    smaller = spec.problem.a if problem.m <= problem.n else spec.problem.b
    row_bytes = problem.k * dtype(smaller.dtype).bytes
    is_large = min(many, problem.k) >= SHORTEST and problem.batch * many * row_bytes >= LEAST_BYTES
    return few <= WIDEST and is_large and smaller.major == "k" and row_bytes % LINE_BYTES == 0


def as_streamed(row: Row) -> Row:
    """The row with what its own corrections count for there."""
    return replace(row, correction=row.correction**SHARE, overall=row.overall**SHARE)


def of_stream(candidate: Candidate, slices: int, in_flight: InFlight, k_tile_bytes: int) -> float:
    """Return the share of the time that the model says which a kernel takes, by how it reads the stream."""
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
