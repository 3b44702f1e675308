"""Operands of `tcgen05.mma` for tests: their values, their bits, and where shared memory has them.

Codes and places are stated by the tables of the formats and by the driver's swizzles, not by what the executor does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "e2m3": 6, "e3m2": 6, "e2m1": 4, "s8": 8, "u8": 8}
_SIGN = {"e4m3": 0x80, "e5m2": 0x80, "e2m3": 0x20, "e3m2": 0x20, "e2m1": 8}
# OCP "8-bit Floating Point Specification" and "Microscaling Formats": codes of some values.
_CODES = {
    "e4m3": {0: 0, 0.5: 0x30, 1: 0x38, 1.5: 0x3C, 2: 0x40, 3: 0x44},
    "e5m2": {0: 0, 0.5: 0x38, 1: 0x3C, 1.5: 0x3E, 2: 0x40, 3: 0x42},
    "e2m3": {0: 0, 0.5: 4, 1: 8, 1.5: 12, 2: 16, 3: 20},
    "e3m2": {0: 0, 0.5: 8, 1: 12, 1.5: 14, 2: 16, 3: 18},
    "e2m1": {0: 0, 0.5: 1, 1: 2, 1.5: 3, 2: 4, 3: 5},
}
_TYPE_CODES = {"f16": 0, "bf16": 1, "tf32": 2, "u8": 0, "s8": 1, "e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}
_SUMS = {"f16": 0, "f32": 1, "s32": 2}
SWIZZLES = {0: 0, "128/32": 1, 128: 2, 64: 4, 32: 6}
"""PTX ISA, "Shared memory descriptor": codes of the swizzles; `128/32` permutes atoms of 32 bytes."""
_PATTERNS = {
    0: lambda line, chunk: chunk,
    128: lambda line, chunk: chunk ^ line % 8,
    64: lambda line, chunk: chunk ^ line // 2 % 4,
    32: lambda line, chunk: chunk ^ line // 4 % 2,
    "128/32": lambda line, chunk: chunk ^ line % 4 << 1,
}


def values_of(name: str, shape: tuple[int, int], rng: np.random.Generator) -> Array:
    """Small values that every sum of a test holds exactly."""
    if name == "u8":
        return rng.integers(0, 8, shape).astype(np.float64)
    if name in _CODES:
        return rng.choice([0, 0.5, 1, 1.5, 2, 3], shape) * rng.choice([-1, 1], shape)
    return rng.integers(-3, 4, shape).astype(np.float64)


def codes_of(name: str, values: Array) -> Array:
    """The stored bits of each value."""
    if name == "f16":
        return values.astype(np.float16).view(np.uint16)
    if name == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if name == "tf32":
        return values.astype(np.float32).view(np.uint32)
    if name in ("s8", "u8"):
        return values.astype(np.int8).view(np.uint8)
    table = _CODES[name]
    magnitudes = np.vectorize(lambda value: table[value], otypes=[np.uint8])(np.abs(values))
    return np.where(np.signbit(values) & (values != 0), magnitudes | _SIGN[name], magnitudes).astype(np.uint8)


def stored(name: str, codes: Array, *, packed: bool) -> Array:
    """Codes (rows, K) as K-major rows of shared memory: 4 and 6 bits in 16-byte slots of 16 values, unless `packed`."""
    if BITS[name] >= 8:
        return codes
    rows = len(codes)
    if packed:
        return (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8)
    slots = codes.reshape(rows, -1, 16)
    bits = np.unpackbits(slots[..., None], axis=-1, bitorder="little")[..., : BITS[name]]
    filled = np.packbits(bits.reshape(*slots.shape[:2], -1), axis=-1, bitorder="little")
    padded = np.full((*slots.shape[:2], 16), 0xFF, np.uint8)
    padded[..., : filled.shape[-1]] = filled
    return padded.reshape(rows, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A stored matrix (rows, K) in boxes of swizzle wide lines, at byte `at` of shared memory.

    K-major, a line is one row's part of K; else one k's part of the rows. Without swizzle, core matrices of 8 lines of
    16 bytes: the next of the same lines follows first.
    """

    matrix: Array
    swizzle: int | str
    k_major: bool = True
    at: int = 0

    @property
    def lines(self) -> Array:
        """The matrix with the contiguous mode last."""
        return np.ascontiguousarray(self.matrix if self.k_major else self.matrix.T)

    @property
    def size_bytes(self) -> int:
        """Its size."""
        return self.matrix.nbytes

    @property
    def width(self) -> int:
        """Bytes of a line of a box."""
        return {0: 16, "128/32": 128}.get(self.swizzle, self.swizzle)

    def write(self, image: Array) -> None:
        """Puts the matrix into an image of shared memory."""
        lines = self.lines.view(np.uint8).reshape(len(self.lines), -1, 16)
        for line in range(lines.shape[0]):
            for chunk in range(lines.shape[1]):
                place = self.at + self.place(line, chunk)
                image[place : place + 16] = lines[line, chunk]

    def place(self, line: int, chunk: int) -> int:
        """The byte at which a chunk of a line begins."""
        count, across = len(self.lines), self.lines.nbytes // len(self.lines) // 16
        if self.swizzle == 0:
            return (line // 8 * across + chunk) * 128 + line % 8 * 16
        box, within = divmod(chunk, self.width // 16)
        return (box * count + line) * self.width + _PATTERNS[self.swizzle](line, within) * 16

    def descriptor(self, step: int) -> tuple[int, int]:
        """(first byte, the other bits of the descriptor) for the 32 bytes of K of `step`."""
        item, count = self.matrix.itemsize, len(self.lines)
        across = self.lines.nbytes // count // 16
        line, chunk = (0, 2 * step) if self.k_major else (step * 32 // item, 0)
        lead, stride = 16, 8 * self.width
        if self.swizzle:
            per_line = self.width // 16
            start = (chunk // per_line * count + line) * self.width + chunk % per_line * 16
            if not self.k_major:
                lead = count * self.width
            if self.swizzle == "128/32":
                stride = 4 * self.width
        else:
            start = (line // 8 * across + chunk) * 128
            lead, stride = (128, across * 128) if self.k_major else (across * 128, 128)
        rest = lead >> 4 << 16 | stride >> 4 << 32 | 1 << 46 | SWIZZLES[self.swizzle] << 61
        return self.at + start, rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Idesc:
    """Fields of an instruction descriptor (PTX ISA, "Instruction descriptor")."""

    kind: str
    m: int
    n: int
    a: str
    b: str
    d: str
    mn_major: tuple[bool, bool] = (False, False)
    negated: tuple[bool, bool] = (False, False)
    saturates: bool = False
    factors: str = "ue8m0"
    ids: tuple[int, int] = (0, 0)

    def bits(self) -> int:
        """The 32 bits."""
        scaled, packed = self.kind.startswith("mx"), self.kind in ("mxf4", "mxf4nvf4")
        types = (1, 1) if packed else (_TYPE_CODES[self.a], _TYPE_CODES[self.b])
        signs = self.negated[0] << 13 | self.negated[1] << 14 | self.mn_major[0] << 15 | self.mn_major[1] << 16
        both = types[0] << 7 | types[1] << 10 | signs | self.n >> 3 << 17
        if scaled:
            return both | self.ids[1] << 4 | (self.factors == "ue8m0") << 23 | self.m >> 7 << 27 | self.ids[0] << 29
        return both | self.saturates << 3 | _SUMS[self.d] << 4 | self.m >> 4 << 24
