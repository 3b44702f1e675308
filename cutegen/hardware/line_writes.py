"""Cost of a 16-byte `cp.async.cg` that an H200 writes into shared memory: by line, not by bank.

Banks alone (`wavefronts`) show when two lanes of a phase collide. An asynchronous copy that bypasses L1 costs more: its
data arrive from L2 as 128-byte lines, in 32-byte sectors, and a wavefront writes into one 128-byte line of shared
memory. The rule was derived from `smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts_cache_bypass` of an
H200; `docs/measurements.md` lists the layouts and scattered copies for which it gives that counter exactly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cutegen.hardware.units import LINE_BYTES

VECTOR_BYTES = 16
_CHUNKS_PER_SECTOR = 2
_CHUNKS_PER_LINE = LINE_BYTES // VECTOR_BYTES


def line_write_wavefronts(global_bytes: NDArray[np.int64], smem_bytes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the wavefronts of 16-byte `cp.async.cg` for [..., lanes] global and shared byte addresses: int64[...].

    A wavefront moves sectors of one global line to one line of shared memory, of each sector the same half or both
    halves, and with one twist: the exclusive or of the lowest two bits of the source and destination chunk numbers
    (16-byte chunks). A line may be rotated or swizzled by multiples of 64 bytes at no cost, by less only if all its
    sectors move alike. Applies to copies without a source size whose lanes read and write different chunks.

    >>> row = np.arange(32) * 16                                  # four whole lines, to four whole lines
    >>> int(line_write_wavefronts(row, row)), int(line_write_wavefronts(row, row ^ 48))
    (4, 4)
    >>> int(line_write_wavefronts(row, row + row // 128 * 16))    # rows padded by 16 bytes: 1 + 3 + 2 + 4
    10
    >>> int(line_write_wavefronts(row, row * 2))                  # each sector of shared memory is half filled
    32
    """
    *outer, lanes = global_bytes.shape
    source = global_bytes.reshape(-1, lanes) // VECTOR_BYTES
    target = smem_bytes.reshape(-1, lanes) // VECTOR_BYTES
    twist = (source ^ target) & 3
    moves = _number(source // _CHUNKS_PER_SECTOR, target // _CHUNKS_PER_SECTOR, twist)
    lines = _number(source // _CHUNKS_PER_LINE, target // _CHUNKS_PER_LINE, twist)
    passes = np.sort(lines * 3 + _halves(moves, target), axis=1)
    found: NDArray[np.int64] = 1 + (passes[:, 1:] != passes[:, :-1]).sum(axis=1)
    return found.reshape(outer)


def _number(source: NDArray[np.int64], target: NDArray[np.int64], twist: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return one number for each (source, target, twist)."""
    return (source * (int(target.max(initial=0)) + 1) + target) * 4 + twist


def _halves(moves: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return which half of its sector each chunk fills: 0 or 1, or 2 if the same move also fills the other half."""
    order = np.argsort(moves, axis=1, kind="stable")
    same = np.diff(np.take_along_axis(moves, order, axis=1), axis=1) == 0
    paired = np.zeros(moves.shape, bool)
    paired[:, 1:] |= same
    paired[:, :-1] |= same
    back = np.empty_like(paired)
    np.put_along_axis(back, order, paired, axis=1)
    return np.where(back, 2, target % _CHUNKS_PER_SECTOR)
