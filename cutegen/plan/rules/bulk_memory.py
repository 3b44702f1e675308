"""Shared memory of a CTA: A's and B's stages, C's tile behind them, and two barriers for each stage at the end."""

from __future__ import annotations

from cutegen.hardware import Target
from cutegen.plan.rules.pipeline import STAGES

SWIZZLE_PERIOD_BYTES = 1024
"""Where a tile begins: the longest period of a tensor map's swizzle, 8 rows of 128 bytes."""
STAGE_BARRIERS_BYTES = 2 * 8
MOST_BARRIERS_BYTES = STAGE_BARRIERS_BYTES * (STAGES[-1] + 1)
"""Those of the stages, and two by which warpgroups take turns, or the flag of a CTA that came last."""


def capacity_bytes(target: Target) -> int:
    """What stages and C's tile can have together: all but the barriers of as many stages as there can be."""
    return target.smem_per_cta_bytes - MOST_BARRIERS_BYTES
