"""Corrections for products of middle size, which weight L2 requests, and tile area outside the result, more heavily.

L2 limits most of them, and simultaneous requests of CTAs for the same lines are served once. The performance model
cannot know how often that happens. These corrections are its errors against 3,968 times of 285 such f16 products on an
H100, with kernels as planned (`tests/gpu/h100_middle.json`).
"""

from __future__ import annotations

from cutegen.algebra import Extents
from cutegen.contract.problem import ProblemShape
from cutegen.plan.rules.promotion import promotes
from cutegen.plan.search.tile_model import of_doublings
from cutegen.plan.search.warpgroup_model import PAIR
from cutegen.spec import GemmSpec

FEWEST, MOST = 2**27.5, 2**33.5
"""Multiply-adds of the measured products: below them the launch dominates, above them power."""
MOST_RESULTS, NARROWEST, LEAST_K = 2**21.5, 64, 512
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
those that share its rows, and requests no longer coincide (`docs/hopper_experiments.md`).
"""
TORN_READERS = 1.02
"""Factor on the whole time per doubling of the clusters that read the same rows of the longer operand, if rows are not
aligned to lines.
"""
TORN_TOGETHER = 0.95
"""Factor on the whole time of clusters of more than two CTAs in that case."""


def is_of_middle_size(spec: GemmSpec, problem: ProblemShape) -> bool:
    """Return whether these corrections are fitted to such problems.

    Promoted sums are excluded, since they wait for each k-tile regardless of L2: ten products of e4m3 took 1.02 times
    as long with these corrections.
    """
    results = problem.batch * problem.m * problem.n
    has_sides = min(problem.m, problem.n) >= NARROWEST and problem.k >= LEAST_K
    has_size = results <= MOST_RESULTS and FEWEST <= results * problem.k <= MOST
    return has_sides and has_size and not promotes(spec)


def of_requests(cta: Extents, cluster: Extents, problem: ProblemShape, *, torn: bool) -> float:
    """Return the factor on the model's time for a kernel.

    `problem` is what it multiplies; `torn` operands have rows that are not aligned to lines.

    >>> of_requests((64, 64, 64), (1, 1, 1), ProblemShape(1024, 1024, 1024), torn=False) == SOONER
    True
    """
    (m, n, _), (ctas_m, ctas_n, _) = cta, cluster
    along_m, along_n = -(-problem.m // (m * ctas_m)), -(-problem.n // (n * ctas_n))
    covered = along_m * ctas_m * m * along_n * ctas_n * n
    share = SOONER * of_doublings(ASKED, (m / ctas_n + n / ctas_m) / ROWS)
    share *= of_doublings(COVERED, covered / (problem.m * problem.n))
    if torn:
        _, readers = max((problem.m, along_n), (problem.n, along_m))
        share *= of_doublings(TORN_READERS, readers)
        if ctas_m * ctas_n > PAIR:
            share *= TORN_TOGETHER
    return share
