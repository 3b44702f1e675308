"""Shared memory of a CTA: A's and B's stages, then C's tile, and two barriers per stage at the end.

If a cluster adds slices of K, the stages hold a tile's sums after the main loop: separate memory would cost stages, and
a CTA rarely has more than one tile.
"""

from __future__ import annotations

from collections.abc import Iterable

from cutegen.hardware import Target
from cutegen.plan.kernel.pipeline import MBARRIER_BYTES
from cutegen.plan.kernel.scheduler import SUM_BYTES
from cutegen.plan.rules.pipeline import DEEPEST
from cutegen.plan.values.mma import MmaPlan

SWIZZLE_PERIOD_BYTES = 1024
"""Where a tile begins: the longest period of a tensor map's swizzle, 8 rows of 128 bytes."""
FLAG_BYTES = 16
"""The flag of the CTA that arrived last, aligned like barriers of one more stage."""
MOST_BARRIERS_BYTES = 2 * MBARRIER_BYTES * (DEEPEST[-1] + 1)
"""Barriers of the stages, and two for warpgroups that take turns, or the flag of the CTA that arrived last."""


def stages_for_sums(mma: MmaPlan, stage_bytes: int) -> int:
    """The fewest stages that can hold a tile's sums if a cluster adds them; else 0."""
    m, n, _ = mma.cta_tile
    return -(-m * n * SUM_BYTES // stage_bytes) if mma.cluster[2] > 1 else 0


def most_gap_bytes(stage_bytes: Iterable[int]) -> int:
    """Return the most bytes between regions: the next one begins at a period of the swizzle, whatever the stages."""
    return SWIZZLE_PERIOD_BYTES * sum(each % SWIZZLE_PERIOD_BYTES > 0 for each in stage_bytes)


def capacity_bytes(target: Target) -> int:
    """Return the bytes for stages and C's tile: all but the barriers of the most stages."""
    return target.smem_per_cta_bytes - MOST_BARRIERS_BYTES
