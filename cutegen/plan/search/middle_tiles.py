"""Corrections of products of middle size: what a kernel asks L2 for, and covers beside the result, counts for more.

L2 bounds most of them, and CTAs that ask for the same lines together are answered once. How often they do the model of
time cannot know; these are how it was off beside 3,968 times of 285 such products on an H100, of f16, by kernels as
plans have them (`tests/gpu/h100_middle.json`).
"""

from __future__ import annotations

from cutegen.algebra import Extents
from cutegen.contract.problem import ProblemShape
from cutegen.hardware.units import LINE_BYTES
from cutegen.plan.rules.promotion import promotes
from cutegen.plan.search.tile_model import of_doublings
from cutegen.plan.search.warpgroup_model import PAIR
from cutegen.spec import GemmSpec

FEWEST, MOST = 2**27.5, 2**33.5
"""Multiply-adds of the products measured: with less a launch decides, with more the power."""
MOST_RESULTS, NARROWEST, LEAST_K = 2**21.5, 64, 512
"""Of the same: elements of C, rows and columns, and K."""
SOONER = 0.93
"""Of the whole, of all: kernels ask for their first k-tile sooner than those that the model is fitted to. It decides
between families alone."""
ASKED, ROWS = 1.02, 128
"""Of the whole, for each doubling of the rows of A and B that a CTA asks L2 for, beyond so many; a cluster's count
once."""
COVERED = 1.13
"""Of the whole, for each doubling of what tiles cover beside what C has: CTAs whose tile is nearly empty run ahead of
those that share its rows, and requests no longer meet (`docs/hopper_experiments.md`)."""
TORN_READERS = 1.02
"""Of the whole, for each doubling of the clusters that read the same rows of the longer operand, where rows begin
between lines."""
TORN_TOGETHER = 0.95
"""Of the whole, of clusters of more than two CTAs there."""


def is_of_middle_size(spec: GemmSpec, problem: ProblemShape) -> bool:
    """Return whether the problem is of those that these corrections are fitted to.

    Promoted sums wait for each k-tile, whatever L2 does: ten products of e4m3 took 1.02 times as long by these.
    """
    results = problem.batch * problem.m * problem.n
    has_sides = min(problem.m, problem.n) >= NARROWEST and problem.k >= LEAST_K
    has_size = results <= MOST_RESULTS and FEWEST <= results * problem.k <= MOST
    return has_sides and has_size and not promotes(spec)


def of_requests(cta: Extents, cluster: Extents, problem: ProblemShape, element_bytes: int) -> float:
    """Return the share of the time that the model says which a kernel takes. `problem` is what it multiplies.

    >>> of_requests((64, 64, 64), (1, 1, 1), ProblemShape(1024, 1024, 1024), 2) == SOONER
    True
    """
    (m, n, _), (ctas_m, ctas_n, _) = cta, cluster
    along_m, along_n = -(-problem.m // (m * ctas_m)), -(-problem.n // (n * ctas_n))
    covered = along_m * ctas_m * m * along_n * ctas_n * n
    share = SOONER * of_doublings(ASKED, (m / ctas_n + n / ctas_m) / ROWS)
    share *= of_doublings(COVERED, covered / (problem.m * problem.n))
    if problem.k * element_bytes % LINE_BYTES:
        _, readers = max((problem.m, along_n), (problem.n, along_m))
        share *= of_doublings(TORN_READERS, readers)
        if ctas_m * ctas_n > PAIR:
            share *= TORN_TOGETHER
    return share
