"""Registers that the warps of a CTA reallocate by `setmaxnreg`.

Source: PTX ISA, `setmaxnreg`: `.dec` releases registers to the CTA's pool, `.inc` waits until the pool has enough. A
CTA starts with the number of registers per thread that the entry's directives let ptxas assign, or without directives
with the most that the SM has for it, and gets no more: if its warps request more in total, they wait forever.
"""

from dataclasses import dataclass

from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.text.syntax import Entry

OF_MULTIPROCESSOR, MOST, STEP = 1 << 16, 256, 8
"""32-bit registers per SM, the maximum per thread, and the allocation granularity."""


def launch_registers(entry: Entry, threads: int) -> int:
    """Registers per thread at the start of a CTA of `threads`."""
    most = min(MOST, OF_MULTIPROCESSOR // (entry.min_ctas * threads) // STEP * STEP)
    return most if entry.max_registers is None else min(most, entry.max_registers)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterChange:
    """A `setmaxnreg`: its warps get `count` registers per thread."""

    count: int
    increase: bool


class RegisterPool:
    """Registers of the `warps` of a CTA, `each` per thread at first; `phase` counts how often a warp released some."""

    def __init__(self, warps: int, each: int) -> None:
        self.phase = 0
        self._free = 0
        self._of_warp = [each] * warps

    def awaited(self) -> str:
        """Name of this object, for messages."""
        have = ", ".join(map(str, self._of_warp[::4]))
        return f"registers: its CTA has {self._free} a thread of one warp left, and its warpgroups have {have} a thread"

    def change(self, warp: Warp, to: RegisterChange) -> bool:
        """Changes what `warp` has; False if it must wait until others have released theirs.

        An increase to fewer and a decrease to more, which PTX leaves open, change nothing.
        """
        has, count = self._of_warp[warp.number], to.count
        if (count > has) is not to.increase:
            return True
        if count - has > self._free:
            return False
        self._free -= count - has
        self._of_warp[warp.number] = count
        self.phase += count < has
        return True
