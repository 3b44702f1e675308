"""Wavefronts of 16-byte cp.async.cg writes against what the counters of an H200 said."""

from __future__ import annotations

import numpy as np
import pytest

from cutegen.algebra import LayoutExpr, offsets, parse_layout, tile_to_shape
from cutegen.hardware import line_write_wavefronts

ROWS = 128
PITCH_BYTES = 1 << 14

# Wavefronts for each warp instruction of fetching a 128 x K tile of 16-bit elements, K contiguous, the threads side by
# side along K: smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts_cache_bypass.sum over
# smsp__inst_executed_op_ldgsts.sum, both the differences between K = 2048 and K = 1024 (docs/measurements.md).
MEASURED = [
    (32, "(128,32):(32,1)", 8),
    (32, "(128,32):(40,1)", 15),
    (32, "(128,32):(48,1)", 10),
    (32, "(128,32):(64,1)", 8),
    (32, "Sw<2,3,3> o (8,32):(32,1)", 8),
    (32, "(8,(8,4)):(8,(1,64))", 32),
    (64, "(128,64):(64,1)", 4),
    (64, "(128,64):(72,1)", 10.5),
    (64, "(128,64):(80,1)", 7),
    (64, "Sw<3,3,3> o (8,64):(64,1)", 4),
    (64, "Sw<2,3,3> o (8,32):(32,1)", 8),
    (64, "(8,(8,8)):(8,(1,64))", 32),
    (128, "(128,128):(136,1)", 10.5),
]


def addresses(k: int, atom: LayoutExpr) -> tuple[np.ndarray, np.ndarray]:
    """Global and shared byte addresses of every warp's lanes, [instruction, lane]."""
    vector = np.arange(ROWS * k // 8)
    row, column = vector // (k // 8), vector % (k // 8) * 8
    shared = offsets(tile_to_shape(atom, (ROWS, k)))[row + column * ROWS] * 2
    return (row * PITCH_BYTES + column * 2).reshape(-1, 32), shared.reshape(-1, 32)


@pytest.mark.parametrize(("k", "atom", "measured"), MEASURED)
def test_as_an_h200_counts(k: int, atom: str, measured: float) -> None:
    assert line_write_wavefronts(*addresses(k, parse_layout(atom))).mean() == measured


def test_order_of_lanes_does_not_matter() -> None:
    source, target = addresses(32, parse_layout("(128,32):(40,1)"))
    lanes = np.random.default_rng(0).permutation(32)
    shuffled = line_write_wavefronts(source[:, lanes], target[:, lanes])
    assert np.array_equal(shuffled, line_write_wavefronts(source, target))


def test_never_fewer_than_lines_read_or_lines_written() -> None:
    generator = np.random.default_rng(1)
    for _ in range(200):
        source = generator.choice(64, 32, replace=False)[None] * 16
        target = generator.choice(64, 32, replace=False)[None] * 16
        lines = max(len(np.unique(source // 128)), len(np.unique(target // 128)))
        assert lines <= line_write_wavefronts(source, target)[0] <= 32
