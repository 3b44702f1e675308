"""How an H200 writes a 16-byte `cp.async.cg` into shared memory: line by line, not bank by bank.

Banks alone (`wavefronts`) say when two lanes of a phase collide. An asynchronous copy that bypasses L1 costs more: its
data come from L2 by 128-byte lines, in 32-byte sectors, and a wavefront writes into one 128-byte line of shared memory.
The rule was derived from `smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts_cache_bypass` of an H200 and
gives that counter exactly for the thirteen layouts in `docs/measurements.md`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LINE_BYTES = 128
SECTOR_BYTES = 32
VECTOR_BYTES = 16


def line_write_wavefronts(global_bytes: NDArray[np.int64], smem_bytes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Wavefronts of each 16-byte `cp.async.cg` in [..., lanes] global and shared byte addresses: int64[...].

    The lanes of one global line are written together. The two halves of a 32-byte sector go in one pass when they fall
    into one aligned 32-byte sector of shared memory, else in two; a pass takes a wavefront for each 128-byte line of
    shared memory that it touches. For copies inside the matrix: with a source size the zeros cost further passes.

    >>> row = np.arange(32) * 16                                  # four whole lines, to four whole lines
    >>> int(line_write_wavefronts(row, row))
    4
    >>> int(line_write_wavefronts(row, row + row // 128 * 16))    # rows padded by 16 bytes: 1 + 3 + 2 + 4
    10
    """
    *outer, lanes = global_bytes.shape
    source = global_bytes.reshape(-1, lanes)
    target = smem_bytes.reshape(-1, lanes)
    second_pass = _apart_from_first_half(source, target)
    # One number for each (global line, pass, shared line); the distinct ones are the wavefronts.
    shared_line = target // LINE_BYTES
    key = (source // LINE_BYTES * 2 + second_pass) * (int(shared_line.max(initial=0)) + 1) + shared_line
    key = np.sort(key, axis=1)
    found: NDArray[np.int64] = 1 + (key[:, 1:] != key[:, :-1]).sum(axis=1)
    return found.reshape(outer)


def _apart_from_first_half(source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which lanes carry the second half of a global sector whose first half goes to another sector of shared memory."""
    order = np.argsort(source, axis=1, kind="stable")
    source = np.take_along_axis(source, order, axis=1)
    sector = np.take_along_axis(target, order, axis=1) // SECTOR_BYTES
    follows = np.zeros(source.shape, bool)
    follows[:, 1:] = (source[:, 1:] % SECTOR_BYTES == VECTOR_BYTES) & (source[:, 1:] - source[:, :-1] == VECTOR_BYTES)
    apart = np.zeros(source.shape, bool)
    apart[:, 1:] = follows[:, 1:] & (sector[:, 1:] != sector[:, :-1])
    back = np.empty_like(apart)
    np.put_along_axis(back, order, apart, axis=1)
    return back
