"""Registers that the warps of a CTA hand over by `setmaxnreg`.

Source: PTX ISA, `setmaxnreg`: `.dec` gives registers to the CTA's pool, `.inc` waits until the pool has enough. A CTA
begins with as many a thread as the entry's directives let ptxas give, and gets no more: what its warps want together
beyond that is waited for without an end.
"""

from __future__ import annotations

from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.text.syntax import Entry

OF_MULTIPROCESSOR, MOST, STEP = 1 << 16, 256, 8
"""Registers of 32 bits that a multiprocessor has, the most that a thread may have, and what they are given out by."""


def launch_registers(entry: Entry, threads: int) -> int | None:
    """Registers of each thread as a CTA of `threads` begins; None where no directive bounds them."""
    if entry.max_registers is not None:
        return entry.max_registers
    if entry.required_block is None and entry.max_block is None:
        return None
    return min(MOST, OF_MULTIPROCESSOR // (entry.min_ctas * threads) // STEP * STEP)


class RegisterPool:
    """Registers that the `warps` of a CTA have, `each` a thread at first; `phase` counts how often one gave some."""

    def __init__(self, warps: int, each: int | None) -> None:
        self.phase = 0
        self._free = 0
        self._of_warp = [each] * warps

    def awaited(self) -> str:
        """Name of what a warp waits for here, for messages."""
        have = ", ".join(map(str, self._of_warp[::4]))
        return f"registers: its CTA has {self._free} a thread of one warp left, and its warpgroups have {have} a thread"

    def change(self, warp: Warp, count: int, *, increase: bool) -> bool:
        """Let `warp` have `count` registers a thread; False where it must wait until others have given theirs.

        An increase to fewer and a decrease to more, which PTX leaves open, change nothing.
        """
        has = self._of_warp[warp.number]
        if has is None or (count > has) is not increase:
            return True
        if count - has > self._free:
            return False
        self._free -= count - has
        self._of_warp[warp.number] = count
        self.phase += count < has
        return True
