"""Tensor maps of operands on a GPU: the driver makes them, and those of the latest addresses are kept.

A map depends only on an address, extents and strides, so a kept map stays valid.
"""

from __future__ import annotations

import ctypes

from cutegen.contract.tensor_map import TensorMapFields
from cutegen.hardware import dtype
from cutegen.run.driver import Driver

MAP_BYTES = 128
L2_PROMOTION = "L2_128B"
"""L2 fetch granularity on a miss. Source: CUTLASS `cute/atom/copy_traits_sm90_tma.hpp`."""

_MAP_ALIGN_BYTES = 64
MAPS_AT_ONCE = 16
"""Maps per memory allocation."""
_REMEMBERED_ADDRESSES = 2048
_CUDA_VERSION = 12000
_DATA_TYPES = {"f16": "FLOAT16", "bf16": "BFLOAT16", "f32": "FLOAT32"}
_EncodeTiled = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,  # tensorMap
    ctypes.c_int,  # tensorDataType
    ctypes.c_uint32,  # tensorRank
    ctypes.c_void_p,  # globalAddress
    ctypes.POINTER(ctypes.c_uint64),  # globalDim
    ctypes.POINTER(ctypes.c_uint64),  # globalStrides
    ctypes.POINTER(ctypes.c_uint32),  # boxDim
    ctypes.POINTER(ctypes.c_uint32),  # elementStrides
    *[ctypes.c_int] * 4,  # interleave, swizzle, l2Promotion, oobFill
)


class TensorMaps:
    """The maps of one operand of one form, in creation order, for one thread.

    Source: CUDA Driver API, `cuTensorMapEncodeTiled`. It is called by its address because it needs the map at a
    multiple of 64 bytes, and `cuda.bindings` passes an object at an arbitrary address.
    """

    def __init__(self, driver: Driver, operand: str, fields: TensorMapFields) -> None:
        self._driver, self._operand, self._fields = driver, operand, fields
        self._encode_tiled = _EncodeTiled(driver.entry_point("cuTensorMapEncodeTiled", _CUDA_VERSION))
        rank = len(fields.extents)
        self._layout = (
            (ctypes.c_uint64 * rank)(*fields.extents),
            (ctypes.c_uint64 * (rank - 1))(*fields.strides_bytes),
            (ctypes.c_uint32 * rank)(*fields.box),
            (ctypes.c_uint32 * rank)(*[1] * rank),
        )
        self._data_type = _constant(driver, "CUtensorMapDataType", f"DATA_TYPE_{data_type(fields.dtype)}")
        self._kinds = (
            _constant(driver, "CUtensorMapInterleave", "INTERLEAVE_NONE"),
            _constant(driver, "CUtensorMapSwizzle", f"SWIZZLE_{swizzle(fields.swizzle_bytes)}"),
            _constant(driver, "CUtensorMapL2promotion", f"L2_PROMOTION_{L2_PROMOTION}"),
            _constant(driver, "CUtensorMapFloatOOBfill", "FLOAT_OOB_FILL_NONE"),
        )
        self._known: dict[int, int] = {}
        self._memory: list[ctypes.Array[ctypes.c_char]] = []
        self._places: list[int] = []
        """Addresses of the maps, in the order in which their operands' addresses were first seen."""

    def at(self, address: int) -> int:
        """Return the host address of the map for an operand at `address`. Raises DeviceError.

        It is valid until some later call, so launch with it, or request it again, before that. The calling thread must
        have a context, without which the driver makes no map.
        """
        place = self._known.get(address)
        if place is None:
            if len(self._known) >= _REMEMBERED_ADDRESSES:
                self._known.clear()  # launches have copied their maps, so the memory can be reused
            place = self._place(len(self._known))
            self._encode(place, address)
            self._known[address] = place
        return place

    def _place(self, number: int) -> int:
        while number >= len(self._places):
            self._memory.append(ctypes.create_string_buffer(MAPS_AT_ONCE * MAP_BYTES + _MAP_ALIGN_BYTES))
            begin = ctypes.addressof(self._memory[-1])
            first = begin + -begin % _MAP_ALIGN_BYTES
            self._places += [first + i * MAP_BYTES for i in range(MAPS_AT_ONCE)]
        return self._places[number]

    def _encode(self, place: int, address: int) -> None:
        status = self._encode_tiled(place, self._data_type, len(self._layout[0]), address, *self._layout, *self._kinds)
        if status:
            function = f"cuTensorMapEncodeTiled for operand {self._operand} at {address:#x} with {self._fields}"
            raise self._driver.failure(function, self._driver.api.CUresult(status))


def data_type(name: str) -> str:
    """Return the driver's name for an element type, or for an integer of its size: copies move bits unchanged.

    >>> data_type("bf16")
    'BFLOAT16'
    """
    return _DATA_TYPES.get(name) or f"UINT{dtype(name).bits}"


def swizzle(swizzle_bytes: int) -> str:
    """Return the driver's name for a swizzle.

    >>> swizzle(128), swizzle(0)
    ('128B', 'NONE')
    """
    return f"{swizzle_bytes}B" if swizzle_bytes else "NONE"


def _constant(driver: Driver, kind: str, name: str) -> int:
    return int(getattr(getattr(driver.api, kind), f"CU_TENSOR_MAP_{name}"))
