"""Shared-memory wavefronts: how many passes over the 32 banks one warp-wide access takes.

A warp's access is served in phases of at most 128 bytes: 8 lanes of 16 bytes, 16 of 8, 32 of 4 or less. Within a phase
each bank delivers one 4-byte word per wavefront; lanes that want the same word share it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BANKS = 32
BANK_BYTES = 4
WARP_LANES = 32


def phases(access_bytes: int) -> int:
    """Phases of a full warp's access of `access_bytes` per lane. Raises ValueError unless that is 1, 2, 4, 8 or 16.

    >>> [phases(width) for width in (2, 4, 8, 16)]
    [1, 1, 2, 4]
    """
    if access_bytes not in (1, 2, 4, 8, 16):
        raise ValueError(f"a lane accesses 1, 2, 4, 8 or 16 bytes of shared memory at once, not {access_bytes}")
    return max(1, access_bytes // BANK_BYTES)


def ideal_wavefronts(lanes: int, access_bytes: int) -> int:
    """Wavefronts of one access by `lanes` lanes without any conflict: its number of phases.

    >>> ideal_wavefronts(32, 16)
    4
    """
    return -(-lanes * phases(access_bytes) // WARP_LANES)


def wavefronts(byte_offsets: NDArray[np.int64], access_bytes: int) -> NDArray[np.int64]:
    """Wavefronts of each access in byte_offsets[..., lanes]: int64[...].

    Lanes beyond the last are inactive. Raises ValueError when an offset is not a multiple of `access_bytes`: such an
    access would fault.

    >>> int(wavefronts(np.arange(32) * 128, 16))  # a column of 128-byte rows: 8-way in each of 4 phases
    32
    >>> int(wavefronts(np.arange(32) * 16, 16))
    4
    """
    if np.any(byte_offsets % access_bytes):
        raise ValueError(f"shared-memory accesses of {access_bytes} bytes must be {access_bytes}-byte aligned")
    lanes_per_phase = WARP_LANES // phases(access_bytes)
    *outer, lanes = byte_offsets.shape
    per_phase = min(lanes, lanes_per_phase)
    # An aligned access fills whole units, so counting units over groups of banks counts words over banks.
    unit_bytes = max(access_bytes, BANK_BYTES)
    units = np.sort((byte_offsets // unit_bytes).reshape(-1, per_phase), axis=1)
    distinct = np.ones(units.shape, bool)
    distinct[:, 1:] = units[:, 1:] != units[:, :-1]
    groups = BANKS * BANK_BYTES // unit_bytes
    phase = np.arange(len(units))[:, None]
    counts = np.bincount((phase * groups + units % groups)[distinct], minlength=len(units) * groups)
    per_access: NDArray[np.int64] = counts.reshape(*outer, lanes // per_phase, groups).max(axis=-1).sum(axis=-1)
    return per_access
