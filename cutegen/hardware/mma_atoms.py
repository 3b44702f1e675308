"""MMA atoms of the `sm80` family: `mma.sync` on operands of 8, 16 and 32 bits.

Thread-value layouts and opcodes are tensor-layouts' transcription of CUTLASS `cute/atom/mma_traits_sm80.hpp` and
`mma_traits_sm89.hpp`. The instruction: PTX ISA, "Matrix multiply-accumulate operation using mma instruction", m16n8k4
to m16n8k32. Integers come in CUTLASS's `_SATURATE` form, whose sums stop at the ends of s32 instead of wrapping: the
DSL compiles no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from tensor_layouts import MMAAtom, atoms_nv

from cutegen.algebra import Layout, mode, offsets, size
from cutegen.hardware.dtypes import DType, dtype
from cutegen.hardware.instructions import Instruction


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaAtom:
    """One instruction: D[M,N] = A[M,K] B[N,K] + C[M,N], all operands in registers.

    `ptx` is the opcode as PTX text has it. `thr_id` maps a thread of the atom to its lane. `a_layout` maps (thread,
    value) to the column-major offset in the (M,K) tile, `b_layout` in (N,K), `c_layout` in (M,N).
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

    def __post_init__(self) -> None:
        """Prove the row: each layout gives every element of its tile to exactly one (thread, value)."""
        m, n, k = self.shape_mnk
        for layout, elems in ((self.a_layout, m * k), (self.b_layout, n * k), (self.c_layout, m * n)):
            if size(mode(layout, 0)) != size(self.thr_id):
                raise ValueError(f"{self.name}: {layout} is not for {size(self.thr_id)} threads")
            if not np.array_equal(np.sort(offsets(layout)), np.arange(elems)):
                raise ValueError(f"{self.name}: {layout} does not cover its {elems} elements exactly once")

    @property
    def threads(self) -> int:
        """Threads that carry it out together: one by itself, or a warp."""
        return int(size(self.thr_id))

    @property
    def instruction(self) -> Instruction:
        """What it is a form of: what does its work, and its rate, go by this."""
        return next(each for each in (Instruction.MMA_SYNC, Instruction.FMA) if self.ptx.startswith(each))

    @property
    def flops(self) -> int:
        """Operations of one instruction, a multiply-add counting two."""
        m, n, k = self.shape_mnk
        return 2 * m * n * k


def _from_library(row: MMAAtom) -> MmaAtom:
    # The opcode ends in the types of D, A, B and C; D and C are one type in every variant of CUTLASS.
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
    """The `_SATURATE` form of an atom for s8, with operands of types `a` and `b` in the same places."""
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
