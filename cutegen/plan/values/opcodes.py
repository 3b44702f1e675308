"""Opcodes of plain loads and stores in the compiler's spelling."""

from __future__ import annotations

from cutegen.hardware import DType, Instruction, Target


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
