"""The MMA atom of the `simt` family: one fused multiply-add by one thread.

CUTLASS `cute/arch/mma.hpp`, struct UniversalFMA; the DSL's MmaUniversalOp. PTX ISA, "Floating Point Instructions: fma".
Operands of other types are converted to f32 first, which is exact for f16 and bf16.
"""

from __future__ import annotations

from dataclasses import replace

from cutegen.algebra import Layout
from cutegen.hardware.dtypes import DType, dtype
from cutegen.hardware.instructions import Instruction
from cutegen.hardware.mma_atoms import MmaAtom
from cutegen.hardware.targets import Target

UNIVERSAL_FMA = MmaAtom(
    name="UniversalFMA",
    ptx="fma.rn.f32",
    shape_mnk=(1, 1, 1),
    a_dtype=dtype("f32"),
    b_dtype=dtype("f32"),
    c_dtype=dtype("f32"),
    thr_id=Layout(1),
    a_layout=Layout((1, 1)),
    b_layout=Layout((1, 1)),
    c_layout=Layout((1, 1)),
)


def fma_atom(a: DType, b: DType, target: Target) -> MmaAtom:
    """Return `UNIVERSAL_FMA` on elements of these types, with the opcode that the compiler writes.

    If the instruction takes two 16-bit operands directly, the compiler omits their conversions.

    >>> from cutegen.hardware import target
    >>> [fma_atom(dtype("bf16"), dtype("bf16"), target(arch)).ptx for arch in ("sm_90", "sm_100")]
    ['fma.rn.f32', 'fma.rn.f32.bf16']
    """
    if not (target.has(Instruction.FMA_WIDENING) and a == b and a.name in ("f16", "bf16")):
        return UNIVERSAL_FMA
    return replace(UNIVERSAL_FMA, ptx=f"{UNIVERSAL_FMA.ptx}.{a.name}")
