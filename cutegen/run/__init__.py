"""Runs an artifact on a GPU through cuda-python, or its PTX on the CPU.

    kernel.py     Kernel: the call; probe.py Probe: the call of a kernel that writes registers out
    plan_table.py what an artifact's plan.json says to those who launch it, checked
    call/         operands read, checked and allocated, whatever computes on them
    gpu/          launches, tensor maps and workspaces on a GPU
    cpu.py        executes the PTX instead; imported by the first call that does
    driver.py     the CUDA driver, its errors made readable
    foreign.py    kernels that are not ours: their arguments, and what several orders find

Operands are checked before every launch. Whether a result is right is for `cutegen.verify` to say.
"""

from __future__ import annotations

from cutegen.run.call.bits import bf16_bits, float8_bits
from cutegen.run.call.transposed_copies import KeptCopies, kept_copies
from cutegen.run.kernel import Kernel
from cutegen.run.probe import Probe, Registers

__all__ = ["KeptCopies", "Kernel", "Probe", "Registers", "bf16_bits", "float8_bits", "kept_copies"]
