"""DLPack capsules read in place (dlpack.h, versions 0.x and 1.x).

A capsule is read and not consumed: it keeps its name, so its own destructor releases the tensor.
"""

from __future__ import annotations

import ctypes
import operator
from typing import Any, NamedTuple

from cutegen.run.call.cuda_array import MOST_MODES

_DEVICE_KINDS = {1: "cpu", 2: "cuda", 3: "cpu", 13: "cuda"}  # kDLCPU, kDLCUDA, kDLCUDAHost, kDLCUDAManaged
# (kDLInt | kDLUInt | kDLFloat | kDLBfloat | kDLFloat8_e4m3fn | kDLFloat8_e5m2, bits)
_DTYPES = {
    (0, 8): "s8",
    (0, 32): "s32",
    (1, 8): "u8",
    (2, 16): "f16",
    (2, 32): "f32",
    (4, 16): "bf16",
    (10, 8): "e4m3",
    (12, 8): "e5m2",
}
_TYPE_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
_READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY
_NEWEST_VERSION = (1, 0)


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("type_bits", ctypes.c_uint8),
        ("type_lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _VersionedTensor(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


class ExportedTensor(NamedTuple):
    """Contents of a capsule; `strides` (elements) is None for compact row-major. Valid while `capsule` lives."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: str
    read_only: bool
    capsule: object


def device_of(operand: Any) -> tuple[str, int]:
    """Return `("cuda", ordinal)`, `("cpu", 0)`, or a name for any other device."""
    answer = operand.__dlpack_device__()
    try:
        kind, ordinal = (operator.index(each) for each in answer)
    except (TypeError, ValueError):
        raise ValueError(f"__dlpack_device__: found {answer!r:.60}, expected a device type and an ordinal") from None
    return _device(kind, ordinal)


def _device(kind: int, ordinal: int) -> tuple[str, int]:
    name = _DEVICE_KINDS.get(kind, f"DLPack device type {kind}")
    return (name, 0 if name == "cpu" else ordinal)


def read(operand: Any, device: tuple[str, int], stream: int | None) -> ExportedTensor:
    """Request from `operand`, on `device`, a capsule that is safe to use on `stream` (None on the CPU), and read it.

    Raises the producer's errors, and ValueError for an invalid tensor.
    """
    try:
        capsule = operand.__dlpack__(stream=stream, max_version=_NEWEST_VERSION, copy=False)
    except TypeError:  # a producer older than version 1.0
        capsule = operand.__dlpack__(stream=stream)
    tensor, flags = _open(capsule)
    if (lies := _device(tensor.device_type, tensor.device_id)) != device:
        raise ValueError(
            f"a DLPack capsule on {lies[0]}:{lies[1]}, expected {device[0]}:{device[1]} as in __dlpack_device__"
        )
    shape = _shape(tensor)
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None
    pointer = tensor.data + tensor.byte_offset if tensor.data else 0
    return ExportedTensor(pointer, shape, strides, _dtype(tensor), bool(flags & _READ_ONLY), capsule)


def _open(capsule: object) -> tuple[_Tensor, int]:
    for name, structure in ((b"dltensor_versioned", _VersionedTensor), (b"dltensor", _Tensor)):
        if _is_valid(capsule, name):
            content = structure.from_address(_get_pointer(capsule, name))
            if not isinstance(content, _VersionedTensor):
                return content, 0
            if content.major != _NEWEST_VERSION[0]:  # in other versions, only the version field may be read
                raise ValueError(f"a DLPack capsule of version {content.major}.{content.minor}, expected 1")
            return content.tensor, content.flags
    raise ValueError("__dlpack__ returned no DLPack capsule, or a consumed one")


def _shape(tensor: _Tensor) -> tuple[int, ...]:
    if not 0 <= tensor.ndim <= MOST_MODES:
        raise ValueError(f"a DLPack capsule of {tensor.ndim} dimensions, expected 0 to {MOST_MODES}")
    if tensor.ndim and not tensor.shape:
        raise ValueError("a DLPack capsule without a shape")
    shape = tuple(tensor.shape[: tensor.ndim])
    if any(extent < 0 for extent in shape):
        raise ValueError(f"a DLPack capsule of shape {shape}, expected extents of at least 0")
    return shape


def _dtype(tensor: _Tensor) -> str:
    code, bits, lanes = tensor.type_code, tensor.type_bits, tensor.type_lanes
    spelled = f"{_TYPE_CODES.get(code, f'type code {code} of bits ')}{bits}" + (f"x{lanes}" if lanes != 1 else "")
    return _DTYPES.get((code, bits), spelled) if lanes == 1 else spelled


def _prototype(name: str, result: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, ctypes.py_object, ctypes.c_char_p)((name, ctypes.pythonapi))


_is_valid = _prototype("PyCapsule_IsValid", ctypes.c_int)
_get_pointer = _prototype("PyCapsule_GetPointer", ctypes.c_void_p)
