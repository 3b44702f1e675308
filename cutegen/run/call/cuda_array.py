"""`__cuda_array_interface__`, versions 0 to 3, read and checked (Numba's documentation, "CUDA Array Interface").

The table comes from another library, so every value is checked.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

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


def read(table: object) -> CudaArray:
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
        dtype=_dtype(_get(table, "typestr")),
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


def _dtype(typestr: Any) -> np.dtype[Any]:
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
