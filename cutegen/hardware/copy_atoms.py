"""Copy atoms: `ldmatrix`, `cp.async`, and the plain load and store that every target has.

Layouts map (thread, value) to a bit offset, as CUTLASS `cute/atom/copy_traits_sm75.hpp` and `copy_traits_sm80.hpp` do.
`ldmatrix` also has forms that unpack 4-bit and 6-bit elements to 8 bits; cutegen does not have these types.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tensor_layouts import CopyAtom as LibraryCopyAtom
from tensor_layouts import atoms_nv

from cutegen.algebra import Layout
from cutegen.errors import RequestError
from cutegen.hardware.multiplies import Instruction

CpAsyncOp = Literal["cp.async.ca", "cp.async.cg"]

UNIVERSAL = "universal"
"""Plain loads and stores, after CuTe's UniversalCopy and the DSL's CopyUniversalOp."""

UNIVERSAL_BITS = (8, 16, 32, 64, 128)
"""Their widths here: a thread loads and stores up to 16 bytes at once (PTX ISA, "ld" and "st", vectors)."""


@dataclass(frozen=True, slots=True)
class CopyAtom:
    """One copy instruction: (thread, value) -> bit, at the source and at the destination."""

    name: str
    src_layout_bits: Layout
    dst_layout_bits: Layout

    @property
    def ref_layout_bits(self) -> Layout:
        """The side on which a tiled copy's thread-value layout is given (CuTe's RefLayout)."""
        return self.src_layout_bits

    @property
    def spec_name(self) -> str:
        """The name in a spec."""
        return self.name

    @property
    def bypasses_l1(self) -> bool:
        """True if lines stay in L2 only."""
        return False

    def asynchronous(self, count: int) -> dict[str, int]:
        """Return the opcodes of `count` asynchronous copies: none if a thread loads and stores."""
        return {}


@dataclass(frozen=True, slots=True)
class LdmatrixAtom(CopyAtom):
    """`ldmatrix`: a warp loads `matrices` matrices of elements of `element_bits`, each row 16 contiguous bytes.

    16-bit matrices are 8x8, 8-bit ones 16x16. Each lane addresses a row, in the order of the matrices. PTX ISA,
    "Warp-level matrix load instruction: ldmatrix".
    """

    matrices: int
    transpose: bool
    element_bits: int = 16

    @property
    def rows(self) -> int:
        """The rows of 16 bytes that it reads, which is the number of addressing lanes."""
        return self.matrices * 128 // self.element_bits

    @property
    def registers(self) -> int:
        """The 32-bit registers that it fills in each thread: one per 8 rows."""
        return self.rows // 8

    @property
    def needs(self) -> Instruction:
        """The instructions that a target must support for it."""
        return Instruction.LDMATRIX_B8_TRANS if self.element_bits == 8 else Instruction.LDMATRIX

    @property
    def ref_layout_bits(self) -> Layout:
        """The destination: an MMA atom defines what each thread must receive."""
        return self.dst_layout_bits

    @property
    def ptx(self) -> str:
        """The opcode as in PTX text."""
        side, trans = 128 // self.element_bits, ".trans" if self.transpose else ""
        return f"ldmatrix.sync.aligned.m{side}n{side}.x{self.matrices}{trans}.shared.b{self.element_bits}"


@dataclass(frozen=True, slots=True)
class StmatrixAtom:
    """`stmatrix`: a warp stores `matrices` matrices of 8 x 8 16-bit elements, each row 16 contiguous bytes.

    Lane l addresses row l mod 8 of matrix l / 8, and holds elements 2 (l mod 4) and the next of row l / 4 of each; with
    `transpose` the rows in memory are the matrices' columns. PTX ISA, "Warp-level matrix store instruction: stmatrix".
    """

    matrices: int
    transpose: bool

    @property
    def ptx(self) -> str:
        """The opcode as in PTX text."""
        return f"stmatrix.sync.aligned.m8n8.x{self.matrices}{'.trans' if self.transpose else ''}.shared.b16"


@dataclass(frozen=True, slots=True)
class CpAsyncAtom(CopyAtom):
    """`cp.async`: a thread copies `bits` bits from global to shared memory, asynchronously.

    `ca` caches in L1 and L2, `cg` in L2 only. PTX ISA, "Data Movement and Conversion Instructions: cp.async".
    """

    op: CpAsyncOp
    bits: int

    @property
    def ptx(self) -> str:
        """The opcode as in PTX text."""
        return f"{self.op}.shared.global"

    @property
    def spec_name(self) -> str:
        """The name in a spec, without the width."""
        return self.op

    @property
    def bypasses_l1(self) -> bool:
        """True if lines stay in L2 only."""
        return self.op == "cp.async.cg"

    def asynchronous(self, count: int) -> dict[str, int]:
        """Return the opcodes of `count` copies."""
        return {self.ptx: count}


@dataclass(frozen=True, slots=True)
class BulkTensorAtom:
    """`cp.async.bulk.tensor`: one thread has the tensor memory accelerator (TMA) copy a box of a tensor.

    `ptx` is the opcode as in PTX text, for maps of rank 3. PTX ISA, "cp.async.bulk.tensor"; CUTLASS
    `cute/arch/copy_sm90_tma.hpp`.
    """

    name: str
    ptx: str

    def of_modes(self, modes: int) -> str:
        """Return the opcode for a map of so many modes."""
        return self.ptx.replace(".3d.", f".{modes}d.")


BULK_TENSOR = str(Instruction.BULK_TENSOR)
TMA_LOAD = BulkTensorAtom(
    "SM90_TMA_LOAD",
    f"{BULK_TENSOR}.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint",
)
TMA_LOAD_MULTICAST = BulkTensorAtom(
    "SM90_TMA_LOAD_MULTICAST",
    f"{BULK_TENSOR}.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint",
)
TMA_LOAD_OF_PAIR = BulkTensorAtom(
    "SM100_TMA_2SM_LOAD",
    f"{BULK_TENSOR}.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint.cta_group::2",
)
TMA_LOAD_MULTICAST_OF_PAIR = BulkTensorAtom(
    "SM100_TMA_2SM_LOAD_MULTICAST",
    f"{BULK_TENSOR}.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
    ".L2::cache_hint.cta_group::2",
)
TMA_STORE = BulkTensorAtom("SM90_TMA_STORE", f"{BULK_TENSOR}.3d.global.shared::cta.tile.bulk_group.L2::cache_hint")


def universal_atom(bits: int) -> CopyAtom:
    """Return a plain load and store of `bits` bits by one thread.

    >>> universal_atom(32).name
    'universal'
    """
    return CopyAtom(UNIVERSAL, Layout((1, bits)), Layout((1, bits)))


def _ldmatrix(row: LibraryCopyAtom, matrices: int, *, transpose: bool) -> LdmatrixAtom:
    return LdmatrixAtom(row.name, row.src_layout_bits, row.dst_layout_bits, matrices, transpose)


def _transposing_bytes(name: str, matrices: int) -> LdmatrixAtom:
    """Thread 4j + i receives, from each matrix, elements j and j + 8 of rows 4i to 4i + 3, one register of each.

    CUTLASS's C++ uses these names for the same instruction followed by a swap of register bytes, the order in which
    accumulators would be stored; this is the instruction alone, the DSL's LdMatrix16x16x8bOp.
    """
    source = Layout(((16, 2), 128), ((128, 2048 if matrices == 2 else 0), 1))
    received = Layout(((4, 8), (8, 4, 2, matrices)), ((512, 8), (1, 128, 64, 2048)))
    return LdmatrixAtom(name, source, received, matrices, transpose=True, element_bits=8)


def _cp_async(cutlass_name: str, op: CpAsyncOp, size_bytes: int) -> CpAsyncAtom:
    layout = Layout((1, 8 * size_bytes))
    return CpAsyncAtom(f"{cutlass_name}_{size_bytes}B", layout, layout, op, 8 * size_bytes)


LDMATRIX_ATOMS: Mapping[str, LdmatrixAtom] = {
    row.name: row
    for row in (
        _ldmatrix(atoms_nv.SM75_U32x1_LDSM_N, 1, transpose=False),
        _ldmatrix(atoms_nv.SM75_U32x2_LDSM_N, 2, transpose=False),
        _ldmatrix(atoms_nv.SM75_U32x4_LDSM_N, 4, transpose=False),
        _ldmatrix(atoms_nv.SM75_U16x2_LDSM_T, 1, transpose=True),
        _ldmatrix(atoms_nv.SM75_U16x4_LDSM_T, 2, transpose=True),
        _ldmatrix(atoms_nv.SM75_U16x8_LDSM_T, 4, transpose=True),
        _transposing_bytes("SM100_U8x8_LDSM_T", 1),
        _transposing_bytes("SM100_U8x16_LDSM_T", 2),
    )
}
CP_ASYNC_ATOMS: Mapping[str, CpAsyncAtom] = {
    row.name: row
    for row in (
        _cp_async("SM80_CP_ASYNC_CACHEALWAYS", "cp.async.ca", 4),
        _cp_async("SM80_CP_ASYNC_CACHEALWAYS", "cp.async.ca", 8),
        _cp_async("SM80_CP_ASYNC_CACHEALWAYS", "cp.async.ca", 16),
        _cp_async("SM80_CP_ASYNC_CACHEGLOBAL", "cp.async.cg", 16),
    )
}


def ldmatrix_atoms(*, transpose: bool, element_bits: int = 16) -> tuple[LdmatrixAtom, ...]:
    """Return every `ldmatrix` of one kind, the one with the most matrices first.

    >>> [row.name for row in ldmatrix_atoms(transpose=True, element_bits=8)]
    ['SM100_U8x16_LDSM_T', 'SM100_U8x8_LDSM_T']
    """
    kind = (row for row in LDMATRIX_ATOMS.values() if (row.transpose, row.element_bits) == (transpose, element_bits))
    return tuple(sorted(kind, key=lambda row: -row.matrices))


def ldmatrix_atom(matrices: int, *, transpose: bool, element_bits: int = 16) -> LdmatrixAtom:
    """Return the `ldmatrix` that loads `matrices` matrices. Raises RequestError for an unsupported count.

    >>> ldmatrix_atom(4, transpose=True).name
    'SM75_U16x8_LDSM_T'
    """
    rows = ldmatrix_atoms(transpose=transpose, element_bits=element_bits)
    for row in rows:
        if row.matrices == matrices:
            return row
    known = " or ".join(str(row.matrices) for row in reversed(rows))
    raise RequestError(f"an ldmatrix of {element_bits}-bit elements loads {known} matrices, not {matrices}")


def cp_async_atom(op: str, bits: int) -> CpAsyncAtom:
    """Return the `cp.async` of `op` ("cp.async.ca" or "cp.async.cg") and width. Raises RequestError if there is none.

    >>> cp_async_atom("cp.async.cg", 128).name
    'SM80_CP_ASYNC_CACHEGLOBAL_16B'
    """
    for row in CP_ASYNC_ATOMS.values():
        if (row.op, row.bits) == (op, bits):
            return row
    known = ", ".join(f"{row.op} with {row.bits}" for row in CP_ASYNC_ATOMS.values())
    raise RequestError(f"there is no {op} of {bits} bits; there is {known}")
