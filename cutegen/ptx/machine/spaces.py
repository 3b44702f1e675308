"""State spaces as the memory instructions see them: one object for each, chosen when the text is lowered.

Source: PTX ISA, "State Spaces", "Generic Addressing".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cutegen.ptx.machine.lowering import Lowering
from cutegen.ptx.machine.memory import (
    LOCAL_WINDOW,
    PARAM_WINDOW,
    SHARED_WINDOW,
    WINDOW_BYTES,
    Addresses,
    Data,
    data_dtype,
)
from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.text.syntax import Instruction, Operand

_WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}


class Memory(Protocol):
    """What answers the accesses of a warp's active lanes."""

    def read(self, warp: Warp, site: int, addresses: Addresses, size_bytes: int) -> Data:
        """`size_bytes` bytes for each address."""

    def write(self, warp: Warp, site: int, addresses: Addresses, size_bytes: int, data: Data) -> None:
        """Writes `size_bytes` bytes at each address."""

    def element(self, warp: Warp, site: int, lane_index: int, address: int, size_bytes: int) -> tuple[Data, int] | None:
        """The window and offset of one lane's atomic access."""


def memory_of(warp: Warp, space: str) -> Memory:
    """The memory that `space` means for `warp`."""
    if space == "shared":
        return warp.cta.shared
    if space == "local":
        return warp.local
    return warp.cta.memories[space]


@dataclass(frozen=True, slots=True)
class Space:
    """One state space, `generic` included."""

    name: str

    def read(self, warp: Warp, site: int, addresses: Addresses, size_bytes: int) -> Data:
        """`size_bytes` bytes for each address of the active lanes."""
        if self.name != "generic":
            return memory_of(warp, self.name).read(warp, site, addresses, size_bytes)
        data = np.empty(len(addresses), data_dtype(size_bytes))
        for space, inside, local_addresses in _split(addresses):
            with _Narrowed(warp, inside):
                data[inside] = memory_of(warp, space).read(warp, site, local_addresses, size_bytes)
        return data

    def write(self, warp: Warp, site: int, addresses: Addresses, size_bytes: int, data: Data) -> None:
        """Writes `size_bytes` bytes at each address of the active lanes."""
        if self.name != "generic":
            memory_of(warp, self.name).write(warp, site, addresses, size_bytes, data)
            return
        for space, inside, local_addresses in _split(addresses):
            with _Narrowed(warp, inside):
                memory_of(warp, space).write(warp, site, local_addresses, size_bytes, data[inside])

    def begin_atomics(self, warp: Warp, site: int, addresses: Addresses, size_bytes: int) -> None:
        """The active lanes are to make atomic accesses, each by `element`."""
        memory = warp.cta.memories["global"]
        if self.name == "global":
            memory.begin_atomics(warp, site, addresses, size_bytes)
        elif self.name == "generic":
            for space, inside, local_addresses in _split(addresses):
                with _Narrowed(warp, inside):
                    if space == "global":
                        memory.begin_atomics(warp, site, local_addresses, size_bytes)

    def element(self, warp: Warp, site: int, lane_index: int, address: int, size_bytes: int) -> tuple[Data, int] | None:
        """The window and offset of one lane's atomic access."""
        if self.name != "generic":
            return memory_of(warp, self.name).element(warp, site, lane_index, address, size_bytes)
        space, _, local_addresses = _split(np.array([address], np.int64))[0]
        return memory_of(warp, space).element(warp, site, lane_index, int(local_addresses[0]), size_bytes)


class _Narrowed:
    """Makes some of a warp's active lanes the only active ones for a while."""

    def __init__(self, warp: Warp, inside: np.ndarray) -> None:
        self._warp, self._saved = warp, (warp.mask, warp.count)
        mask = np.zeros(32, bool)
        mask[warp.lanes()[inside]] = True
        self._mask = mask

    def __enter__(self) -> None:
        self._warp.set_mask(self._mask, int(np.count_nonzero(self._mask)))

    def __exit__(self, *exception: object) -> None:
        self._warp.set_mask(*self._saved)


def _split(addresses: Addresses) -> list[tuple[str, np.ndarray, Addresses]]:
    """Generic addresses by state space: (space, which of them, their addresses in it)."""
    inside = {name: (addresses >= start) & (addresses < start + WINDOW_BYTES) for name, start in _WINDOWS.items()}
    inside["global"] = ~np.logical_or.reduce(list(inside.values()))
    return [(name, lanes, addresses[lanes] - _WINDOWS.get(name, 0)) for name, lanes in inside.items() if lanes.any()]


def resolve_space(context: Lowering, instruction: Instruction, written: str, operand: Operand) -> Space:
    """The space of an access; a generic access that names a variable goes to the variable's own."""
    named = context.space_of(operand)
    if written == "generic" and named is not None:
        return Space(named)
    if named is not None and named != written:
        raise instruction.error(f"the variable is in {named} memory, the access in {written}")
    return Space(written)
