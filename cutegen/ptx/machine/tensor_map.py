"""Tensor maps: what describes a tensor to bulk copies, as an object of 128 bytes, and those of a launch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cutegen.ptx.errors import LaunchError
from cutegen.ptx.machine.memory import PARAM_WINDOW, WINDOW_BYTES, Buffer, GlobalMemory
from cutegen.ptx.machine.shared import BULK_CHUNK_BYTES
from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.watch.tensor_map_proxy import TensorMapProxy, Writer
from cutegen.ptx.watch.violations import ViolationKind

# Tensor maps: the description of a tensor in global memory for bulk tensor copies, and the boxes that they move.
#
# Source: CUDA Driver API, `cuTensorMapEncodeTiled`; PTX ISA, "Tensors" (tiled mode, bounding box, swizzling modes).


TENSOR_MAP_BYTES = 128
TENSOR_MAP_ALIGN = 64
DESTINATION_ALIGN = 128
MAX_RANK, MAX_BOX = 5, 256
_SWIZZLE_MASKS = {0: 0x00, 32: 0x10, 64: 0x30, 128: 0x70}
_ATOM_SHIFTS = {16: 3, 32: 2}
"""Bits by which a swizzle moves the row bits down, by the bytes of its atoms: it changes whole atoms only."""

Slices = tuple[slice, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorMap:
    """A launch argument for a `CUtensorMap` parameter: a tensor, and the box of it that one copy moves.

    `array` is the storage: its element 0 is the tensor's first element, its dtype gives the element size. `extents` and
    `box` count elements, the innermost mode first; `strides_bytes` has one entry fewer, for the outer modes (the
    innermost mode is contiguous). `swizzle_bytes` is 0, 32, 64 or 128; a swizzle of 128 bytes moves atoms of 16 bytes,
    or of 32 (`swizzle_atom_bytes`). `element_bits` is 4 if the array's bytes hold two elements each (16U4_ALIGN8B).
    With `is_padded`, 16 elements of 4 or 6 bits take 16 bytes of shared memory, the last of them zeros (16U4_ALIGN16B,
    16U6_ALIGN16B).

    >>> a = np.zeros((256, 64), np.float16)
    >>> TensorMap(array=a, extents=(64, 256), strides_bytes=(128,), box=(64, 128), swizzle_bytes=128).box_bytes
    16384

    Raises:
        LaunchError: arguments that `cuTensorMapEncodeTiled` would refuse.
    """

    array: npt.NDArray[Any]
    extents: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int = 0
    swizzle_atom_bytes: int = BULK_CHUNK_BYTES
    element_bits: int | None = None
    is_padded: bool = False

    def __post_init__(self) -> None:
        """Checks all sizes."""
        rank, item = len(self.extents), self.array.dtype.itemsize
        row_bytes = (self.box[0] if self.is_padded else self.items(self.box[0]) * item) if self.box else 0
        span = self.swizzle_bytes or row_bytes
        rules = (
            (1 <= rank <= MAX_RANK, f"{rank} extents; a tensor map has 1 to {MAX_RANK}"),
            (len(self.strides_bytes) == rank - 1, f"{len(self.strides_bytes)} strides; expected {rank - 1}, innermost"
             " left out"),
            (len(self.box) == rank, f"a box of {len(self.box)} modes for a tensor of {rank}"),
            (item in (1, 2, 4, 8), f"elements of {item} bytes; expected 1, 2, 4 or 8"),
            (all(1 <= e <= 1 << 32 for e in self.extents), f"extents {self.extents}; expected 1 to 2^32"),
            (all(1 <= b <= MAX_BOX for b in self.box), f"box {self.box}; expected 1 to {MAX_BOX} elements in a mode"),
            (all(s % 16 == 0 and 0 <= s < 1 << 40 for s in self.strides_bytes),
             f"strides {self.strides_bytes}; expected multiples of 16 bytes below 2^40"),
            (row_bytes % BULK_CHUNK_BYTES == 0, f"a box row of {row_bytes} bytes; expected a multiple of 16"),
            (self.swizzle_bytes in _SWIZZLE_MASKS, f"swizzle {self.swizzle_bytes}; expected 0, 32, 64 or 128"),
            (self.element_bits in (widths := (4, 6) if self.is_padded else (None, 4)),
             f"elements of {self.element_bits} bits; expected one of {widths}"),
            (self.element_bits is None or item == 1, f"elements of {self.element_bits} bits in items of {item} bytes;"
             " expected bytes"),
            (all(size % self.align_elems == 0 for size in (*self.extents[:1], *self.box[:1])),
             f"extents {self.extents} and box {self.box} of {self.element_bits}-bit elements; expected multiples of"
             f" {self.align_elems} along the first mode"),
            (not self.is_padded or (self.swizzle_bytes in (0, 128) and all(s % 32 == 0 for s in self.strides_bytes)),
             f"a swizzle of {self.swizzle_bytes} and strides {self.strides_bytes} of padded elements; expected 0 or"
             " 128, and multiples of 32"),
            (self.swizzle_atom_bytes in _ATOM_SHIFTS, f"atoms of {self.swizzle_atom_bytes} bytes; expected 16 or 32"),
            (self.swizzle_atom_bytes == BULK_CHUNK_BYTES or self.swizzle_bytes == 128,
             f"atoms of {self.swizzle_atom_bytes} bytes under a swizzle of {self.swizzle_bytes}; expected 128"),
            (row_bytes == span, f"a box row of {row_bytes} bytes under a swizzle of {span}; only equal ones are"
             " supported"),
        )  # fmt: skip
        for holds, message in rules:
            if not holds:
                raise LaunchError(f"tensor map: {message}")

    def items(self, elems: int) -> int:
        """Items of the array that so many elements take."""
        return elems if self.element_bits is None else elems * self.element_bits // 8

    @property
    def align_elems(self) -> int:
        """Elements of which extent and box along the innermost mode are multiples."""
        return 128 if self.is_padded else 1 if self.element_bits is None else 2

    @property
    def bits(self) -> int:
        """Bits of an element."""
        return self.array.dtype.itemsize * 8 if self.element_bits is None else self.element_bits

    @property
    def corner_align_elems(self) -> int:
        """Elements of which a box's first coordinate is a multiple: 16 bytes.

        The PTX ISA does not say so; an H200 ends a kernel with "illegal instruction" at any other.
        """
        return 128 if self.is_padded else BULK_CHUNK_BYTES * 8 // self.bits

    @property
    def item_extents(self) -> tuple[int, ...]:
        """The extents in items of the array."""
        return (self.items(self.extents[0]), *self.extents[1:])

    @property
    def item_box(self) -> tuple[int, ...]:
        """The box in items of the array."""
        return (self.items(self.box[0]), *self.box[1:])

    @property
    def box_bytes(self) -> int:
        """Bytes of a box in shared memory, which are also the transaction bytes of a load."""
        return int(np.prod(self.box)) if self.is_padded else int(np.prod(self.item_box)) * self.array.dtype.itemsize

    @property
    def chunk_items(self) -> int:
        """Items of the array in a 16-byte chunk of shared memory."""
        return self.items(BULK_CHUNK_BYTES) if self.is_padded else BULK_CHUNK_BYTES // self.array.dtype.itemsize


@dataclass(frozen=True, slots=True, eq=False)
class TensorMaps:
    """A launch argument for a pointer to `maps`, 128 bytes each, in global memory; the launch fills `storage`."""

    maps: tuple[TensorMap, ...]
    storage: npt.NDArray[np.uint8] = field(init=False)

    def __post_init__(self) -> None:
        """Makes room."""
        object.__setattr__(self, "storage", np.zeros(TENSOR_MAP_BYTES * len(self.maps), np.uint8))


@dataclass(frozen=True, slots=True, eq=False)
class BoundTensor:
    """A tensor map in a launch: the tensor starts at byte `offset` of `buffer`."""

    map: TensorMap
    buffer: Buffer
    offset: int

    def __post_init__(self) -> None:
        """Checks conditions that depend on the array's address."""
        if (self.buffer.start + self.offset) % BULK_CHUNK_BYTES:
            raise LaunchError(f"tensor map: the tensor's address is not a multiple of {BULK_CHUNK_BYTES} bytes")

    @property
    def _element(self) -> np.dtype[Any]:
        return np.dtype(f"u{self.map.array.dtype.itemsize}")

    def _part(self, inside: Slices) -> npt.NDArray[Any]:
        """A part of the tensor as an array, the innermost mode last; elements are raw bits."""
        strides = (*self.map.strides_bytes[::-1], self._element.itemsize)
        first = sum(part.start * stride for part, stride in zip(inside, strides, strict=True))
        shape = [part.stop - part.start for part in inside]
        return np.ndarray(shape, self._element, self.buffer.bytes.data, self.offset + first, strides)

    def excess_bytes(self, corner: tuple[int, ...]) -> int:
        """Bytes beyond the array that the part of a box at `corner` inside the tensor reaches; 0 if none.

        A map may describe more than there is: kernels of groups of rows give one that begins again at each row.
        """
        places, strides = self.clip(corner), (*self.map.strides_bytes[::-1], self.map.array.dtype.itemsize)
        if places is None:
            return 0
        last = sum((part.stop - 1) * stride for part, stride in zip(places[0], strides, strict=True))
        return max(0, self.offset + int(last) + strides[-1] - len(self.buffer.bytes.data))

    def clip(self, corner: tuple[int, ...]) -> tuple[Slices, Slices] | None:
        """(slices of the tensor, slices of the box) of the intersection of a box at `corner` with the tensor.

        The corner, as in all of these methods, counts items of the array.
        """
        inside, within = [], []
        sizes = zip(corner[::-1], self.map.item_box[::-1], self.map.item_extents[::-1], strict=True)
        for start, size, extent in sizes:
            low, high = max(start, 0), min(start + size, extent)
            if low >= high:
                return None
            inside.append(slice(low, high))
            within.append(slice(low - start, high - start))
        return tuple(inside), tuple(within)

    def read_box(self, corner: tuple[int, ...]) -> npt.NDArray[Any]:
        """The box's bytes in 16-byte chunks, before the swizzle; zeros outside the tensor."""
        box = np.zeros(self.map.item_box[::-1], self._element)
        places = self.clip(corner)
        if places is not None:
            box[places[1]] = self._part(places[0])
        if not self.map.is_padded:
            return box.reshape(-1).view(f"V{BULK_CHUNK_BYTES}")
        chunks = box.reshape(-1, self.map.chunk_items)
        padded = np.pad(chunks, ((0, 0), (0, BULK_CHUNK_BYTES - self.map.chunk_items)))
        return padded.reshape(-1).view(f"V{BULK_CHUNK_BYTES}")

    def write_box(self, corner: tuple[int, ...], chunks: npt.NDArray[Any]) -> None:
        """Writes the box's bytes to the tensor; bytes outside it are dropped."""
        places = self.clip(corner)
        if places is not None:
            self._part(places[0])[...] = chunks.view(self._element).reshape(self.map.item_box[::-1])[places[1]]

    def pieces(self, corner: tuple[int, ...]) -> tuple[npt.NDArray[np.int64], int]:
        """(offsets into the buffer, size) of the equal, aligned pieces that a box at `corner` accesses."""
        places, item = self.clip(corner), self.map.array.dtype.itemsize
        if places is None:
            return np.zeros(0, np.int64), BULK_CHUNK_BYTES
        row = places[0][-1]
        first, length = row.start * item + self.offset + self.buffer.start, (row.stop - row.start) * item
        size = (first | length | BULK_CHUNK_BYTES) & -(first | length | BULK_CHUNK_BYTES)
        offsets = np.arange(first, first + length, size, dtype=np.int64) - self.buffer.start
        for mode, stride in zip(places[0][-2::-1], self.map.strides_bytes, strict=True):
            offsets = (np.arange(mode.start, mode.stop)[:, None] * stride + offsets).reshape(-1)
        return offsets, size

    def chunks_inside(self, corner: tuple[int, ...]) -> npt.NDArray[np.bool_]:
        """Mark the 16-byte chunks of a box at `corner` that overlap the tensor."""
        inside = np.zeros(self.map.item_box[::-1], bool)
        places = self.clip(corner)
        if places is not None:
            inside[places[1]] = True
        return np.asarray(inside.reshape(-1, self.map.chunk_items).any(axis=1))


def swizzled(
    addresses: npt.NDArray[np.int64], swizzle_bytes: int, atom_bytes: int = BULK_CHUNK_BYTES
) -> npt.NDArray[np.int64]:
    """Return the swizzled addresses of the 16-byte chunks at `addresses`.

    Bits 4 to 6 are XORed with bits 7 to 9; with atoms of 32 bytes, bits 5 and 6 with bits 7 and 8.

    >>> swizzled(np.arange(3) * 16 + 256, 128).tolist(), swizzled(np.arange(3) * 16 + 256, 128, 32).tolist()
    ([288, 304, 256], [320, 336, 352])
    """
    kept = _SWIZZLE_MASKS[swizzle_bytes] & -atom_bytes
    return addresses ^ (addresses >> _ATOM_SHIFTS[atom_bytes] & kept)


# A tensor map as an object of 128 bytes in memory: its fields, as `tensormap.replace` names them, and back to a map.
#
# Source: PTX ISA, `tensormap.replace`; CUDA Driver API, `cuTensorMapEncodeTiled`. The driver does not say where the
# fields lie. Here the address comes first, then the formats, the strides, the extents and the box.


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


# The tensor maps of a launch: those among its parameters, and those that a kernel finds, or makes, in memory.
#
# Source: PTX ISA, `cp.async.bulk.tensor`, `tensormap.replace`, "Tensor-map". A bulk copy reads a map by the tensormap
# proxy when it is issued, and until it is complete.


@dataclass(slots=True)
class MapsOfLaunch:
    """Maps by their offset in the parameters, and those of other bytes as they are used."""

    parameters: Mapping[int, BoundTensor]
    memories: Mapping[str, GlobalMemory]
    proxy: TensorMapProxy = field(default_factory=TensorMapProxy)
    _decoded: dict[bytes, BoundTensor] = field(default_factory=dict)

    def at(self, warp: Warp, site: int, thread: int, address: int, rank: int) -> tuple[BoundTensor, int | None]:
        """The tensor of the map at the generic `address`, which must have `rank` modes, and where kernels may write it.

        That is its global address; None if it is among the parameters.
        """
        tensor, place = self.parameters.get(address - PARAM_WINDOW), None
        if tensor is None:
            is_parameter = PARAM_WINDOW <= address < PARAM_WINDOW + WINDOW_BYTES
            place = None if is_parameter else address
            tensor = self._bound(warp, site, thread, self._octets(warp, site, thread, address), address)
        if len(tensor.map.extents) != rank:
            message = f"{rank} coordinates for a tensor map of {len(tensor.map.extents)} modes"
            warp.cta.fault(ViolationKind.OUT_OF_BOUNDS, site, thread, message, always=True)
        return tensor, place

    def acquire(self, warp: Warp, site: int, thread: int, address: int) -> None:
        """`thread` acquires the map at the generic `address`."""
        octets = self._octets(warp, site, thread, address)
        self.proxy.acquire(thread, warp.cta.ordering, address, octets)

    def check(self, warp: Warp, site: int, thread: int, address: int, writers: Sequence[Writer]) -> None:
        """`thread` issues a copy that uses the map at the global `address`, which `writers` have written before."""
        octets = self._octets(warp, site, thread, address)
        missing = self.proxy.missing(thread, warp.cta.ordering, address, octets, writers)
        if missing is not None:
            message = f"use of a tensor map that this launch has written, without its {missing}"
            warp.cta.fault(ViolationKind.RACE, site, thread, message, address)

    def _octets(self, warp: Warp, site: int, thread: int, address: int) -> bytes:
        if address % TENSOR_MAP_ALIGN:
            message = f"a tensor map is aligned to {TENSOR_MAP_ALIGN} bytes"
            warp.cta.fault(ViolationKind.MISALIGNED, site, thread, message, address, always=True)
        is_parameter = PARAM_WINDOW <= address < PARAM_WINDOW + WINDOW_BYTES
        memory, local = ("param", address - PARAM_WINDOW) if is_parameter else ("global", address)
        buffer = self.memories[memory].holding(local, TENSOR_MAP_BYTES)
        if buffer is None:
            message = "no tensor map is here: these bytes belong to no parameter, array or variable in global memory"
            warp.cta.fault(ViolationKind.OUT_OF_BOUNDS, site, thread, message, address, always=True)
            raise AssertionError("this fault ends the launch")
        return buffer.bytes.data[local - buffer.start :][:TENSOR_MAP_BYTES].tobytes()

    def _bound(self, warp: Warp, site: int, thread: int, octets: bytes, address: int) -> BoundTensor:
        """The tensor that the bytes of a map describe, in the array at its address."""
        if octets not in self._decoded:
            try:
                tensor_map, start = decode(octets)
                buffer = self.memories["global"].holding(start, 1)
                if buffer is None:
                    raise LaunchError(f"a tensor map's address, {start:#x}, is in no array")
                self._decoded[octets] = BoundTensor(tensor_map, buffer, start - buffer.start)
            except LaunchError as error:
                warp.cta.fault(ViolationKind.OUT_OF_BOUNDS, site, thread, str(error), address, always=True)
        return self._decoded[octets]


def words_at(address: int) -> np.ndarray:
    """The addresses of the words of a map."""
    return np.arange(address, address + TENSOR_MAP_BYTES, 4, dtype=np.int64)
