"""What memory requests cost: shared-memory wavefronts and global sectors.

A warp's shared request is served in phases of 128 bytes: all 32 lanes for accesses of up to 4 bytes, 16 lanes for 8
bytes, 8 lanes for 16 bytes (and for the rows of ldmatrix). In a phase each of the 32 banks gives one 4-byte word for
each wavefront; lanes that want the same word share it. A global request touches sectors of 32 bytes. Source: CUDA C++
Programming Guide, "Shared Memory" and "Device Memory Accesses"; Nsight Compute's
`l1tex__data_bank_conflicts_pipe_lsu` and `lts__t_sectors` count the same things.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

BANK_ROW_BYTES = 128
SECTOR_BYTES = 32


def shared_wavefronts(
    addresses: npt.NDArray[np.int64], lanes: npt.NDArray[np.int64], size_bytes: int
) -> tuple[int, int]:
    """(wavefronts, the fewest possible) of one request: `addresses` of the lanes numbered `lanes`.

    >>> rows = np.arange(8) * 128                                   # a 64-wide f16 tile without swizzle
    >>> shared_wavefronts(rows, np.arange(8), 16)
    (8, 1)
    >>> shared_wavefronts(rows + np.arange(8) * 16, np.arange(8), 16)  # rows shifted by one 16-byte chunk each
    (1, 1)
    """
    unit = max(4, min(size_bytes, 16))
    lanes_per_phase = BANK_ROW_BYTES // unit
    wavefronts = phases = 0
    for phase in np.unique(lanes // lanes_per_phase):
        words = np.unique(addresses[lanes // lanes_per_phase == phase] // unit)
        wavefronts += int(np.bincount(words % lanes_per_phase).max())
        phases += 1
    repeats = max(1, size_bytes // 16)
    return wavefronts * repeats, phases * repeats


def global_sectors(addresses: npt.NDArray[np.int64], size_bytes: int) -> int:
    """Distinct 32-byte sectors of one request.

    >>> global_sectors(np.arange(32) * 4, 4)
    4
    """
    first = addresses // SECTOR_BYTES
    last = (addresses + size_bytes - 1) // SECTOR_BYTES
    spans = [first + step for step in range(int((last - first).max()) + 1)]
    return len(np.unique(np.minimum(np.concatenate(spans), np.tile(last, len(spans)))))


def line_writes(source: npt.NDArray[np.int64], destination: npt.NDArray[np.int64]) -> tuple[int, int]:
    """(wavefronts, the fewest possible) of a 16-byte `cp.async.cg`, as an H200 counts them: line by line.

    Lanes that read one 128-byte line of global memory are written together; the second half of a 32-byte sector goes
    apart from the first where they land in different sectors of shared memory; each such pass takes a wavefront for
    each 128-byte line of shared memory that it touches. Source: `docs/measurements.md`.

    >>> lanes = np.arange(32) * 16
    >>> line_writes(lanes, lanes), line_writes(lanes, lanes + lanes // 128 * 16)    # rows padded by 16 bytes
    ((4, 4), (10, 4))
    """
    sectors = dict(zip(source.tolist(), (destination // SECTOR_BYTES).tolist(), strict=True))
    passes = set()
    for start, end in zip(source.tolist(), destination.tolist(), strict=True):
        apart = start % SECTOR_BYTES == 16 and sectors.get(start - 16, end // SECTOR_BYTES) != end // SECTOR_BYTES
        passes.add((start // BANK_ROW_BYTES, apart, end // BANK_ROW_BYTES))
    return len(passes), len({line for line, _, _ in passes})


@dataclass(slots=True)
class Traffic:
    """Running sums of one instruction; a request is one warp's execution that reached memory."""

    shared_requests: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0
    line_wavefronts: int = 0
    ideal_line_wavefronts: int = 0
    shared_bytes: int = 0
    global_requests: int = 0
    sectors: int = 0
    global_bytes: int = 0


_MAX_PATTERNS = 100_000


@dataclass(slots=True)
class TrafficCounters:
    """Sums for each instruction; costs are remembered by address pattern, for patterns repeat from tile to tile."""

    sites: list[Traffic]
    _shared: dict[tuple[int, bytes, bytes], tuple[int, int]] = field(default_factory=dict)
    _global: dict[tuple[int, bytes], int] = field(default_factory=dict)
    _lines: dict[tuple[bytes, bytes], tuple[int, int]] = field(default_factory=dict)

    def shared(
        self, site: int, addresses: npt.NDArray[np.int64], lanes: npt.NDArray[np.int64], size_bytes: int
    ) -> None:
        """Counts a shared request; banks repeat every 128 bytes, so only addresses relative to that matter."""
        relative = addresses - (int(addresses[0]) & -BANK_ROW_BYTES)
        key = size_bytes, relative.tobytes(), lanes.tobytes()
        cost = self._shared.get(key)
        if cost is None:
            if len(self._shared) >= _MAX_PATTERNS:
                self._shared.clear()
            cost = self._shared[key] = shared_wavefronts(relative, lanes, size_bytes)
        sums = self.sites[site]
        sums.shared_requests += 1
        sums.wavefronts += cost[0]
        sums.ideal_wavefronts += cost[1]
        sums.shared_bytes += size_bytes * len(lanes)

    def device(self, site: int, addresses: npt.NDArray[np.int64], size_bytes: int) -> None:
        """Counts a global request."""
        relative = addresses - (int(addresses[0]) & -SECTOR_BYTES)
        key = size_bytes, relative.tobytes()
        sectors = self._global.get(key)
        if sectors is None:
            if len(self._global) >= _MAX_PATTERNS:
                self._global.clear()
            sectors = self._global[key] = global_sectors(relative, size_bytes)
        sums = self.sites[site]
        sums.global_requests += 1
        sums.sectors += sectors
        sums.global_bytes += size_bytes * len(addresses)

    def lines(self, site: int, source: npt.NDArray[np.int64], destination: npt.NDArray[np.int64]) -> None:
        """Counts the writes of a 16-byte `cp.async.cg` by lines."""
        bases = (int(addresses[0]) & -BANK_ROW_BYTES for addresses in (source, destination))
        relative = [addresses - base for addresses, base in zip((source, destination), bases, strict=True)]
        key = relative[0].tobytes(), relative[1].tobytes()
        cost = self._lines.get(key)
        if cost is None:
            if len(self._lines) >= _MAX_PATTERNS:
                self._lines.clear()
            cost = self._lines[key] = line_writes(*relative)
        self.sites[site].line_wavefronts += cost[0]
        self.sites[site].ideal_line_wavefronts += cost[1]
