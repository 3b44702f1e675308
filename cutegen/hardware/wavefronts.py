"""Shared-memory wavefronts: the number of passes over the 32 banks for one warp-wide access.

A warp's access is served in phases of at most 128 bytes: 8 lanes of 16 bytes, 16 of 8, 32 of 4 or less. Within a phase
each bank delivers one 4-byte word per wavefront; lanes that read the same word share it.
"""

import numpy as np
from numpy.typing import NDArray

from cutegen.hardware.units import BANK_BYTES, BANK_ROW_BYTES, LINE_BYTES, WARP

_MIX = np.cumprod(np.full(WARP, 0x9E3779B97F4A7C15, np.uint64)).astype(np.int64)
"""Odd weights of lanes, powers of the golden ratio's: different accesses hardly ever have the same sum."""


def phases(access_bytes: int) -> int:
    """Return the phases of a full warp's access of `access_bytes` per lane. Raises ValueError unless 1, 2, 4, 8 or 16.

    >>> [phases(width) for width in (2, 4, 8, 16)]
    [1, 1, 2, 4]
    """
    if access_bytes not in (1, 2, 4, 8, 16):
        raise ValueError(f"a lane accesses 1, 2, 4, 8 or 16 bytes of shared memory at once, not {access_bytes}")
    return max(1, access_bytes // BANK_BYTES)


def ideal_wavefronts(lanes: int, access_bytes: int) -> int:
    """Return the wavefronts of one access by `lanes` lanes without conflicts, which is its number of phases.

    >>> ideal_wavefronts(32, 16)
    4
    """
    return -(-lanes * phases(access_bytes) // WARP)


def alike(byte_offsets: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return one representative of accesses that differ by multiples of all banks, and the size of each group.

    Accesses byte_offsets[..., lanes] become int64[access, lanes] and int64[access]: a group has equal wavefronts.

    >>> found = alike(np.array([[0, 4], [128, 132], [4, 8]]))
    >>> sorted(zip(*(x.tolist() for x in found), strict=True))
    [([0, 4], 2), ([4, 8], 1)]
    """
    rows = byte_offsets.reshape(-1, byte_offsets.shape[-1])
    rows = rows - rows[:, :1] // BANK_ROW_BYTES * BANK_ROW_BYTES
    _, first, number, counts = np.unique(rows @ _MIX[: rows.shape[1]], True, True, True)
    if not np.array_equal(rows, rows[first[number]]):  # two different accesses have the same sum
        return rows, np.ones(len(rows), np.int64)
    return rows[first], counts


def wavefronts(byte_offsets: NDArray[np.int64], access_bytes: int) -> NDArray[np.int64]:
    """Return the wavefronts of each access in byte_offsets[..., lanes]: int64[...].

    Lanes beyond the last are inactive. Raises ValueError if an offset is not a multiple of `access_bytes`: such an
    access would fault.

    >>> int(wavefronts(np.arange(32) * 128, 16))  # a column of 128-byte rows: 8-way in each of 4 phases
    32
    >>> int(wavefronts(np.arange(32) * 16, 16))
    4
    """
    if np.any(byte_offsets % access_bytes):
        raise ValueError(f"shared-memory accesses of {access_bytes} bytes must be {access_bytes}-byte aligned")
    lanes_per_phase = WARP // phases(access_bytes)
    *outer, lanes = byte_offsets.shape
    per_phase = min(lanes, lanes_per_phase)
    # An aligned access fills complete units, so counting units over groups of banks counts words over banks.
    unit_bytes = max(access_bytes, BANK_BYTES)
    units = np.sort((byte_offsets // unit_bytes).reshape(-1, per_phase), axis=1)
    distinct = np.ones(units.shape, bool)
    distinct[:, 1:] = units[:, 1:] != units[:, :-1]
    groups = BANK_ROW_BYTES // unit_bytes
    phase = np.arange(len(units))[:, None]
    counts = np.bincount((phase * groups + units % groups)[distinct], minlength=len(units) * groups)
    per_access: NDArray[np.int64] = counts.reshape(*outer, lanes // per_phase, groups).max(axis=-1).sum(axis=-1)
    return per_access


def merged_phases(byte_offsets: NDArray[np.int64], access_bytes: int) -> NDArray[np.int64]:
    """Return the wavefronts saved by shared lanes, per load of 8 or 16 bytes in byte_offsets[..., lanes]: int64[...].

    Two phases of a load merge if they do not conflict and every lane reads the same as lane ^ 1, or every lane the same
    as lane ^ 2; stores never merge. Measured on an H200: `docs/measurements.md`.

    >>> pairs = np.arange(32) // 2 * 16  # neighbors want the same 16 bytes
    >>> int(wavefronts(pairs, 16)), int(merged_phases(pairs, 16))
    (4, 2)
    """
    *outer, lanes = byte_offsets.shape
    if access_bytes < 2 * BANK_BYTES or lanes != WARP:
        return np.zeros(outer, np.int64)
    pairs = (byte_offsets // access_bytes).reshape(*outer, -1, 2 * WARP // phases(access_bytes))
    lane = np.arange(pairs.shape[-1])
    shared = np.any([(pairs == pairs[..., lane ^ step]).all(axis=-1) for step in (1, 2)], axis=0)
    free = _distinct(pairs) == _distinct(pairs % (BANK_ROW_BYTES // access_bytes))
    saved: NDArray[np.int64] = (shared & free).sum(axis=-1)
    return saved


def _distinct(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count the distinct values along the last axis."""
    ordered = np.sort(values, axis=-1)
    count: NDArray[np.int64] = 1 + (ordered[..., 1:] != ordered[..., :-1]).sum(axis=-1)
    return count


# Cost of a 16-byte `cp.async.cg` that an H200 writes into shared memory: by line, not by bank.
#
# Banks alone (`wavefronts`) show when two lanes of a phase collide. An asynchronous copy that bypasses L1 costs more:
# its data arrive from L2 as 128-byte lines, in 32-byte sectors, and a wavefront writes into one 128-byte line of
# shared memory. The rule was derived from
# `smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts_cache_bypass` of an H200; `docs/measurements.md`
# lists the layouts and scattered copies for which it gives that counter exactly.


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
