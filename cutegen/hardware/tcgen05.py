"""Atoms of `tcgen05`: multiplications with sums in tensor memory, and loads of the sums."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from cutegen.algebra import Layout, mode, offsets_2d, size
from cutegen.hardware.dtypes import DType, dtype
from cutegen.hardware.factor_atoms import COLUMN_ROWS
from cutegen.hardware.mma_atoms import MmaAtom
from cutegen.hardware.multiplies import Instruction, Issuer, OperandSource
from cutegen.hardware.units import REGISTER_BITS, WARP

# MMA atoms of the `sm100` family: `tcgen05.mma` with both operands in shared memory and sums in tensor memory.
#
# Shapes, types: PTX ISA, "tcgen05.mma", each `.kind` with `.cta_group::1` and `::2`; N of pairs as CUTLASS has them.
# The names follow CUTLASS `cute/arch/mma_sm100_umma.hpp`. The instruction descriptor: PTX ISA, "Instruction
# descriptor"; `cute/arch/mma_sm100_desc.hpp`, InstrDescriptor.


K_BYTES = 32
"""K extent of every dense form."""
LANES, COLUMNS, LEAST_COLUMNS = 128, 512, 32
"""Tensor memory of an SM: lanes, columns of 32 bits, and the fewest columns of an allocation, a power of two (PTX ISA,
"Tensor Memory" and "tcgen05.alloc").
"""
ROWS = LANES
ALL_N = tuple(range(16, 257, 16))
"""N extents of every dense kind with M = 64 and 128."""
PAIR = 2
"""CTAs that multiply together: those whose ranks in the cluster differ in the last bit. The even one issues."""
ROWS_OF_CTA = (ROWS // 2, ROWS)
"""Rows that a CTA can have of an instruction."""
N_OF_CTAS: Mapping[int, tuple[int, ...]] = {1: ALL_N, PAIR: tuple(range(32, 257, 32))}
"""N extents by the CTAs of an instruction; each CTA of a pair has half of B's columns."""
_SUM_CODES: Mapping[str, int] = {"f16": 0, "f32": 1, "s32": 2}
"""Codes of the types of D in an instruction descriptor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A `.kind`: the types of D, A and B that it has, and the codes of A's and B's in an instruction descriptor.

    Sums that are integers saturate. `needs` are the instructions that a target must have for it. With `factors`, a
    type, each `block_k` elements of K of a row have a factor, and columns of B are whole columns of factors.
    """

    name: str
    types: tuple[tuple[str, str, str], ...]
    codes: Mapping[str, int]
    needs: frozenset[Instruction] = frozenset({Instruction.TCGEN05})
    factors: str | None = None
    block_k: int | None = None

    @property
    def form(self) -> str:
        """The kind with its modifiers, as in PTX text."""
        return self.name if self.factors is None else f"{self.name}.block_scale.block{self.block_k}"

    @property
    def shapes(self) -> tuple[tuple[int, int, tuple[int, ...]], ...]:
        """Its shapes here: the rows that a CTA has, the CTAs, and the extents along N."""
        if self.factors is not None:
            whole = {ctas: tuple(n for n in columns if n % COLUMN_ROWS == 0) for ctas, columns in N_OF_CTAS.items()}
            return tuple((ROWS, ctas, columns) for ctas, columns in whole.items())
        return tuple((rows, ctas, columns) for ctas, columns in N_OF_CTAS.items() for rows in ROWS_OF_CTA)


_FLOAT8, _INTEGERS = ("e4m3", "e5m2"), ("s8", "u8")

KINDS: Mapping[str, Kind] = {
    kind.form: kind
    for kind in (
        # Sums of bf16 are f32 only.
        Kind(
            name="f16",
            types=(("f16", "f16", "f16"), ("f32", "f16", "f16"), ("f32", "bf16", "bf16")),
            codes={"f16": 0, "bf16": 1},
        ),
        Kind(name="tf32", types=(("f32", "tf32", "tf32"),), codes={"tf32": 2}),
        Kind(
            name="f8f6f4",
            types=tuple(product(("f16", "f32"), _FLOAT8, _FLOAT8)),
            codes={"e4m3": 0, "e5m2": 1},
        ),
        Kind(
            name="i8",
            types=tuple(product(("s32",), _INTEGERS, _INTEGERS)),
            codes={"u8": 0, "s8": 1},
            needs=frozenset({Instruction.TCGEN05_I8}),
        ),
        Kind(
            name="mxf8f6f4",
            types=tuple(product(("f32",), _FLOAT8, _FLOAT8)),
            codes={"e4m3": 0, "e5m2": 1},
            factors="ue8m0",
            block_k=32,
        ),
        # The kind mxf4 is this one with factors of ue8m0.
        *(
            Kind(
                name="mxf4nvf4",
                types=(("f32", "e2m1x2", "e2m1x2"),),
                codes={"e2m1x2": 1},
                factors=factors,
                block_k=block_k,
            )
            for factors, block_k in (("ue8m0", 32), ("ue4m3", 16))
        ),
    )
}
"""Kinds by name with modifiers. PTX ISA, "tcgen05.mma": `.kind` and "Data types"; "Instruction descriptor"."""


def kind_of(atom: MmaAtom) -> Kind:
    """Return the kind of an instruction.

    >>> kind_of(TCGEN05_ATOMS["SM100_128x256x32_F32E4M3E5M2_SS"]).name
    'f8f6f4'
    """
    return KINDS[atom.ptx.rpartition("kind::")[2]]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionDescriptor:
    """Types and extents of a multiplication, and the contiguous modes, 1 for K, of A and B."""

    kind: Kind
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
        scaled = self.kind.factors is not None
        of_sums = () if scaled else ((3, int(self.d_dtype.is_integer)), (4, _SUM_CODES[self.d_dtype.name]))
        fields = (
            *of_sums,
            (7, self.kind.codes[self.a_dtype.name]),
            (10, self.kind.codes[self.b_dtype.name]),
            (15, 1 - self.a_major_mode),
            (16, 1 - self.b_major_mode),
            (17, self.n // 8),
            (23, int(self.kind.factors == "ue8m0")),
            (27, self.m // 128) if scaled else (24, self.m // 16),
        )
        return sum(value << shift for shift, value in fields)


def instruction_descriptor(atom: MmaAtom, a_major_mode: int, b_major_mode: int) -> InstructionDescriptor:
    """Return the descriptor of an atom on operands with these contiguous modes, 1 for K and 0 for M or N."""
    m, n, _ = atom.shape_mnk
    return InstructionDescriptor(
        kind=kind_of(atom),
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


def _atom(kind: Kind, d: str, a: str, b: str, m: int, n: int, ctas: int) -> MmaAtom:
    k = K_BYTES * 8 // dtype(a).bits
    scaled = "" if kind.factors is None else f"{kind.factors.upper()}_VS{kind.block_k}_"
    types, of_pair = (d + a + b).replace("x2", "").upper(), "2x1SM_" if ctas == PAIR else ""
    return MmaAtom(
        name=f"SM100_{m}x{n}x{k * dtype(a).values}_{types}_{scaled}{of_pair}SS",
        ptx=f"{Instruction.TCGEN05}.cta_group::{ctas}.kind::{kind.form}",
        shape_mnk=(m, n, k),
        a_dtype=dtype(a),
        b_dtype=dtype(b),
        c_dtype=dtype(d),
        thr_id=Layout(Issuer.ELECTED.threads),
        a_layout=shown(m, k),
        b_layout=shown(n, k),
        c_layout=shown(m, n),
        a_source=OperandSource.SMEM,
        b_source=OperandSource.SMEM,
        ctas=ctas,
    )


def _rows() -> Iterator[MmaAtom]:
    for kind in KINDS.values():
        for types, (rows, ctas, columns) in product(kind.types, kind.shapes):
            yield from (_atom(kind, *types, rows * ctas, n, ctas) for n in columns)


TCGEN05_ATOMS: Mapping[str, MmaAtom] = {atom.name: atom for atom in _rows()}
"""Atoms by name, those of each kind and types together, narrow ones first."""


# Loads from tensor memory, `tcgen05.ld`, and the places of the sums of `tcgen05.mma` that they read.
#
# A place is lane + LANES x column. Loads: PTX ISA, "tcgen05.ld": a warp reaches the 32 lanes of its quarter. Places of
# sums: CUTLASS `cute/atom/mma_traits_sm100.hpp`, `tmem_frg` of one SM and of two (the ISA's text has them in pictures).


QUARTERS = LANES // WARP


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorLoad:
    """A `.shape` of `tcgen05.ld` for sums of `bits`: `layout` maps (thread, value) of a warp to a place in its quarter.

    A repetition has `columns`. Two sums of 16 bits share a register, and have a column each.
    """

    shape: str
    bits: int
    columns: int
    layout: Layout

    def opcode(self, columns: int) -> str:
        """Return the load of so many columns.

        >>> LOADS["32x32b", 32].opcode(64), LOADS["16x256b", 16].opcode(64)
        ('tcgen05.ld.sync.aligned.32x32b.x64.b32', 'tcgen05.ld.sync.aligned.16x128b.x8.pack::16b.b32')
        """
        pack = ".pack::16b" if self.bits < REGISTER_BITS else ""
        return f"tcgen05.ld.sync.aligned.{self.shape}.x{columns // self.columns}{pack}.b32"

    def places(self, columns: int) -> NDArray[np.int64]:
        """Return the places that the threads of four warps load of so many columns: int64[thread, value]."""
        repetition, values = np.arange(columns // self.columns), int(size(mode(self.layout, 1)))
        of_warp = offsets_2d(self.layout)[:, None, :] + LANES * self.columns * repetition[:, None]
        quarter = WARP * np.arange(QUARTERS)[:, None, None]
        return (quarter + of_warp.reshape(1, WARP, -1)).reshape(LANES, len(repetition) * values)


# A lane's columns for each thread; and the fragment of mma.m16n8, of which a register has two sums of 16 bits.
_FRAGMENT = Layout(((4, 8), (2, 2)), ((2 * LANES, 1), (LANES, 8)))
LOADS: Mapping[tuple[str, int], TensorLoad] = {
    ("32x32b", 32): TensorLoad(shape="32x32b", bits=32, columns=1, layout=Layout((WARP, 1), (1, 0))),
    ("32x32b", 16): TensorLoad(shape="32x32b", bits=16, columns=2, layout=Layout((WARP, 2), (1, LANES))),
    ("16x256b", 32): TensorLoad(shape="16x256b", bits=32, columns=8, layout=_FRAGMENT),
    ("16x256b", 16): TensorLoad(shape="16x128b", bits=16, columns=8, layout=_FRAGMENT),
}
"""Loads by the shape for sums of 32 bits, and the bits of a sum."""


def load_of(rows: int, ctas: int, element: DType) -> TensorLoad:
    """Return the load of sums of a CTA with so many rows: by lanes, or half of them as fragments."""
    return LOADS["32x32b" if rows * ctas >= LANES else "16x256b", element.bits]


def places_of_sums(rows: int, columns: int, ctas: int) -> Layout:
    """Map (m, n) of the sums that a CTA has of one instruction to their places.

    >>> places_of_sums(64, 32, 1)
    Layout(((16, 4), 32), ((1, 32), 128))
    """
    if rows == LANES:
        return Layout((rows, columns), (1, LANES))
    if ctas == PAIR:  # the second half of the columns lies below the first
        return Layout((rows, (columns // 2, 2)), (1, (LANES, rows)))
    return Layout(((16, rows // 16), columns), ((1, WARP), LANES))


def columns_of_sums(rows: int, columns: int, ctas: int) -> int:
    """Return the columns of tensor memory that the sums have.

    >>> columns_of_sums(128, 256, 2), columns_of_sums(64, 256, 2)
    (256, 128)
    """
    return columns // 2 if rows < LANES and ctas == PAIR else columns
