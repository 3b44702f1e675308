"""The tiles to compare if cp.async feeds `mma.sync`, and the constants of the performance model for them.

A list made by hand: every row was the fastest on some problem of `docs/tile_model.md`, or replaces a row that does not
fit a target's shared memory.
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
    Candidate((64, 64, 64), (2, 2, 1), 4, overall=0.909),
    Candidate((64, 32, 64), (2, 2, 1), 6, overall=0.944),
    Candidate((32, 64, 64), (2, 2, 1), 6, overall=0.927),
    Candidate((32, 128, 64), (1, 4, 1), 4),
    Candidate((128, 32, 64), (4, 1, 1), 4, overall=0.952),
    Candidate((16, 128, 64), (1, 4, 1), 4),
    Candidate((128, 16, 64), (4, 1, 1), 4),
    Candidate((16, 64, 128), (1, 4, 1), 4, overall=1.01),
    Candidate((64, 16, 128), (4, 1, 1), 4, overall=1.01),
    Candidate((64, 64, 128), (2, 2, 1), 3),
    Candidate((32, 64, 128), (2, 2, 1), 4),
    Candidate((16, 32, 128), (1, 4, 1), 6, overall=0.991),
    Candidate((32, 32, 64), (2, 2, 1), 6, overall=0.945),
    Candidate((32, 32, 128), (2, 2, 1), 4, overall=0.974),
    Candidate((16, 32, 64), (1, 4, 1), 6, overall=0.988),
    Candidate((16, 32, 32), (1, 4, 1), 6, overall=0.931),
    Candidate((16, 16, 128), (1, 2, 1), 6, overall=1.09),
    Candidate((16, 16, 64), (1, 2, 1), 6, overall=0.969),
)

SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Numbers of slices of K to compare."""

H200 = ModelConstants(
    overlap=0.785,
    k_tile_cycles=121.0,
    latency_cycles=1150.0,
    tile_cycles=323.0,
    fill_cycles=4.24,
    store_cycles_per_kib=86.5,
    sum_cycles=700.0,
    slice_cycles=40.0,
    sum_bytes_per_cycle=90.0,
    sharpness=1.63,
    launch_us=0.302,
    cta_us=0.00213,
    memory_share=0.85,
    torn_lines=1.53,
    write_share=0.292,
    torn_writes=0.0645,
    clock_share=0.823,
)
"""Fitted to launches in a graph on an H200 by `tests/gpu/fit_kernels.py`, except for `memory_share` and adding slices,
which are set by hand: they limited no kernel of the sweep.
"""
