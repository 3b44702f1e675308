"""Instructions that not every target has, by names that identify the relevant forms.

Sources: PTX ISA, the "Target ISA Notes" of each instruction.
"""

from __future__ import annotations

from enum import StrEnum


class Instruction(StrEnum):
    """An instruction, or a form of one; MMA instructions have a rate (`cutegen/hardware/rates.py`)."""

    FMA = "fma"
    FMA_PACKED = "fma.rn.f32x2"
    """Two f32 in a 64-bit register are operands: sm_100 and later."""
    FMA_WIDENING = "fma.rn.f32.f16"
    """f16 and bf16 are operands of an f32 fma: sm_100 and later."""
    MMA_SYNC = "mma.sync"
    """`mma.sync` of f16, bf16, tf32 and 8-bit integers: sm_80 and later."""
    MMA_SYNC_FLOAT8 = "mma.sync.e4m3"
    """`mma.sync` of 8-bit floats, which no instruction of an earlier target supports: sm_89 and later."""
    WGMMA = "wgmma.mma_async"
    """sm_90a alone."""
    TCGEN05 = "tcgen05.mma"
    """sm_100a, sm_103a, sm_110a and similar: tensor memory, and the instructions on it."""
    TCGEN05_I8 = "tcgen05.mma.kind::i8"
    """`tcgen05.mma` of 8-bit integers: sm_100a and sm_110a; ptxas refuses it for sm_103a."""
    LDMATRIX = "ldmatrix"
    """`ldmatrix` of 16-bit elements: sm_75 and later."""
    LDMATRIX_B8_TRANS = "ldmatrix.b8.trans"
    """`ldmatrix` of 8-bit elements, transposed: sm_100a, sm_120a and similar."""
    CP_ASYNC = "cp.async"
    """sm_80 and later."""
    BULK_TENSOR = "cp.async.bulk.tensor"
    """sm_90 and later."""
    SETMAXNREG = "setmaxnreg"
    """sm_90a, sm_100a, sm_120a and similar."""


OF_SM_80 = frozenset({Instruction.FMA, Instruction.MMA_SYNC, Instruction.LDMATRIX, Instruction.CP_ASYNC})
OF_SM_89 = OF_SM_80 | {Instruction.MMA_SYNC_FLOAT8}
OF_SM_90A = OF_SM_89 | {Instruction.BULK_TENSOR, Instruction.SETMAXNREG, Instruction.WGMMA}
OF_SM_120A = OF_SM_89 | {
    Instruction.BULK_TENSOR,
    Instruction.SETMAXNREG,
    Instruction.LDMATRIX_B8_TRANS,
    Instruction.FMA_PACKED,
    Instruction.FMA_WIDENING,
}
"""Instructions of sm_120a: those without tensor memory, which RTX and DGX Spark lack."""
OF_SM_103A = OF_SM_120A | {Instruction.TCGEN05}
OF_SM_100A = OF_SM_103A | {Instruction.TCGEN05_I8}
