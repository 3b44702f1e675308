"""Warpgroup kernels to compare for a small product, and how much slower kernels of `sm80` are there than predicted.

Such a product takes 2 to 8 us, much of it a launch, the first copies and the store. Few CTAs run, each for its latency:
narrow tiles win, and clusters whose CTAs share the copies of the wider operand. `MEASURED` has few of either. Selected
from 300 kernels of which each was measured on some of 342 such f16 products on an H100 (`tests/gpu/h100_small.json`):
this few has one within 0.3 % of the fastest, on average, and each more is one more estimate that may be too low.
"""

from __future__ import annotations

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import dtype
from cutegen.plan.rules.cluster import ALONE
from cutegen.plan.rules.consumers import COOPERATIVE
from cutegen.plan.search.warpgroup_tiles import Row
from cutegen.spec import GemmSpec

MOST = 2**27.5
"""Multiply-adds of the measured products: fewer than this."""
MOST_RESULTS, NARROWEST, LEAST_K = 200 * 64 * 64, 16, 96
"""Limits of the same products: elements of C, rows and columns, and K."""
ELEMENT_BITS = 16
"""Bits of their elements of A and B."""
OF_MMA_SYNC, OF_ITS_SLICES = 1.05, 1.03
"""Factor on the whole time of kernels of `sm80`, and that for slices of K besides."""


def is_small(spec: GemmSpec, problem: ProblemShape) -> bool:
    """Return whether these kernels and corrections are fitted to such problems: A and B are K-major."""
    results = problem.batch * problem.m * problem.n
    has_sides = min(problem.m, problem.n) >= NARROWEST and problem.k >= LEAST_K
    operands = spec.problem.a, spec.problem.b
    alike = all(each.major == "k" and dtype(each.dtype).bits == ELEMENT_BITS for each in operands)
    return has_sides and alike and results <= MOST_RESULTS and results * problem.k < MOST


def of_mma_sync(slices: int) -> float:
    """Return the factor on the model's time for a kernel of `sm80`."""
    return OF_MMA_SYNC * (OF_ITS_SLICES if slices > 1 else 1.0)


SMALL = (
    Row((64, 128, 64), (1, 1), COOPERATIVE, (1, 4, 1), True, 1, 0.997, 0.948),
    Row((64, 96, 64), (1, 1), COOPERATIVE, (2, 2, 1), False, 1, 0.96, 0.966),
    Row((64, 80, 64), (1, 1), COOPERATIVE, (2, 4, 1), True, 1, 1.13, 0.901),
    Row((64, 64, 64), (1, 1), COOPERATIVE, (4, 1, 1), True, 1, 0.801, 0.974),
    Row((64, 64, 128), (1, 1), COOPERATIVE, ALONE, False, 1, 0.91, 0.904),
    Row((64, 64, 128), (1, 1), COOPERATIVE, (1, 4, 1), False, 1, 0.829, 0.904),
    Row((64, 64, 128), (1, 1), COOPERATIVE, (1, 1, 8), True, 8, 1.05, 0.959),
    Row((64, 64, 128), (1, 1), COOPERATIVE, (1, 4, 1), True, 1, 0.879, 0.888),
    Row((64, 48, 128), (1, 1), COOPERATIVE, (2, 2, 1), True, 1, 0.963, 0.895),
    Row((64, 48, 128), (1, 1), COOPERATIVE, (2, 4, 1), True, 1, 0.972, 0.857),
    Row((64, 40, 128), (1, 1), COOPERATIVE, (1, 4, 1), True, 1, 1.03, 0.847),
    Row((64, 32, 64), (1, 1), COOPERATIVE, ALONE, True, 1, 1.34, 0.839),
    Row((64, 32, 128), (1, 1), COOPERATIVE, ALONE, False, 1, 1.15, 0.856),
    Row((64, 32, 128), (1, 1), COOPERATIVE, (4, 1, 1), False, 1, 0.942, 0.924),
    Row((64, 32, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 1.16, 0.853),
    Row((64, 32, 128), (1, 1), COOPERATIVE, (1, 1, 4), True, 4, 1, 1.04),
    Row((64, 32, 128), (1, 1), COOPERATIVE, (1, 4, 1), True, 1, 0.963, 0.874),
    Row((64, 32, 128), (1, 1), COOPERATIVE, (4, 1, 1), True, 1, 0.911, 0.931),
    Row((64, 24, 128), (1, 1), COOPERATIVE, (1, 4, 1), True, 1, 0.949, 0.895),
    Row((64, 16, 64), (1, 1), COOPERATIVE, ALONE, True, 1, 1.28, 0.826),
    Row((64, 16, 128), (1, 1), COOPERATIVE, ALONE, False, 1, 1.29, 0.831),
    Row((64, 16, 128), (1, 1), COOPERATIVE, (1, 4, 1), False, 1, 0.937, 0.926),
    Row((64, 16, 128), (1, 1), COOPERATIVE, ALONE, True, 1, 1.32, 0.821),
    Row((64, 16, 256), (1, 1), COOPERATIVE, (1, 4, 1), False, 1, 0.964, 0.824),
    Row((64, 16, 256), (1, 1), COOPERATIVE, (1, 4, 1), True, 1, 1.02, 0.805),
    Row((64, 8, 256), (1, 1), COOPERATIVE, (1, 4, 1), False, 1, 1.1, 0.809),
    Row((64, 8, 256), (1, 1), COOPERATIVE, (1, 4, 1), True, 1, 1.16, 0.792),
)
"""Rows for small products; their corrections are fitted to these by `tests/gpu/fit_small.py`, to 1,907 times."""
