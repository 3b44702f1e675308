"""Runs an artifact on a GPU through cuda-python, or its PTX on the CPU.

    operands.py   a caller's tensor -> TensorView (dlpack.py reads capsules, cuda_array.py the CUDA array interface)
    storage.py    how each matrix has to lie in memory; allocation
    check.py      do these operands fit this kernel (fixes.py: what to paste if not)
    places.py     where they lie: alignment, shared memory
    extras.py     what a call hands in for the epilogue, and nothing else
    driver.py     the CUDA driver, its errors made readable
    gpu.py        launches; cpu.py executes the PTX instead; streams.py picks the stream
    kept.py       transposed copies of B, made once and kept
    plan_table.py what an artifact's plan.json says to those who launch it, checked
    kernel.py     Kernel: the call
    bits.py       floats that NumPy has no type for
    probe.py      Probe: the call of a kernel that writes registers out
    received.py   what a probe's registers hold, beside what they should
    reference.py  random operands, the float64 reference, the comparison
    bounded.py    the epilogue in float64, with a bound on float32's errors
    counts.py     what the executor counted, beside what the plan predicts (probe_counts.py: of a probe)
    foreign.py    kernels that are not ours: their arguments, and what several orders find
    producer.py   which CTA, thread and register computed an element

Operands are checked before every launch; what the reference says of a result is the caller's to ask.
"""

from __future__ import annotations

from cutegen.run.bits import bf16_bits, float8_bits
from cutegen.run.bounded import Bounded, Outcome
from cutegen.run.kept import KeptCopies, kept_copies
from cutegen.run.kernel import Kernel
from cutegen.run.probe import Probe, Registers
from cutegen.run.reference import (
    Comparison,
    FirstWrong,
    Reference,
    compare,
    expected_outcome,
    float64_reference,
    random_extras,
    random_operands,
)

__all__ = [
    "Bounded",
    "Comparison",
    "FirstWrong",
    "KeptCopies",
    "Kernel",
    "Outcome",
    "Probe",
    "Reference",
    "Registers",
    "bf16_bits",
    "compare",
    "expected_outcome",
    "float8_bits",
    "float64_reference",
    "kept_copies",
    "random_extras",
    "random_operands",
]
