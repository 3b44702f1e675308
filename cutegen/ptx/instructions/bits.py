"""Bit manipulation of lanes, as the PTX ISA's pseudo-code defines it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cutegen.ptx.arithmetic.rounding import Array


def _bits(a: Array) -> int:
    return a.dtype.itemsize * 8


def _unsigned(a: Array) -> Array:
    return a.view(f"u{a.dtype.itemsize}")


def multiply_high(a: Array, b: Array) -> Array:
    """The upper half of the double-width product."""
    bits = _bits(a)
    if bits < 64:
        wide = f"{a.dtype.kind}{a.dtype.itemsize * 2}"
        return (np.multiply(a, b, dtype=wide) >> bits).astype(a.dtype)
    products = [int(x) * int(y) >> 64 for x, y in zip(a, b, strict=True)]
    return np.array([value & (2**64 - 1) for value in products], np.uint64).view(a.dtype)


def count_leading_zeros(a: Array) -> Array:
    """Zero bits above the highest one bit."""
    return np.uint32(_bits(a)) - _bit_length(_unsigned(a))


def _bit_length(a: Array) -> Array:
    spread = a.copy()
    shift = 1
    while shift < _bits(a):
        spread |= spread >> a.dtype.type(shift)
        shift *= 2
    return np.bitwise_count(spread).astype(np.uint32)


def most_significant(a: Array, *, as_shift: bool) -> Array:
    """`bfind`: position of the highest bit that differs from the sign; 0xffffffff if there is none."""
    value = _unsigned(np.where(a < 0, ~a, a) if a.dtype.kind == "i" else a)
    position = _bit_length(value) - np.uint32(1)
    if not as_shift:
        return position
    return np.where(value == 0, position, np.uint32(_bits(a) - 1) - position)


def bit_reverse(a: Array) -> Array:
    """The bits in reverse order."""
    octets = _unsigned(np.ascontiguousarray(a)).view(np.uint8).reshape(len(a), -1)
    bits = np.unpackbits(octets, axis=1, bitorder="little")[:, ::-1]
    return np.ascontiguousarray(np.packbits(bits, axis=1, bitorder="little")).view(a.dtype).reshape(len(a))


def extract_field(a: Array, position: Array, length: Array) -> Array:
    """`bfe`: `length` bits from `position`, sign-extended for signed types; both count modulo 256."""
    bits = _bits(a)
    pos, size = (position & 0xFF).astype(np.int64), (length & 0xFF).astype(np.int64)
    signed = a.dtype.kind == "i"
    out = np.zeros(len(a), np.uint64)
    for lane, (value, p, n) in enumerate(zip(a.tolist(), pos.tolist(), size.tolist(), strict=True)):
        raw = value & ((1 << bits) - 1)
        sign = signed and n > 0 and raw >> min(p + n - 1, bits - 1) & 1
        field = raw >> p & ((1 << n) - 1)
        valid = max(0, min(n, bits - p))
        out[lane] = (field | (((1 << bits) - 1) & ~((1 << valid) - 1) if sign else 0)) & ((1 << bits) - 1)
    return out.astype(f"u{a.dtype.itemsize}").view(a.dtype)


def insert_field(a: Array, b: Array, position: Array, length: Array) -> Array:
    """`bfi`: the low `length` bits of a put into b at `position`; both count modulo 256."""
    bits = _bits(a)
    full = (1 << bits) - 1
    out = []
    for x, y, p, n in zip(a.tolist(), b.tolist(), position.tolist(), length.tolist(), strict=True):
        mask = (((1 << (n & 0xFF)) - 1) << (p & 0xFF)) & full
        out.append((y & full & ~mask) | ((x << (p & 0xFF)) & mask))
    return np.array(out, np.uint64).astype(a.dtype)


def bit_mask(start: Array, width: Array, *, wraps: bool) -> Array:
    """`bmsk`: `width` ones from bit `start` on; both count modulo 32, or end at bit 32."""
    first, size = ((x & 31 if wraps else np.minimum(x, 32)).astype(np.uint64) for x in (start, width))
    ones = ((np.uint64(1) << size) - np.uint64(1)) << first
    return (ones & np.uint64(0xFFFFFFFF)).astype(np.uint32)


def extend(a: Array, bits: Array, *, wraps: bool) -> Array:
    """`szext`: the low `bits` bits of `a`, by their sign if `a` is signed; `bits` counts modulo 32, or to 32."""
    kept = (bits & 31 if wraps else np.minimum(bits, 32)).astype(np.int64)
    mask = (np.int64(1) << kept) - 1
    low = a.astype(np.int64) & mask
    signed = (a.dtype.kind == "i") & (kept > 0) & (low >> np.maximum(kept - 1, 0) & 1 == 1)
    return (np.where(signed, low | ~mask, low) & 0xFFFFFFFF).astype(np.uint32).view(a.dtype)


def funnel_shift(a: Array, b: Array, amount: Array, *, left: bool, wraps: bool) -> Array:
    """`shf`: the upper word of b:a shifted left, or the lower word of it shifted right."""
    n = (amount & 31 if wraps else np.minimum(amount, 32)).astype(np.uint64)
    both = b.astype(np.uint64) << np.uint64(32) | a.astype(np.uint64)
    if left:
        return ((both << n) >> np.uint64(32)).astype(np.uint32)
    return (both >> n).astype(np.uint32)


_SELECT_MODES: dict[str, Callable[[Array], Array]] = {
    "f4e": lambda s: (s[:, None] + np.arange(4)) & 7,
    "b4e": lambda s: (s[:, None] - np.arange(4)) & 7,
    "rc8": lambda s: np.repeat(s[:, None], 4, axis=1),
    "ecl": lambda s: np.maximum(np.arange(4), s[:, None]),
    "ecr": lambda s: np.minimum(np.arange(4), s[:, None]),
    "rc16": lambda s: (s[:, None] & 1) * 2 + np.arange(4) % 2,
}


def permute_bytes(a: Array, b: Array, selector: Array, mode: str | None) -> Array:
    """`prmt`.

    Selects four of the eight bytes of b:a; without a mode, bit 3 of each selector replicates the byte's sign.
    """
    octets = np.stack([a, b], axis=1).view(np.uint8)
    if mode is not None:
        choice = _SELECT_MODES[mode]((selector & 3).astype(np.int64))
        picked = np.take_along_axis(octets, choice, axis=1)
    else:
        nibbles = (selector.astype(np.int64)[:, None] >> np.array([0, 4, 8, 12])) & 0xF
        picked = np.take_along_axis(octets, nibbles & 7, axis=1)
        picked = np.where(nibbles & 8, np.where(picked & 0x80, 0xFF, 0), picked)
    return np.ascontiguousarray(picked.astype(np.uint8)).view(np.uint32).reshape(len(a))
