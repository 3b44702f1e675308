"""A kernel that does one thing at the hardware's full rate, as PTX text that the driver compiles."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakKernel:
    """Launch that the kernel needs, and the operations of a CTA per iteration.

    Its parameters are the address of 4 bytes per thread, the address of 8 bytes per CTA, the iterations and a seed. A
    thread stores a digest of its sums, a CTA the clock cycles of its loop.
    """

    ptx: str
    entry: str
    threads: int
    ctas_per_sm: int
    smem_bytes: int
    flops_per_iteration: int

    def flops(self, iterations: int, ctas: int) -> int:
        """Return the operations of one launch."""
        return self.flops_per_iteration * iterations * ctas
