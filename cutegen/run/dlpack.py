"""DLPack capsules read in place (dlpack.h, versions 0.x and 1.x).

A capsule is looked into and not consumed: its name stays as it is, so its own destructor releases the tensor.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

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
    """What a capsule says; `strides` (elements) is None for compact row-major. Valid while `capsule` lives."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: str
    read_only: bool
    capsule: object


def device_of(operand: Any) -> tuple[str, int]:
    """`("cuda", ordinal)`, `("cpu", 0)`, or a name for anything else."""
    kind, ordinal = operand.__dlpack_device__()
    name = _DEVICE_KINDS.get(int(kind), f"DLPack device type {int(kind)}")
    return (name, 0 if name == "cpu" else int(ordinal))


def read(operand: Any, stream: int | None) -> ExportedTensor:
    """Ask `operand` for a capsule that is safe to use on `stream` (None on the CPU), and read it.

    Raises BufferError, RuntimeError or ValueError as the producer does.
    """
    try:
        capsule = operand.__dlpack__(stream=stream, max_version=_NEWEST_VERSION, copy=False)
    except TypeError:  # a producer from before version 1.0
        capsule = operand.__dlpack__(stream=stream)
    tensor, flags = _open(capsule)
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None
    pointer = (tensor.data or 0) + tensor.byte_offset
    return ExportedTensor(pointer, shape, strides, _dtype(tensor), bool(flags & _READ_ONLY), capsule)


def _open(capsule: object) -> tuple[_Tensor, int]:
    for name, structure in ((b"dltensor_versioned", _VersionedTensor), (b"dltensor", _Tensor)):
        if _is_valid(capsule, name):
            content = structure.from_address(_get_pointer(capsule, name))
            return (content.tensor, content.flags) if isinstance(content, _VersionedTensor) else (content, 0)
    raise ValueError("__dlpack__ returned no DLPack capsule")


def _dtype(tensor: _Tensor) -> str:
    code, bits, lanes = tensor.type_code, tensor.type_bits, tensor.type_lanes
    spelled = f"{_TYPE_CODES.get(code, f'type code {code} of bits ')}{bits}" + (f"x{lanes}" if lanes != 1 else "")
    return _DTYPES.get((code, bits), spelled) if lanes == 1 else spelled


def _prototype(name: str, result: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, ctypes.py_object, ctypes.c_char_p)((name, ctypes.pythonapi))


_is_valid = _prototype("PyCapsule_IsValid", ctypes.c_int)
_get_pointer = _prototype("PyCapsule_GetPointer", ctypes.c_void_p)
