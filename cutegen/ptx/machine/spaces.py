"""State spaces as the memory instructions see them: the memory of each, also of those that consist of several.

Source: PTX ISA, "State Spaces", "Generic Addressing".
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from cutegen.ptx.machine import memory
from cutegen.ptx.machine.grid import CTA_WINDOW_BYTES, in_cta
from cutegen.ptx.machine.lowering import Lowering
from cutegen.ptx.machine.memory import SHARED_WINDOW, Addresses, Data, data_dtype
from cutegen.ptx.machine.shared import SharedMemory
from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.text.link import FRAME_SPACES
from cutegen.ptx.text.syntax import CALL_SPACE, WARP_LANES, Address, Instruction, Operand, Symbol

Lanes: TypeAlias = npt.NDArray[np.bool_]
CLUSTER_SPACE = "shared::cluster"
_AGGREGATE_SPACE = "arrays in param::func"
_WINDOWS = {
    CLUSTER_SPACE: (SHARED_WINDOW, memory.SHARED_WINDOW_BYTES),
    "local": (memory.LOCAL_WINDOW, memory.WINDOW_BYTES),
    "param": (memory.PARAM_WINDOW, memory.WINDOW_BYTES),
}


class Memory(Protocol):
    """Memory that performs the accesses of a warp's active lanes."""

    def read(self, warp: Warp, site: int, addresses: Addresses, size_bytes: int) -> Data:
        """`size_bytes` bytes for each address."""

    def write(self, warp: Warp, site: int, addresses: Addresses, size_bytes: int, data: Data) -> None:
        """Writes `size_bytes` bytes at each address."""

    def element(self, warp: Warp, site: int, lane_index: int, address: int, size_bytes: int) -> tuple[Data, int] | None:
        """The window and offset of one lane's atomic access."""


def memory_of(warp: Warp, space: str) -> Memory:
    """The memory of `space`, which may be `generic`, for `warp`."""
    if space == "shared":
        return warp.cta.shared
    if space in FRAME_SPACES:
        return warp.cta.local
    return _OF_SEVERAL.get(space) or warp.cta.memories[space]


class _SharedOfCluster:
    """The shared memories of the cluster, as the threads of a warp see them."""

    def read(self, warp: Warp, site: int, addresses: Addresses, size_bytes: int) -> Data:
        if _are_own(warp, addresses):
            return warp.cta.shared.read(warp, site, addresses, size_bytes)
        data = np.empty(len(addresses), data_dtype(size_bytes))
        for shared, inside, local in self._split(warp, site, addresses):
            with narrowed(warp, inside):
                data[inside] = shared.read(warp, site, local, size_bytes)
        return data

    def write(self, warp: Warp, site: int, addresses: Addresses, size_bytes: int, data: Data) -> None:
        if _are_own(warp, addresses):
            warp.cta.shared.write(warp, site, addresses, size_bytes, data)
            return
        for shared, inside, local in self._split(warp, site, addresses):
            with narrowed(warp, inside):
                shared.write(warp, site, local, size_bytes, data[inside])

    def element(self, warp: Warp, site: int, lane_index: int, address: int, size_bytes: int) -> tuple[Data, int] | None:
        thread = int(warp.threads()[lane_index])
        peer, local = warp.cta.cluster.at(warp, site, thread, address)
        if peer is not warp.cta:
            peer.remote_smem_accesses.access(warp, site, thread, local)
        return peer.shared.element(warp, site, lane_index, local, size_bytes)

    def _split(self, warp: Warp, site: int, addresses: Addresses) -> Iterator[tuple[SharedMemory, Lanes, Addresses]]:
        """The accesses by CTA: (its memory, indices of the accesses, their addresses)."""
        cluster, threads, windows = warp.cta.cluster, warp.threads(), addresses // CTA_WINDOW_BYTES
        for window in np.unique(windows).tolist():
            inside = windows == window
            local = addresses[inside]
            peer, _ = cluster.at(warp, site, int(threads[inside][0]), int(addresses[inside][0]))
            if peer is not warp.cta:
                for thread in threads[inside][1:].tolist() if not warp.cta.ordering.lanes_agree(warp.index) else ():
                    cluster.peer(warp, site, thread, peer.rank, int(local[0]))
                peer.remote_smem_accesses.access(warp, site, int(threads[inside][0]), int(local[0]))
            yield peer.shared, inside, local


class _Aggregates:
    """The arrays among the `.param` variables of bodies: their padding is read, although nobody writes it."""

    def read(self, warp: Warp, site: int, addresses: Addresses, size_bytes: int) -> Data:
        return warp.cta.local.read(warp, site, addresses, size_bytes, is_checked=False)

    def write(self, warp: Warp, site: int, addresses: Addresses, size_bytes: int, data: Data) -> None:
        warp.cta.local.write(warp, site, addresses, size_bytes, data)

    def element(self, warp: Warp, site: int, lane_index: int, address: int, size_bytes: int) -> tuple[Data, int] | None:
        return warp.cta.local.element(warp, site, lane_index, address, size_bytes)


class _Generic:
    """The memory that generic addresses refer to: several, each in its own window."""

    def read(self, warp: Warp, site: int, addresses: Addresses, size_bytes: int) -> Data:
        data = np.empty(len(addresses), data_dtype(size_bytes))
        for space, inside, local in self._split(addresses):
            with narrowed(warp, inside):
                data[inside] = memory_of(warp, space).read(warp, site, local, size_bytes)
        return data

    def write(self, warp: Warp, site: int, addresses: Addresses, size_bytes: int, data: Data) -> None:
        for space, inside, local in self._split(addresses):
            with narrowed(warp, inside):
                memory_of(warp, space).write(warp, site, local, size_bytes, data[inside])

    def element(self, warp: Warp, site: int, lane_index: int, address: int, size_bytes: int) -> tuple[Data, int] | None:
        space, _, local = self._split(np.array([address], np.int64))[0]
        return memory_of(warp, space).element(warp, site, lane_index, int(local[0]), size_bytes)

    def _split(self, addresses: Addresses) -> list[tuple[str, Lanes, Addresses]]:
        """The accesses by state space: (space, indices of the accesses, their addresses there)."""
        inside, starts = spaces_of(addresses), {name: start for name, (start, _) in _WINDOWS.items()}
        return [(name, lanes, addresses[lanes] - starts.get(name, 0)) for name, lanes in inside.items() if lanes.any()]


_OF_SEVERAL: dict[str, Memory] = {
    CLUSTER_SPACE: _SharedOfCluster(),
    "generic": _Generic(),
    _AGGREGATE_SPACE: _Aggregates(),
}


def narrowed(warp: Warp, inside: Lanes) -> AbstractContextManager[None]:
    """Makes the active lanes that are `inside` the only active lanes, temporarily."""
    mask = np.zeros(WARP_LANES, bool)
    mask[warp.lanes()[inside]] = True
    return warp.narrowed(mask)


def in_global(space: str, addresses: Addresses) -> Lanes:
    """Mark the addresses of `space` that lie in global memory."""
    return spaces_of(addresses)["global"] if space == "generic" else np.full(len(addresses), space == "global")


def spaces_of(addresses: Addresses) -> dict[str, Lanes]:
    """Return the state space of each generic address."""
    inside = {
        name: (addresses >= start) & (addresses < start + size_bytes) for name, (start, size_bytes) in _WINDOWS.items()
    }
    inside["global"] = ~np.logical_or.reduce(list(inside.values()))
    return inside


def in_frame(space: str, addresses: Addresses) -> tuple[Lanes, Addresses]:
    """(mark of the addresses of `space` that lie in local memory, the addresses there)."""
    if space == "generic":
        return spaces_of(addresses)["local"], addresses - memory.LOCAL_WINDOW
    return np.full(len(addresses), space in (*FRAME_SPACES, _AGGREGATE_SPACE)), addresses


def to_shared(addresses: Addresses) -> Addresses:
    """Converts generic addresses of shared memory to `.shared::cluster` addresses; others stay."""
    generic = (addresses >= SHARED_WINDOW) & (addresses < SHARED_WINDOW + memory.SHARED_WINDOW_BYTES)
    return np.where(generic, addresses - SHARED_WINDOW, addresses)


def is_own(addresses: Addresses, rank: int) -> Lanes:
    """Mark generic addresses in the shared memory of the CTA of `rank`, whose threads make the access."""
    windows = (addresses - SHARED_WINDOW) // CTA_WINDOW_BYTES
    return np.asarray(windows == rank)


def _are_own(warp: Warp, addresses: Addresses) -> bool:
    """True if all the addresses of shared memory are the CTA's own."""
    first = in_cta(warp.cta.rank, 0)
    return int(addresses.min()) >= first and int(addresses.max()) < first + CTA_WINDOW_BYTES


def resolve_space(context: Lowering, instruction: Instruction, written: str, operand: Operand) -> str:
    """The state space of an access; a generic access to a named variable uses the variable's own space."""
    named = context.space_of(operand)
    if named == CALL_SPACE and written in ("param", CALL_SPACE):
        assert isinstance(operand, Address)
        assert isinstance(operand.base, Symbol)
        return _AGGREGATE_SPACE if operand.base.name in context.aggregates else CALL_SPACE
    if written == "generic" and named is not None:
        return named
    if named is not None and named != written and (named, written) != ("shared", CLUSTER_SPACE):
        raise instruction.error(f"the variable is in {named} memory, the access in {written}")
    return written
