"""Random operands in a PTX kernel: words of a generator, turned into values of an element type by bit masks.

Values are of magnitude 0.5 to 2, so that sums of products with either sign stay in range.
"""

from __future__ import annotations

from collections.abc import Iterator

# Bits kept from a random word (sign, lowest exponent bit, fraction), and bits that are set: 0.5 <= |x| < 2.
RANDOM_BITS = {
    "f16": (0x87FF87FF, 0x38003800),
    "bf16": (0x80FF80FF, 0x3F003F00),
    "f32": (0x80FFFFFF, 0x3F000000),
    "tf32": (0x80FFFFFF, 0x3F000000),
    "e4m3": (0x8F8F8F8F, 0x30303030),
    "e5m2": (0x87878787, 0x38383838),
    "s8": (0xFFFFFFFF, 0),
    "s32": (0x00FFFFFF, 0),
}
# Bits that turn a word of B into -B: the signs; for integers every bit, which gives -B - 1, close enough.
NEGATION = {
    "f16": 0x80008000,
    "bf16": 0x80008000,
    "f32": 0x80000000,
    "tf32": 0x80000000,
    "e4m3": 0x80808080,
    "e5m2": 0x80808080,
    "s8": 0xFFFFFFFF,
}


def draw(register: str, element: str) -> Iterator[str]:
    """Write the next random number (the generator of Numerical Recipes), as values of `element` that fill a word.

    The kernel's register %random holds the seed.
    """
    kept, set_ = RANDOM_BITS[element]
    yield "mad.lo.u32 %random, %random, 1664525, 1013904223;"
    yield f"and.b32 {register}, %random, {kept:#x};"
    yield f"or.b32 {register}, {register}, {set_:#x};"
