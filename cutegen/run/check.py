"""Do these operands fit this kernel? Every "no" is an OperandError with what was found, what was expected, and a fix.

The forms (shape, strides, dtype, device) are checked once and remembered; a call then only looks at the addresses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from cutegen.errors import OperandError
from cutegen.plan.launch import INT32_MAX, LaunchContract, ProblemSize
from cutegen.run import fixes
from cutegen.run.operands import Device, Form
from cutegen.run.storage import CallTensor, call_tensors


@dataclass(frozen=True, slots=True)
class Placed:
    """An operand whose form fits: the storage it spans, in bytes, from its address on.

    `rows` rows of `row_bytes` each begin `pitch_bytes` apart; all three are 0 or more.
    """

    tensor: CallTensor
    form: Form
    rows: int
    row_bytes: int
    pitch_bytes: int

    @property
    def span_bytes(self) -> int:
        """From the first byte to the end of the last row."""
        return (self.rows - 1) * self.pitch_bytes + self.row_bytes if self.rows and self.row_bytes else 0


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """Three forms that fit the contract and each other."""

    size: ProblemSize
    device: Device
    a: Placed
    b: Placed
    out: Placed


def check_inputs(contract: LaunchContract, a: Form, b: Form) -> tuple[int, int]:
    """The shape (M,N) of `a @ b`, for which memory may be allocated. Raises OperandError."""
    tensor_a, tensor_b, _ = call_tensors(contract)
    _check_kind(tensor_a, a)
    _check_kind(tensor_b, b)
    _check_device(tensor_b, b, a.device)
    if a.shape[1] != b.shape[0]:
        raise _inner_mismatch(a, b)
    return a.shape[0], b.shape[1]


def check_call(contract: LaunchContract, a: Form, b: Form, out: Form) -> CheckedCall:
    """Check everything but the addresses. Raises OperandError."""
    tensor_a, tensor_b, tensor_out = call_tensors(contract)
    m, n = check_inputs(contract, a, b)
    _check_out(tensor_out, out, (m, n), a.device)
    placed_a, lda = _place(tensor_a, a)
    placed_b, ldb = _place(tensor_b, b)
    placed_out, ldc = _place(tensor_out, out)
    size = ProblemSize(m=m, n=n, k=a.shape[1], lda=lda, ldb=ldb, ldc=ldc)
    return CheckedCall(size, a.device, placed_a, placed_b, placed_out)


def check_address(placed: Placed, pointer: int) -> None:
    """Refuse an address that is not aligned as the kernel was compiled for. Raises OperandError."""
    align = placed.tensor.contract.align_bytes
    if pointer % align and placed.span_bytes:
        raise OperandError(
            operand=placed.tensor.name,
            found=f"address {pointer:#x}, {pointer % align} bytes past a multiple of {align}",
            expected=f"a multiple of {align} bytes (problem.{placed.tensor.contract.name}.align)",
            fix=_copy_fix(placed.tensor, placed.form, fresh=True),
        )


def check_apart(out: Placed, out_pointer: int, other: Placed, pointer: int) -> None:
    """Refuse a result that shares memory with an input, which the kernel still reads. Raises OperandError."""
    if out_pointer >= pointer + other.span_bytes or pointer >= out_pointer + out.span_bytes:
        return
    if _share_bytes(out, out_pointer - pointer, other):
        raise OperandError(
            operand="out",
            found=f"memory shared with {other.tensor.name}",
            expected=f"memory apart from it: CTAs still read {other.tensor.name} while others write the result",
            fix=_copy_fix(out.tensor, out.form),
        )


def _share_bytes(out: Placed, offset_bytes: int, other: Placed) -> bool:
    """Whether two strided matrices share a byte, exactly: NumPy solves it on the addresses alone and reads no memory.

    Interleaved ones, as column slices of one buffer, do not.
    """
    low = min(0, offset_bytes)
    spanned = max(offset_bytes + out.span_bytes, other.span_bytes) - low
    buffer = as_strided(np.empty(1, np.uint8), (spanned,), (1,))
    return np.shares_memory(_rows(buffer, offset_bytes - low, out), _rows(buffer, -low, other))


def _rows(buffer: np.ndarray, offset_bytes: int, placed: Placed) -> np.ndarray:
    return as_strided(buffer[offset_bytes:], (placed.rows, placed.row_bytes), (placed.pitch_bytes, 1))


def _check_kind(tensor: CallTensor, form: Form) -> None:
    """Rank, dtype, extents, device kind."""
    if len(form.shape) != 2:
        raise OperandError(
            operand=tensor.name,
            found=f"{len(form.shape)} dimensions, shape {tuple(form.shape)}",
            expected=f"2, ({', '.join(tensor.modes).upper()})",
            fix=_rank_fix(tensor, form),
        )
    if form.dtype != tensor.contract.dtype:
        raise OperandError(
            operand=tensor.name,
            found=f"dtype {form.dtype}",
            expected=f"{tensor.contract.dtype}",
            fix=fixes.cast(tensor, form),
        )
    for mode, extent in zip(tensor.modes, form.shape, strict=True):
        if extent > INT32_MAX:
            raise OperandError(
                operand=tensor.name,
                found=f"{mode.upper()} = {extent}",
                expected=f"at most {INT32_MAX}: problem sizes are 32-bit",
                fix="split the problem",
            )
    if form.device[0] not in ("cuda", "cpu"):
        raise OperandError(
            operand=tensor.name,
            found=f"device {form.device[0]}",
            expected="a CUDA device, or the CPU",
            fix=fixes.move(tensor, form, ("cuda", 0)),
        )


def _rank_fix(tensor: CallTensor, form: Form) -> str:
    name = tensor.name
    if len(form.shape) == 1:
        return f"`{name}[None, :]` for a row, `{name}[:, None]` for a column"
    if len(form.shape) > 2 and name == "a":
        return f"`a.reshape(-1, {form.shape[-1]})` when b is the same for the whole batch"
    return "call once per matrix of a batch"


def _check_device(tensor: CallTensor, form: Form, device: Device) -> None:
    if form.device != device:
        raise OperandError(
            operand=tensor.name,
            found=f"device {_spell(form.device)}",
            expected=f"{_spell(device)}, where a is",
            fix=fixes.move(tensor, form, device),
        )


def _spell(device: Device) -> str:
    kind, ordinal = device
    return kind if kind == "cpu" else f"{kind}:{ordinal}"


def _inner_mismatch(a: Form, b: Form) -> OperandError:
    (m, k), (rows, columns) = a.shape, b.shape
    transpose = "b.t()" if b.framework == "torch" else "b.T"
    return OperandError(
        operand="b",
        found=f"shape {(rows, columns)}, so K = {rows}",
        expected=f"K = {k}, as in a of shape {(m, k)}: (M, K) @ (K, N)",
        fix=f"`{transpose}` if it is stored as (N, K)" if columns == k else "",
    )


def _check_out(tensor: CallTensor, out: Form, shape: tuple[int, int], device: Device) -> None:
    fix = fixes.new_out(tensor, shape, out)
    if tuple(out.shape) != shape:
        found, expected = f"shape {tuple(out.shape)}", f"{shape}, (M, N) of a @ b"
    elif out.dtype != tensor.contract.dtype:
        found, expected = f"dtype {out.dtype}", tensor.contract.dtype
    elif out.read_only:
        found, expected = "a read-only array", "one that can be written"
    else:
        _check_device(tensor, out, device)
        return
    raise OperandError(operand=tensor.name, found=found, expected=expected, fix=fix)


def _place(tensor: CallTensor, form: Form) -> tuple[Placed, int]:
    """Where the elements lie, and the leading stride in elements."""
    rows, columns = form.shape if tensor.row_major else form.shape[::-1]
    stride = _leading_stride(tensor, form)
    size = tensor.dtype.bytes
    return Placed(tensor, form, rows, columns * size, stride * size), stride


def _leading_stride(tensor: CallTensor, form: Form) -> int:
    """The stride of the mode that is not contiguous, which has to be one the kernel can take.

    The stride of a mode of extent 1 says nothing, whatever a framework left there; nor do strides of an empty matrix.
    """
    contiguous = 1 if tensor.row_major else 0
    extent, leading_extent = form.shape[contiguous], form.shape[1 - contiguous]
    aligned = tensor.storage((form.shape[0], form.shape[1])).stride
    if extent == 0 or leading_extent == 0:
        return aligned
    if extent > 1 and form.strides[contiguous] != 1:
        raise _wrong_major(tensor, form)
    if leading_extent == 1:
        return aligned
    stride = form.strides[1 - contiguous]
    if stride < extent:
        raise _overlapping(tensor, form)
    if stride % tensor.align_elems:
        raise _unaligned_stride(tensor, form, stride)
    return stride


def _copy_fix(tensor: CallTensor, form: Form, *, fresh: bool = False) -> str:
    if tensor.name == "out":
        return fixes.new_out(tensor, (form.shape[0], form.shape[1]), form)
    return (fixes.fresh_copy if fresh else fixes.copy)(tensor, form)


def _wrong_major(tensor: CallTensor, form: Form) -> OperandError:
    contract = tensor.contract
    contiguous = 1 if tensor.row_major else 0
    other = tensor.modes[1 - contiguous]
    fix = _copy_fix(tensor, form)
    if form.strides[1 - contiguous] == 1 and form.strides[contiguous] > 0:
        found = f"{other.upper()}-major strides {tuple(form.strides)}"
        fix += f', or compile with problem.{contract.name}.major = "{other}" to take it as it is'
    else:
        found = f"strides {tuple(form.strides)}, contiguous in neither mode" + _oddity(form)
    expected = f'stride 1 in {contract.major.upper()} (problem.{contract.name}.major = "{contract.major}")'
    return OperandError(operand=tensor.name, found=found, expected=expected, fix=fix)


def _overlapping(tensor: CallTensor, form: Form) -> OperandError:
    extent = form.shape[1 if tensor.row_major else 0]
    return OperandError(
        operand=tensor.name,
        found=f"strides {tuple(form.strides)}{_oddity(form)}",
        expected=f"a leading stride of at least {extent}, the extent of {tensor.contract.major.upper()}",
        fix=_copy_fix(tensor, form, fresh=True),
    )


def _oddity(form: Form) -> str:
    strides = [stride for extent, stride in zip(form.shape, form.strides, strict=True) if extent > 1]
    if any(stride < 0 for stride in strides):
        return " (reversed)"
    return " (broadcast)" if 0 in strides else ""


def _unaligned_stride(tensor: CallTensor, form: Form, stride: int) -> OperandError:
    contract, size = tensor.contract, tensor.dtype.bytes
    return OperandError(
        operand=tensor.name,
        found=f"leading stride {stride}: {stride} x {size} = {stride * size} bytes",
        expected=f"a multiple of {contract.align_bytes} bytes, that is {tensor.align_elems} elements "
        f"(problem.{contract.name}.align)",
        fix=_copy_fix(tensor, form),
    )
