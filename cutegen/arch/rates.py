"""What one multiprocessor does in a clock cycle, on each target: what a kernel's main loop is bounded by.

Tensor cores, dense f16 through `mma.sync`: NVIDIA's white papers of A100 (1024 multiply-adds), GA102 and Ada (512;
GeForce cards do half of that with f32 accumulation). On sm_90 `mma.sync` does not reach what `wgmma` does, but 62.9% of
its 4096 operations: Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture" (arXiv 2402.13499).
L2: the white paper of A100, 5120 bytes for 108 multiprocessors. Shared memory: 32 banks of 4 bytes (CUDA C++
Programming Guide, "Shared Memory"). Issue: four schedulers, one warp instruction each (the same guide).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SmRates:
    """Per multiprocessor and cycle; None where there is no source, so that only measuring helps.

    A wavefront is one pass over the banks of shared memory.
    """

    mma_flops: float | None = None
    l2_bytes: float | None = None
    wavefronts: float = 1
    issued: float = 4


SM_RATES: Mapping[str, SmRates] = {
    "sm_80": SmRates(mma_flops=2048, l2_bytes=5120 / 108),
    "sm_86": SmRates(mma_flops=1024),
    "sm_89": SmRates(mma_flops=1024),
    "sm_90": SmRates(mma_flops=0.629 * 4096),
    "sm_100": SmRates(),
    "sm_120": SmRates(mma_flops=1024),
}
