"""MMA atoms of threads, warps and warpgroups: fma, `mma.sync` and `wgmma`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import numpy as np
from tensor_layouts import MMAAtom, atoms_nv

from cutegen.algebra import Layout, OperandName, mode, offsets, size
from cutegen.hardware.dtypes import DType, dtype
from cutegen.hardware.multiplies import MULTIPLIES, Instruction, Multiply, OperandSource
from cutegen.hardware.targets import Target
from cutegen.hardware.units import WARPGROUP, WGMMA_ROWS

# MMA atoms, and those of the `sm80` family: `mma.sync` on operands of 8, 16 and 32 bits.
#
# Thread-value layouts and opcodes are from tensor-layouts' transcription of CUTLASS `cute/atom/mma_traits_sm80.hpp` and
# `mma_traits_sm89.hpp`. The instruction: PTX ISA, "Matrix multiply-accumulate operation using mma instruction", m16n8k4
# to m16n8k32. Integers use CUTLASS's `_SATURATE` form, whose sums saturate at the limits of s32 instead of wrapping:
# the DSL compiles no other form.


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


# The MMA atom of the `simt` family: one fused multiply-add by one thread.
#
# CUTLASS `cute/arch/mma.hpp`, struct UniversalFMA; the DSL's MmaUniversalOp. PTX ISA, "Floating Point Instructions:
# fma". Operands of other types are converted to f32 first, which is exact for f16 and bf16.


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


# MMA atoms of the `sm90` family: `wgmma.mma_async` of one warpgroup, A from shared memory (SS) or registers (RS).
#
# Thread-value layouts and names: CUTLASS `cute/atom/mma_traits_sm90_gmma.hpp` and `mma_traits_sm90_gmma_ext.hpp`. The
# instruction: PTX ISA, "Asynchronous warpgroup level matrix instructions". B always comes from shared memory. 8-bit
# operands are K-major there, which CUTLASS marks with `_TN`. Integers use the `_SATURATE` form: the DSL compiles no
# other. The DSL has no wgmma on tf32, so the table has no row for it.


WGMMA_K_BYTES = 32
"""K extent of every form: 16 elements of 16 bits, 32 of 8."""

WGMMA_FLOAT_N = tuple(range(8, 257, 8))
WGMMA_INTEGER_N = (8, 16, 24, *range(32, 257, 16))
"""N extents of the forms on floats and on integers. PTX ISA, "wgmma.mma_async": `.shape`."""

_THREADS = Layout(WARPGROUP)

# Types of D, A and B.
_WGMMA_16_BIT = (("f16", "f16", "f16"), ("f32", "f16", "f16"), ("f32", "bf16", "bf16"))
_WGMMA_8_BIT_FLOAT = tuple(product(("f16", "f32"), ("e4m3", "e5m2"), ("e4m3", "e5m2")))
_WGMMA_INTEGER = tuple(product(("s32",), ("s8", "u8"), ("s8", "u8")))


@cache
def accumulator_layout(n: int) -> Layout:
    """Map (thread, value) to the column-major offset in the 64 x n accumulator: 16 rows per warp, n pairs per lane."""
    return Layout(((4, 8, 4), (2, 2, n // 8)), ((2 * WGMMA_ROWS, 1, 16), (WGMMA_ROWS, 8, 8 * WGMMA_ROWS)))


@cache
def register_layout(bits: int) -> Layout:
    """Map (thread, value) to the column-major offset in the 64 x K tile of A in registers, 32 bits of a row in each."""
    packed = 32 // bits
    return Layout(((4, 8, 4), (packed, 2, 2)), ((packed * WGMMA_ROWS, 1, 16), (WGMMA_ROWS, 8, 4 * packed * WGMMA_ROWS)))


@cache
def shared_layout(rows: int, k: int) -> Layout:
    """Map (thread, value) to the offset in a tile that every thread of the warpgroup names by one descriptor."""
    return Layout((WARPGROUP, (rows, k)), (0, (1, rows)))


def _name(d: str, a: str, b: str, n: int, source: OperandSource) -> str:
    bits = dtype(a).bits
    sources = "SS" if source is OperandSource.SMEM else "RS"
    ends = ("" if bits == 16 else "_TN") + ("_SATURATE" if d == "s32" else "")
    return f"SM90_{WGMMA_ROWS}x{n}x{WGMMA_K_BYTES * 8 // bits}_{(d + a + b).upper()}_{sources}{ends}"


def _atom(d: str, a: str, b: str, n: int, source: OperandSource) -> MmaAtom:
    bits = dtype(a).bits
    k = WGMMA_K_BYTES * 8 // bits
    opcode = "satfinite." if d == "s32" else ""
    return MmaAtom(
        name=_name(d, a, b, n, source),
        ptx=f"wgmma.mma_async.sync.aligned.m{WGMMA_ROWS}n{n}k{k}.{opcode}{d}.{a}.{b}",
        shape_mnk=(WGMMA_ROWS, n, k),
        a_dtype=dtype(a),
        b_dtype=dtype(b),
        c_dtype=dtype(d),
        thr_id=_THREADS,
        a_layout=shared_layout(WGMMA_ROWS, k) if source is OperandSource.SMEM else register_layout(bits),
        b_layout=shared_layout(n, k),
        c_layout=accumulator_layout(n),
        a_source=source,
        b_source=OperandSource.SMEM,
    )


def _rows() -> Iterator[MmaAtom]:
    for types in (*_WGMMA_16_BIT, *_WGMMA_8_BIT_FLOAT, *_WGMMA_INTEGER):
        extents = WGMMA_INTEGER_N if types in _WGMMA_INTEGER else WGMMA_FLOAT_N
        for n, source in product(extents, (OperandSource.SMEM, OperandSource.RMEM)):
            yield _atom(*types, n, source)


WGMMA_ATOMS: Mapping[str, MmaAtom] = {atom.name: atom for atom in _rows()}
"""Atoms by name, narrow ones first, A from shared memory before A from registers."""


def columns_of(atom: MmaAtom) -> tuple[int, ...]:
    """Return the N extents of the forms on an atom's types, narrow ones first."""
    return WGMMA_INTEGER_N if atom.c_dtype.is_integer else WGMMA_FLOAT_N


def with_columns(atom: MmaAtom, n: int) -> MmaAtom:
    """Return the form of `atom` on `n` columns, one of `columns_of`: the same types and sources."""
    assert n in columns_of(atom), f"{atom.name} on {n} columns"
    return _of_types(atom.c_dtype.name, atom.a_dtype.name, atom.b_dtype.name, n, atom.a_source)


@cache
def _of_types(d: str, a: str, b: str, n: int, source: OperandSource) -> MmaAtom:
    return WGMMA_ATOMS[_name(d, a, b, n, source)]
