"""`cuTensorMapEncodeTiled` without a driver: a C function that writes its arguments into the map, to be read again."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

ALIGN_BYTES = 64
_FORMAT = "<Q3Q2Q3I3I5i"  # 112 of the 128 bytes
_C_TYPES = (
    *(ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_uint64),
    *(ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint64)),
    *(ctypes.POINTER(ctypes.c_uint32), ctypes.POINTER(ctypes.c_uint32)),
    *(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int),
)


class FakeMap(NamedTuple):
    """What one map was encoded from."""

    address: int
    extents: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...] = (1, 1, 1)
    data_type: int = 6
    interleave: int = 0
    swizzle: int = 3
    l2_promotion: int = 2
    oob_fill: int = 0


def read_map(pointer: int) -> FakeMap:
    """The map at a parameter's address, which a kernel wants at a multiple of 64 bytes."""
    assert pointer % ALIGN_BYTES == 0, "a tensor map lies at a multiple of 64 bytes"
    values = struct.unpack(_FORMAT, ctypes.string_at(pointer, struct.calcsize(_FORMAT)))
    return FakeMap(values[0], values[1:4], values[4:6], values[6:9], values[9:12], *values[12:])


class FakeEncoder:
    """The part of a driver's API that tensor maps need; `encoded` are those that were asked for, refused ones too.

    The enumerators have the values of `cuda.h`.
    """

    CUtensorMapDataType = SimpleNamespace(
        CU_TENSOR_MAP_DATA_TYPE_UINT8=0,
        CU_TENSOR_MAP_DATA_TYPE_UINT16=1,
        CU_TENSOR_MAP_DATA_TYPE_UINT32=2,
        CU_TENSOR_MAP_DATA_TYPE_FLOAT16=6,
        CU_TENSOR_MAP_DATA_TYPE_FLOAT32=7,
        CU_TENSOR_MAP_DATA_TYPE_BFLOAT16=9,
    )
    CUtensorMapInterleave = SimpleNamespace(CU_TENSOR_MAP_INTERLEAVE_NONE=0)
    CUtensorMapSwizzle = SimpleNamespace(
        CU_TENSOR_MAP_SWIZZLE_NONE=0,
        CU_TENSOR_MAP_SWIZZLE_32B=1,
        CU_TENSOR_MAP_SWIZZLE_64B=2,
        CU_TENSOR_MAP_SWIZZLE_128B=3,
    )
    CUtensorMapL2promotion = SimpleNamespace(CU_TENSOR_MAP_L2_PROMOTION_L2_128B=2)
    CUtensorMapFloatOOBfill = SimpleNamespace(CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE=0)
    contexts: list[Any]

    def __init__(self) -> None:
        self.encoded: list[FakeMap] = []
        self.encoded_in: list[Any] = []
        self.refuse: Callable[[FakeMap], bool] = lambda _: False
        self.has_tensor_maps = True
        self._encode_tiled = ctypes.CFUNCTYPE(ctypes.c_int, *_C_TYPES)(self._encode)

    def entry_point(self, name: bytes, cuda_version: int, flags: int) -> tuple[int, int]:
        assert (cuda_version, flags) == (12000, 0)
        if name != b"cuTensorMapEncodeTiled":
            return self.raw_entry_point(name.decode()), 0
        found = ctypes.cast(self._encode_tiled, ctypes.c_void_p).value
        return (found, 0) if found and self.has_tensor_maps else (0, 1)

    def raw_entry_point(self, name: str) -> int:
        """The address of another function; a stand-in that only encodes has none."""
        raise AssertionError(name)

    def _encode(self, place: int, data_type: int, rank: int, address: int, *rest: Any) -> int:
        extents, strides, box, steps, *kinds = rest
        assert (rank, place % ALIGN_BYTES) == (3, 0)
        layout = (tuple(extents[:3]), tuple(strides[:2]), tuple(box[:3]), tuple(steps[:3]))
        made = FakeMap(address, *layout, data_type, *kinds)
        self.encoded.append(made)
        self.encoded_in.append(self.contexts[-1])
        values = (address, *layout[0], *layout[1], *layout[2], *layout[3], data_type, *kinds)
        ctypes.memmove(place, struct.pack(_FORMAT, *values).ljust(128, b"\xff"), 128)
        return 1 if self.refuse(made) else 0
