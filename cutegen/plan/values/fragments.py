"""Reads of an operand in shared memory: loads to registers, the multiplier's own by descriptor, or threads' that scale.

`FragmentCopy` loads fragments by `ldmatrix` or by plain loads; with `ByDescriptor` the multiplier reads shared memory;
with `ReadByThreads` there are no fragments, and `CopiedToTmem` moves a tile to tensor memory. What is said of one kind
alone is read from it (`copied`, `described`, `read`, `to_tmem`; None of another kind); what each kind answers is in
`by_source`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeAlias, TypeVar

from cutegen.algebra import Layout, OperandName, TiledCopy, TiledMma, compose, size
from cutegen.hardware import CopyAtom, DType, LdmatrixAtom, OperandSource, ldmatrix_trace
from cutegen.hardware.gmma import GmmaLayout, MatrixDescriptor
from cutegen.hardware.ldmatrix import ROW_BYTES
from cutegen.hardware.units import REGISTER_BITS
from cutegen.plan.geometry import Coordinates, by_warp, fragment_loads
from cutegen.plan.kernel.program import Action
from cutegen.plan.values.copies import load_shared
from cutegen.plan.values.decision import Rejected

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class LoadTable:
    """Every load of one tile, in column-major coordinates of the tile.

    `addressed` [instruction, warp, lane] is the element at each address, for the lanes that give one, with
    `access_bytes` per address. `received` [instruction, warp, lane, value] is the element that each register receives.
    """

    addressed: Coordinates
    received: Coordinates
    access_bytes: int


class _Kind:
    """A kind of reads, by which it is found: each is itself under one of these names."""

    __slots__ = ()

    @property
    def copied(self) -> FragmentCopy | None:
        """Loads of fragments to registers."""
        return None

    @property
    def described(self) -> ByDescriptor | None:
        """The multiplier's own reads of shared memory."""
        return None

    @property
    def read(self) -> ReadByThreads | None:
        """Reads by threads of what scales their sums."""
        return None

    @property
    def to_tmem(self) -> CopiedToTmem | None:
        """Copies to tensor memory."""
        return None

    def by_source(
        self,
        *,
        copied: Callable[[FragmentCopy], T],
        described: Callable[[ByDescriptor], T],
        read: Callable[[ReadByThreads], T],
        to_tmem: Callable[[CopiedToTmem], T],
    ) -> T:
        """Return what the function for its kind gives for it."""
        if self.copied is not None:
            return copied(self.copied)
        if self.described is not None:
            return described(self.described)
        if self.read is not None:
            return read(self.read)
        assert self.to_tmem is not None
        return to_tmem(self.to_tmem)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loads(_Kind):
    """Fields of both kinds of loads: `bits` that a lane addresses at once, and the rejected alternatives."""

    bits: int
    tiled_copy: TiledCopy
    rejected: tuple[Rejected, ...]

    home: ClassVar[OperandSource] = OperandSource.RMEM
    action: ClassVar[Action] = Action.LOAD
    in_registers: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LdmatrixLoads(_Loads):
    """A warp's `ldmatrix`.

    If it numbers a thread's values differently from the MMA, `order` maps its numbers to the MMA's in the tiled MMA's
    tile, and `view` (CPY, CPY_X, CPY_K) to those in the whole fragment.
    """

    atom: LdmatrixAtom
    order: Layout | None = None
    view: Layout | None = None

    by_ldmatrix: ClassVar[bool] = True
    words: ClassVar[str] = "ldmatrix"

    @property
    def instruction(self) -> str:
        """The opcode."""
        return self.atom.ptx

    @property
    def matrices(self) -> int:
        """Matrices per instruction."""
        return self.atom.matrices

    @property
    def registers(self) -> int:
        """32-bit registers that one instruction fills per thread."""
        return self.atom.registers

    @property
    def transpose(self) -> bool:
        """True if it transposes."""
        return self.atom.transpose

    def opcodes(self, x: OperandName, tile: tuple[int, int], element: DType, mma: TiledMma) -> Counter[str]:
        """Return a warp's instructions to load a tile (X, K)."""
        return Counter({self.atom.ptx: _held_bits(x, tile, element, mma) // (REGISTER_BITS * self.atom.registers)})

    def table(self, x: OperandName, tile: tuple[int, int], element: DType, mma: TiledMma) -> LoadTable:
        """Return every load of a tile: a lane addresses a row of 16 bytes."""
        trace = ldmatrix_trace(mma, x, Layout(tile), self.atom, element.bits, self.order)
        addressed = trace.source_coords[:, :, : self.atom.rows, 0]
        return LoadTable(addressed, by_warp(trace.destination_coords), ROW_BYTES)

    def retile(self, fragment: Layout) -> Layout:
        """A fragment (MMA, MMA_X, MMA_K) as this copy fills it: (CPY, CPY_X, CPY_K)."""
        return self.tiled_copy.retile(fragment) if self.view is None else compose(fragment, self.view)

    def to_json(self) -> dict[str, Any]:
        """Return atom, width, what it loads, and the rejected alternatives."""
        return _table(self)

    def by_kind(self, *, ldmatrix: Callable[[LdmatrixLoads], T], plain: Callable[[PlainLoads], T]) -> T:
        """Return what `ldmatrix` gives for it."""
        return ldmatrix(self)

    @property
    def copied(self) -> LdmatrixLoads:
        """Itself."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainLoads(_Loads):
    """Loads of `bits` by each thread, of its own elements: adjacent along K, or along mode 0 of the tile."""

    atom: CopyAtom
    along_mode: int = 1

    by_ldmatrix: ClassVar[bool] = False
    words: ClassVar[str] = "plain loads"
    matrices: ClassVar[None] = None
    registers: ClassVar[None] = None
    transpose: ClassVar[None] = None
    view: ClassVar[None] = None

    @property
    def instruction(self) -> str:
        """No opcode: the compiler may merge them."""
        return f"{self.words} of {self.bits} bits"

    def opcodes(self, x: OperandName, tile: tuple[int, int], element: DType, mma: TiledMma) -> Counter[str]:
        """Return a thread's instructions to load a tile (X, K)."""
        return Counter({load_shared(self.bits, element.bits): _held_bits(x, tile, element, mma) // self.bits})

    def table(self, x: OperandName, tile: tuple[int, int], element: DType, mma: TiledMma) -> LoadTable:
        """Return every load of a tile: a lane addresses the first of the elements that it receives."""
        received = by_warp(fragment_loads(mma, x, tile, self.bits // element.bits, self.along_mode))
        return LoadTable(received[..., 0], received, self.bits // 8)

    def retile(self, fragment: Layout) -> Layout:
        """A fragment (MMA, MMA_X, MMA_K) as this copy fills it: (CPY, CPY_X, CPY_K)."""
        return self.tiled_copy.retile(fragment)

    def to_json(self) -> dict[str, Any]:
        """Return atom, width, and the rejected alternatives."""
        return _table(self)

    def by_kind(self, *, ldmatrix: Callable[[LdmatrixLoads], T], plain: Callable[[PlainLoads], T]) -> T:
        """Return what `plain` gives for it."""
        return plain(self)

    @property
    def copied(self) -> PlainLoads:
        """Itself."""
        return self


FragmentCopy: TypeAlias = LdmatrixLoads | PlainLoads
"""Loads of fragments to registers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByDescriptor(_Kind):
    """No copy: the multiplier reads a tile of the shared `layout` through a matrix descriptor.

    `first` is the descriptor of the first instruction's block, for a tile at address 0. A k-tile is read `times` times,
    once by each instruction that needs the same rows.
    """

    layout: GmmaLayout
    first: MatrixDescriptor
    times: int

    home: ClassVar[OperandSource] = OperandSource.SMEM
    action: ClassVar[Action] = Action.MULTIPLY
    in_registers: ClassVar[bool] = False
    by_ldmatrix: ClassVar[bool] = False
    words: ClassVar[str] = "matrix descriptors"

    @property
    def instruction(self) -> str:
        """No opcode of its own."""
        return f"{self.words} of {self.layout.name}"

    def opcodes(self, x: OperandName, tile: tuple[int, int], element: DType, mma: TiledMma) -> Counter[str]:
        """Nothing is issued."""
        return Counter()

    def to_json(self) -> dict[str, Any]:
        """Return what describes the tile; there are no loads of fragments."""
        return {
            "atom": "descriptor",
            "bits": None,
            "matrices": None,
            "registers": None,
            "transpose": None,
            "rejected": [],
            "layout": self.layout.name,
            "lbo_bytes": self.first.lbo_bytes,
            "sbo_bytes": self.first.sbo_bytes,
            "encoded": f"{self.first.encode():#018x}",
        }

    @property
    def described(self) -> ByDescriptor:
        """Itself."""
        return self


@dataclass(frozen=True, slots=True)
class ReadByThreads(_Kind):
    """No fragments of a multiplication: each thread reads what it needs, such as the factors of its sums.

    Of the factors that a thread reads, `of_sums` maps the number of a sum to that of its factor, and `first` that of a
    factor to the first sum that it scales. Without them the text finds each by its coordinate.
    """

    of_sums: Layout | None = None
    first: Layout | None = None

    home: ClassVar[OperandSource] = OperandSource.RMEM
    action: ClassVar[Action] = Action.MULTIPLY
    in_registers: ClassVar[bool] = True
    by_ldmatrix: ClassVar[bool] = False
    words: ClassVar[str] = "plain loads"
    matrices: ClassVar[None] = None

    @property
    def instruction(self) -> str:
        """No opcode: the compiler may merge the loads."""
        return self.words

    def opcodes(self, x: OperandName, tile: tuple[int, int], element: DType, mma: TiledMma) -> Counter[str]:
        """Nothing is counted: the compiler may merge the loads."""
        return Counter()

    def to_json(self) -> dict[str, Any]:
        """Return the keys of loads, without values."""
        return {"atom": None, "bits": None, "matrices": None, "registers": None, "transpose": None, "rejected": []}

    @property
    def read(self) -> ReadByThreads:
        """Itself."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedToTmem(_Kind):
    """Atoms of a tile that one thread copies to tensor memory, where the multiplier reads them.

    `first` is the matrix descriptor of the first atom, for a tile at address 0. `atoms` maps an atom along K and along
    the rows, (K, X), to the units of 16 bytes that are added to it. In this order each takes `atom_columns`.
    """

    first: MatrixDescriptor
    atoms: Layout
    atom_columns: int
    instruction: str

    home: ClassVar[OperandSource] = OperandSource.TMEM
    action: ClassVar[Action] = Action.TO_TMEM
    in_registers: ClassVar[bool] = False
    by_ldmatrix: ClassVar[bool] = False
    words: ClassVar[str] = "copies to tensor memory"

    @property
    def columns(self) -> int:
        """Columns of tensor memory that a tile has."""
        return self.atom_columns * int(size(self.atoms))

    def opcodes(self, x: OperandName, tile: tuple[int, int], element: DType, mma: TiledMma) -> Counter[str]:
        """Return the copies of a tile."""
        return Counter({self.instruction: int(size(self.atoms))})

    def to_json(self) -> dict[str, Any]:
        """Return the copy and its descriptor; there are no loads of fragments."""
        return {
            "atom": self.instruction,
            "bits": None,
            "matrices": None,
            "registers": None,
            "transpose": None,
            "rejected": [],
            "columns": self.columns,
            "encoded": f"{self.first.encode():#018x}",
        }

    @property
    def to_tmem(self) -> CopiedToTmem:
        """Itself."""
        return self


Fragments: TypeAlias = FragmentCopy | ByDescriptor | ReadByThreads | CopiedToTmem
"""Reader of an operand in shared memory: loads to registers, the MMA by a descriptor, threads that scale, or a copy."""


def _held_bits(x: OperandName, tile: tuple[int, int], element: DType, mma: TiledMma) -> int:
    """Return the bits of a tile that each thread holds."""
    return tile[0] // mma.tile_of(x)[0] * (tile[1] // mma.tile_of(x)[1]) * mma.values(x) * element.bits


def _table(copy: FragmentCopy) -> dict[str, Any]:
    return {
        "atom": copy.atom.name,
        "bits": copy.bits,
        "matrices": copy.matrices,
        "registers": copy.registers,
        "transpose": copy.transpose,
        "rejected": [asdict(rejected) for rejected in copy.rejected],
    }
