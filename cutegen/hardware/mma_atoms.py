"""MMA atoms, and those of the `sm80` family: `mma.sync` on operands of 8, 16 and 32 bits.

Thread-value layouts and opcodes are from tensor-layouts' transcription of CUTLASS `cute/atom/mma_traits_sm80.hpp` and
`mma_traits_sm89.hpp`. The instruction: PTX ISA, "Matrix multiply-accumulate operation using mma instruction", m16n8k4
to m16n8k32. Integers use CUTLASS's `_SATURATE` form, whose sums saturate at the limits of s32 instead of wrapping: the
DSL compiles no other form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from tensor_layouts import MMAAtom, atoms_nv

from cutegen.algebra import Layout, OperandName, mode, offsets, size
from cutegen.hardware.dtypes import DType, dtype
from cutegen.hardware.instructions import Instruction
from cutegen.hardware.multiplies import MULTIPLIES, Multiply, OperandSource


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaAtom:
    """One instruction: D[M,N] = A[M,K] B[N,K] + C[M,N].

    `ptx` is the opcode as in PTX text. `thr_id` maps a thread of the atom to its lane. `a_layout` maps (thread, value)
    to the column-major offset in the (M,K) tile, `b_layout` in (N,K), `c_layout` in (M,N). For an operand in shared
    memory every thread names the complete tile, so its threads have stride 0. If it multiplies for two `ctas`, one
    issues it, and each has its share of the rows of A and of C, and of the columns of B.
    """

    name: str
    ptx: str
    shape_mnk: tuple[int, int, int]
    a_dtype: DType
    b_dtype: DType
    c_dtype: DType
    thr_id: Layout
    a_layout: Layout
    b_layout: Layout
    c_layout: Layout
    a_source: OperandSource = OperandSource.RMEM
    b_source: OperandSource = OperandSource.RMEM
    ctas: int = 1

    def __post_init__(self) -> None:
        """Prove the row: registers hold each element of a tile exactly once, a descriptor shows all to every thread."""
        m, n, k = self.shape_mnk
        parts: tuple[tuple[OperandName, Layout, int], ...] = (
            ("A", self.a_layout, m * k),
            ("B", self.b_layout, n * k),
            ("C", self.c_layout, m * n),
        )
        for op, layout, elems in parts:
            if flaw := _flaw(layout, size(self.thr_id), elems, self.source(op)):
                raise ValueError(f"{self.name}: {layout} {flaw}")
        row = self.multiply
        if self.threads != row.issued_by.threads or not (self.a_source in row.reads_a and self.b_source in row.reads_b):
            raise ValueError(f"{self.name}: {self.instruction} is issued by a {row.issued_by}, or reads other operands")

    def source(self, op: OperandName) -> OperandSource:
        """Return the operand's home, or that of the accumulators."""
        return {"A": self.a_source, "B": self.b_source, "C": self.multiply.accumulates_in}[op]

    def rows(self, op: OperandName) -> int:
        """Return the rows of A or of C, or the columns of B, that a CTA has of one instruction."""
        return self.shape_mnk[1 if op == "B" else 0] // self.ctas

    def majors(self, op: OperandName) -> tuple[str, ...]:
        """Return the modes of A or B that may be contiguous in shared memory.

        A copy to registers can transpose an operand, a descriptor only one of some elements.
        """
        element = self.a_dtype if op == "A" else self.b_dtype
        turned = self.source(op) is OperandSource.RMEM or (
            element.bits in self.multiply.transposes_bits and element.values == 1
        )
        return ("k", "m" if op == "A" else "n") if turned else ("k",)

    @property
    def threads(self) -> int:
        """The threads that execute it together: a single thread, a warp, or a warpgroup."""
        return int(size(self.thr_id))

    @property
    def instruction(self) -> Instruction:
        """The instruction of this form, which determines its unit and rate."""
        return next(each for each in MULTIPLIES if self.ptx.startswith(each))

    @property
    def multiply(self) -> Multiply:
        """Capabilities of the instruction."""
        return MULTIPLIES[self.instruction]

    @property
    def flops(self) -> int:
        """The operations of one instruction; a multiply-add of two values counts as two."""
        m, n, k = self.shape_mnk
        return 2 * m * n * k * self.a_dtype.values


@cache
def _flaw(layout: Layout, threads: int, elems: int, source: OperandSource) -> str:
    """Return why `layout` cannot be an operand's; empty if it can. Rows share layouts; each is proved once."""
    if size(mode(layout, 0)) != threads:
        return f"is not for {threads} threads"
    if source is OperandSource.RMEM:
        once = np.array_equal(np.sort(offsets(layout)), np.arange(elems))
        return "" if once else f"does not cover its {elems} elements exactly once"
    shown = np.array_equal(np.sort(offsets(mode(layout, 1))), np.arange(elems)) and not offsets(mode(layout, 0)).any()
    return "" if shown else f"does not show its {elems} elements to every thread"


def _from_library(row: MMAAtom) -> MmaAtom:
    # The opcode ends in the types of D, A, B and C; D and C have one type in every CUTLASS variant.
    _, a, b, c = (dtype(field) for field in row.ptx.split(".")[-4:])
    return MmaAtom(
        name=row.name,
        ptx=row.ptx,
        shape_mnk=row.shape_mnk,
        a_dtype=a,
        b_dtype=b,
        c_dtype=c,
        thr_id=row.thr_id or Layout(32),  # tensor-layouts leaves out the identity
        a_layout=row.a_layout,
        b_layout=row.b_layout,
        c_layout=row.c_layout,
    )


def _saturating(row: MMAAtom, a: str, b: str) -> MmaAtom:
    """Return the `_SATURATE` form of an atom for s8, with operands of types `a` and `b`."""
    atom = _from_library(row)
    return replace(
        atom,
        name=f"{atom.name.replace('S8S8', (a + b).upper())}_SATURATE",
        ptx=atom.ptx.replace(".s32.s8.s8.", f".satfinite.s32.{a}.{b}."),
        a_dtype=dtype(a),
        b_dtype=dtype(b),
    )


_16_BIT = (
    atoms_nv.SM80_16x8x8_F16F16F16F16_TN,
    atoms_nv.SM80_16x8x16_F16F16F16F16_TN,
    atoms_nv.SM80_16x8x8_F32F16F16F32_TN,
    atoms_nv.SM80_16x8x16_F32F16F16F32_TN,
    atoms_nv.SM80_16x8x8_F32BF16BF16F32_TN,
    atoms_nv.SM80_16x8x16_F32BF16BF16F32_TN,
)
_TF32 = (atoms_nv.SM80_16x8x4_F32TF32TF32F32_TN, atoms_nv.SM80_16x8x8_F32TF32TF32F32_TN)
_INTEGER = (atoms_nv.SM80_16x8x16_S32S8S8S32_TN, atoms_nv.SM80_16x8x32_S32S8S8S32_TN)
_INTEGER_OPERANDS = (("s8", "s8"), ("u8", "u8"), ("s8", "u8"), ("u8", "s8"))
_8_BIT_FLOAT = (
    atoms_nv.SM89_16x8x32_F32E4M3E4M3F32_TN,
    atoms_nv.SM89_16x8x32_F32E4M3E5M2F32_TN,
    atoms_nv.SM89_16x8x32_F32E5M2E4M3F32_TN,
    atoms_nv.SM89_16x8x32_F32E5M2E5M2F32_TN,
    atoms_nv.SM89_16x8x32_F16E4M3E4M3F16_TN,
    atoms_nv.SM89_16x8x32_F16E4M3E5M2F16_TN,
    atoms_nv.SM89_16x8x32_F16E5M2E4M3F16_TN,
    atoms_nv.SM89_16x8x32_F16E5M2E5M2F16_TN,
)

MMA_ATOMS: Mapping[str, MmaAtom] = {
    atom.name: atom
    for atom in (
        *map(_from_library, (*_16_BIT, *_TF32)),
        *(_saturating(row, a, b) for a, b in _INTEGER_OPERANDS for row in _INTEGER),
        *map(_from_library, _8_BIT_FLOAT),
    )
}
