"""Warpgroup kernels to compare for a small product, and how much longer kernels of `sm80` take there than predicted.

Such a product takes 2 to 8 us, and much of that is the launch, the first copies and the store. Its few CTAs wait for
copies: narrow tiles win, and clusters of four that share the copies of the operand with more rows. `MEASURED` has few
of either. With kernels of `sm80`, these rows have one within 0.3 % of the fastest of 431 kernels, on average over 339
f16 products with K-major operands on an H100 (`tests/gpu/h100_small.json`), to which their corrections are fitted.
Other majors and 8-bit elements have the same rows.
"""

from __future__ import annotations

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import dtype
from cutegen.plan.rules.cluster import ALONE
from cutegen.plan.rules.consumers import COOPERATIVE
from cutegen.plan.search.row_alignment import is_k_major
from cutegen.plan.search.warpgroup_tiles import Row
from cutegen.spec import GemmSpec

MOST = 2**27.5
"""Multiply-adds of the measured products: fewer than this."""
MOST_RESULTS, FEW, LEAST_K = 200 * 64 * 64, 16, 96
"""Limits of the same products: elements of C, rows and columns, and K. With fewer rows or columns, some have
`EIGHT_WIDE` too.
"""
LEAST_K_OF_OTHERS = 192
"""Least K if A or B is not K-major: with a shorter one these rows gained 1 % in a graph and lost 1 % launched alone."""
NARROW, LONG_K = 32, 2048
"""Products with fewer rows or columns and a longer K are not included: slices of K through a workspace win there, which
these rows lack. On such products drawn later they took up to 1.53 times as long as the previous selection.
"""
WIDEST_ELEMENT_BYTES = 2
"""Bytes of the widest elements of A and B: `wgmma` multiplies these and narrower ones here."""
OF_MMA_SYNC = 1.06
"""Factor on the whole time of kernels of `sm80`."""


def is_small(spec: GemmSpec, problem: ProblemShape) -> bool:
    """Return whether these rows and factors are for such problems. K counts in elements of two bytes."""
    results, few = problem.batch * problem.m * problem.n, min(problem.m, problem.n)
    element_bytes = dtype(spec.problem.a.dtype).bytes
    k = problem.k * element_bytes / WIDEST_ELEMENT_BYTES
    least_k = LEAST_K if is_k_major(spec) else LEAST_K_OF_OTHERS
    has_sides = (few >= FEW or is_k_major(spec)) and k >= least_k and (few >= NARROW or k <= LONG_K)
    return element_bytes <= WIDEST_ELEMENT_BYTES and has_sides and results <= MOST_RESULTS and results * k < MOST


def rows_of(problem: ProblemShape) -> tuple[Row, ...]:
    """Return the rows to compare for a small product."""
    return (*SMALL, *EIGHT_WIDE) if min(problem.m, problem.n) < FEW else SMALL


SMALL = (
    Row((64, 128, 64), (1, 1), COOPERATIVE, (1, 4, 1), True, 1, 0.998, 0.947),
    Row((64, 96, 64), (1, 1), COOPERATIVE, (2, 2, 1), False, 1, 0.959, 0.966),
    Row((64, 80, 64), (1, 1), COOPERATIVE, (2, 4, 1), True, 1, 1.13, 0.901),
    Row((64, 64, 64), (1, 1), COOPERATIVE, (4, 1, 1), True, 1, 0.801, 0.974),
    Row((64, 64, 128), (1, 1), COOPERATIVE, ALONE, False, 1, 0.91, 0.903),
    Row((64, 64, 128), (1, 1), COOPERATIVE, (1, 4, 1), False, 1, 0.83, 0.903),
    Row((64, 64, 128), (1, 1), COOPERATIVE, (1, 1, 8), True, 8, 1.05, 0.959),
    Row((64, 64, 128), (1, 1), COOPERATIVE, (1, 4, 1), True, 1, 0.879, 0.888),
    Row((64, 48, 128), (1, 1), COOPERATIVE, (2, 2, 1), True, 1, 0.965, 0.894),
    Row((64, 48, 128), (1, 1), COOPERATIVE, (2, 4, 1), True, 1, 0.972, 0.857),
    Row((64, 40, 128), (1, 1), COOPERATIVE, (1, 4, 1), True, 1, 1.03, 0.847),
    Row((64, 32, 64), (1, 1), COOPERATIVE, ALONE, True, 1, 1.34, 0.839),
    Row((64, 32, 128), (1, 1), COOPERATIVE, ALONE, False, 1, 1.15, 0.856),
    Row((64, 32, 128), (1, 1), COOPERATIVE, (4, 1, 1), False, 1, 0.942, 0.924),
    Row((64, 32, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 1.16, 0.853),
    Row((64, 32, 128), (1, 1), COOPERATIVE, (1, 1, 4), True, 4, 1, 1.04),
    Row((64, 32, 128), (1, 1), COOPERATIVE, (1, 4, 1), True, 1, 0.963, 0.874),
    Row((64, 32, 128), (1, 1), COOPERATIVE, (4, 1, 1), True, 1, 0.91, 0.932),
    Row((64, 24, 128), (1, 1), COOPERATIVE, (1, 4, 1), True, 1, 0.949, 0.895),
    Row((64, 16, 64), (1, 1), COOPERATIVE, ALONE, True, 1, 1.28, 0.827),
    Row((64, 16, 128), (1, 1), COOPERATIVE, ALONE, False, 1, 1.29, 0.831),
    Row((64, 16, 128), (1, 1), COOPERATIVE, (1, 4, 1), False, 1, 0.938, 0.926),
    Row((64, 16, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 1.32, 0.821),
    Row((64, 16, 256), (1, 1), COOPERATIVE, (1, 4, 1), False, 1, 0.964, 0.824),
    Row((64, 16, 256), (1, 1), COOPERATIVE, (1, 4, 1), True, 1, 1.02, 0.805),
    Row((64, 8, 256), (1, 1), COOPERATIVE, (1, 4, 1), False, 1, 1.1, 0.809),
    Row((64, 8, 256), (1, 1), COOPERATIVE, (1, 4, 1), True, 1, 1.16, 0.793),
)
"""Tile, warpgroups, consumers, cluster, swapped or not, slices, corrections of a k-tile and of the whole: fitted by
`tests/gpu/fit_small.py`.
"""

EIGHT_WIDE = tuple(
    Row((64, 8, k), (1, 1), COOPERATIVE, ALONE, swap, 1, 1.0, 0.9) for k in (128, 256) for swap in (False, True)
)
"""Compared besides if C has fewer than 16 rows or columns. The corrections are set by hand, by the cost of selections
on 41 such products on an H100.
"""
