"""The tiles to compare if bulk tensor copies feed `mma.sync`, and the constants of the performance model.

A CTA has its SM to itself, so every row has as many stages as fit with C's tile, up to the maximum.
"""

from __future__ import annotations

from cutegen.plan.search.options import Candidate
from cutegen.plan.search.tile_model import ModelConstants

CANDIDATES: tuple[Candidate, ...] = (
    Candidate((128, 256, 64), (2, 4, 1), 3),
    Candidate((256, 128, 64), (4, 2, 1), 3),
    Candidate((128, 192, 64), (2, 4, 1), 4),
    Candidate((192, 128, 64), (4, 2, 1), 4),
    Candidate((128, 128, 64), (2, 4, 1), 6),
    Candidate((64, 256, 64), (1, 4, 1), 4),
    Candidate((256, 64, 64), (4, 1, 1), 4),
    Candidate((128, 64, 64), (2, 2, 1), 8),
    Candidate((64, 128, 64), (2, 2, 1), 8),
    Candidate((64, 64, 64), (2, 2, 1), 8),
    Candidate((64, 64, 128), (2, 2, 1), 6),
    Candidate((32, 128, 64), (1, 4, 1), 8),
    Candidate((128, 32, 64), (4, 1, 1), 8),
    Candidate((32, 64, 128), (1, 4, 1), 8),
    Candidate((64, 32, 128), (4, 1, 1), 8),
    Candidate((32, 32, 128), (2, 2, 1), 8),
    Candidate((16, 128, 128), (1, 4, 1), 6),
    Candidate((16, 64, 128), (1, 4, 1), 8),
    Candidate((64, 16, 128), (4, 1, 1), 8),
    Candidate((16, 32, 128), (1, 2, 1), 8),
)

H200 = ModelConstants(
    overlap=0.522,
    k_tile_cycles=13.3,
    latency_cycles=2640.0,
    tile_cycles=476.0,
    fill_cycles=0.0,
    store_cycles_per_kib=57.9,
    sum_cycles=0.0,
    slice_cycles=0.0,
    sum_bytes_per_cycle=1.0,
    sharpness=2.17,
    launch_us=0.405,
    cta_us=0.00768,
    memory_share=0.894,
    torn_lines=0.05,
    write_share=0.5,
    torn_writes=0.05,
    clock_share=1.11,
)
"""Fitted to `tests/gpu/h200_tiles_sm120.json`, except for writes and unaligned lines, which are set by hand. Copies
cost no thread any work, and there are no slices of K to add.

The launch and device memory are fitted to launches in a graph, as for family `sm90`.
"""
