"""Arrays of other libraries, read in place: DLPack capsules and `__cuda_array_interface__`."""

import ctypes
import operator
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

# `__cuda_array_interface__`, versions 0 to 3, read and checked (Numba's documentation, "CUDA Array Interface").
#
# The table comes from another library, so every value is checked.


NEWEST_VERSION = 3
MOST_MODES = 64
"""NumPy's limit; no protocol allows more."""
_ADDRESSES = 1 << 64
_SIGNED = 1 << 63
_LONGEST_TYPE = 32  # characters; "<f2" is a type, a list of fields is not


class CudaArray(NamedTuple):
    """Table of the interface as Python numbers; `strides_bytes` is None for compact row-major."""

    pointer: int
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...] | None
    dtype: np.dtype[Any]
    read_only: bool
    stream: int | None
    masked: bool


def read_cuda_array(table: object) -> CudaArray:
    """Read the value of `__cuda_array_interface__`. Raises ValueError with the key, what it found and expected."""
    if not isinstance(table, Mapping):
        raise ValueError(f"found a {type(table).__qualname__}, expected a dict")
    _integer(_get(table, "version"), "version", 0, NEWEST_VERSION + 1)
    pointer, read_only = _data(_get(table, "data"))
    shape = _integers(_get(table, "shape"), "shape", 0)
    strides, stream = table.get("strides"), table.get("stream")
    strides_bytes = None if strides is None else _integers(strides, "strides", -_SIGNED)
    if strides_bytes is not None and len(strides_bytes) != len(shape):
        raise ValueError(f"strides: found {len(strides_bytes)}, expected {len(shape)}, one per extent in shape")
    return CudaArray(
        pointer=pointer,
        shape=shape,
        strides_bytes=strides_bytes,
        dtype=_dtype_of_typestr(_get(table, "typestr")),
        read_only=read_only,
        stream=None if stream is None else _integer(stream, "stream", 0, _ADDRESSES),
        masked=table.get("mask") is not None,
    )


def _get(table: Mapping[Any, Any], key: str) -> Any:
    if key not in table:
        raise ValueError(f"{key}: found none, expected the key")
    return table[key]


def _data(value: Any) -> tuple[int, bool]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise ValueError(f"data: found {_short(value)}, expected an address and whether it is read-only")
    return _integer(value[0], "data", 0, _ADDRESSES), bool(value[1])


def _integers(values: Any, key: str, low: int) -> tuple[int, ...]:
    if not isinstance(values, tuple | list) or len(values) > MOST_MODES:
        raise ValueError(f"{key}: found {_short(values)}, expected a tuple of at most {MOST_MODES} integers")
    return tuple(_integer(value, key, low, _SIGNED) for value in values)


def _integer(value: Any, key: str, low: int, end: int) -> int:
    """Read an integer from `low` to below `end`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{key}: found {_short(value)}, expected an integer") from None
    if not low <= number < end:
        raise ValueError(f"{key}: found {_short(number)}, expected {low} to {end - 1}")
    return number


def _dtype_of_typestr(typestr: Any) -> np.dtype[Any]:
    try:
        dtype = np.dtype(typestr) if isinstance(typestr, str) and len(typestr) <= _LONGEST_TYPE else None
    except (TypeError, ValueError, SyntaxError):
        dtype = None
    if dtype is None or dtype.itemsize == 0:
        raise ValueError(f"typestr: found {_short(typestr)}, expected a type such as '<f2'")
    return dtype


def _short(value: Any) -> str:
    """Format a value as Python does, truncated; integers beyond any address only by their length."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# DLPack capsules read in place (dlpack.h, versions 0.x and 1.x).
#
# A capsule is read and not consumed: it keeps its name, so its own destructor releases the tensor.


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


def read_capsule(operand: Any, device: tuple[str, int], stream: int | None) -> ExportedTensor:
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
    return ExportedTensor(pointer, shape, strides, _dtype_of_tensor(tensor), bool(flags & _READ_ONLY), capsule)


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


def _dtype_of_tensor(tensor: _Tensor) -> str:
    code, bits, lanes = tensor.type_code, tensor.type_bits, tensor.type_lanes
    spelled = f"{_TYPE_CODES.get(code, f'type code {code} of bits ')}{bits}" + (f"x{lanes}" if lanes != 1 else "")
    return _DTYPES.get((code, bits), spelled) if lanes == 1 else spelled


def _prototype(name: str, result: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, ctypes.py_object, ctypes.c_char_p)((name, ctypes.pythonapi))


_is_valid = _prototype("PyCapsule_IsValid", ctypes.c_int)
_get_pointer = _prototype("PyCapsule_GetPointer", ctypes.c_void_p)
