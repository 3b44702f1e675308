"""MMA atoms of the `sm90` family: `wgmma.mma_async` of one warpgroup, A from shared memory (SS) or registers (RS).

Thread-value layouts and names: CUTLASS `cute/atom/mma_traits_sm90_gmma.hpp` and `mma_traits_sm90_gmma_ext.hpp`. The
instruction: PTX ISA, "Asynchronous warpgroup level matrix instructions". B always comes from shared memory. 8-bit
operands are K-major there, which CUTLASS marks with `_TN`. Integers use the `_SATURATE` form: the DSL compiles no
other. The DSL has no wgmma on tf32, so the table has no row for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product

from cutegen.algebra import Layout
from cutegen.hardware.dtypes import dtype
from cutegen.hardware.mma_atoms import MmaAtom
from cutegen.hardware.multiplies import OperandSource
from cutegen.hardware.units import WARPGROUP, WGMMA_ROWS

K_BYTES = 32
"""K extent of every form: 16 elements of 16 bits, 32 of 8."""

FLOAT_N = tuple(range(8, 257, 8))
INTEGER_N = (8, 16, 24, *range(32, 257, 16))
"""N extents of the forms on floats and on integers. PTX ISA, "wgmma.mma_async": `.shape`."""

_THREADS = Layout(WARPGROUP)

# Types of D, A and B.
_16_BIT = (("f16", "f16", "f16"), ("f32", "f16", "f16"), ("f32", "bf16", "bf16"))
_8_BIT_FLOAT = tuple(product(("f16", "f32"), ("e4m3", "e5m2"), ("e4m3", "e5m2")))
_INTEGER = tuple(product(("s32",), ("s8", "u8"), ("s8", "u8")))


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
    return f"SM90_{WGMMA_ROWS}x{n}x{K_BYTES * 8 // bits}_{(d + a + b).upper()}_{sources}{ends}"


def _atom(d: str, a: str, b: str, n: int, source: OperandSource) -> MmaAtom:
    bits = dtype(a).bits
    k = K_BYTES * 8 // bits
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
    for types in (*_16_BIT, *_8_BIT_FLOAT, *_INTEGER):
        extents = INTEGER_N if types in _INTEGER else FLOAT_N
        for n, source in product(extents, (OperandSource.SMEM, OperandSource.RMEM)):
            yield _atom(*types, n, source)


WGMMA_ATOMS: Mapping[str, MmaAtom] = {atom.name: atom for atom in _rows()}
"""Atoms by name, narrow ones first, A from shared memory before A from registers."""


def columns_of(atom: MmaAtom) -> tuple[int, ...]:
    """Return the N extents of the forms on an atom's types, narrow ones first."""
    return INTEGER_N if atom.c_dtype.is_integer else FLOAT_N


def with_columns(atom: MmaAtom, n: int) -> MmaAtom:
    """Return the form of `atom` on `n` columns, one of `columns_of`: the same types and sources."""
    assert n in columns_of(atom), f"{atom.name} on {n} columns"
    return _of_types(atom.c_dtype.name, atom.a_dtype.name, atom.b_dtype.name, n, atom.a_source)


@cache
def _of_types(d: str, a: str, b: str, n: int, source: OperandSource) -> MmaAtom:
    return WGMMA_ATOMS[_name(d, a, b, n, source)]
