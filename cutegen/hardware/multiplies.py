"""Instructions that not every target has, and of those that multiply who issues them, and where their sums are."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from cutegen.hardware.units import WARP, WARPGROUP

# Instructions that not every target has, by names that identify the relevant forms.
#
# Sources: PTX ISA, the "Target ISA Notes" of each instruction.


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


# The multiply instructions: who issues each, where it reads operands, where it accumulates, and on which units.


class Issuer(StrEnum):
    """The threads that execute one instruction together, or the warp that elects one of its threads to issue it."""

    THREAD = "thread"
    WARP = "warp"
    WARPGROUP = "warpgroup"
    ELECTED = "elected thread"

    @property
    def threads(self) -> int:
        """Number of threads; for an elected thread those of its warp."""
        return {Issuer.THREAD: 1, Issuer.WARP: WARP, Issuer.WARPGROUP: WARPGROUP, Issuer.ELECTED: WARP}[self]


class OperandSource(StrEnum):
    """Home of an operand: each thread's registers, shared memory by a descriptor, or tensor memory by an address."""

    RMEM = "registers"
    SMEM = "shared memory"
    TMEM = "tensor memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiply:
    """Abilities of an instruction: its issuer, the homes that A and B may have, and that of the accumulators.

    An `asynchronous` one completes later, which its issuer waits for. `unit` executes it. Its matrix descriptors have
    `descriptor_version` in bits 46 to 48, and may describe elements of `transposes_bits` with M or N contiguous.
    `has_run` is false if no kernel of cutegen with it has run on hardware.
    """

    issued_by: Issuer
    reads_a: frozenset[OperandSource]
    reads_b: frozenset[OperandSource]
    accumulates_in: OperandSource = OperandSource.RMEM
    asynchronous: bool = False
    unit: str = "tensor cores"
    descriptor_version: int = 0
    transposes_bits: frozenset[int] = frozenset()
    has_run: bool = True


_REGISTERS, _SHARED = frozenset({OperandSource.RMEM}), frozenset({OperandSource.SMEM})

MULTIPLIES: Mapping[Instruction, Multiply] = {
    # PTX ISA, "Floating Point Instructions: fma".
    Instruction.FMA: Multiply(issued_by=Issuer.THREAD, reads_a=_REGISTERS, reads_b=_REGISTERS, unit="FMA units"),
    # PTX ISA, "Matrix multiply-accumulate operation using mma instruction": "all threads in the warp must execute".
    Instruction.MMA_SYNC: Multiply(issued_by=Issuer.WARP, reads_a=_REGISTERS, reads_b=_REGISTERS),
    # PTX ISA, "Asynchronous wgmma instructions": A in registers or shared memory, B in shared memory; `imm-trans-a`.
    Instruction.WGMMA: Multiply(
        issued_by=Issuer.WARPGROUP,
        reads_a=_REGISTERS | _SHARED,
        reads_b=_SHARED,
        asynchronous=True,
        transposes_bits=frozenset({16}),
    ),
    # PTX ISA, "tcgen05.mma": one thread issues it; D is in tensor memory. A could be too: no atom here has it there.
    # 32-bit elements are transposed from swizzled atoms of 32 bytes alone, which no layout here has.
    Instruction.TCGEN05: Multiply(
        issued_by=Issuer.ELECTED,
        reads_a=_SHARED,
        reads_b=_SHARED,
        accumulates_in=OperandSource.TMEM,
        asynchronous=True,
        descriptor_version=1,
        transposes_bits=frozenset({8, 16}),
        has_run=False,
    ),
}
"""Every multiply instruction that has atoms."""


def has_run(opcode: str) -> bool:
    """Return whether kernels of cutegen that multiply by an opcode, such as `wgmma.mma_async...`, have run on hardware.

    >>> has_run("mma.sync.aligned.m16n8k16"), has_run("tcgen05.mma.cta_group::1.kind::f16")
    (True, False)
    """
    return not any(opcode.startswith(name) for name, row in MULTIPLIES.items() if not row.has_run)
