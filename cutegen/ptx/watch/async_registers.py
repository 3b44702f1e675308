"""Registers that `wgmma` holds: accumulators and fragments of A, from the issue until the wait for their group.

Source: PTX ISA, `wgmma.mma_async`, `wgmma.fence`. Rows are rows of the 32-bit register file. Only instructions that
access a row of some `wgmma` are watched (`prepare`). A fence names no registers, so compilers put copies of registers
and constants between it and the `wgmma` that uses them: a `mov` there is a convention.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cutegen.ptx.text.syntax import WARP_LANES
from cutegen.ptx.watch.actor import Actor
from cutegen.ptx.watch.violations import ViolationKind

Rows = npt.NDArray[np.intp]
_ORDERED, _MOVED, _TOUCHED = 0, 1, 2
"""Accesses to a register since the last fence: none, only a `mov`, any other."""


@dataclass(frozen=True, slots=True, eq=False)
class RegisterList:
    """Registers of an operand: their rows, and their names for messages."""

    rows: Rows
    names: tuple[str, ...]

    def name_of(self, found: npt.NDArray[np.bool_]) -> str:
        """The name of the first register that is marked."""
        return self.names[int(np.argmax(found))]


class AsyncRegisters:
    """The state of one warp's registers: the `wgmma` that holds them, and accesses that a fence must still order."""

    def __init__(self, rows: int) -> None:
        self._holder = np.zeros(rows, np.int64)
        self._since_fence = np.full(rows, _TOUCHED, np.int8)
        self._fenced_since_use = np.zeros(rows, bool)
        self._shape = np.zeros(rows, np.int64)
        self._written = np.zeros((rows, WARP_LANES), bool)

    def touch(self, warp: Actor, site: int, registers: RegisterList, written: Rows, *, moves: bool) -> None:
        """An instruction other than `wgmma` reads or writes `registers`; `moves`: it is a `mov`."""
        holders = self._holder[registers.rows]
        if holders.any():
            found = holders != 0
            where = warp.cta.describe(int(holders[found][0]) - 1)
            message = f"access to {registers.name_of(found)}, which wgmma.mma_async holds ({where})"
            _fault(warp, site, f"{message}: no wgmma.wait_group has waited for its group")
        before = self._since_fence[registers.rows]
        excused = self._fenced_since_use[registers.rows] & moves
        self._since_fence[registers.rows] = np.where(excused, np.maximum(before, _MOVED), _TOUCHED)
        if len(written):
            self._written[written] |= warp.mask

    def fence(self) -> None:
        """`wgmma.fence`."""
        self._since_fence[:] = _ORDERED
        self._fenced_since_use[:] = True
        self._shape[:] = 0

    def check_fenced(self, warp: Actor, site: int, registers: RegisterList) -> None:
        """`wgmma.mma_async` is about to use `registers`."""
        states = self._since_fence[registers.rows]
        worst = int(states.max())
        if worst != _ORDERED:
            what = f"between the last access to {registers.name_of(states == worst)} and wgmma.mma_async"
            kind = ViolationKind.CONVENTION if worst == _MOVED else ViolationKind.ASYNC_MMA
            before = "" if worst == _MOVED else ", or before the first one"
            _fault(warp, site, f"no wgmma.fence {what}{before}", kind)
            self._since_fence[registers.rows] = _ORDERED
        self._fenced_since_use[registers.rows] = False

    def check_shape(self, warp: Actor, site: int, registers: RegisterList, shape: int) -> None:
        """Accumulators pass from one `wgmma.mma_async` to the next without a fence only if both have one `shape`."""
        before = self._shape[registers.rows]
        other = (before != 0) & (before != shape)
        if other.any():
            which = f"that both use {registers.name_of(other)}"
            _fault(warp, site, f"no wgmma.fence between two wgmma.mma_async of unlike shapes {which}")
        self._shape[registers.rows] = shape

    def check_written(self, warp: Actor, site: int, registers: RegisterList) -> None:
        """A `wgmma.mma_async` is about to add to accumulators."""
        missing = np.logical_not(self._written[registers.rows])
        if missing.any():
            lane = int(np.argmax(missing.any(axis=0)))
            rows: npt.NDArray[np.bool_] = np.any(missing, axis=1)
            message = f"accumulator {registers.name_of(rows)} was never written"
            warp.cta.fault(ViolationKind.UNINITIALIZED, site, warp.thread0 + lane, message)

    def is_held(self, registers: RegisterList) -> bool:
        """True if some `wgmma.mma_async` in flight holds one of `registers`."""
        return bool(self._holder[registers.rows].any())

    def hold(self, site: int, registers: RegisterList, *, writes: bool) -> None:
        """The `wgmma.mma_async` at `site` takes `registers`; those it `writes` are defined when it releases them."""
        self._holder[registers.rows] = site + 1
        if writes:
            self._written[registers.rows] = True

    def give_back(self, registers: RegisterList) -> None:
        """Release `registers`."""
        self._holder[registers.rows] = 0


def _fault(warp: Actor, site: int, message: str, kind: ViolationKind = ViolationKind.ASYNC_MMA) -> None:
    warp.cta.fault(kind, site, int(warp.threads()[0]), message)


def register_list(registers: Sequence[tuple[int, str]]) -> RegisterList:
    """Rows with their names."""
    return RegisterList(np.array([row for row, _ in registers], np.intp), tuple(name for _, name in registers))
