"""Instructions that not every target has, by names that say as much of their forms as matters here.

Sources: PTX ISA, the "Target ISA Notes" of each instruction.
"""

from __future__ import annotations

from enum import StrEnum


class Instruction(StrEnum):
    """An instruction, or a form of one; what is multiplied by it has a rate (`cutegen/hardware/rates.py`)."""

    FMA = "fma"
    FMA_PACKED = "fma.rn.f32x2"
    """Two f32 in a register of 64 bits are operands: sm_100 and later."""
    FMA_WIDENING = "fma.rn.f32.f16"
    """f16 and bf16 are operands of an f32 fma: sm_100 and later."""
    MMA_SYNC = "mma.sync"
    """Of f16, bf16, tf32 and 8-bit integers: sm_80 and later."""
    MMA_SYNC_FLOAT8 = "mma.sync.e4m3"
    """Of 8-bit floats, which no instruction of an earlier target knows: sm_89 and later."""
    WGMMA = "wgmma.mma_async"
    """sm_90a alone."""
    LDMATRIX = "ldmatrix"
    """Of 16-bit elements: sm_75 and later."""
    LDMATRIX_B8_TRANS = "ldmatrix.b8.trans"
    """Of 8-bit elements, transposed: sm_100a, sm_120a and their like."""
    CP_ASYNC = "cp.async"
    """sm_80 and later."""
    BULK_TENSOR = "cp.async.bulk.tensor"
    """sm_90 and later."""
    SETMAXNREG = "setmaxnreg"
    """sm_90a, sm_100a, sm_120a and their like."""


OF_SM_80 = frozenset({Instruction.FMA, Instruction.MMA_SYNC, Instruction.LDMATRIX, Instruction.CP_ASYNC})
OF_SM_89 = OF_SM_80 | {Instruction.MMA_SYNC_FLOAT8}
OF_SM_90A = OF_SM_89 | {Instruction.BULK_TENSOR, Instruction.SETMAXNREG, Instruction.WGMMA}
OF_SM_100A = OF_SM_89 | {
    Instruction.BULK_TENSOR,
    Instruction.SETMAXNREG,
    Instruction.LDMATRIX_B8_TRANS,
    Instruction.FMA_PACKED,
    Instruction.FMA_WIDENING,
}
"""Those of sm_120a as well: of sm_100a's own, `tcgen05` among them, none is listed."""
