"""Number literals of PTX.

Source: PTX ISA, "Constants" (integer constants wrap to 64 bits; `0f` and `0d` give the bits of a float).
"""

from __future__ import annotations

import struct

from cutegen.ptx.text.syntax import Immediate


def parse_literal(text: str, *, negative: bool) -> Immediate:
    """The immediate that `text` writes.

    >>> parse_literal("0f3F800000", negative=False)
    Immediate(value=1.0, float_bits=32)
    >>> parse_literal("0x10", negative=True)
    Immediate(value=-16, float_bits=0)
    """
    sign = -1 if negative else 1
    lower = text.lower()
    if lower.startswith("0f"):
        return _of_bits(">f", bytes.fromhex(text[2:]), negative=negative)
    if lower.startswith("0d"):
        return _of_bits(">d", bytes.fromhex(text[2:]), negative=negative)
    digits = lower.rstrip("u")
    if digits.startswith("0x"):
        return Immediate(sign * int(digits, 16))
    if digits.startswith("0b"):
        return Immediate(sign * int(digits, 2))
    if any(mark in digits for mark in ".e"):
        return _of_bits(">d", struct.pack(">d", float(digits)), negative=negative)
    octal = len(digits) > 1 and digits.startswith("0")
    return Immediate(sign * int(digits, 8 if octal else 10))


def _of_bits(code: str, octets: bytes, *, negative: bool) -> Immediate:
    """The float that `struct` reads as `code`."""
    width = 8 * len(octets)
    bits = int.from_bytes(octets) ^ negative << width - 1
    return Immediate(struct.unpack(code, bits.to_bytes(len(octets)))[0], width, bits)
