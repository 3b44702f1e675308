"""Places a matrix in memory: rows and columns of its storage, padded so that each leading stride is aligned."""

from __future__ import annotations

import math
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from cutegen.contract import launch
from cutegen.contract.problem import Groups, ProblemShape
from cutegen.errors import OperandError
from cutegen.hardware import DTYPES, DType, dtype
from cutegen.run.call.bits import CARRIERS
from cutegen.run.call.operands import Form


@dataclass(frozen=True, slots=True)
class CallTensor:
    """One of the operands of `a @ b -> c` as the caller writes it: B, like its factors, is (K,N), not (N,K).

    Messages call it `name`; the kernel was compiled for `contract`. Biases and scales have one mode. With `groups` it
    has those one after another, or a matrix, vector or number for each.
    """

    name: str
    modes: tuple[str, ...]
    contract: launch.TensorContract
    groups: Groups | None = None

    @property
    def dtype(self) -> DType:
        """The element type that the kernel takes."""
        return dtype(self.contract.dtype)

    @property
    def row_major(self) -> bool:
        """True if the contiguous mode is the last one."""
        return self.modes[-1] == self.contract.major

    @property
    def align_elems(self) -> int:
        """The elements that the leading stride must be a multiple of."""
        return max(1, self.contract.align_bytes // self.dtype.bytes)

    @property
    def written(self) -> bool:
        """True if the kernel writes it."""
        return self.contract.name in (*launch.WRITTEN, *launch.REGISTERS.values())

    def key(self, name: str) -> str:
        """Return the spec's key for this property; the input C has the result's."""
        if self.contract.name in launch.FACTORS:
            return f"problem.{self.name}.{name}"
        return f"problem.{'c' if self.name == 'c' else self.contract.name.partition('_')[0]}.{name}"

    def extents(self, problem: ProblemShape) -> tuple[int, ...]:
        """Return its extents for a problem, as the caller writes them."""
        found = self.contract.extents(problem, self.groups)
        return found if self.modes == self.contract.modes else found[::-1]

    @property
    def packed(self) -> bool:
        """True if it has groups one after another."""
        return self.groups is not None and self.groups.packs(self.modes)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The dimensions that it may have: those of one matrix, and one more for a batch or groups."""
        rank = len(self.modes)
        if self.groups is None:
            return rank, rank + 1
        if self.packed or self.contract.name == launch.ENDS:
            return (rank,)
        return (rank + 1,) if self.contract.name in (*launch.OPERANDS, launch.RESULT) else (rank, rank + 1)

    @property
    def may_be_one_value(self) -> bool:
        """True if a call may pass one element for the whole vector."""
        return self.contract.name in launch.SCALES

    def storage(self, shape: tuple[int, ...]) -> MatrixStorage:
        """Return the storage of such a matrix, or of a batch of them; `shape` as the caller writes it."""
        *batch, first, second = shape
        rows, columns = (first, second) if self.row_major else (second, first)
        align = self.align_elems
        stride = -(-columns // align) * align
        return MatrixStorage(rows, columns, stride, not self.row_major, align, batch[0] if batch else None)


@dataclass(frozen=True, slots=True)
class MatrixStorage:
    """`rows` x `stride` elements; `columns` of each row are the matrix, or its transpose if `transposed`.

    The first element and `stride` are aligned to `align` elements. With `batch`, there are that many in sequence.
    """

    rows: int
    columns: int
    stride: int
    transposed: bool
    align: int
    batch: int | None = None

    @property
    def extents(self) -> tuple[int, ...]:
        """(rows, stride), or (batch, rows, stride)."""
        return (self.rows, self.stride) if self.batch is None else (self.batch, self.rows, self.stride)

    @property
    def host_elems(self) -> int:
        """The size of a flat host array that contains an aligned buffer, wherever the array begins."""
        return math.prod(self.extents) + self.align - 1

    def host_buffer(self, flat: Any, address: int) -> Any:
        """Return the aligned array of `extents` within a flat NumPy or torch array of `host_elems`, without copying."""
        first = -(address // flat.itemsize) % self.align
        return flat[first : first + math.prod(self.extents)].reshape(self.extents)

    def matrix(self, buffer: Any) -> Any:
        """Return the matrix, or the batch, within an array of `extents` of any framework, without copying."""
        inner = buffer if self.columns == self.stride else buffer[..., : self.columns]
        return inner.swapaxes(-1, -2) if self.transposed else inner


CALL_NAMES = {launch.RESULT: "out", launch.SOURCE: "c"}
"""Names in a call that differ from the kernel's: the result and the input C."""
ENDS_NAMES = {"packed": "offs", "padded": "sizes"}
"""Names in a call of the ends and of the sizes of groups."""


def call_tensors(contract: launch.LaunchContract) -> dict[str, CallTensor]:
    """Return each role's tensor as the caller of a kernel writes it, in the contract's order."""
    return {x.name: call_tensor(x, contract.groups) for x in contract.passed}


def call_tensor(x: launch.TensorContract, groups: Groups | None = None) -> CallTensor:
    """Return one tensor as the caller of a kernel, with `groups` or without, writes it."""
    name = CALL_NAMES.get(x.name, x.name) if x.name != launch.ENDS or groups is None else ENDS_NAMES[groups.layout]
    turned = x.name in ("b", "scale_b")
    return CallTensor(name, (x.modes[1], x.modes[0]) if turned else x.modes, x, groups)


def empty(storage: MatrixStorage, dtype_name: str, like: Any, form: Form, stream: int | None) -> Any:
    """Allocate an uninitialized matrix of `like`'s framework on its device, owned by `stream` if one is given.

    `dtype_name` is torch's. Raises OperandError for a framework that is neither torch, NumPy nor CuPy.
    """
    if form.framework == "torch":
        return storage.matrix(_empty_torch(storage, dtype_name, like.device, stream))
    if form.framework == "numpy":
        flat = np.empty(storage.host_elems, numpy_dtype(dtype_name, like.dtype))
        return storage.matrix(storage.host_buffer(flat, flat.ctypes.data))
    if form.framework == "cupy":
        return storage.matrix(_empty_cupy(storage.extents, dtype_name, form.device[1], stream))
    raise OperandError(
        operand="out",
        found=f"no array, with operands of {form.framework}",
        expected=f"an array for the result: cutegen does not allocate with {form.framework}",
        fix=f"pass out= with {dtype_name} elements",
    )


_CARRIERS = {DTYPES[name].torch_name: carrier for name, carrier in CARRIERS.items()}


def numpy_dtype(name: str, like: np.dtype[Any] | None = None) -> np.dtype[Any]:
    """Return NumPy's type for torch's `name`; if NumPy lacks it, `like` from another package, else the bits."""
    if name not in _CARRIERS:
        return np.dtype(name)
    return like if like is not None and like.name == name else np.dtype(_CARRIERS[name])


def _empty_torch(storage: MatrixStorage, name: str, device: Any, stream: int | None) -> Any:
    torch = sys.modules["torch"]
    dtype, extents = getattr(torch, name), storage.extents
    if device.type != "cuda":
        flat = torch.empty(storage.host_elems, dtype=dtype, device=device)
        return storage.host_buffer(flat, flat.data_ptr())
    if stream is None:
        return torch.empty(extents, dtype=dtype, device=device)  # torch's allocator aligns to 512 bytes
    # The allocator returns memory to the stream that it was allocated on, so allocate on the kernel's stream.
    with torch.cuda.stream(torch.cuda.ExternalStream(stream, device=device)):
        return torch.empty(extents, dtype=dtype, device=device)


def _empty_cupy(extents: tuple[int, ...], name: str, ordinal: int, stream: int | None) -> Any:
    cupy = sys.modules["cupy"]
    owner = nullcontext() if stream is None else cupy.cuda.ExternalStream(stream, ordinal)
    with cupy.cuda.Device(ordinal), owner:
        return cupy.empty(extents, name)
