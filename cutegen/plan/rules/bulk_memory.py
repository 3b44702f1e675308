"""Shared memory of a CTA: A's and B's stages, C's tile behind them, and two barriers for each stage at the end.

Where a cluster adds slices of K, the stages take a tile's sums once it is multiplied: memory of their own would cost
stages, and the slices of a tile are most often all that a CTA has to do.
"""

from __future__ import annotations

from cutegen.hardware import Target
from cutegen.plan.rules.pipeline import DEEPEST
from cutegen.plan.values.gemm_plan import SUM_BYTES
from cutegen.plan.values.mma import MmaPlan

SWIZZLE_PERIOD_BYTES = 1024
"""Where a tile begins: the longest period of a tensor map's swizzle, 8 rows of 128 bytes."""
STAGE_BARRIERS_BYTES = 2 * 8
MOST_BARRIERS_BYTES = STAGE_BARRIERS_BYTES * (DEEPEST[-1] + 1)
"""Those of the stages, and two by which warpgroups take turns, or the flag of a CTA that came last."""


def stages_for_sums(mma: MmaPlan, stage_bytes: int) -> int:
    """The fewest stages that have room for a tile's sums, where a cluster adds them; 0 where none does."""
    m, n, _ = mma.cta_tile
    return -(-m * n * SUM_BYTES // stage_bytes) if mma.cluster[2] > 1 else 0


def capacity_bytes(target: Target) -> int:
    """Return the bytes for stages and C's tile together: all but the barriers of as many stages as there can be."""
    return target.smem_per_cta_bytes - MOST_BARRIERS_BYTES
