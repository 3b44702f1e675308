"""Copies of a tile between global and shared memory: by vectors of threads or by boxes, their opcodes and accesses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, TypeAlias, TypeVar

from cutegen.algebra import Layout, LayoutExpr, OperandName, TiledCopy, TiledMma, size, spec_notation
from cutegen.contract.tensor_map import TensorMapContract
from cutegen.hardware import BULK_TENSOR, UNIVERSAL, BulkTensorAtom, CopyAtom, CpAsyncAtom, DType, Instruction, Target
from cutegen.hardware.units import BULK_ALIGN_BYTES, REGISTER_BITS, SECTOR_BYTES
from cutegen.plan.geometry import joined, joined_vectors, touched_sectors, vectors
from cutegen.plan.kernel.program import Action, Check, Step
from cutegen.support.words import round_up

# Keys of the memory accesses that are predicted and counted.


class AccessKey(StrEnum):
    """Kinds of access that belong to no single operand; the operands' have keys such as "g2s.a".

    If a cluster adds slices of K: sums to a CTA's shared memory, and shares of them from the memory of all CTAs.
    """

    CLUSTER_WRITE = "cluster.write"
    CLUSTER_READ = "cluster.read"
    EPILOGUE_WRITE = "epilogue.write"
    EPILOGUE_READ = "epilogue.read"
    G2S = "g2s"
    """Key of all operands together, where they cannot be told apart."""
    S2R = "s2r"
    """Key of all operands together, where they cannot be told apart."""

    @staticmethod
    def g2s(name: str) -> str:
        """Return the key of the copies to shared memory of the operand `name`.

        >>> AccessKey.g2s("a"), AccessKey.s2r("b")
        ('g2s.a', 's2r.b')
        """
        return f"g2s.{name}"

    @staticmethod
    def s2r(name: str) -> str:
        """Return the key of the fragment loads of the operand `name`."""
        return f"s2r.{name}"

    @staticmethod
    def mma(name: str) -> str:
        """Return the key of the MMA's own reads of the operand `name` from shared memory."""
        return f"mma.{name}"


def shared_accesses(operands: Iterable[str]) -> tuple[str, ...]:
    """Return the keys of all accesses to shared memory, in the order of the kernel.

    >>> shared_accesses("ab")[:3]
    ('g2s.a', 'g2s.b', 's2r.a')
    """
    names = tuple(operands)
    of_operands = (of(name) for of in (AccessKey.g2s, AccessKey.s2r, AccessKey.mma) for name in names)
    of_cluster = (AccessKey.CLUSTER_WRITE, AccessKey.CLUSTER_READ)
    return (*of_operands, *of_cluster, AccessKey.EPILOGUE_WRITE, AccessKey.EPILOGUE_READ)


def is_of_few(key: str) -> bool:
    """Return whether few kernels have such accesses: MMAs that read shared memory, clusters that add."""
    return key.startswith(("mma.", "cluster."))


# Opcodes of plain loads and stores in the compiler's spelling.


def load_global(bits: int, element: DType, target: Target) -> str:
    """Return the opcode of a plain load of `bits` from global memory, as the compiler writes it.

    >>> from cutegen.hardware import dtype, target
    >>> load_global(128, dtype("f32"), target("sm_80")), load_global(128, dtype("f32"), target("sm_120"))
    ('ld.global.v4.b32', 'ld.global.v2.b64')
    """
    return f"ld.global.{_copied(bits, element, target)}"


def load_element(element: DType) -> str:
    """Return the opcode of a load of one element from global memory.

    >>> from cutegen.hardware import dtype
    >>> load_element(dtype("bf16"))
    'ld.global.b16'
    """
    return f"ld.global.{_joined(element.bits, element.bits)}"


def store_shared(bits: int, element: DType, target: Target) -> str:
    """Return the opcode of a plain store of `bits` to shared memory, as the compiler writes it."""
    return f"st.shared.{_copied(bits, element, target)}"


def copy_spellings(bits: int, element: DType, target: Target) -> tuple[str, ...]:
    """Return the possible opcodes of a plain copy of `bits`: by registers, by words, by elements.

    >>> from cutegen.hardware import dtype, target
    >>> copy_spellings(128, dtype("f32"), target("sm_120"))[:2]
    ('ld.global.v2.b64', 'ld.global.v4.b32')
    """
    spelled = _copied(bits, element, target), _joined(bits, bits), _joined(bits, element.bits)
    return tuple(f"{access}.{each}" for access in ("ld.global", "st.shared") for each in dict.fromkeys(spelled))


def load_shared(bits: int, element_bits: int) -> str:
    """Return the opcode of plain loads of elements from shared memory, merged to one of `bits`.

    >>> load_shared(64, 16), load_shared(128, 16)
    ('ld.shared.v4.b16', 'ld.shared.v4.b32')
    """
    return f"ld.shared.{_joined(bits, element_bits)}"


def _copied(bits: int, element: DType, target: Target) -> str:
    """Return one vector of a copy. If two f32 form a register, a vector of f32 is made of such registers."""
    if target.has(Instruction.FMA_PACKED) and element.name == "f32" and bits == 128:
        return "v2.b64"
    if target.has(Instruction.FMA_PACKED) and element.in_memory == "f32" and bits == 64:
        return "b64"
    return _joined(bits, bits) if (bits, element.bits) != (16, 8) else "v2.b8"


def store_joined(bits: int, part_bits: int) -> str:
    """Return the opcode of plain stores of `part_bits` each to shared memory, merged to one of `bits`."""
    return f"st.shared.{_joined(bits, part_bits)}"


def _joined(bits: int, part_bits: int) -> str:
    """Return accesses of `part_bits` as one of `bits`: a vector of up to four, or of words if that is too short."""
    parts = bits // part_bits
    if (part_bits == 16 and parts in (2, 4)) or (part_bits == 8 and parts == 2):
        return f"v{parts}.b{part_bits}"
    return {8: "b8", 16: "b16", 32: "b32", 64: "v2.b32", 128: "v4.b32"}[bits]


# Copies of a tile between global and shared memory, by vectors of threads or by boxes, and their instructions.


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """Destination of a tile (X, K) of `element`s: `stage` maps (X, K) to offsets in one stage of shared memory."""

    tile: tuple[int, int]
    element: DType
    stage: LayoutExpr
    tiled_mma: TiledMma
    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorCopy:
    """A copy between global and shared memory: each thread moves vectors of `bits` along the contiguous mode."""

    atom: CpAsyncAtom | CopyAtom
    bits: int
    threads: Layout
    values: Layout
    tiled_copy: TiledCopy

    shares: ClassVar[int] = 1
    receivers: ClassVar[int] = 1

    @property
    def through_registers(self) -> bool:
        """True for plain loads and stores, with the data in registers between the two."""
        return self.fetch is Action.GLOBAL_LOAD

    @property
    def fetch(self) -> Action:
        """The step that issues the copy of a k-tile."""
        return Action.GLOBAL_LOAD if self.atom.name == UNIVERSAL else Action.FETCH

    @property
    def bypasses_l1(self) -> bool:
        """True for `cp.async.cg`, which caches lines in L2 only."""
        return self.atom.bypasses_l1

    def passing_registers(self, tile: tuple[int, int], element: DType) -> int:
        """32-bit registers in which a thread holds its share of a tile between the loads and the stores."""
        if not self.through_registers:
            return 0
        return passing_registers(tile[0] * tile[1], element.bits, self.bits, size(self.threads))

    def opcodes(self, step: Step, at: Landing) -> Counter[str]:
        """Return a thread's instructions for a step on a tile: one copy per vector, or per element at an edge."""
        elements = self.bits // at.element.bits
        vectors = at.tile[0] * at.tile[1] // (elements * size(self.threads))
        match step.action:
            case Action.FETCH:
                return Counter(self.atom.asynchronous(vectors))
            case Action.STORE if self.through_registers:
                return self._stores(vectors, at)
            case Action.GLOBAL_LOAD if self.through_registers:
                whole, single = (load_global(bits, at.element, at.target) for bits in (self.bits, at.element.bits))
                return _checked(step.check, whole, single, vectors, elements)
            case _:
                return Counter()

    def joins(self, element: DType, tiled_mma: TiledMma) -> bool:
        """True if the compiler merges adjacent stores.

        It merges any vectors that a tensor-core kernel stores one by one. A kernel of `fma` passes all of a thread's
        vectors to one copy, of which it merges only single elements.
        """
        return self.through_registers and (size(tiled_mma.atom.thr_id) > 1 or self.bits == element.bits)

    def _stores(self, vectors: int, at: Landing) -> Counter[str]:
        """Return the stores to shared memory of one thread for one k-tile; merged stores count once."""
        alone = store_shared(self.bits, at.element, at.target)
        if not self.joins(at.element, at.tiled_mma):
            return Counter({alone: vectors})
        _, lengths = joined(self.threads, self.values, at.stage, at.tile, at.element.bits)
        widths = (length * at.element.bits for length in lengths)
        return Counter(alone if bits == self.bits else store_joined(bits, self.bits) for bits in widths)

    def accesses(self, at: Landing) -> tuple[tuple[int, ...], ...]:
        """Return the vectors of each access to shared memory, by their numbers: several if the compiler merges them."""
        table = vectors(self.threads, self.values, at.tile)
        if not self.joins(at.element, at.tiled_mma):
            return tuple((i,) for i in range(len(table)))
        return joined_vectors(table[..., 0], table.shape[2], at.stage, at.element.bits)

    @property
    def boxes_issued(self) -> dict[str, int]:
        """No bulk copies."""
        return {}

    def sectors(self, tile: tuple[int, int], major_mode: int, element_bytes: int) -> int:
        """Return the 32-byte sectors of global memory that its vectors touch, per warp request."""
        return touched_sectors(vectors(self.threads, self.values, tile), tile, major_mode, element_bytes)

    def partitions(self, x: OperandName, g: Layout, s: LayoutExpr, thread: int) -> dict[str, LayoutExpr]:
        """Return one thread's share of a copy from the tiles `g` to `s`, with the names used in kernels."""
        return {
            f"t{x}g{x}": self.tiled_copy.partition_s(g, thread).layout,
            f"t{x}s{x}": self.tiled_copy.partition_d(s, thread).layout,
            f"copy{x}.get_layoutS_TV()": self.tiled_copy.layout_src_tv,
            f"copy{x}.get_layoutD_TV()": self.tiled_copy.layout_dst_tv,
        }

    def tensor_maps(self, name: str) -> tuple[TensorMapContract, ...]:
        """None."""
        return ()

    def by_kind(self, *, vectors: Callable[[VectorCopy], T], boxes: Callable[[BulkTensorCopy], T]) -> T:
        """Return what `vectors` gives for it."""
        return vectors(self)

    def ambiguous(self, at: Landing) -> tuple[str, ...]:
        """Return prefixes of opcodes of an `fma` kernel's copy that the compiler writes as words or as elements.

        They are pairs and quads of 16 bits, those of f32 if two form a register, and merged stores, which differ
        between the two main loops.
        """
        if not self.through_registers or size(at.tiled_mma.atom.thr_id) > 1:
            return ()
        packed = at.target.has(Instruction.FMA_PACKED)
        if self.bits in {16: (32, 64), 32: (64, 128) if packed else ()}.get(at.element.bits, ()):
            return copy_spellings(self.bits, at.element, at.target)
        store = store_shared(self.bits, at.element, at.target)
        return () if store in self.opcodes(Step(Action.STORE), at) else ("st.shared.",)

    def to_json(self) -> dict[str, Any]:
        """Return instruction, width and threads, as a spec would write them."""
        return {"op": self.atom.spec_name, "bits": self.bits, "threads": spec_notation(self.threads)}


def vector_copy(
    atom: CpAsyncAtom | CopyAtom, bits: int, grid: Layout, major_mode: int, element_bits: int
) -> VectorCopy:
    """The TiledCopy in which each thread of `grid` moves one vector of `bits` along the contiguous mode."""
    vector = bits // element_bits
    values = Layout((1, vector)) if major_mode == 1 else Layout((vector, 1))
    tiled_copy = TiledCopy.from_thr_val(atom, grid, values, element_bits)
    return VectorCopy(atom=atom, bits=bits, threads=grid, values=values, tiled_copy=tiled_copy)


def _checked(check: Check, whole: str, single: str, vectors: int, elements: int) -> Counter[str]:
    """Return the loads of `vectors` vectors: a vector that crosses an edge is loaded by elements, except the last."""
    if check is Check.ELEMENT:
        return Counter({single: vectors * elements})
    # A vector may be one element, whose opcode is the same.
    return Counter({whole: vectors}) + Counter({single: vectors * (elements - 1) if check is Check.VECTOR else 0})


@dataclass(frozen=True, slots=True)
class BulkTensorCopy:
    """A copy of a tile between global and shared memory that one thread issues box by box.

    A box has the extents `box`, the contiguous mode first; `boxes` of them lie side by side along the contiguous mode.
    In shared memory a box's rows are contiguous, permuted by Swizzle<swizzle_bits,4,3> on byte addresses. If `shares`
    CTAs of a cluster need the same tile, each copies a box's rows of it to all of them; if rows cannot be shared out,
    one copies whole boxes to all `receivers`. Its tensor map has `modes`. So many boxes `together` are one copy if a
    mode of the map goes from one to the next. If memory has a list of units of `unit_elems`, a row of a box is a
    part of it, which a copy brings.
    """

    atom: BulkTensorAtom
    box: tuple[int, int]
    boxes: int
    swizzle_bits: int
    shares: int = 1
    modes: int = 3
    together: int = 1
    receivers: int = 1
    unit_elems: int | None = None

    @property
    def swizzle_bytes(self) -> int:
        """Bytes of the rows that are permuted, 0 for none, as in the name of a tensor map's swizzle."""
        return 16 << self.swizzle_bits if self.swizzle_bits else 0

    @property
    def period_bytes(self) -> int:
        """Period of the swizzle in bytes; a tile's address is a multiple of it."""
        return BULK_ALIGN_BYTES << self.swizzle_bits

    through_registers: ClassVar[bool] = False
    fetch: ClassVar[Action] = Action.BULK_FETCH
    bypasses_l1: ClassVar[bool] = False

    def passing_registers(self, tile: tuple[int, int], element: DType) -> int:
        """Return 0: no thread holds copied data."""
        return 0

    def opcodes(self, step: Step, at: Landing) -> Counter[str]:
        """Return one copy per box."""
        return Counter(self.boxes_issued if step.action is Action.BULK_FETCH else {})

    @property
    def boxes_issued(self) -> dict[str, int]:
        """Its opcode, once per box of a tile, per boxes that are copied together, or per row of units of a list."""
        copies = self.boxes // self.together * (1 if self.unit_elems is None else self.box[1])
        return {self.atom.of_modes(self.modes): copies}

    def sectors(self, tile: tuple[int, int], major_mode: int, element_bytes: int) -> int:
        """Return the 32-byte sectors of global memory that one CTA requests: boxes are accessed by whole rows.

        Of `receivers`, one requests all: this is the part of each.
        """
        rows = tile[1 - major_mode] // self.shares * self.boxes
        return rows * round_up(self.box[0] * element_bytes, SECTOR_BYTES) // SECTOR_BYTES // self.receivers

    def partitions(self, x: OperandName, g: Layout, s: LayoutExpr, thread: int) -> dict[str, LayoutExpr]:
        """Return nothing: no thread has a share of it."""
        return {}

    def tensor_maps(self, name: str) -> tuple[TensorMapContract, ...]:
        """Return the tensor map of `name` for its boxes."""
        width, rows = self.box[0] * self.together, self.box[1]
        box = (width, rows) if self.unit_elems is None else (self.unit_elems, width // self.unit_elems)
        return (TensorMapContract(name, box, self.swizzle_bytes),)

    def by_kind(self, *, vectors: Callable[[VectorCopy], T], boxes: Callable[[BulkTensorCopy], T]) -> T:
        """Return what `boxes` gives for it."""
        return boxes(self)

    def ambiguous(self, at: Landing) -> tuple[str, ...]:
        """None."""
        return ()

    def to_json(self) -> dict[str, Any]:
        """Return instruction and boxes."""
        return {"op": BULK_TENSOR, "box": list(self.box), "boxes": self.boxes, "swizzle_bytes": self.swizzle_bytes}


TileCopy: TypeAlias = VectorCopy | BulkTensorCopy
"""Copy of a tile from global to shared memory, or of C's from shared to global memory."""


def fetches_of(copies: Iterable[TileCopy]) -> tuple[Action, ...]:
    """Return the steps that issue some copies, once each, in their order."""
    return tuple(dict.fromkeys(copy.fetch for copy in copies))


def passing_registers(elems: int, element_bits: int, copy_bits: int, threads: int) -> int:
    """Return the registers per thread for its share of `elems` elements that plain loads and stores copy.

    A vector narrower than a register still needs one.

    >>> passing_registers(128 * 64, 16, 16, 128), passing_registers(128 * 64, 16, 128, 128)
    (64, 32)
    """
    return elems * element_bits // threads // min(copy_bits, REGISTER_BITS)
