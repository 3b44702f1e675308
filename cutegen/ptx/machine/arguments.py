"""Kernel arguments: numpy arrays become buffers with addresses, numbers become bytes of the declared type.

An array represents its own memory: the kernel's writes appear in it. Views of one array keep their relative offsets, so
aliases stay aliases; each may be accessed only within its own extent. The allocation that a view belongs to is assumed
to begin at a multiple of 256 bytes, as with `cudaMalloc`.
"""

import operator
import struct
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cutegen.ptx.arithmetic.rounding import to_bf16
from cutegen.ptx.errors import LaunchError
from cutegen.ptx.machine.memory import ALLOCATION_STRIDE, Buffer, Bytes
from cutegen.ptx.machine.tensor_map import (
    TENSOR_MAP_ALIGN,
    TENSOR_MAP_BYTES,
    BoundTensor,
    TensorMap,
    TensorMaps,
    encode,
)
from cutegen.ptx.text.syntax import Entry, Kind, Parameter, ScalarType
from cutegen.ptx.watch.global_shadow import GlobalShadow

Argument: TypeAlias = npt.NDArray[Any] | int | float | np.generic | bytes | tuple[Any, ...] | TensorMap | TensorMaps
MAX_ALLOCATIONS = 256
_FLOAT_PARAMETERS = ("f16", "bf16", "f32", "f64")


@dataclass(slots=True)
class _Window:
    """Provides a byte view of memory to numpy, and keeps its owner alive."""

    owner: npt.NDArray[Any]
    __array_interface__: dict[str, Any]


def extent(array: npt.NDArray[Any]) -> tuple[int, int]:
    """(first address, bytes) of the memory that `array` spans."""
    low = high = array.__array_interface__["data"][0]
    if array.size == 0:
        return low, 0
    for length, stride in zip(array.shape, array.strides, strict=True):
        reach = (length - 1) * stride
        low, high = low + min(0, reach), high + max(0, reach)
    return low, high - low + array.itemsize


def bytes_of(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """A view of all bytes that `array` spans, from the first to the last."""
    start, size = extent(array)
    if size == 0:
        return np.zeros(0, np.uint8)
    interface = {"data": (start, not array.flags.writeable), "shape": (size,), "typestr": "|u1", "version": 3}
    return np.asarray(_Window(array, interface))


def root_of(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The root array that `array` is a view of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


@dataclass(slots=True)
class Binding:
    """The buffers of the arguments of one launch; those of one allocation share its shadow.

    `watch` makes the shadow of an allocation of that many bytes. `tensors` has the tensor maps by their offset in the
    parameter buffer.
    """

    watch: Callable[[int], GlobalShadow]
    used_before: Collection[int] = ()
    """The parameters whose memory the grid before a programmatic launch may use."""
    parameter: int = 0
    """The parameter that is being packed."""
    buffers: list[Buffer] = field(default_factory=list)
    tensors: dict[int, BoundTensor] = field(default_factory=dict)
    _allocations: dict[int, int] = field(default_factory=dict)
    _shadows: dict[int, GlobalShadow] = field(default_factory=dict)

    @property
    def shadows(self) -> list[GlobalShadow]:
        """Shadows of the allocations, in argument order."""
        return list(self._shadows.values())

    def bind(self, array: npt.NDArray[Any], name: str) -> int:
        """The address at which a kernel finds element 0 of `array`."""
        if array.dtype.hasobject:
            raise LaunchError(f"{name} is an array of Python objects; expected numbers")
        root_start, root_bytes = extent(root_of(array))
        if root_bytes > ALLOCATION_STRIDE:
            message = f"{name} reaches over {root_bytes:,} bytes; at most {ALLOCATION_STRIDE:,} are allowed"
            raise LaunchError(message)
        if root_start not in self._allocations:
            if len(self._allocations) >= MAX_ALLOCATIONS:
                raise LaunchError(f"more than {MAX_ALLOCATIONS} arrays")
            self._allocations[root_start] = (len(self._allocations) + 1) * ALLOCATION_STRIDE
            self._shadows[root_start] = self.watch(root_bytes)
        shift = self._allocations[root_start] - root_start
        start, _ = extent(array)
        data = bytes_of(array)
        shadow = self._shadows[root_start]
        shadow.is_writeable |= bool(array.flags.writeable)
        buffer = Buffer(
            name=name,
            start=start + shift,
            writeable=array.flags.writeable,
            bytes=Bytes(data),
            shadow=shadow,
            is_shared_before=self.parameter in self.used_before,
            shadow_offset=start - root_start,
        )
        self.buffers.append(buffer)
        return int(array.__array_interface__["data"][0]) + shift

    def encoded(self, tensor_map: TensorMap, name: str) -> bytes:
        """The bytes of a tensor map, whose array is bound."""
        return encode(tensor_map, self.bind(tensor_map.array, name))

    def bind_tensor(self, parameter: Parameter, tensor_map: TensorMap, name: str) -> bytes:
        """Makes `parameter` a tensor map; returns its bytes."""
        if parameter.size_bytes != TENSOR_MAP_BYTES or parameter.align_bytes % TENSOR_MAP_ALIGN:
            size, align = parameter.size_bytes, parameter.align_bytes
            message = f"{name} is a tensor map of {TENSOR_MAP_BYTES} bytes, aligned to {TENSOR_MAP_ALIGN}"
            raise LaunchError(f"{message}; its parameter has {size} bytes, aligned to {align}")
        address = self.bind(tensor_map.array, name)
        buffer = self.buffers[-1]
        self.tensors[parameter.offset_bytes] = BoundTensor(tensor_map, buffer, address - buffer.start)
        return encode(tensor_map, address)


def pack_arguments(entry: Entry, arguments: Sequence[Argument], binding: Binding) -> bytes:
    """The parameter buffer of a launch; binds the arrays among `arguments`.

    Raises:
        LaunchError: a wrong number of arguments, or one that does not fit its parameter.
    """
    if len(arguments) != len(entry.parameters):
        raise LaunchError(f"{entry.name} has {len(entry.parameters)} parameters, {len(arguments)} arguments were given")
    data = bytearray(entry.parameter_bytes)
    for index, (parameter, argument) in enumerate(zip(entry.parameters, arguments, strict=True)):
        binding.parameter = index
        packed = _pack(parameter, argument, binding, f"argument {index}")
        data[parameter.offset_bytes : parameter.offset_bytes + len(packed)] = packed
    return bytes(data)


def _pack(parameter: Parameter, argument: Argument, binding: Binding, name: str) -> bytes:
    if isinstance(argument, TensorMap):
        return binding.bind_tensor(parameter, argument, name)
    if parameter.count is not None:
        return _pack_struct(parameter, argument, binding, name)
    kind = parameter.type
    if isinstance(argument, TensorMaps):
        argument.storage[:] = np.frombuffer(b"".join(binding.encoded(each, name) for each in argument.maps), np.uint8)
        argument = argument.storage
    if isinstance(argument, np.ndarray) and argument.ndim > 0:
        if kind.bits != 64 or kind.kind is Kind.FLOAT:
            raise LaunchError(f"{name} is an array, its parameter is .{kind.name}; expected a .u64 parameter")
        return struct.pack("<Q", binding.bind(argument, name))
    if isinstance(argument, bytes | tuple):
        raise LaunchError(f"{name} is a structure, its parameter is .{kind.name}")
    return _pack_number(kind, argument, name)


def _pack_number(kind: ScalarType, argument: Any, name: str) -> bytes:
    if kind.kind is Kind.FLOAT and kind.name not in _FLOAT_PARAMETERS:
        raise LaunchError(f"{name}: a parameter of type .{kind.name} is not supported; declare it .b{kind.bits}")
    try:
        value = float(argument) if kind.kind is Kind.FLOAT else operator.index(_whole(argument))
    except (TypeError, ValueError, OverflowError):
        value = None
    if value is None:
        wanted = "numbers" if kind.kind is Kind.FLOAT else "integers"
        raise LaunchError(f"{name} is {argument!r}; its parameter .{kind.name} takes {wanted} of {kind.bits} bits")
    if isinstance(value, float):
        with np.errstate(over="ignore"):
            rounded = np.array([value]).astype(np.float64)
            return bytes((to_bf16(rounded) if kind.name == "bf16" else rounded.astype(kind.dtype)).tobytes())
    if not -(1 << (kind.bits - 1)) <= value < 1 << kind.bits:
        low, high = -(1 << (kind.bits - 1)), (1 << kind.bits) - 1
        raise LaunchError(f"{name} is {value}; its parameter .{kind.name} takes integers from {low} to {high}")
    return (value & ((1 << kind.bits) - 1)).to_bytes(kind.size_bytes, "little")


def _whole(argument: Any) -> Any:
    """The integer value of a float or of an array without modes; any other value is returned unchanged."""
    value = argument.item() if isinstance(argument, np.generic | np.ndarray) else argument
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _pack_struct(parameter: Parameter, argument: Argument, binding: Binding, name: str) -> bytes:
    """Bytes of an array parameter.

    `bytes` as they are, or a tuple of arrays (pointers) and numpy scalars with C's layout.
    """
    if isinstance(argument, tuple):
        packed = bytearray()
        for item in argument:
            if isinstance(item, np.ndarray) and item.ndim > 0:
                piece = struct.pack("<Q", binding.bind(item, name))
            elif isinstance(item, np.generic):
                piece = item.tobytes()
            elif isinstance(item, TensorMap):
                packed += bytes(-len(packed) % TENSOR_MAP_ALIGN) + binding.encoded(item, name)
                continue
            else:
                raise LaunchError(f"{name} holds {item!r}; a structure takes arrays and numpy scalars")
            packed += bytes(-len(packed) % len(piece)) + piece
        argument = bytes(packed)
    if not isinstance(argument, bytes) or len(argument) > parameter.size_bytes:
        raise LaunchError(
            f"{name} must be at most {parameter.size_bytes} bytes, or a tuple of arrays and numpy scalars"
        )
    return argument
