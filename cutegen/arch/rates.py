"""What one multiprocessor does in a clock cycle, on each target: what a kernel's main loop is bounded by.

Tensor cores, dense f16 through `mma.sync` (the same papers have tf32 at half that rate, 8-bit integers and floats at
twice): NVIDIA's white papers of A100 (1024 multiply-adds), GA102 and Ada (512;
GeForce cards do half of that with f32 accumulation). On sm_90 `mma.sync` does not reach what `wgmma` does, but 62.9% of
its 4096 operations: Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture" (arXiv 2402.13499).
On sm_90 and sm_100 ptxas makes f16 of 8-bit floats (F2FP and HMMA in the disassembly).
f32 multiply-adds: CUDA C++ Programming Guide, "Arithmetic Instructions", throughput of native instructions.
L2: the white paper of A100, 5120 bytes for 108 multiprocessors. Shared memory: 32 banks of 4 bytes (CUDA C++
Programming Guide, "Shared Memory"). Issue: four schedulers, one warp instruction each (the same guide).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cutegen.arch.dtypes import dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class SmRates:
    """Per multiprocessor and cycle; None where there is no source, so that only measuring helps.

    `mma_flops` are of f16, and of 8-bit floats too where they are multiplied as such. A wavefront is one pass over the
    banks of shared memory.
    """

    mma_flops: float | None = None
    fma_flops: float | None = None
    float8_as_f16: bool = False
    l2_bytes: float | None = None
    wavefronts: float = 1
    issued: float = 4

    def mma_flops_of(self, operands: str) -> float | None:
        """Operations on operands of a type, where `mma_flops` are those on f16.

        >>> SM_RATES["sm_80"].mma_flops_of("tf32"), SM_RATES["sm_80"].mma_flops_of("s8")
        (1024.0, 4096.0)
        """
        if self.mma_flops is None or (self.float8_as_f16 and operands in ("e4m3", "e5m2")):
            return self.mma_flops
        return self.mma_flops * 16 / dtype(operands).bits


SM_RATES: Mapping[str, SmRates] = {
    "sm_80": SmRates(mma_flops=2048, fma_flops=128, l2_bytes=5120 / 108),
    "sm_86": SmRates(mma_flops=1024, fma_flops=256),
    "sm_89": SmRates(mma_flops=1024, fma_flops=256),
    "sm_90": SmRates(mma_flops=0.629 * 4096, fma_flops=256, float8_as_f16=True),
    "sm_100": SmRates(fma_flops=256, float8_as_f16=True),
    "sm_120": SmRates(mma_flops=1024, fma_flops=256),
}
