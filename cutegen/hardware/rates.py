"""Work of one SM per clock cycle, for each target: these rates bound a kernel's main loop.

Tensor cores, dense f16 through `mma.sync` (the same papers give tf32 half that rate, 8-bit integers and floats twice):
NVIDIA's white papers of A100 (1024 multiply-adds), GA102 and Ada (512; GeForce cards reach half of that with f32
accumulation). On sm_90 `wgmma` reaches 4096: NVIDIA's white paper of H100, 989.4 TFLOP/s of 132 SMs at 1830 MHz; tf32
has half of it there, 8-bit types twice. `mma.sync` reaches only 62.9% of it: Luo et al., "Benchmarking and Dissecting
the Nvidia Hopper GPU Architecture" (arXiv 2402.13499), and for it ptxas converts 8-bit floats to f16 on sm_90 and
sm_100 (F2FP and HMMA in the disassembly).
`tcgen05` reaches 8192 on sm_100: NVIDIA's data sheet of DGX B200, 72 PFLOP/s of FP4 by 8 GPUs, a quarter of it for f16,
of 148 SMs at 1.85 GHz. That of sm_103 has no source: it is assumed to be the same.
f32 multiply-adds: CUDA C++ Programming Guide, "Arithmetic Instructions", throughput of native instructions.
L2: the white paper of A100, 5120 bytes for 108 SMs. Shared memory: 32 banks of 4 bytes (CUDA C++
Programming Guide, "Shared Memory"). Issue: four schedulers, one warp instruction each (the same guide).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from cutegen.hardware.dtypes import dtype
from cutegen.hardware.multiplies import Instruction
from cutegen.hardware.units import SCHEDULERS


@dataclass(frozen=True, slots=True, kw_only=True)
class SmRates:
    """Rates per SM and cycle; None without a source, so that only a measurement helps.

    `flops` of each MMA instruction: for `mma.sync` those on f16, and on 8-bit floats if they are multiplied natively;
    for `wgmma` and `tcgen05` those on f16. A wavefront is one pass over the banks of shared memory.
    """

    flops: Mapping[Instruction, float] = field(default_factory=dict)
    float8_as_f16: bool = False
    l2_bytes: float | None = None
    wavefronts: float = 1
    issued: float = SCHEDULERS

    def flops_of(self, instruction: Instruction, operands: str) -> float | None:
        """Return an instruction's operations on operands of a type: tensor cores process as many bytes for any type.

        >>> [SM_RATES["sm_80"].flops_of(Instruction.MMA_SYNC, operands) for operands in ("tf32", "s8")]
        [1024.0, 4096.0]
        """
        found = self.flops.get(instruction)
        as_f16 = instruction is Instruction.MMA_SYNC and self.float8_as_f16 and dtype(operands).is_float8
        by_bytes = instruction is not Instruction.FMA and not as_f16
        return found * 16 / dtype(operands).bits if found is not None and by_bytes else found

    def having(self, instruction: Instruction, flops: float | None) -> Self:
        """Return the same with another rate of one instruction; None if it is not known."""
        others = {name: rate for name, rate in self.flops.items() if name is not instruction}
        return replace(self, flops=others if flops is None else {**others, instruction: flops})


def _rates(
    fma: float, mma_sync: float | None = None, wgmma: float | None = None, tcgen05: float | None = None
) -> dict[Instruction, float]:
    rates = {
        Instruction.FMA: fma,
        Instruction.MMA_SYNC: mma_sync,
        Instruction.WGMMA: wgmma,
        Instruction.TCGEN05: tcgen05,
    }
    return {instruction: rate for instruction, rate in rates.items() if rate is not None}


SM_RATES: Mapping[str, SmRates] = {
    "sm_80": SmRates(flops=_rates(128, 2048), l2_bytes=5120 / 108),
    "sm_86": SmRates(flops=_rates(256, 1024)),
    "sm_89": SmRates(flops=_rates(256, 1024)),
    "sm_90": SmRates(flops=_rates(256, 0.629 * 4096, 4096), float8_as_f16=True),
    "sm_100": SmRates(flops=_rates(256, tcgen05=8192), float8_as_f16=True),
    "sm_103": SmRates(flops=_rates(256, tcgen05=8192), float8_as_f16=True),
    "sm_120": SmRates(flops=_rates(256, 1024)),
}
"""Rates of an SM by target name, as in `TARGETS`; those of multipliers by instruction."""

ASSUMED_MMA_FLOPS = 4096.0
"""Operations of `mma.sync` where its rate is not known, about those of sm_90: enough to rank kernels by their times."""
