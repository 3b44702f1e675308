"""Where a matrix lies in memory: rows and columns of its storage, padded so that each leading stride is aligned."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from cutegen.arch import DType, dtype
from cutegen.errors import OperandError
from cutegen.plan.launch import LaunchContract, TensorContract
from cutegen.run.operands import Form


@dataclass(frozen=True, slots=True)
class CallTensor:
    """One of the matrices of `a @ b -> c` as the caller writes it: B is (K,N) here and (N,K) in the contract.

    `name` is what a message calls it, `contract` what the kernel was compiled for.
    """

    name: str
    modes: tuple[str, str]
    contract: TensorContract

    @property
    def dtype(self) -> DType:
        """The element type that the kernel takes."""
        return dtype(self.contract.dtype)

    @property
    def row_major(self) -> bool:
        """Whether the contiguous mode is the second one."""
        return self.modes[1] == self.contract.major

    @property
    def align_elems(self) -> int:
        """What the leading stride is a multiple of, in elements."""
        return max(1, self.contract.align_bytes // self.dtype.bytes)

    def storage(self, shape: tuple[int, int]) -> MatrixStorage:
        """The storage of a matrix of this kind, `shape` as the caller writes it."""
        rows, columns = shape if self.row_major else (shape[1], shape[0])
        align = self.align_elems
        return MatrixStorage(rows, columns, -(-columns // align) * align, not self.row_major, align)


@dataclass(frozen=True, slots=True)
class MatrixStorage:
    """`rows` x `stride` elements, of which `columns` in each row are the matrix, or its transpose if `transposed`.

    The first element and `stride` are aligned to `align` elements.
    """

    rows: int
    columns: int
    stride: int
    transposed: bool
    align: int

    @property
    def host_elems(self) -> int:
        """What a flat array in host memory needs so that an aligned buffer is found in it, wherever it begins."""
        return self.rows * self.stride + self.align - 1

    def host_buffer(self, flat: Any, address: int) -> Any:
        """The aligned (rows, stride) array within a flat one of `host_elems`, of NumPy or torch, without copying."""
        first = -(address // flat.itemsize) % self.align
        return flat[first : first + self.rows * self.stride].reshape(self.rows, self.stride)

    def matrix(self, buffer: Any) -> Any:
        """The matrix within a (rows, stride) array of any framework, without copying."""
        inner = buffer if self.columns == self.stride else buffer[:, : self.columns]
        return inner.T if self.transposed else inner


def call_tensors(contract: LaunchContract) -> tuple[CallTensor, CallTensor, CallTensor]:
    """A, B and the result as the caller of `kernel(a, b, out=)` writes them."""
    a, b, c = contract.tensors
    return CallTensor("a", a.modes, a), CallTensor("b", (b.modes[1], b.modes[0]), b), CallTensor("out", c.modes, c)


def empty(storage: MatrixStorage, dtype_name: str, like: Any, form: Form, stream: int | None) -> Any:
    """An uninitialized matrix of `like`'s framework on its device, owned by `stream` if one is given.

    `dtype_name` is torch's. Raises OperandError for a framework that is neither torch, NumPy nor CuPy.
    """
    if form.framework == "torch":
        return storage.matrix(_empty_torch(storage, dtype_name, like.device, stream))
    if form.framework == "numpy":
        flat = np.empty(storage.host_elems, numpy_dtype(dtype_name, like.dtype))
        return storage.matrix(storage.host_buffer(flat, flat.ctypes.data))
    if form.framework == "cupy":
        return storage.matrix(_empty_cupy((storage.rows, storage.stride), dtype_name, form.device[1], stream))
    raise OperandError(
        operand="out",
        found=f"nothing, and operands of {form.framework}",
        expected=f"an array for the result: {form.framework} is not asked for memory",
        fix=f"pass out= with {dtype_name} elements",
    )


def numpy_dtype(name: str, like: np.dtype[Any] | None = None) -> np.dtype[Any]:
    """NumPy's type for torch's `name`; bfloat16 is `like` where that is some package's bfloat16, else uint16."""
    if name != "bfloat16":
        return np.dtype(name)
    return like if like is not None and like.name == "bfloat16" else np.dtype(np.uint16)


def _empty_torch(storage: MatrixStorage, name: str, device: Any, stream: int | None) -> Any:
    torch = sys.modules["torch"]
    dtype, extents = getattr(torch, name), (storage.rows, storage.stride)
    if device.type != "cuda":
        flat = torch.empty(storage.host_elems, dtype=dtype, device=device)
        return storage.host_buffer(flat, flat.data_ptr())
    if stream is None:
        return torch.empty(extents, dtype=dtype, device=device)  # aligned to 512 bytes by torch's allocator
    # The allocator gives memory back to the stream it was taken on, so take it on the one the kernel runs on.
    with torch.cuda.stream(torch.cuda.ExternalStream(stream, device=device)):
        return torch.empty(extents, dtype=dtype, device=device)


def _empty_cupy(extents: tuple[int, int], name: str, ordinal: int, stream: int | None) -> Any:
    cupy = sys.modules["cupy"]
    owner = nullcontext() if stream is None else cupy.cuda.ExternalStream(stream, ordinal)
    with cupy.cuda.Device(ordinal), owner:
        return cupy.empty(extents, name)
