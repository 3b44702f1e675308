"""The tiles that are compared where warpgroups multiply, and the constants of the model of time for them.

Two warpgroups where a tile has the rows, three for 192, and as many stages as fit beside C's parts. Narrow problems go
best with few CTAs' worth of columns and long k-tiles.
"""

from __future__ import annotations

from cutegen.plan.rules.pipeline import STAGES
from cutegen.plan.search.problem import Candidate
from cutegen.plan.search.tile_model import ModelConstants

CANDIDATES: tuple[Candidate, ...] = tuple(
    Candidate(cta, (warpgroups, 1, 1), STAGES[-1], "warpgroups")
    for cta, warpgroups in (
        ((128, 256, 64), 2),
        ((256, 128, 64), 2),
        ((192, 192, 64), 3),
        ((128, 192, 64), 2),
        ((192, 128, 64), 3),
        ((128, 128, 64), 2),
        ((64, 256, 64), 1),
        ((128, 64, 128), 2),
        ((128, 64, 64), 2),
        ((64, 128, 128), 1),
        ((64, 128, 64), 1),
        ((64, 64, 128), 1),
        ((64, 64, 64), 1),
        ((128, 32, 128), 2),
        ((64, 32, 128), 1),
        ((64, 16, 256), 1),
        ((64, 16, 128), 1),
        ((64, 8, 256), 1),
    )
)

H200 = ModelConstants(
    overlap=0.0,
    k_tile_cycles=0.0,
    latency_cycles=704.0,
    tile_cycles=100.0,
    fill_cycles=0.0,
    store_cycles_per_kib=1.0,
    sum_cycles=0.0,
    sum_bytes_per_cycle=1.0,
    sharpness=6.0,
    launch_us=4.48,
    sm_us=0.005,
    memory_share=0.822,
    clock_share=0.707,
)
"""Estimates: fitted to 27 times of such kernels on an H200, of 8 to 1,600 us, which they meet within 5 % (root mean
square). A sweep as of the other families has not been measured."""

FETCHED_BYTES = 80.0
"""What one multiprocessor has from L2 in a cycle, out of the same times: narrow tiles are bound by it."""
