"""Compilation targets and the per-SM resources that bound a kernel there.

Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (threads, CTAs, registers and
shared memory per SM and per CTA), and `cuda_occupancy.h` of CUDA 13.0 (allocation granularities).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cutegen.arch.lookup import find

KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One compute capability; `gpu_arch` is what the compiler is told, `name` what specs and people say.

    A CTA's shared memory costs the SM `smem_reserved_per_cta_bytes` more than it asks for, rounded up to
    `smem_allocation_unit_bytes`; a warp's registers are allocated in units of `register_allocation_unit`.
    """

    name: str
    gpu_arch: str
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

    @property
    def compute_capability(self) -> tuple[int, int]:
        """(major, minor), as the driver reports it."""
        digits = self.name.removeprefix("sm_")
        return int(digits[:-1]), int(digits[-1])

    @property
    def has_bulk_tensor_copies(self) -> bool:
        """Whether there is a tensor memory accelerator: from compute capability 9.0 on (PTX ISA)."""
        return self.compute_capability >= (9, 0)

    @property
    def packs_f32(self) -> bool:
        """Whether two f32 in a register of 64 bits are operands: from compute capability 10.0 on (PTX ISA, "fma")."""
        return self.compute_capability >= (10, 0)

    @property
    def widens_in_fma(self) -> bool:
        """Whether f16 and bf16 are operands of an f32 fma: from compute capability 10.0 on (PTX ISA, "fma")."""
        return self.compute_capability >= (10, 0)

    def has_all_of(self, name: str) -> bool:
        """Whether it is the target called `name` or a later one, and so has that one's instructions.

        >>> target("sm_120").has_all_of("sm_89"), target("sm_90").has_all_of("sm_100")
        (True, False)
        """
        return self.compute_capability >= TARGETS[name].compute_capability


def _target(
    name: str, gpu_arch: str, *, smem_per_sm_kib: int, smem_per_cta_kib: int, threads_per_sm: int, ctas_per_sm: int
) -> Target:
    return Target(
        name=name,
        gpu_arch=gpu_arch,
        smem_per_cta_bytes=smem_per_cta_kib * KIB,
        smem_per_sm_bytes=smem_per_sm_kib * KIB,
        threads_per_sm=threads_per_sm,
        ctas_per_sm=ctas_per_sm,
    )


# One row per compute capability, columns in the order of the guide's table.
# fmt: off
_ROWS = (
    _target("sm_80",  "sm_80",   smem_per_sm_kib=164, smem_per_cta_kib=163, threads_per_sm=2048, ctas_per_sm=32),
    _target("sm_86",  "sm_86",   smem_per_sm_kib=100, smem_per_cta_kib=99,  threads_per_sm=1536, ctas_per_sm=16),
    _target("sm_89",  "sm_89",   smem_per_sm_kib=100, smem_per_cta_kib=99,  threads_per_sm=1536, ctas_per_sm=24),
    _target("sm_90",  "sm_90a",  smem_per_sm_kib=228, smem_per_cta_kib=227, threads_per_sm=2048, ctas_per_sm=32),
    _target("sm_100", "sm_100a", smem_per_sm_kib=228, smem_per_cta_kib=227, threads_per_sm=2048, ctas_per_sm=32),
    _target("sm_120", "sm_120a", smem_per_sm_kib=100, smem_per_cta_kib=99,  threads_per_sm=1536, ctas_per_sm=24),
)
# fmt: on

TARGETS: Mapping[str, Target] = {row.name: row for row in _ROWS}


def target(name: str) -> Target:
    """The target called `name`, with or without the `a` of an architecture-specific target. Raises RequestError.

    >>> target("sm_90a") is target("sm_90")
    True
    >>> target("sm_80").smem_per_cta_bytes
    166912
    """
    by_gpu_arch = {row.gpu_arch: row for row in _ROWS}
    return by_gpu_arch[name] if name in by_gpu_arch else find(TARGETS, name, "target")
