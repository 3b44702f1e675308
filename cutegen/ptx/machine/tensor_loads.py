"""Loads of a warp from tensor memory, and its stores, that are in flight; which registers of a load have been used.

Source: PTX ISA, `tcgen05.ld`, `tcgen05.st`, `tcgen05.wait`. A load is complete after a `tcgen05.wait::ld`. Hardware
also completes it before an instruction that uses one of its registers, and production kernels rely on this: such a use
is a convention, and a load of which every register has been used is over. A `mov` is no use: ptxas removes it, so its
result stands for the register.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cutegen.ptx.machine.frame import POISON_BYTE

Rows = npt.NDArray[np.intp]
Words = npt.NDArray[np.uint32]
_POISON = POISON_BYTE * 0x01010101


@dataclass(slots=True, eq=False)
class _Load:
    """A load to the registers `rows`; `read` returns their values, or is None once they are there."""

    rows: Rows
    read: Callable[[], Words] | None
    unused: npt.NDArray[np.bool_]
    tick: int
    site: int


class TensorLoads:
    """The loads of one warp; `rows` is the number of its 32-bit registers, or 0 if it has no such loads."""

    def __init__(self, rows: int, file: npt.NDArray[np.uint32]) -> None:
        self._file = file
        self._number = np.zeros(rows, np.int32)
        self._element = np.zeros(rows, np.int32)
        self._loads: dict[int, _Load] = {}
        self._issued = 0

    def issue(self, rows: Rows, read: Callable[[], Words], tick: int, site: int, *, at_once: bool) -> None:
        """A load to `rows` is issued; with `at_once` the registers have their values now, else when they are used."""
        for row, number in zip(rows.tolist(), self._number[rows].tolist(), strict=True):
            if number:
                self._loads[number].unused[self._element[row]] = False
        self._file[rows] = read() if at_once else _POISON
        self._issued += 1
        load = _Load(rows, None if at_once else read, np.ones(len(rows), bool), tick, site)
        self._loads[self._issued] = load
        self._number[rows], self._element[rows] = self._issued, np.arange(len(rows))

    def wait(self) -> None:
        """All loads are complete."""
        for number in self._loads:
            self._deliver(number)
        self._loads.clear()
        self._number[:] = 0

    def awaited(self, read: Rows) -> int | None:
        """Return the instruction of a load whose registers are read and that no wait has completed, if there is one."""
        if not self._loads:
            return None
        numbers = self._number[read]
        return self._loads[int(numbers[numbers > 0][0])].site if numbers.any() else None

    def touch(self, read: Rows, written: Rows, *, moves: bool) -> int | None:
        """An instruction is about to use registers; returns the tick up to which all loads are used, if that is news.

        `moves`: it copies the only register that it reads to the only one that it writes.
        """
        if not self._loads:
            return None
        numbers = self._number[read]
        for number in set(numbers.tolist()) | set(self._number[written].tolist()):
            if number:
                self._deliver(number)
        if moves and numbers.any():
            self._number[written], self._element[written] = numbers, self._element[read]
            return None
        for rows in (read, written):
            for row, number in zip(rows.tolist(), self._number[rows].tolist(), strict=True):
                if number:
                    self._loads[number].unused[self._element[row]] = False
        self._number[written] = 0
        return self._retire()

    def _deliver(self, number: int) -> None:
        """Writes the registers that still belong to a load."""
        load = self._loads[number]
        if load.read is not None:
            own = (self._number[load.rows] == number) & (self._element[load.rows] == np.arange(len(load.rows)))
            self._file[load.rows[own]] = load.read()[own]
            load.read = None

    def _retire(self) -> int | None:
        """Forgets the oldest loads that are used; returns the tick of the last of them."""
        tick = None
        for number, load in list(self._loads.items()):
            if load.unused.any():
                break
            tick = load.tick
            del self._loads[number]
            self._number[self._number == number] = 0
        return tick


class TensorStores:
    """The stores of one warp to tensor memory that are in flight."""

    def __init__(self) -> None:
        self._writes: list[Callable[[], None]] = []

    def issue(self, write: Callable[[], None], *, at_once: bool) -> None:
        """A store is issued; it writes now, or when the warp waits for it."""
        if at_once:
            write()
        else:
            self._writes.append(write)

    def wait(self) -> None:
        """All stores are complete."""
        for write in self._writes:
            write()
        self._writes.clear()
