"""How a tile is copied: by vectors of threads, by boxes, from shared memory to fragments; what each copy issues."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

from cutegen.algebra import Layout, LayoutExpr, OperandName, TiledCopy, TiledMma, compose, size, spec_notation
from cutegen.arch import BULK_TENSOR, UNIVERSAL, BulkTensorAtom, CopyAtom, CpAsyncAtom, DType, LdmatrixAtom, Target
from cutegen.arch.units import REGISTER_BITS
from cutegen.plan.access import joined
from cutegen.plan.decision import Rejected
from cutegen.plan.instructions import load_global, load_shared, store_joined, store_shared
from cutegen.plan.loop import Action, Check, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """Where a copy brings a tile (X, K) of `element`s: `stage` maps (X, K) to offsets in one stage of shared memory."""

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

    @property
    def through_registers(self) -> bool:
        """Whether it is made of plain loads and stores, with the data in a thread's registers between the two."""
        return self.fetch is Action.GLOBAL_LOAD

    @property
    def fetch(self) -> Action:
        """The step that sends for a k-tile."""
        return Action.GLOBAL_LOAD if self.atom.name == UNIVERSAL else Action.FETCH

    @property
    def bypasses_l1(self) -> bool:
        """Whether it is `cp.async.cg`, which keeps lines in L2 alone."""
        return isinstance(self.atom, CpAsyncAtom) and self.atom.op == "cp.async.cg"

    def passing_registers(self, tile: tuple[int, int], element: DType) -> int:
        """Registers of 32 bits in which a thread keeps its share of a tile between the loads and the stores."""
        if not self.through_registers:
            return 0
        return passing_registers(tile[0] * tile[1], element.bits, self.bits, size(self.threads))

    def opcodes(self, step: Step, at: Landing) -> Counter[str]:
        """What a thread issues for a step on a tile: a copy for each vector, and by elements what crosses an edge."""
        elements = self.bits // at.element.bits
        vectors = at.tile[0] * at.tile[1] // (elements * size(self.threads))
        match step.action:
            case Action.FETCH if isinstance(self.atom, CpAsyncAtom):
                return Counter({self.atom.ptx: vectors})
            case Action.STORE if self.through_registers:
                return self._stores(vectors, at)
            case Action.GLOBAL_LOAD if self.through_registers:
                whole, single = (load_global(bits, at.element, at.target) for bits in (self.bits, at.element.bits))
                return _checked(step.check, whole, single, vectors, elements)
            case _:
                return Counter()

    def joins(self, element: DType, tiled_mma: TiledMma) -> bool:
        """Whether the compiler joins stores that lie side by side.

        It joins whatever vectors a kernel of tensor cores stores, one by one. A kernel of `fma` hands all of a thread's
        to one copy, of which it joins single elements only.
        """
        return self.through_registers and (size(tiled_mma.atom.thr_id) > 1 or self.bits == element.bits)

    def _stores(self, vectors: int, at: Landing) -> Counter[str]:
        """The stores to shared memory of one thread for one k-tile; stores that the compiler joins are one."""
        alone = store_shared(self.bits, at.element, at.target)
        if not self.joins(at.element, at.tiled_mma):
            return Counter({alone: vectors})
        _, lengths = joined(self.threads, self.values, at.stage, at.tile, at.element.bits)
        widths = (length * at.element.bits for length in lengths)
        return Counter(alone if bits == self.bits else store_joined(bits, self.bits) for bits in widths)

    def ambiguous(self, at: Landing) -> tuple[str, ...]:
        """How the opcodes of an `fma` kernel's copy begin that the compiler writes now as words, now as elements.

        They are pairs of 16 bits, and stores that it joins, which it spells otherwise in each of the two main loops.
        """
        if not self.through_registers:
            return ()
        store = store_shared(self.bits, at.element, at.target)
        if self.bits == 2 * at.element.bits == 32:
            return load_global(32, at.element, at.target), store
        return () if store in self.opcodes(Step(Action.STORE), at) else ("st.shared.",)

    def to_json(self) -> dict[str, Any]:
        """Instruction, width and threads, as a spec would write them."""
        op = self.atom.op if isinstance(self.atom, CpAsyncAtom) else self.atom.name
        return {"op": op, "bits": self.bits, "threads": spec_notation(self.threads)}


def _checked(check: Check, whole: str, single: str, vectors: int, elements: int) -> Counter[str]:
    """Loads of `vectors` vectors: a vector that crosses an edge comes by elements, the last of which lies outside."""
    if check is Check.ELEMENT:
        return Counter({single: vectors * elements})
    # A vector may be one element, whose opcode is the same.
    return Counter({whole: vectors}) + Counter({single: vectors * (elements - 1) if check is Check.VECTOR else 0})


@dataclass(frozen=True, slots=True)
class BulkTensorCopy:
    """A copy of a tile between global and shared memory that one thread asks for, box after box.

    A box has the extents `box`, the contiguous mode first; `boxes` of them lie side by side along the contiguous mode.
    In shared memory a box's rows follow each other, permuted by Swizzle<swizzle_bits,4,3> on byte addresses.
    """

    atom: BulkTensorAtom
    box: tuple[int, int]
    boxes: int
    swizzle_bits: int

    @property
    def swizzle_bytes(self) -> int:
        """Length of the rows that are permuted, 0 for none, as a tensor map names its swizzle."""
        return 16 << self.swizzle_bits if self.swizzle_bits else 0

    through_registers: ClassVar[bool] = False
    fetch: ClassVar[Action] = Action.BULK_FETCH
    bypasses_l1: ClassVar[bool] = False

    def passing_registers(self, tile: tuple[int, int], element: DType) -> int:
        """None: no thread holds what it copies."""
        return 0

    def opcodes(self, step: Step, at: Landing) -> Counter[str]:
        """A copy for each box."""
        return Counter({self.atom.ptx: self.boxes} if step.action is Action.BULK_FETCH else {})

    def ambiguous(self, at: Landing) -> tuple[str, ...]:
        """None."""
        return ()

    def to_json(self) -> dict[str, Any]:
        """Instruction and boxes."""
        return {"op": BULK_TENSOR, "box": list(self.box), "boxes": self.boxes, "swizzle_bytes": self.swizzle_bytes}


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentCopy:
    """The copy from shared memory to the MMA's fragments: an `ldmatrix`, or plain loads of `bits`.

    Where it numbers a thread's values otherwise than the MMA, `order` maps its numbers to the MMA's in the tiled MMA's
    tile, and `view` (CPY, CPY_X, CPY_K) to those in the whole fragment.
    """

    atom: LdmatrixAtom | CopyAtom
    bits: int
    tiled_copy: TiledCopy
    order: Layout | None = None
    view: Layout | None = None
    rejected: tuple[Rejected, ...]

    @property
    def matrices(self) -> int | None:
        """Matrices per instruction; None for plain loads."""
        return self.atom.matrices if isinstance(self.atom, LdmatrixAtom) else None

    @property
    def registers(self) -> int | None:
        """Registers of 32 bits that one instruction fills in a thread; None for plain loads."""
        return self.atom.registers if isinstance(self.atom, LdmatrixAtom) else None

    @property
    def transpose(self) -> bool | None:
        """Whether the ldmatrix transposes; None for plain loads."""
        return self.atom.transpose if isinstance(self.atom, LdmatrixAtom) else None

    def opcodes(self, step: Step, x: OperandName, tile: tuple[int, int], element: DType, mma: TiledMma) -> Counter[str]:
        """What a warp, or a thread by itself, issues to load a tile (X, K), or one k-block of it."""
        if step.action is not Action.LOAD:
            return Counter()
        held = tile[0] // mma.tile_of(x)[0] * (tile[1] // mma.tile_of(x)[1]) * mma.values(x) * element.bits
        if isinstance(self.atom, LdmatrixAtom):
            return Counter({self.atom.ptx: held // (REGISTER_BITS * self.atom.registers)})
        return Counter({load_shared(self.bits, element.bits): held // self.bits})

    def retile(self, fragment: Layout) -> Layout:
        """A fragment (MMA, MMA_X, MMA_K) as this copy fills it: (CPY, CPY_X, CPY_K)."""
        return self.tiled_copy.retile(fragment) if self.view is None else compose(fragment, self.view)


def passing_registers(elems: int, element_bits: int, copy_bits: int, threads: int) -> int:
    """Registers a thread for its share of `elems` elements that plain loads and stores take from memory to memory.

    A vector narrower than a register still takes one.

    >>> passing_registers(128 * 64, 16, 16, 128), passing_registers(128 * 64, 16, 128, 128)
    (64, 32)
    """
    return elems * element_bits // threads // min(copy_bits, REGISTER_BITS)
