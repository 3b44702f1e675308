"""Costs of memory requests: shared-memory wavefronts and global sectors.

A warp's shared request is served in phases of 128 bytes: all 32 lanes for accesses of up to 4 bytes, 16 lanes for 8
bytes, 8 lanes for 16 bytes (and for the rows of ldmatrix). In a phase each of the 32 banks delivers one 4-byte word per
wavefront; lanes that access the same word share it. Two phases of a load merge if neighbors share. A global request
accesses sectors of 32 bytes. Source: CUDA C++ Programming Guide, "Shared Memory" and "Device Memory Accesses"; details
that these leave open were measured on an H200 (`docs/measurements.md`).
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from cutegen.ptx.text.syntax import WARP_LANES

BANK_ROW_BYTES = 128
SECTOR_BYTES = 32


def shared_wavefronts(
    addresses: npt.NDArray[np.int64], lanes: npt.NDArray[np.int64], size_bytes: int, *, merges: bool = False
) -> tuple[int, int]:
    """(wavefronts, the minimum) of one request: `addresses` of the lanes numbered `lanes`.

    `merges`: the request is an `ld`, whose phases may merge.

    >>> rows = np.arange(8) * 128                                   # a 64-wide f16 tile without swizzle
    >>> shared_wavefronts(rows, np.arange(8), 16)
    (8, 1)
    >>> shared_wavefronts(rows + np.arange(8) * 16, np.arange(8), 16)  # rows shifted by one 16-byte chunk each
    (1, 1)
    >>> pairs = np.arange(32) // 2 * 16                             # neighbors read the same 16 bytes
    >>> shared_wavefronts(pairs, np.arange(32), 16), shared_wavefronts(pairs, np.arange(32), 16, merges=True)
    ((4, 4), (2, 2))
    """
    unit = max(4, min(size_bytes, 16))
    lanes_per_phase = BANK_ROW_BYTES // unit
    units = addresses // unit
    costs = {
        int(phase): _most_in_one_bank(units[lanes // lanes_per_phase == phase], lanes_per_phase)
        for phase in np.unique(lanes // lanes_per_phase)
    }
    if merges and size_bytes in (8, 16):
        for first in range(0, WARP_LANES // lanes_per_phase, 2):
            both = lanes // lanes_per_phase // 2 == first // 2
            if {first, first + 1} <= costs.keys() and _merges(units[both], lanes[both], lanes_per_phase):
                del costs[first + 1]
    repeats = max(1, size_bytes // 16)
    return sum(costs.values()) * repeats, len(costs) * repeats


def _most_in_one_bank(units: npt.NDArray[np.int64], units_per_row: int) -> int:
    return int(np.bincount(np.unique(units) % units_per_row).max())


def _merges(units: npt.NDArray[np.int64], lanes: npt.NDArray[np.int64], units_per_row: int) -> bool:
    """Two phases of a load merge if they do not conflict and all lanes share with lane ^ 1, or all with lane ^ 2."""
    if _most_in_one_bank(units, units_per_row) > 1:
        return False
    wanted = dict(zip(lanes.tolist(), units.tolist(), strict=True))
    return any(all(wanted.get(lane ^ step, unit) == unit for lane, unit in wanted.items()) for step in (1, 2))


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
    """(wavefronts, the minimum) of a 16-byte `cp.async.cg`, as an H200 counts them: line by line.

    A wavefront carries sectors of one 128-byte line of global memory to one line of shared memory, the same 16-byte
    halves of each. It permutes them in only one way: the two lowest bits of their 16-byte chunk numbers are XORed with
    the same value. Source: `docs/measurements.md`.

    >>> lanes = np.arange(32) * 16
    >>> line_writes(lanes, lanes), line_writes(lanes, lanes + lanes // 128 * 16)    # rows padded by 16 bytes
    ((4, 4), (10, 4))
    """
    # If several lanes write one chunk, the first lane's copy counts.
    chunks = dict(zip((destination[::-1] // 16).tolist(), (source[::-1] // 16).tolist(), strict=True))
    halves: defaultdict[tuple[int, int, int], int] = defaultdict(int)
    for end, start in chunks.items():
        halves[start // 2, end // 2, (start ^ end) & 3] |= 1 << (end & 1)
    # A sector that goes to several sectors of shared memory with one XOR is sent once for each.
    wanted = Counter((start, end // 4, twist, half) for (start, end, twist), half in halves.items())
    passes: defaultdict[tuple[int, int, int, int], int] = defaultdict(int)
    for (start, line, twist, half), times in wanted.items():
        key = start // 4, line, twist, half
        passes[key] = max(passes[key], times)
    return sum(passes.values()), len({line for line, _, _, _ in passes})


def staged_writes(
    source: npt.NDArray[np.int64], destination: npt.NDArray[np.int64], lanes: npt.NDArray[np.int64], size_bytes: int
) -> int:
    """Wavefronts of a `cp.async.ca` as an H200 counts them, and of the zeros of a copy with a source size.

    In each phase the lanes are split by the banks that they write, then each part by the L1 banks that it reads.

    >>> lanes = np.arange(32)
    >>> staged_writes(lanes * 16, lanes * 16, lanes, 16), staged_writes(lanes * 16, lanes * 32, lanes, 16)
    (4, 8)
    """
    per_phase = BANK_ROW_BYTES // size_bytes
    wavefronts = 0
    for phase in np.unique(lanes // per_phase):
        chosen = lanes // per_phase == phase
        writes, reads = Counter[int](), Counter[tuple[int, int]]()
        for start, end in zip((source[chosen] // size_bytes).tolist(), destination[chosen] // size_bytes, strict=True):
            bank = int(end) % per_phase
            reads[writes[bank], start % per_phase] += 1
            writes[bank] += 1
        parts = range(max(writes.values()))
        wavefronts += sum(max(count for (part, _), count in reads.items() if part == wanted) for wanted in parts)
    return wavefronts


def copy_sectors(source: npt.NDArray[np.int64], destination: npt.NDArray[np.int64]) -> int:
    """Sectors of a `cp.async` as ncu counts them: 32-byte destinations in shared memory, for each global line.

    >>> lanes = np.arange(32) * 16
    >>> copy_sectors(lanes, lanes), copy_sectors(lanes, lanes * 2)
    (16, 32)
    """
    pairs = zip((source // BANK_ROW_BYTES).tolist(), (destination // SECTOR_BYTES).tolist(), strict=True)
    return len(set(pairs))


@dataclass(slots=True)
class Traffic:
    """Running sums of one instruction; a request is an execution by one warp that reached memory."""

    shared_requests: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0
    line_wavefronts: int = 0
    ideal_line_wavefronts: int = 0
    line_sectors: int = 0
    staged_wavefronts: int = 0
    shared_bytes: int = 0
    global_requests: int = 0
    sectors: int = 0
    global_bytes: int = 0
    boxes: int = 0


_MAX_PATTERNS = 100_000
_Key = TypeVar("_Key")
_Cost = TypeVar("_Cost")


@dataclass(slots=True)
class TrafficCounters:
    """Sums for each instruction; costs are cached by address pattern, because patterns repeat from tile to tile."""

    sites: list[Traffic]
    _shared: dict[tuple[int, bytes, bytes], tuple[int, int]] = field(default_factory=dict)
    _global: dict[tuple[int, bytes], int] = field(default_factory=dict)
    _lines: dict[tuple[bytes, bytes], tuple[int, int]] = field(default_factory=dict)
    _staged: dict[tuple[int, bytes, bytes, bytes], int] = field(default_factory=dict)

    def shared(
        self,
        site: int,
        addresses: npt.NDArray[np.int64],
        lanes: npt.NDArray[np.int64],
        size_bytes: int,
        *,
        merges: bool = False,
    ) -> None:
        """Counts a shared request; banks repeat every 128 bytes, so its cost depends only on relative addresses."""
        relative = addresses - (int(addresses[0]) & -BANK_ROW_BYTES)
        key = -size_bytes if merges else size_bytes, relative.tobytes(), lanes.tobytes()
        cost = self._shared.get(key) or _kept(
            self._shared, key, shared_wavefronts(relative, lanes, size_bytes, merges=merges)
        )
        sums = self.sites[site]
        sums.shared_requests += 1
        sums.wavefronts += cost[0]
        sums.ideal_wavefronts += cost[1]
        sums.shared_bytes += size_bytes * len(lanes)

    def device(self, site: int, addresses: npt.NDArray[np.int64], size_bytes: int) -> None:
        """Counts a global request."""
        relative = addresses - (int(addresses[0]) & -SECTOR_BYTES)
        key = size_bytes, relative.tobytes()
        sectors = self._global.get(key) or _kept(self._global, key, global_sectors(relative, size_bytes))
        sums = self.sites[site]
        sums.global_requests += 1
        sums.sectors += sectors
        sums.global_bytes += size_bytes * len(addresses)

    def box(self, site: int, box_bytes: int, addresses: npt.NDArray[np.int64], size_bytes: int) -> None:
        """Counts a bulk tensor copy: `addresses` are the aligned pieces of `size_bytes` that lie in the tensor."""
        sums = self.sites[site]
        sums.boxes += 1
        sums.shared_requests += 1
        sums.shared_bytes += box_bytes
        sums.global_requests += 1
        sums.sectors += len(np.unique(addresses // SECTOR_BYTES))
        sums.global_bytes += size_bytes * len(addresses)

    def chunks(self, site: int, size_bytes: int) -> None:
        """Counts an operand that the tensor core reads from shared memory."""
        self.sites[site].shared_requests += 1
        self.sites[site].shared_bytes += size_bytes

    def lines(self, site: int, source: npt.NDArray[np.int64], destination: npt.NDArray[np.int64]) -> None:
        """Counts the writes of a 16-byte `cp.async.cg` by lines."""
        relative = _relative(source), _relative(destination)
        key = relative[0].tobytes(), relative[1].tobytes()
        cost = self._lines.get(key) or _kept(self._lines, key, line_writes(*relative))
        self.sites[site].line_wavefronts += cost[0]
        self.sites[site].ideal_line_wavefronts += cost[1]

    def line_sectors(self, site: int, source: npt.NDArray[np.int64], destination: npt.NDArray[np.int64]) -> None:
        """Counts the sectors of the lanes of a `cp.async.cg` that read global memory."""
        self.sites[site].line_sectors += copy_sectors(source, destination)

    def staged(
        self,
        site: int,
        source: npt.NDArray[np.int64],
        destination: npt.NDArray[np.int64],
        lanes: npt.NDArray[np.int64],
        size_bytes: int,
    ) -> None:
        """Counts the writes of a `cp.async.ca`, or the zeros of a copy with a source size."""
        relative = _relative(source), _relative(destination)
        key = size_bytes, relative[0].tobytes(), relative[1].tobytes(), lanes.tobytes()
        cost = self._staged.get(key) or _kept(self._staged, key, staged_writes(*relative, lanes, size_bytes))
        self.sites[site].staged_wavefronts += cost


def _relative(addresses: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return addresses - (int(addresses[0]) & -BANK_ROW_BYTES)


def _kept(costs: dict[_Key, _Cost], key: _Key, cost: _Cost) -> _Cost:
    """Keeps the cost of a pattern, and returns it."""
    if len(costs) >= _MAX_PATTERNS:
        costs.clear()
    costs[key] = cost
    return cost
