"""The tiles that this family compares for a problem, and the constants of the model of time for them.

A list made by hand: every row was the fastest on some problem of `docs/tile_model.md`, or stands in for a row that does
not fit a target's shared memory.
"""

from __future__ import annotations

from cutegen.plan.search.options import Candidate
from cutegen.plan.search.tile_model import ModelConstants

CANDIDATES: tuple[Candidate, ...] = (
    Candidate((256, 128, 64), (4, 2, 1), 3),
    Candidate((128, 256, 64), (2, 4, 1), 3),
    Candidate((128, 128, 64), (2, 2, 1), 3),
    Candidate((128, 128, 32), (2, 2, 1), 4),
    Candidate((64, 256, 64), (1, 4, 1), 3),
    Candidate((256, 64, 64), (4, 1, 1), 3),
    Candidate((128, 64, 64), (2, 2, 1), 4),
    Candidate((64, 128, 64), (2, 2, 1), 4),
    Candidate((64, 64, 64), (2, 2, 1), 4),
    Candidate((64, 32, 64), (2, 2, 1), 6),
    Candidate((32, 64, 64), (2, 2, 1), 6),
    Candidate((32, 128, 64), (1, 4, 1), 4),
    Candidate((128, 32, 64), (4, 1, 1), 4),
    Candidate((16, 128, 64), (1, 4, 1), 4),
    Candidate((128, 16, 64), (4, 1, 1), 4),
    Candidate((16, 64, 128), (1, 4, 1), 4),
    Candidate((64, 16, 128), (4, 1, 1), 4),
    Candidate((64, 64, 128), (2, 2, 1), 3),
    Candidate((32, 64, 128), (2, 2, 1), 4),
    Candidate((16, 32, 128), (1, 4, 1), 6),
)

SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Numbers of slices of K that are compared."""

H200 = ModelConstants(
    overlap=0.801,
    k_tile_cycles=8.08,
    latency_cycles=1530.0,
    tile_cycles=909.0,
    fill_cycles=5.98,
    store_cycles_per_kib=82.8,
    sum_cycles=2770.0,
    sum_bytes_per_cycle=43.2,
    sharpness=1.85,
    launch_us=0.741,
    sm_us=0.0,
    memory_share=0.918,
    clock_share=0.973,
)
"""Fitted to an H200 by `tests/gpu/fit.py`; the launch and device memory to launches in a graph, as family `sm90`."""
