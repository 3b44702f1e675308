"""A tensor map as an object of 128 bytes in memory: its fields, as `tensormap.replace` names them, and back to a map.

Source: PTX ISA, `tensormap.replace`; CUDA Driver API, `cuTensorMapEncodeTiled`. The driver does not say where the
fields lie. Here the address comes first, then the formats, the strides, the extents and the box.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cutegen.ptx.errors import LaunchError
from cutegen.ptx.machine.tensor_map import MAX_RANK, TENSOR_MAP_BYTES, TensorMap

Words: TypeAlias = npt.NDArray[np.uint32]
WORD_BYTES = 4
_MARK = 0x7A
"""The upper byte of the word of formats, which other bytes seldom have."""


@dataclass(frozen=True, slots=True)
class Field:
    """`bits` bits of word `word` from bit `shift` on, for each of `count` modes `step` bits apart.

    It holds a number less `less`, in units of `unit`; a `wide` one takes two words.
    """

    word: int
    shift: int = 0
    bits: int = 32
    count: int = 1
    step: int = 0
    less: int = 0
    unit: int = 1
    wide: bool = False

    def place(self, mode: int) -> tuple[int, int]:
        """The word, and the bit in it, of the field of a mode."""
        at = self.shift + mode * self.step
        return self.word + at // 32, at % 32


FIELDS = {
    "global_address": Field(0, wide=True),
    "rank": Field(2, bits=3),
    "elemtype": Field(2, 3, 4),
    "interleave_layout": Field(2, 7, 2),
    "swizzle_mode": Field(2, 9, 3),
    "swizzle_atomicity": Field(2, 12, 2),
    "fill_mode": Field(2, 14, 1),
    "global_stride": Field(3, count=MAX_RANK - 1, step=32, unit=16),
    "global_dim": Field(8, count=MAX_RANK, step=32, less=1),
    "box_dim": Field(13, 0, 8, MAX_RANK, 8, less=1),
    "element_stride": Field(15, 0, 4, MAX_RANK, 4, less=1),
}
"""The fields by their names in `tensormap.replace`."""
_SWIZZLES = (0, 32, 64, 128)
_ATOMS = (16, 32)
_NARROW = {13: (4, False), 14: (4, True), 15: (6, True)}
"""Bits of an element, and whether it is padded, of the types `.b4x16`, `.b4x16_p64` and `.b6x16_p32`."""
_ITEM_BYTES = {
    0: 1,
    1: 2,
    2: 4,
    3: 4,
    4: 8,
    5: 8,
    6: 2,
    7: 4,
    8: 4,
    9: 8,
    10: 2,
    11: 4,
    12: 4,
    **dict.fromkeys(_NARROW, 1),
}
_CODES = {"u1": 0, "i1": 0, "u2": 1, "i2": 1, "u4": 2, "i4": 3, "u8": 4, "i8": 5, "f2": 6, "f4": 7, "f8": 9}


def encode(tensor_map: TensorMap, address: int) -> bytes:
    """The 128 bytes of a map whose tensor is at the global `address`."""
    words = np.zeros(TENSOR_MAP_BYTES // WORD_BYTES, np.uint32)
    narrow = tensor_map.element_bits, tensor_map.is_padded
    code = next((code for code, key in _NARROW.items() if key == narrow), None)
    if code is None:
        code = _CODES[tensor_map.array.dtype.str[1:]]
    words[0], words[1], words[2] = address & 0xFFFFFFFF, address >> 32, _MARK << 24
    _put(words, "rank", 0, len(tensor_map.extents) - 1)
    _put(words, "elemtype", 0, code)
    _put(words, "swizzle_mode", 0, _SWIZZLES.index(tensor_map.swizzle_bytes))
    _put(words, "swizzle_atomicity", 0, _ATOMS.index(tensor_map.swizzle_atom_bytes))
    for mode, stride in enumerate(tensor_map.strides_bytes):
        _put(words, "global_stride", mode, stride)
    for mode, (extent, size) in enumerate(zip(tensor_map.extents, tensor_map.box, strict=True)):
        _put(words, "global_dim", mode, extent)
        _put(words, "box_dim", mode, size)
    return words.tobytes()


def _put(words: Words, name: str, mode: int, value: int) -> None:
    field = FIELDS[name]
    word, shift = field.place(mode)
    words[word] |= np.uint32(((value // field.unit - field.less) & ((1 << field.bits) - 1)) << shift)


def decode(octets: bytes) -> tuple[TensorMap, int]:
    """The map that 128 bytes hold, on an array without elements, and the address of its tensor.

    Raises:
        LaunchError: the bytes are not a tensor map, or one that is not supported.
    """
    words = np.frombuffer(octets, np.uint32)
    if int(words[2]) >> 24 != _MARK:
        raise LaunchError("the bytes are not a tensor map")

    def get(name: str, mode: int = 0) -> int:
        return _get(words, name, mode)

    rank, code = get("rank") + 1, get("elemtype")
    mode, atom = get("swizzle_mode"), get("swizzle_atomicity")
    wrong = {
        f"a rank of {rank}": rank > MAX_RANK,
        f"element type {code}": code not in _ITEM_BYTES,
        f"swizzle mode {mode} with atomicity {atom}": mode >= len(_SWIZZLES) or atom >= len(_ATOMS),
        "an interleaved layout": get("interleave_layout") != 0,
        "a fill with NaN": get("fill_mode") != 0,
        "element strides other than 1": any(get("element_stride", at) != 1 for at in range(min(rank, MAX_RANK))),
    }
    found = next((what for what, is_wrong in wrong.items() if is_wrong), None)
    if found is not None:
        raise LaunchError(f"a tensor map with {found} is not supported")
    bits, is_padded = _NARROW.get(code, (None, False))
    tensor_map = TensorMap(
        array=np.zeros(0, f"u{_ITEM_BYTES[code]}"),
        extents=tuple(get("global_dim", at) for at in range(rank)),
        strides_bytes=tuple(get("global_stride", at) for at in range(rank - 1)),
        box=tuple(get("box_dim", at) for at in range(rank)),
        swizzle_bytes=_SWIZZLES[mode],
        swizzle_atom_bytes=_ATOMS[atom],
        element_bits=bits,
        is_padded=is_padded,
    )
    return tensor_map, int(words[0]) | int(words[1]) << 32


def _get(words: Words, name: str, mode: int) -> int:
    field = FIELDS[name]
    word, shift = field.place(mode)
    return ((int(words[word]) >> shift & ((1 << field.bits) - 1)) + field.less) * field.unit
