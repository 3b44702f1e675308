"""Tensor memory of a CTA: the places of elements, its words and allocated columns, and loads in flight."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cutegen.ptx.machine.frame import POISON_BYTE
from cutegen.ptx.machine.policy import Schedule
from cutegen.ptx.watch.tensor_order import COLUMNS, LANES, Region, TensorAccess, TensorOrder, TensorShadow

# Places of elements in tensor memory: 128 lanes of 512 columns, 32 bits each.
#
# Accumulators: "Data path layout organization" A, B, D and F. Loads and stores: which lane and register of a warp holds
# which word, by shape. Block factors: words of four bytes, each for one row. PTX ISA, "TensorCore 5th Generation Family
# Instructions": "Tensor Memory Layouts", "tcgen05.ld", "Scale Factor ID". The figures are pictures there; the formulas
# here are compared with the CuTe DSL's layouts in tests.


QUARTER_LANES = 32
Indices: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Rows `rows` and columns `columns` of a CTA's part of an accumulator, and the words that hold them."""

    rows: slice
    columns: slice
    region: Region


@lru_cache(maxsize=1024)
def accumulator_pieces(m: int, n: int, ctas: int, lane: int, column: int) -> tuple[Piece, ...]:
    """The words of each CTA's rows of D (m of the pair, n), at the address (`lane`, `column`).

    Raises:
        ValueError: a lane or columns that the layout does not allow; with a message.
    """
    rows = m // ctas
    used = n // 2 if m == 128 and ctas == 2 else n
    if lane not in ((0, 16) if rows == 64 and ctas == 1 else (0,)):
        raise ValueError(f"D is at lane {lane}; expected {'0 or 16' if rows == 64 and ctas == 1 else '0'}")
    if column + used > COLUMNS:
        raise ValueError(f"D takes columns {column} to {column + used - 1} of {COLUMNS}")
    whole, columns = slice(0, n), slice(column, column + used)
    if rows == LANES:  # layouts A and D
        return (Piece(slice(0, rows), whole, Region(slice(0, LANES), columns)),)
    if ctas == 1:  # layout F
        row = np.arange(rows)
        lanes = row % 16 + QUARTER_LANES * (row // 16) + lane
        return (Piece(slice(0, rows), whole, Region(lanes, columns)),)
    halves = ((slice(64 * i, 64 * i + 64), slice(used * i, used * i + used)) for i in range(2))  # layout B
    return tuple(Piece(slice(0, rows), part, Region(lanes, columns)) for lanes, part in halves)


SHAPES = {"32x32b": (1, 128), "16x64b": (1, 128), "16x128b": (2, 64), "16x256b": (4, 32), "16x32bx2": (1, 128)}
"""Shapes of loads and stores: registers per repetition, and the most repetitions."""


@lru_cache(maxsize=256)
def warp_words(shape: str, repetitions: int, second_column: int = 0) -> tuple[Indices, Indices]:
    """(lane in the quarter, column) of each register and lane of a warp: two arrays (registers, 32).

    `second_column`: of `16x32bx2`, the column of the second half of the lanes.
    """
    lane = np.arange(QUARTER_LANES)
    register = np.arange(SHAPES[shape][0] * repetitions)[:, None]
    places = {
        "32x32b": (lane, register),
        "16x32bx2": (lane % 16, register + np.where(lane >= 16, second_column, 0)),
        "16x64b": (8 * (lane % 2) + lane // 4, 2 * register + lane // 2 % 2),
        "16x128b": (lane // 4 + 8 * (register % 2), 4 * (register // 2) + lane % 4),
        "16x256b": (lane // 4 + 8 * (register // 2 % 2), 8 * (register // 4) + 2 * (lane % 4) + register % 2),
    }
    lanes, columns = np.broadcast_arrays(*places[shape])
    return lanes, columns


@dataclass(frozen=True, slots=True)
class CopyShape:
    """A shape of `tcgen05.cp`: rows and bytes of each that it reads, and the lanes that receive each row."""

    rows: int
    row_bytes: int
    lanes: tuple[tuple[int, int, int], ...]
    """(first row, first lane, rows) of each run."""


COPY_SHAPES = {
    ("128x256b", None): CopyShape(128, 32, ((0, 0, 128),)),
    ("128x128b", None): CopyShape(128, 16, ((0, 0, 128),)),
    ("64x128b", "warpx2::01_23"): CopyShape(64, 16, ((0, 0, 32), (0, 32, 32), (32, 64, 32), (32, 96, 32))),
    ("64x128b", "warpx2::02_13"): CopyShape(64, 16, ((0, 0, 64), (0, 64, 64))),
    ("32x128b", "warpx4"): CopyShape(32, 16, tuple((0, 32 * quarter, 32) for quarter in range(4))),
}


@lru_cache(maxsize=1024)
def factor_words(rows: int, column: int, *, halves: bool) -> Region:
    """The words of the factors of `rows` rows, one for each row, in the four quarters: (4, rows).

    Row r is at lane r % 32 of each quarter, r // 32 columns from `column`. With `halves`, of B of a pair with M = 128,
    quarters 0 and 1 have the first half of the rows, quarters 2 and 3 the second, from the same column on: (2, rows).
    """
    row = np.arange(rows)
    if not halves:
        quarter = np.arange(4)[:, None]
        return Region(*np.broadcast_arrays(row % 32 + 32 * quarter, column + row // 32))
    half, within = row // (rows // 2), row % (rows // 2)
    quarter = np.arange(2)[:, None]
    return Region(*np.broadcast_arrays(64 * half + within % 32 + 32 * quarter, column + within // 32))


# Loads of a warp from tensor memory, and its stores, that are in flight; which registers of a load have been used.
#
# Source: PTX ISA, `tcgen05.ld`, `tcgen05.st`, `tcgen05.wait`. A load is complete after a `tcgen05.wait::ld`. Hardware
# also completes it before an instruction that uses one of its registers, and production kernels rely on this: such a
# use is a convention, and a load of which every register has been used is over. A `mov` is no use: ptxas removes it, so
# its result stands for the register.


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


# Tensor memory of a CTA: its words, and which columns are allocated.
#
# Source: PTX ISA, "TensorCore 5th Generation Family Instructions": "Tensor Memory", `tcgen05.alloc`, `tcgen05.dealloc`,
# `tcgen05.relinquish_alloc_permit`. A CTA has all 512 columns of its SM here. A kernel must not depend on the columns
# that it receives: the policy chooses among the aligned ones. Allocation waits until enough columns are free.


LEAST_COLUMNS = 32
LANE_SHIFT = 16


class TensorMemory:
    """The tensor memory of one CTA; `phase` counts what may end another warp's wait for columns."""

    def __init__(self, order: TensorOrder) -> None:
        self.words: npt.NDArray[np.uint32] = np.full((LANES, COLUMNS), _POISON, np.uint32)
        self.shadow = TensorShadow(order)
        self.phase = 0
        self.allocations: dict[int, tuple[int, TensorAccess]] = {}
        """Number of columns and the `tcgen05.alloc`, by first column."""
        self.has_relinquished = False

    def awaited(self) -> str:
        """Name of the object, for messages."""
        taken = ", ".join(f"{first} to {first + n - 1}" for first, (n, _) in sorted(self.allocations.items()))
        return f"columns of tensor memory (allocated: {taken or 'none'})"

    def allocate(self, access: TensorAccess, first: int, count: int) -> None:
        """The columns from `first` on belong to the CTA; their contents are undefined."""
        columns = slice(first, first + count)
        self.allocations[first] = count, access
        self.words[:, columns] = _POISON
        self.shadow.allocate(access, columns)
        self.phase += 1

    def free(self, access: TensorAccess, first: int, count: int) -> None:
        """The columns are given back."""
        del self.allocations[first]
        self.shadow.free(access, slice(first, first + count))
        self.phase += 1

    def free_by_peer(self, access: TensorAccess, first: int, count: int) -> None:
        """The other CTA of the pair gives its columns back, and this one has not yet."""
        if first in self.allocations:
            self.shadow.free_by_peer(access, slice(first, first + count))

    def is_free(self, first: int, count: int) -> bool:
        """Return whether no column of a range is allocated."""
        return all(first + count <= start or start + n <= first for start, (n, _) in self.allocations.items())


def choose_columns(memories: Sequence[TensorMemory], count: int, schedule: Schedule) -> int | None:
    """The first of `count` columns that are free in all `memories`, or None if there are none."""
    places = [first for first in range(0, COLUMNS, count) if all(each.is_free(first, count) for each in memories)]
    return schedule.order(places)[0] if places else None


def halves_of(words: npt.NDArray[Any]) -> npt.NDArray[np.float16]:
    """The float16 in the low half of each word."""
    return words.astype(np.uint16).view(np.float16)
