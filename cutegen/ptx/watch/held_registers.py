"""The registers that `wgmma` holds: accumulators and fragments of A, from the issue until their group is waited for.

Source: PTX ISA, `wgmma.mma_async`, `wgmma.fence`. Rows count in the 32-bit register file. Only the instructions that
touch a row which some `wgmma` names are watched (`prepare`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cutegen.ptx.text.types import WARP_LANES
from cutegen.ptx.watch.actor import Actor
from cutegen.ptx.watch.violations import ViolationKind

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class RegisterList:
    """Registers of an operand: their rows, and their names for messages."""

    rows: Rows
    names: tuple[str, ...]

    def name_of(self, found: npt.NDArray[np.bool_]) -> str:
        """The name of the first that was found."""
        return self.names[int(np.argmax(found))]


class HeldRegisters:
    """The state of one warp's registers: who holds them, and what a `wgmma.fence` has still to order."""

    def __init__(self, rows: int) -> None:
        self._holder = np.zeros(rows, np.int64)
        self._touched = np.ones(rows, bool)
        self._shape = np.zeros(rows, np.int64)
        self._written = np.zeros((rows, WARP_LANES), bool)

    def touch(self, warp: Actor, site: int, registers: RegisterList, written: Rows) -> None:
        """An instruction other than `wgmma` reads or writes `registers`."""
        holders = self._holder[registers.rows]
        if holders.any():
            found = holders != 0
            where = warp.cta.describe(int(holders[found][0]) - 1)
            message = f"access to {registers.name_of(found)}, which wgmma.mma_async holds ({where})"
            _fault(warp, site, f"{message}: no wgmma.wait_group has waited for its group")
        self._touched[registers.rows] = True
        if len(written):
            self._written[written] |= warp.mask

    def fence(self) -> None:
        """`wgmma.fence`."""
        self._touched[:] = False
        self._shape[:] = 0

    def check_fenced(self, warp: Actor, site: int, registers: RegisterList) -> None:
        """`wgmma.mma_async` is about to use `registers`."""
        touched = self._touched[registers.rows]
        if touched.any():
            what = f"between the last access to {registers.name_of(touched)} and wgmma.mma_async"
            _fault(warp, site, f"no wgmma.fence {what}, or before the first one")

    def check_shape(self, warp: Actor, site: int, registers: RegisterList, shape: int) -> None:
        """Accumulators go from one `wgmma.mma_async` to the next without a fence only where both have one `shape`."""
        before = self._shape[registers.rows]
        other = (before != 0) & (before != shape)
        if other.any():
            which = f"that both use {registers.name_of(other)}"
            _fault(warp, site, f"no wgmma.fence between two wgmma.mma_async of unlike shapes {which}")
        self._shape[registers.rows] = shape

    def check_written(self, warp: Actor, site: int, registers: RegisterList) -> None:
        """Accumulators are about to be added to."""
        missing = np.logical_not(self._written[registers.rows])
        if missing.any():
            lane = int(np.argmax(missing.any(axis=0)))
            rows: npt.NDArray[np.bool_] = np.any(missing, axis=1)
            message = f"accumulator {registers.name_of(rows)} was never written"
            warp.cta.fault(ViolationKind.UNINITIALISED, site, warp.thread0 + lane, message)

    def is_held(self, registers: RegisterList) -> bool:
        """True where some `wgmma.mma_async` in flight holds one of `registers`."""
        return bool(self._holder[registers.rows].any())

    def hold(self, site: int, registers: RegisterList, *, writes: bool) -> None:
        """The `wgmma.mma_async` at `site` takes `registers`; what it `writes` has a value when it gives them back."""
        self._holder[registers.rows] = site + 1
        if writes:
            self._written[registers.rows] = True

    def give_back(self, registers: RegisterList) -> None:
        """Nobody holds `registers` any more."""
        self._holder[registers.rows] = 0


def _fault(warp: Actor, site: int, message: str) -> None:
    warp.cta.fault(ViolationKind.ASYNC_MMA, site, int(warp.threads()[0]), message)


def register_list(registers: Sequence[tuple[int, str]]) -> RegisterList:
    """Rows with their names."""
    return RegisterList(np.array([row for row, _ in registers], np.intp), tuple(name for _, name in registers))
