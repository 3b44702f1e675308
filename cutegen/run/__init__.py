"""Runs an artifact on a GPU through cuda-python, or its PTX on the CPU.

    kernel.py     Kernel: the call; probe.py Probe: the call of a kernel that writes out its registers
    plan_table.py reads and checks an artifact's plan.json for a launch
    call/         operands read, checked and allocated, for GPU and CPU
    gpu/          launches, tensor maps and workspaces on a GPU
    cpu.py        executes the PTX instead; imported by the first such call
    driver.py     the CUDA driver, with readable errors
    foreign.py    foreign kernels: their arguments, and the results of several orders; launch_file.py: from a file

Operands are checked before every launch. `cutegen.verify` checks the result.
"""

from cutegen.run.call.bits import bf16_bits, float8_bits
from cutegen.run.call.transposed_copies import KeptCopies, kept_copies
from cutegen.run.kernel import Kernel
from cutegen.run.probe import Probe, Registers

__all__ = ["KeptCopies", "Kernel", "Probe", "Registers", "bf16_bits", "float8_bits", "kept_copies"]
