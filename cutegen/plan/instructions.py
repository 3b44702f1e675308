"""Plain loads and stores: how the compiler spells them."""

from __future__ import annotations


def load_global(bits: int, element_bits: int) -> str:
    """The opcode of a plain load of `bits` from global memory, as the compiler writes it.

    >>> load_global(128, 32)
    'ld.global.v4.b32'
    """
    return f"ld.global.{_copied(bits, element_bits)}"


def store_shared(bits: int, element_bits: int) -> str:
    """The opcode of a plain store of `bits` to shared memory, as the compiler writes it."""
    return f"st.shared.{_copied(bits, element_bits)}"


def load_shared(bits: int, element_bits: int) -> str:
    """The opcode of a plain load of `bits` from shared memory; less than 16 bytes come as elements.

    >>> load_shared(64, 16), load_shared(128, 16)
    ('ld.shared.v4.b16', 'ld.shared.v4.b32')
    """
    elems = bits // element_bits
    return f"ld.shared.{_copied(bits, bits)}" if elems == 1 or bits == 128 else f"ld.shared.v{elems}.b{element_bits}"


def _copied(bits: int, element_bits: int) -> str:
    if (bits, element_bits) == (16, 8):
        return "v2.b8"
    return {8: "b8", 16: "b16", 32: "b32", 64: "v2.b32", 128: "v4.b32"}[bits]
