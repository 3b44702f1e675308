"""The GPU that is assumed for a target when a plan is made for a problem: SMs, L2, device memory.

Sources: NVIDIA's white papers of A100 (40 GB: 108 SMs, 40 MB of L2, 1,555 GB/s), GA102 (GeForce RTX 3090:
82, 6 MB, 936 GB/s), Ada (GeForce RTX 4090: 128, 72 MB, 1,008 GB/s), H100 and the data sheet of H200 (132, 50 MB,
4.8 TB/s), Blackwell (B200: 148, 126 MB, 8 TB/s; GeForce RTX 5090: 170, 96 MB, 1,792 GB/s). Clocks are boost clocks.
The row of B300 has no source: it is assumed to be as B200's, and only ranks kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One product: the SMs that share an L2 cache of `l2_bytes` and device memory of a peak bandwidth.

    `fitted` says that the time models were fitted to kernels measured on it; for the others only rates are known.
    """

    name: str
    sms: int
    l2_bytes: int
    memory_bytes_per_s: float
    clock_hz: float
    fitted: bool = False

    def __str__(self) -> str:
        return f"{self.name} ({self.sms} SMs)"


GPUS: Mapping[str, Gpu] = {
    "sm_80": Gpu(name="A100", sms=108, l2_bytes=40 * MIB, memory_bytes_per_s=1.555e12, clock_hz=1.41e9),
    "sm_86": Gpu(name="RTX 3090", sms=82, l2_bytes=6 * MIB, memory_bytes_per_s=0.936e12, clock_hz=1.695e9),
    "sm_89": Gpu(name="RTX 4090", sms=128, l2_bytes=72 * MIB, memory_bytes_per_s=1.008e12, clock_hz=2.52e9),
    "sm_90": Gpu(name="H200", sms=132, l2_bytes=50 * MIB, memory_bytes_per_s=4.8e12, clock_hz=1.98e9, fitted=True),
    "sm_100": Gpu(name="B200", sms=148, l2_bytes=126 * MIB, memory_bytes_per_s=8.0e12, clock_hz=1.965e9),
    "sm_103": Gpu(name="B300", sms=148, l2_bytes=126 * MIB, memory_bytes_per_s=8.0e12, clock_hz=1.965e9),
    "sm_120": Gpu(name="RTX 5090", sms=170, l2_bytes=96 * MIB, memory_bytes_per_s=1.792e12, clock_hz=2.407e9),
}
"""The one assumed GPU of each target, by its name as in `TARGETS`."""
