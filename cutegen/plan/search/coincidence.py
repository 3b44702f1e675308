"""Corrects predicted times for CTAs that come apart, whose requests for the same rows no longer coincide.

L2 serves requests of neighboring CTAs for the same lines as one if they arrive together, and delivers up to twice as
much that way. The CTA that waits for device memory lets the others catch up. One with less to copy runs ahead of those
that share its rows. Clusters that read the same rows run on different GPCs. The more a kernel depends on requests that
coincide, the longer it takes then.

`cutegen.plan.search.warpgroup_model` expects that all CTAs stay together. The exponents follow its errors against 5,629
of the times in `tests/gpu/h100_apart.json`. The older tables, of kernels in other tile orders, bear no larger ones.
"""

from __future__ import annotations

import math

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import Gpu
from cutegen.plan.rules.tile_order import BAND
from cutegen.plan.search.row_alignment import shares_aligned
from cutegen.plan.search.warpgroup_model import WarpgroupWork

FEW = 2048
"""Rows or columns, the fewer of them, up to which nearly all products were measured. Larger ones lose as much as they
gain.
"""
APART_BYTES_PER_US = 6.0e6
"""Bytes that L2 delivers per microsecond if no requests coincide: of streams on an H100, 6.2e6."""
TORN = 1.25
"""Relative traffic of rows that are not aligned to lines."""
ALONG_SHORTER, UNNOTICED = 1.0, 0.15
"""Exponent per share of the rows of A and B that the last tile lacks, beyond this share, along the side with fewer
tiles.
"""
ALONG_LONGER = 0.2
"""The same along the other side, if all CTAs run at once, without clusters."""
ON_OTHER_GPCS = 0.15
"""Exponent per doubling of the clusters along the side with fewer tiles, up to a band of tiles."""


def of_apart(work: WarpgroupWork, problem: ProblemShape, gpu: Gpu, us: float) -> float:
    """Return the factor on `us`, the predicted time of a kernel without slices of K for what it multiplies."""
    if min(problem.m, problem.n) > FEW:
        return 1.0
    (m, n, _), (ctas_m, ctas_n, _) = work.cta, work.cluster
    tiles_m, tiles_n = -(-problem.m // m), -(-problem.n // n)
    clusters_m, clusters_n = -(-tiles_m // ctas_m), -(-tiles_n // ctas_n)
    rows, columns = problem.m * clusters_n, problem.n * clusters_m
    a_bytes, b_bytes = work.element_bytes
    whole, *_ = shares_aligned(work.majors, problem, work.element_bytes, (rows, columns))
    asked_bytes = problem.batch * (rows * a_bytes + columns * b_bytes) * problem.k * (whole + TORN * (1 - whole))
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
