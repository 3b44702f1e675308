"""MMA atoms of the `sm100` family: `tcgen05.mma` with both operands in shared memory and sums in tensor memory.

Shapes: PTX ISA, "tcgen05.mma", `.kind::f16` with `.cta_group::1`. M = 128 uses all lanes of tensor memory: row m of the
sums is lane m, and column n is the n-th of N columns, one 32-bit column for a sum of any type (CUTLASS
`cute/atom/mma_traits_sm100.hpp`, `tmem_frg` of one SM). The names follow `cute/arch/mma_sm100_umma.hpp`. The
instruction descriptor: PTX ISA, "Instruction descriptor"; `cute/arch/mma_sm100_desc.hpp`, InstrDescriptor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from cutegen.algebra import Layout
from cutegen.hardware.dtypes import DType, dtype
from cutegen.hardware.mma_atoms import MmaAtom
from cutegen.hardware.multiplies import Issuer, OperandSource

K_BYTES = 32
"""K extent of every dense form."""
LANES, COLUMNS, LEAST_COLUMNS = 128, 512, 32
"""Tensor memory of an SM: lanes, columns of 32 bits, and the fewest columns of an allocation, a power of two (PTX ISA,
"Tensor Memory" and "tcgen05.alloc").
"""
ROWS = LANES
FLOAT_N = tuple(range(16, 257, 16))
"""N extents of `.kind::f16` with M = 128."""

_TYPES = (("f16", "f16", "f16"), ("f32", "f16", "f16"), ("f32", "bf16", "bf16"))
"""Types of D, A and B: sums of bf16 are f32 only (PTX ISA, "tcgen05.mma": `.kind`)."""
_CODES: Mapping[str, Mapping[str, int]] = {
    "operand": {"f16": 0, "bf16": 1},
    "sum": {"f16": 0, "f32": 1},
}
"""Codes of types in an instruction descriptor of `.kind::f16`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionDescriptor:
    """Types and extents of a multiplication, and the contiguous modes, 1 for K, of A and B."""

    d_dtype: DType
    a_dtype: DType
    b_dtype: DType
    m: int
    n: int
    a_major_mode: int = 1
    b_major_mode: int = 1

    def encode(self) -> int:
        """Return the 32 bits that the instruction takes.

        >>> atom = TCGEN05_ATOMS["SM100_128x256x16_F32F16F16_SS"]
        >>> hex(instruction_descriptor(atom, 1, 1).encode())
        '0x8400010'
        """
        fields = (
            (4, _CODES["sum"][self.d_dtype.name]),
            (7, _CODES["operand"][self.a_dtype.name]),
            (10, _CODES["operand"][self.b_dtype.name]),
            (15, 1 - self.a_major_mode),
            (16, 1 - self.b_major_mode),
            (17, self.n // 8),
            (24, self.m // 16),
        )
        return sum(value << shift for shift, value in fields)


def instruction_descriptor(atom: MmaAtom, a_major_mode: int, b_major_mode: int) -> InstructionDescriptor:
    """Return the descriptor of an atom on operands with these contiguous modes, 1 for K and 0 for M or N."""
    m, n, _ = atom.shape_mnk
    return InstructionDescriptor(
        d_dtype=atom.c_dtype,
        a_dtype=atom.a_dtype,
        b_dtype=atom.b_dtype,
        m=m,
        n=n,
        a_major_mode=a_major_mode,
        b_major_mode=b_major_mode,
    )


def columns_allocated(columns: int) -> int:
    """Return the columns of tensor memory that an allocation of at least so many has: a power of two.

    >>> [columns_allocated(columns) for columns in (16, 96, 512)]
    [32, 128, 512]
    """
    return max(LEAST_COLUMNS, 1 << (columns - 1).bit_length())


@cache
def shown(rows: int, columns: int) -> Layout:
    """Map (thread, value) to the offset in a tile that every thread of the issuing warp names by one descriptor."""
    return Layout((Issuer.ELECTED.threads, (rows, columns)), (0, (1, rows)))


def _atom(d: str, a: str, b: str, n: int) -> MmaAtom:
    k = K_BYTES * 8 // dtype(a).bits
    return MmaAtom(
        name=f"SM100_{ROWS}x{n}x{k}_{(d + a + b).upper()}_SS",
        ptx="tcgen05.mma.cta_group::1.kind::f16",
        shape_mnk=(ROWS, n, k),
        a_dtype=dtype(a),
        b_dtype=dtype(b),
        c_dtype=dtype(d),
        thr_id=Layout(Issuer.ELECTED.threads),
        a_layout=shown(ROWS, k),
        b_layout=shown(n, k),
        c_layout=shown(ROWS, n),
        a_source=OperandSource.SMEM,
        b_source=OperandSource.SMEM,
    )


def _rows() -> Iterator[MmaAtom]:
    for types in _TYPES:
        for n in FLOAT_N:
            yield _atom(*types, n)


TCGEN05_ATOMS: Mapping[str, MmaAtom] = {atom.name: atom for atom in _rows()}
"""By name, narrow ones first."""
