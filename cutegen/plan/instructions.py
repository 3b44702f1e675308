"""Plain loads and stores: how the compiler spells them, and how many a copy takes."""

from __future__ import annotations

from collections import Counter

from cutegen.algebra import TiledMma, size
from cutegen.arch import DType, Target
from cutegen.plan.access import joined
from cutegen.plan.gemm_plan import OperandPlan, VectorCopy


def load_global(bits: int, element: DType, target: Target) -> str:
    """The opcode of a plain load of `bits` from global memory, as the compiler writes it.

    >>> from cutegen.arch import dtype, target
    >>> load_global(128, dtype("f32"), target("sm_80")), load_global(128, dtype("f32"), target("sm_120"))
    ('ld.global.v4.b32', 'ld.global.v2.b64')
    """
    return f"ld.global.{_copied(bits, element, target)}"


def store_shared(bits: int, element: DType, target: Target) -> str:
    """The opcode of a plain store of `bits` to shared memory, as the compiler writes it."""
    return f"st.shared.{_copied(bits, element, target)}"


def load_shared(bits: int, element_bits: int) -> str:
    """The opcode of plain loads of elements from shared memory, of which the compiler makes one of `bits`.

    >>> load_shared(64, 16), load_shared(128, 16)
    ('ld.shared.v4.b16', 'ld.shared.v4.b32')
    """
    return f"ld.shared.{_joined(bits, element_bits)}"


def stores_per_k_tile(operand: OperandPlan, tiled_mma: TiledMma, target: Target) -> Counter[str]:
    """The stores to shared memory of one thread for one k-tile of an operand, by their opcodes.

    Stores that the compiler joins are one.
    """
    copy, element = operand.g2s, operand.dtype
    assert isinstance(copy, VectorCopy)
    alone = store_shared(copy.bits, element, target)
    if not may_join(copy, element, tiled_mma):
        return Counter({alone: copies_per_k_tile(operand, tiled_mma)})
    stage = operand.smem.layout_of_one_stage
    _, lengths = joined(copy.threads, copy.values, stage, operand.tile, element.bits)
    widths = (length * element.bits for length in lengths)
    return Counter(alone if bits == copy.bits else f"st.shared.{_joined(bits, copy.bits)}" for bits in widths)


def may_join(copy: VectorCopy, element: DType, tiled_mma: TiledMma) -> bool:
    """Whether the compiler joins stores of a copy that lie side by side.

    It joins whatever vectors a kernel of tensor cores stores, one by one. A kernel of `fma` hands all of a thread's to
    one copy, of which it joins single elements only.
    """
    return copy.through_registers and (size(tiled_mma.atom.thr_id) > 1 or copy.bits == element.bits)


def _copied(bits: int, element: DType, target: Target) -> str:
    """One vector on its way from memory to memory. Where two f32 are a register, a vector of them is made of those."""
    if target.packs_f32 and element.name == "f32" and bits == 128:
        return "v2.b64"
    if target.packs_f32 and element.in_memory == "f32" and bits == 64:
        return "b64"
    return _joined(bits, bits) if (bits, element.bits) != (16, 8) else "v2.b8"


def _joined(bits: int, part_bits: int) -> str:
    """Accesses of `part_bits` as one of `bits`: a vector of up to four, of words where that holds no more."""
    parts = bits // part_bits
    if (part_bits == 16 and parts in (2, 4)) or (part_bits == 8 and parts == 2):
        return f"v{parts}.b{part_bits}"
    return {8: "b8", 16: "b16", 32: "b32", 64: "v2.b32", 128: "v4.b32"}[bits]


def copies_per_k_tile(operand: OperandPlan, tiled_mma: TiledMma) -> int:
    """Vectors that one thread copies of one k-tile of an operand."""
    assert isinstance(operand.g2s, VectorCopy)
    vector = operand.g2s.bits // operand.dtype.bits
    return operand.tile[0] * operand.tile[1] // (vector * tiled_mma.threads)


def ambiguous(operand: OperandPlan, tiled_mma: TiledMma, target: Target) -> tuple[str, ...]:
    """How the opcodes of an `fma` kernel's copy begin that the compiler writes now as words, now as elements.

    They are pairs of 16 bits, and stores that it joins, which it spells otherwise in each of the two main loops.
    """
    assert isinstance(operand.g2s, VectorCopy)
    bits, element = operand.g2s.bits, operand.dtype
    if bits == 2 * element.bits == 32:
        return load_global(32, element, target), store_shared(32, element, target)
    joins = store_shared(bits, element, target) not in stores_per_k_tile(operand, tiled_mma, target)
    return ("st.shared.",) if joins else ()
