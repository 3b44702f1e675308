"""Reads operands into one kind of view: torch tensors, NumPy arrays, `__cuda_array_interface__` and DLPack.

No framework is imported here: an operand can only be a torch tensor if the caller has imported torch.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from cutegen.errors import CutegenError, OperandError
from cutegen.hardware import DTYPES
from cutegen.run.call import interfaces
from cutegen.run.driver import load_driver

Device = tuple[str, int]
"""`("cuda", ordinal)` or `("cpu", 0)`; other kinds have a name for error messages."""

CPU: Device = ("cpu", 0)
LEGACY_STREAM = 1
"""CU_STREAM_LEGACY: the default stream in `__cuda_array_interface__` and DLPack."""

_DTYPE_NAMES = {
    **{row.torch_name: row.name for row in DTYPES.values() if row.in_memory == row.name},
    "float4_e2m1fn_x2": "e2m1x2",
    "float8_e8m0fnu": "ue8m0",
}
# NumPy has no bfloat16, and no kernel takes 16-bit integers: there, uint16 holds the bits of bf16. 8-bit floats are in
# uint8; only the kernel knows which kind.
_NUMPY_DTYPE_NAMES = {**_DTYPE_NAMES, "uint16": "bf16"}
_NO_ARRAY = "a torch tensor, a NumPy array, or an object with `__cuda_array_interface__` or `__dlpack__`"


# Both are named tuples because each call makes three of each; a frozen dataclass takes five times as long to make.
class Form(NamedTuple):
    """All of an operand but its address: a launch is prepared once from three of these.

    `strides` are in elements. `dtype` is cutegen's name (`f16`) if it has one, else the framework's.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: Device
    framework: str
    read_only: bool


class TensorView(NamedTuple):
    """An operand as a kernel needs it.

    `stream` is the stream whose work must finish first, if the operand's protocol names one. `owner` keeps borrowed
    memory alive as long as the view.
    """

    pointer: int
    form: Form
    stream: int | None = None
    owner: object = None


def name_of(dtype_name: str) -> str:
    """Return the spec's name for the framework's `dtype_name`; the framework's if there is none."""
    return _DTYPE_NAMES.get(dtype_name, dtype_name)


def view_of(operand: Any, name: str, stream: int | None = None) -> TensorView:
    """View `operand` without copying; `stream` is the caller's, passed to DLPack producers.

    >>> view_of(np.zeros((2, 8), np.float16), "a").form.strides
    (8, 1)

    Raises OperandError if it is not an array, has no strided memory, or its memory does not hold its values.
    """
    view = _view(operand, name, stream)
    if not view.pointer and 0 not in view.form.shape and view.form.device[0] in ("cuda", "cpu"):
        raise _without_memory(operand, name, view.form)
    return view


def count_write(operand: Any) -> None:
    """Tell torch that a kernel wrote `operand`, so that autograd refuses gradients that need its former values."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(operand, torch.Tensor):
        torch.autograd.graph.increment_version(operand)


def _view(operand: Any, name: str, stream: int | None) -> TensorView:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(operand, torch.Tensor):
        return _view_torch(operand, name, torch)
    if isinstance(operand, np.ndarray):
        return _view_numpy(operand, name)
    with _foreign(name, "an object that cannot be inspected"):
        table = getattr(operand, "__cuda_array_interface__", None)
        exports = table is None and hasattr(operand, "__dlpack__") and hasattr(operand, "__dlpack_device__")
    if table is not None:
        return _view_cuda_array(operand, table, name)
    if exports:
        return _view_dlpack(operand, name, stream)
    raise OperandError(operand=name, found=f"a {type(operand).__qualname__}", expected=_NO_ARRAY)


def _without_memory(operand: Any, name: str, form: Form) -> OperandError:
    """Reject a freed storage, or a tensor without its own memory: FakeTensor and other wrappers, lazy zeros."""
    lazy_zeros = form.framework == "torch" and operand._is_zerotensor()
    return OperandError(
        operand=name,
        found=f"shape {tuple(form.shape)} at address 0: its memory was freed, or it never had any",
        expected="an address",
        fix=f"`{name}.clone()`, which stores the zeros" if lazy_zeros else "",
    )


def _view_torch(tensor: Any, name: str, torch: Any) -> TensorView:
    if tensor.requires_grad and torch.is_grad_enabled():
        raise OperandError(
            operand=name,
            found="a tensor that requires grad",
            expected="one that does not: a kernel call is not recorded by autograd",
            fix=f"pass `{name}.detach()`, or call under `torch.no_grad()`",
        )
    try:
        # A named tuple's constructor ends in tuple.__new__; calling it directly saves a fifth of a whole call.
        form = tuple.__new__(
            Form,
            (tensor.shape, tensor.stride(), _torch_dtype(tensor.dtype), _torch_device(tensor.device), "torch", False),
        )
        view: TensorView = tuple.__new__(TensorView, (tensor.data_ptr(), form, None, None))
    except RuntimeError as error:
        first_line = str(error).partition("\n")[0]
        raise OperandError(
            operand=name,
            found=f"a torch tensor without strided memory ({first_line})",
            expected="a dense tensor with an address",
            fix=f"`{name}.to_dense()` for a sparse one" if tensor.layout is not torch.strided else "",
        ) from error
    if tensor.is_neg() or torch.autograd.forward_ad._current_level >= 0:
        _check_memory_says_all(tensor, name, torch)
    return view


def _check_memory_says_all(tensor: Any, name: str, torch: Any) -> None:
    """Reject a tensor whose memory does not hold its values. Raises OperandError."""
    if tensor.is_neg():
        raise OperandError(
            operand=name,
            found="a tensor with the negative bit set: its memory holds the negated values",
            expected="memory that holds the values",
            fix=f"`{name}.resolve_neg()`, a new tensor",
        )
    refuse_tangent(tensor, name, torch)


def refuse_tangent(tensor: Any, name: str, torch: Any) -> None:
    """Reject a torch tensor that forward-mode AD differentiates. Raises OperandError."""
    if torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None:
        raise OperandError(
            operand=name,
            found="a tensor with a tangent of forward-mode AD",
            expected="one without: kernels have no forward-mode derivative",
            fix=f"pass `{name}.detach()`",
        )


@lru_cache(maxsize=64)
def _torch_dtype(dtype: Any) -> str:
    return name_of(str(dtype).removeprefix("torch."))


@lru_cache(maxsize=64)
def _torch_device(device: Any) -> Device:
    return (device.type, device.index or 0)


def _view_numpy(array: np.ndarray[Any, Any], name: str) -> TensorView:
    if type(array) is not np.ndarray and hasattr(array, "mask"):  # naming np.ma would import it
        raise _masked(name)
    form = Form(
        shape=array.shape,
        strides=_element_strides(array.strides, array.itemsize, name),
        dtype=_numpy_dtype_name(array.dtype, _NUMPY_DTYPE_NAMES),
        device=CPU,
        framework="numpy",
        read_only=not array.flags.writeable,
    )
    return TensorView(array.ctypes.data, form)


def _numpy_dtype_name(dtype: np.dtype[Any], names: Mapping[str, str]) -> str:
    return names.get(dtype.name, dtype.name) if dtype.isnative else f"{dtype.name} in foreign byte order"


def _element_strides(strides_bytes: tuple[int, ...], item_bytes: int, name: str) -> tuple[int, ...]:
    if item_bytes == 0:  # a type without fields, which no kernel takes
        return strides_bytes
    if any(stride % item_bytes for stride in strides_bytes):
        raise OperandError(
            operand=name,
            found=f"strides of {strides_bytes} bytes",
            expected=f"multiples of the element's {item_bytes} bytes",
            fix="copy it into a new array",
        )
    return tuple(stride // item_bytes for stride in strides_bytes)


def _view_cuda_array(operand: Any, table: Any, name: str) -> TensorView:
    with _foreign(name, "a malformed __cuda_array_interface__"):
        array = interfaces.read_cuda_array(table)
        if array.masked:
            raise _masked(name)
        device = _cuda_array_device(operand, array.pointer)
    strides = array.strides_bytes
    form = Form(
        shape=array.shape,
        strides=compact_strides(array.shape)
        if strides is None
        else _element_strides(strides, array.dtype.itemsize, name),
        dtype=_numpy_dtype_name(array.dtype, _DTYPE_NAMES),
        device=device,
        framework=_framework(operand),
        read_only=array.read_only,
    )
    return TensorView(array.pointer, form, array.stream, operand)


@contextmanager
def _foreign(name: str, found: str) -> Iterator[None]:
    """Turn an error or an invalid result of another library's object into an OperandError."""
    try:
        yield
    except CutegenError:
        raise
    except Exception as error:  # a foreign property may raise anything
        reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise OperandError(operand=name, found=f"{found} ({reason})", expected=_NO_ARRAY) from error


def _masked(name: str) -> OperandError:
    return OperandError(operand=name, found="a masked array", expected="one without a mask")


def _cuda_array_device(operand: Any, pointer: int) -> Device:
    """Return the device. The interface names none: DLPack does if available, else the driver knows the address."""
    if hasattr(operand, "__dlpack_device__"):
        return interfaces.device_of(operand)
    # An empty array has no address to look up, and nothing to launch.
    return ("cuda", load_driver().ordinal_of(pointer) if pointer else 0)


def _view_dlpack(operand: Any, name: str, stream: int | None) -> TensorView:
    with _foreign(name, "an object that does not export itself"):
        device = interfaces.device_of(operand)
        consumer = (stream or LEGACY_STREAM) if device[0] == "cuda" else None
        tensor = interfaces.read_capsule(operand, device, consumer)
    strides = compact_strides(tensor.shape) if tensor.strides is None else tensor.strides
    form = Form(tensor.shape, strides, tensor.dtype, device, _framework(operand), tensor.read_only)
    return TensorView(tensor.pointer, form, consumer, tensor.capsule)


def _framework(operand: Any) -> str:
    return type(operand).__module__.partition(".")[0]


def compact_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return row-major strides without gaps.

    >>> compact_strides((3, 4, 5))
    (20, 5, 1)
    """
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.insert(0, strides[0] * extent)
    return tuple(strides[: len(shape)])
