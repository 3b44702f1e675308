"""Finds the memory of a call's operands, checks its alignment, and whether a result overlaps it."""

from dataclasses import dataclass, field

import numpy as np
from numpy.lib.stride_tricks import as_strided

from cutegen.errors import OperandError
from cutegen.hardware import dtype
from cutegen.run.call import suggestions
from cutegen.run.call.operands import Form
from cutegen.run.call.storage import CallTensor

Strided = tuple[tuple[int, ...], tuple[int, ...]]
"""Bytes in memory: extents and strides, all of them at least 0."""


@dataclass(frozen=True, slots=True)
class Placed:
    """An operand whose form fits: the storage that it spans, in bytes, from its address.

    `rows` rows of `row_bytes` each begin `pitch_bytes` apart, in each of `batch` matrices `batch_pitch_bytes` apart;
    all are at least 0.
    """

    tensor: CallTensor
    form: Form
    rows: int
    row_bytes: int
    pitch_bytes: int
    batch: int = 1
    batch_pitch_bytes: int = 0
    # Every call needs these two, so they are computed once.
    align_bytes: int = field(init=False)
    span_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        """Compute the bytes from the first byte to the end of the last row, and their alignment."""
        span = (self.batch - 1) * self.batch_pitch_bytes + (self.rows - 1) * self.pitch_bytes + self.row_bytes
        object.__setattr__(self, "span_bytes", span if self.batch and self.rows and self.row_bytes else 0)
        object.__setattr__(self, "align_bytes", self.tensor.contract.align_bytes)

    def coincides(self, other: "Placed") -> bool:
        """Return whether, from the same address, each element has the same place in both."""
        mine, theirs = ((x.rows, x.row_bytes, x.pitch_bytes, x.batch, x.batch_pitch_bytes) for x in (self, other))
        same_kind = self.tensor.contract.dtype == other.tensor.contract.dtype
        return same_kind and self.tensor.contract.major == other.tensor.contract.major and mine == theirs


def check_address(placed: Placed, pointer: int) -> None:
    """Reject an address that is not aligned as the kernel was compiled for. Raises OperandError."""
    align = placed.align_bytes
    if pointer % align and placed.span_bytes:
        raise OperandError(
            operand=placed.tensor.name,
            found=f"address {pointer:#x}, {pointer % align} bytes past a multiple of {align}",
            expected=f"a multiple of {align} bytes ({placed.tensor.key('align')})",
            fix=copy_fix(placed.tensor, placed.form, fresh=True),
        )


def check_apart(written: Placed, pointer: int, other: Placed, other_pointer: int) -> None:
    """Reject a result that shares memory with another operand, which CTAs still read. Raises OperandError.

    The thread that writes a result element reads the input C and the residual there: they may coincide with the result.
    """
    if pointer >= other_pointer + other.span_bytes or other_pointer >= pointer + written.span_bytes:
        return
    in_place = written.tensor.name == "out" and other.tensor.name in ("c", "residual")
    if in_place and pointer == other_pointer and written.coincides(other):
        return
    if _share_bytes(written, pointer - other_pointer, other):
        name = other.tensor.name
        fix = copy_fix(written.tensor, written.form)
        raise OperandError(
            operand=written.tensor.name,
            found=f"memory shared with {name}",
            expected=f"separate memory: CTAs still read {name} while others write the result"
            if not in_place
            else f"separate memory, or exactly the address and the strides of {name}",
            fix=fix,
        )


def _share_bytes(written: Placed, offset_bytes: int, other: Placed) -> bool:
    """Return whether two strided operands share a byte."""

    def strided(x: Placed) -> Strided:
        return (x.batch, x.rows, x.row_bytes), (x.batch_pitch_bytes, x.pitch_bytes, 1)

    return _meet(strided(written), offset_bytes, strided(other))


def share_memory(one: Form, pointer: int, other: Form, other_pointer: int) -> bool:
    """Return whether two tensors share a byte, for calls without a kernel's check."""
    return _meet(_strided(one), pointer - other_pointer, _strided(other))


def _strided(form: Form) -> Strided:
    element = dtype(form.dtype).bytes
    return (*form.shape, element), (*(stride * element for stride in form.strides), 1)


def _meet(one: Strided, offset_bytes: int, other: Strided) -> bool:
    """Solve it exactly: NumPy computes on addresses and reads no memory. Column slices of one buffer do not overlap."""
    if 0 in one[0] or 0 in other[0]:
        return False
    low = min(0, offset_bytes)
    last_byte = max(start + _last(strided) for start, strided in ((offset_bytes, one), (0, other)))
    spanned = last_byte + 1 - low
    buffer = as_strided(np.empty(1, np.uint8), (spanned,), (1,))
    mine, theirs = (
        as_strided(buffer[start:], shape, strides)
        for start, (shape, strides) in ((offset_bytes - low, one), (-low, other))
    )
    return np.shares_memory(mine, theirs)


def _last(strided: Strided) -> int:
    return sum((extent - 1) * stride for extent, stride in zip(*strided, strict=True))


def copy_fix(tensor: CallTensor, form: Form, *, fresh: bool = False) -> str:
    """Suggest another place for an operand: a copy, or new memory for a result."""
    if tensor.name == "out":
        return suggestions.new_out(tensor, form.shape, form)
    return (suggestions.fresh_copy if fresh else suggestions.copy)(tensor, form)
