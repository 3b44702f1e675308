"""A kernel that does one thing as fast as the hardware can, as PTX text that the driver compiles."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakKernel:
    """Launch that the kernel needs, and how many operations a CTA carries out in an iteration.

    Its parameters are the address of 4 bytes for each thread, the address of 8 bytes for each CTA, the iterations and a
    seed. A thread stores a digest of its sums, a CTA the clock cycles that its loop took.
    """

    ptx: str
    entry: str
    threads: int
    ctas_per_sm: int
    smem_bytes: int
    flops_per_iteration: int

    def flops(self, iterations: int, ctas: int) -> int:
        """Operations of one launch."""
        return self.flops_per_iteration * iterations * ctas
