"""The MMA atom of the `simt` family: one fused multiply-add by one thread.

CUTLASS `cute/arch/mma.hpp`, struct UniversalFMA; the DSL's MmaUniversalOp. PTX ISA, "Floating Point Instructions: fma".
Operands of other types are converted to f32 first, which is exact for f16 and bf16.
"""

from __future__ import annotations

from cutegen.algebra import Layout
from cutegen.arch.dtypes import dtype
from cutegen.arch.mma_atoms import MmaAtom

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
