"""`printf` of kernels: a format and the arguments that it takes from a buffer, to text.

Source: CUDA C++ Programming Guide, "Formatted Output"; C17, 7.21.6.1. Arguments are aligned to their size; floats are
doubles.
"""

from __future__ import annotations

import re
import struct

import numpy as np

from cutegen.ptx.machine.spaces import memory_of
from cutegen.ptx.machine.warp import Warp

MAX_TEXT_BYTES = 1 << 12
"""The longest format, and the longest string, that is read."""
_CONVERSION = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+)?)?(hh|h|ll|l|j|z|t|L)?([diouxXeEfFgGaAcspn%])")
_WIDE = ("ll", "l", "j", "z", "t")


def text_at(warp: Warp, site: int, address: int) -> str:
    """The string at the generic `address`, for the only active lane."""
    memory, octets = memory_of(warp, "generic"), bytearray()
    while len(octets) < MAX_TEXT_BYTES:
        octet = int(memory.read(warp, site, np.array([address + len(octets)], np.int64), 1)[0])
        if octet == 0:
            break
        octets.append(octet)
    return octets.decode("utf-8", "replace")


class _Arguments:
    """Takes one argument after the other."""

    def __init__(self, warp: Warp, site: int, address: int) -> None:
        self._warp, self._site, self._address, self._next = warp, site, address, 0
        self.count = 0

    def take(self, size_bytes: int) -> int:
        """The next argument as an unsigned integer."""
        self._next = -(-self._next // size_bytes) * size_bytes
        at = np.array([self._address + self._next], np.int64)
        self._next, self.count = self._next + size_bytes, self.count + 1
        return int(memory_of(self._warp, "generic").read(self._warp, self._site, at, size_bytes)[0])


def format_text(warp: Warp, site: int, pattern: int, arguments: int) -> tuple[str, int]:
    """Return the text that the only active lane prints, and the number of its arguments, from generic addresses."""
    given, found, end = _Arguments(warp, site, arguments), list[str](), 0
    text = text_at(warp, site, pattern)
    for match in _CONVERSION.finditer(text):
        found += [text[end : match.start()], _converted(warp, site, match, given)]
        end = match.end()
    return "".join(found) + text[end:], given.count


def _converted(warp: Warp, site: int, match: re.Match[str], given: _Arguments) -> str:
    flags, width, precision, length, kind = match.groups()
    if kind == "%":
        return "%"
    has_precision = "." in match[0]
    width = str(_signed(given.take(4), 4)) if width == "*" else width or ""
    precision = str(max(0, _signed(given.take(4), 4))) if precision == "*" else precision or "0"
    spec = f"%{flags}{width}" + (f".{precision}" if has_precision else "")
    size = 8 if length in _WIDE else 4
    if kind in "di":
        return (spec + "d") % _signed(given.take(size), size)
    if kind in "ouxX":
        return (spec + kind).replace("u", "d") % given.take(size)
    if kind == "c":
        return (f"%{flags}{width}s") % chr(given.take(4) & 0xFF)
    if kind == "s":
        return (spec + "s") % text_at(warp, site, given.take(8))
    if kind == "p":
        return (f"%{flags}{width}s") % hex(given.take(8))
    if kind == "n":
        given.take(8)
        return ""
    value: float = struct.unpack("<d", struct.pack("<Q", given.take(8)))[0]
    return (f"%{flags}{width}s") % value.hex() if kind in "aA" else (spec + kind) % value


def _signed(value: int, size_bytes: int) -> int:
    bits = 8 * size_bytes
    return value - (1 << bits) if value >> (bits - 1) else value
