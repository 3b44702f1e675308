"""Compilation targets, the per-SM resources that limit a kernel, and the GPU that is assumed for each."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from cutegen.errors import DeviceError
from cutegen.hardware.lookup import find
from cutegen.hardware.multiplies import OF_SM_80, OF_SM_89, OF_SM_90A, OF_SM_100A, OF_SM_103A, OF_SM_120A, Instruction

# Compilation targets and the per-SM resources that limit a kernel.
#
# Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (threads, CTAs, registers and
# shared memory per SM and per CTA), and `cuda_occupancy.h` of CUDA 13.0 (allocation granularities). The resources of
# sm_103 are assumed to be those of sm_100; ptxas accepts its kernels.


KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One compute capability; `gpu_arch` is for the compiler, `name` for specs and people.

    A CTA's shared memory costs the SM `smem_reserved_per_cta_bytes` more than it requests, rounded up to
    `smem_allocation_unit_bytes`; a warp's registers are allocated in units of `register_allocation_unit`. `unused` is
    the instruction that its tensor cores are made for, if the families for all GPUs do not issue it.
    """

    name: str
    gpu_arch: str
    instructions: frozenset[Instruction]
    smem_per_cta_bytes: int
    smem_per_sm_bytes: int
    threads_per_sm: int
    ctas_per_sm: int
    smem_reserved_per_cta_bytes: int = KIB
    smem_allocation_unit_bytes: int = 128
    registers_per_sm: int = 64 * KIB
    registers_per_thread: int = 255
    register_allocation_unit: int = 256
    warp_allocation_unit: int = 4
    threads_per_cta: int = 1024
    unused: str = ""

    @property
    def compute_capability(self) -> tuple[int, int]:
        """(major, minor), as the driver reports it."""
        digits = self.name.removeprefix("sm_")
        return int(digits[:-1]), int(digits[-1])

    @property
    def remarks(self) -> tuple[str, ...]:
        """Notes for a user on every kernel for this target, a sentence each.

        >>> target("sm_100").remarks
        ('tcgen05, which the tensor cores of sm_100 are made for, is not used: torch is likely faster',)
        """
        if not self.unused:
            return ()
        made_for = f"{self.unused}, which the tensor cores of {self.name} are made for"
        return (f"{made_for}, is not used: torch is likely faster",)

    def has(self, *instructions: Instruction) -> bool:
        """Return whether the target has all of these instructions.

        >>> target("sm_90").has(Instruction.WGMMA), target("sm_100").has(Instruction.WGMMA)
        (True, False)
        """
        return self.instructions.issuperset(instructions)


def _target(
    name: str,
    gpu_arch: str,
    instructions: frozenset[Instruction],
    *,
    smem_sm_kib: int,
    smem_cta_kib: int,
    sm_threads: int,
    sm_ctas: int,
    unused: str = "",
) -> Target:
    return Target(
        name=name,
        gpu_arch=gpu_arch,
        instructions=instructions,
        smem_per_cta_bytes=smem_cta_kib * KIB,
        smem_per_sm_bytes=smem_sm_kib * KIB,
        threads_per_sm=sm_threads,
        ctas_per_sm=sm_ctas,
        unused=unused,
    )


# One row per compute capability, columns in the order of the guide's table.
# fmt: off
_ROWS = (
    _target("sm_80",  "sm_80",   OF_SM_80,    smem_sm_kib=164, smem_cta_kib=163, sm_threads=2048, sm_ctas=32),
    _target("sm_86",  "sm_86",   OF_SM_80,    smem_sm_kib=100, smem_cta_kib=99,  sm_threads=1536, sm_ctas=16),
    _target("sm_89",  "sm_89",   OF_SM_89,    smem_sm_kib=100, smem_cta_kib=99,  sm_threads=1536, sm_ctas=24),
    _target("sm_90",  "sm_90a",  OF_SM_90A,   smem_sm_kib=228, smem_cta_kib=227, sm_threads=2048, sm_ctas=32),
    _target("sm_100", "sm_100a", OF_SM_100A,  smem_sm_kib=228, smem_cta_kib=227, sm_threads=2048, sm_ctas=32,
            unused="tcgen05"),
    _target("sm_103", "sm_103a", OF_SM_103A,  smem_sm_kib=228, smem_cta_kib=227, sm_threads=2048, sm_ctas=32,
            unused="tcgen05"),
    _target("sm_120", "sm_120a", OF_SM_120A,  smem_sm_kib=100, smem_cta_kib=99,  sm_threads=1536, sm_ctas=24),
)
# fmt: on

TARGETS: Mapping[str, Target] = {row.name: row for row in _ROWS}
"""Targets by name, in order of compute capability."""


def targets_with(*instructions: Instruction) -> tuple[str, ...]:
    """Return the names of the targets that have all of these; empty if no target has.

    >>> targets_with(Instruction.BULK_TENSOR), targets_with(Instruction.WGMMA, Instruction.LDMATRIX_B8_TRANS)
    (('sm_90', 'sm_100', 'sm_103', 'sm_120'), ())
    """
    return tuple(row.name for row in _ROWS if row.has(*instructions))


def target(name: str) -> Target:
    """Return the target called `name`, with or without the `a` of an architecture-specific target. Raises RequestError.

    >>> target("sm_90a") is target("sm_90")
    True
    >>> target("sm_80").smem_per_cta_bytes
    166912
    """
    by_gpu_arch = {row.gpu_arch: row for row in _ROWS}
    return by_gpu_arch[name] if name in by_gpu_arch else find(TARGETS, name, "target")


def runs_on(gpu_arch: str, capability: tuple[int, int]) -> bool:
    """Return whether a cubin for `gpu_arch` runs on a GPU of this compute capability.

    It requires the same major and the same or a later minor; with the suffix `a`, exactly its own. Source: CUDA C++
    Programming Guide, "Binary Compatibility" and "Feature Set Compiler Targets".

    >>> runs_on("sm_80", (8, 9)), runs_on("sm_80", (9, 0)), runs_on("sm_90a", (9, 0)), runs_on("sm_100a", (10, 3))
    (True, False, True, False)
    """
    match = re.fullmatch(r"sm_(\d+)(\d)([af]?)", gpu_arch)
    if match is None:
        raise DeviceError(f"the artifact names the architecture {gpu_arch!r}; expected one like sm_80 or sm_90a")
    major, minor, suffix = int(match[1]), int(match[2]), match[3]
    if suffix == "a":
        return (major, minor) == capability
    return major == capability[0] and minor <= capability[1]


# The GPU that is assumed for a target when a plan is made for a problem: SMs, L2, device memory.
#
# Sources: NVIDIA's white papers of A100 (40 GB: 108 SMs, 40 MB of L2, 1,555 GB/s), GA102 (GeForce RTX 3090: 82, 6 MB,
# 936 GB/s), Ada (GeForce RTX 4090: 128, 72 MB, 1,008 GB/s), H100 and the data sheet of H200 (132, 50 MB, 4.8 TB/s),
# Blackwell (B200: 148, 126 MB, 8 TB/s; GeForce RTX 5090: 170, 96 MB, 1,792 GB/s). Clocks are boost clocks. The row of
# B300 has no source: it is assumed to be as B200's, and only ranks kernels.


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
