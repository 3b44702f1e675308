"""A layer in 8-bit floats with a backward pass, for which the caller supplies transposed copies.

The forward product sums over K, the backward ones over N and over M. Tensor cores read 8-bit floats along the summed
mode, and a scale must be constant along it. Each matrix therefore exists twice, quantized for either mode.
"""

from math import prod
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from cutegen.dispatch.formula import check_activation
from cutegen.errors import OperandError, RequestError
from cutegen.torch_ops import gradients, ops
from cutegen.torch_ops.call import torch_type

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)


class Float8Copies(NamedTuple):
    """A matrix (R,C) in 8-bit floats for sums along its rows, and for sums along its columns.

    `values` (R,C) is contiguous along C, and `values * scale[:, None]` approximates the matrix; `across` (R,C) is
    contiguous along R, and so does `across * across_scale`. `scale` has R elements and `across_scale` C, or one.
    """

    values: Tensor
    scale: Tensor
    across: Tensor
    across_scale: Tensor

    @classmethod
    def of(cls, matrix: Tensor, dtype: torch.dtype = torch.float8_e4m3fn) -> Self:
        """Return copies of `matrix` whose scales map each row, and each column, to the range of `dtype`.

        Raises OperandError if it is not a matrix, RequestError for a type other than 8-bit floats.
        """
        if dtype not in FLOAT8:
            raise RequestError(f"Float8Copies: dtype: found {dtype}; expected one of {', '.join(map(str, FLOAT8))}")
        _check_tensor("matrix", matrix)
        if matrix.dim() != 2:
            expected = "a matrix (R,C)"
            raise OperandError(operand="matrix", found=f"shape {tuple(matrix.shape)}", expected=expected)
        wide = matrix.detach().to(torch.float32)
        (values, scale), (across, across_scale) = _quantized(wide, dtype), _quantized(wide.t(), dtype)
        return cls(values, scale, across.t(), across_scale)


def _quantized(rows: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Divide each row by its scale (R,), contiguous along the row."""
    largest = rows.abs().amax(1) if rows.shape[1] else rows.new_zeros(rows.shape[0])
    most, least = torch.finfo(dtype).max, torch.finfo(torch.float32).tiny  # smaller scales round to 0
    scale = torch.where(largest > 0, (largest / most).clamp(min=least), 1.0)
    return (rows / scale[:, None]).clamp(-most, most).contiguous().to(dtype), scale


def float8_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    of_x: Float8Copies,
    of_weight: Float8Copies,
    activation: str | None = None,
    out_dtype: torch.dtype | str | None = None,
    grad_dtype: torch.dtype = torch.float8_e5m2,
) -> Tensor:
    """Compute `activation(x @ weight.T + bias)` of the 8-bit copies of `x` (..., K), as rows, and of `weight` (N,K).

    `x` and `weight` receive the gradients, in their own types; their values are not read. The backward pass quantizes
    the result's gradient to `grad_dtype`, once along N and once along M, and multiplies it by `of_weight.across` and
    `of_x.across`. The result is bf16, or `out_dtype`.

    Raises OperandError for copies of other shapes, types or strides, RequestError for other arguments.
    """
    check_activation(activation)
    if grad_dtype not in FLOAT8:
        raise RequestError(
            f"float8_linear: grad_dtype: found {grad_dtype}; expected one of {', '.join(map(str, FLOAT8))}"
        )
    gradients.refuse_function_transforms("float8_linear")
    for name, given in (("x", x), ("weight", weight), ("bias", bias)):
        if given is not None or name != "bias":
            _check_tensor(name, given)
    if x.dim() == 0:
        raise OperandError(operand="x", found="shape ()", expected="(..., K), rows of K elements")
    _check_copies("of_x", of_x, (prod(x.shape[:-1]), x.shape[-1]))
    _check_copies("of_weight", of_weight, tuple(weight.shape))
    gradients.refuse_tangents(x=x, weight=weight, bias=bias)
    found: Tensor = _Float8Linear.apply(
        x, weight, bias, *of_x, *of_weight, activation, torch_type(out_dtype), grad_dtype
    )
    return found


def _check_tensor(name: str, given: Any) -> None:
    if not isinstance(given, Tensor):
        found = f"a {type(given).__qualname__}"
        raise OperandError(operand=name, found=found, expected="a torch tensor", fix=f"`torch.as_tensor({name})`")


def _check_copies(name: str, copies: Float8Copies, shape: tuple[int, ...]) -> None:
    if not isinstance(copies, Float8Copies):
        raise OperandError(
            operand=name,
            found=f"a {type(copies).__qualname__}",
            expected="a cutegen.Float8Copies",
            fix=f"`cutegen.Float8Copies(*{name})` of values, scale, across and across_scale",
        )
    for part, tensor in copies._asdict().items():
        _check_tensor(f"{name}.{part}", tensor)
    for part, scale, mode in (("values", "scale", 1), ("across", "across_scale", 0)):
        found, extent = getattr(copies, part), shape[1 - mode]
        if tuple(found.shape) != shape or found.dtype not in FLOAT8:
            raise OperandError(
                operand=f"{name}.{part}",
                found=f"{found.dtype}, shape {tuple(found.shape)}",
                expected=f"an 8-bit float, shape {shape}",
                fix=f"`cutegen.Float8Copies.of({name.removeprefix('of_')})`, as rows",
            )
        if found.stride(mode) != 1 and found.shape[mode] > 1:
            raise OperandError(
                operand=f"{name}.{part}",
                found=f"strides {found.stride()}",
                expected=f"the summed mode contiguous: stride({mode}) == 1",
                fix=f"`{part}.{'contiguous()' if mode else 't().contiguous().t()'}`",
            )
        scales = getattr(copies, scale)
        if scales.numel() not in (1, extent):
            raise OperandError(
                operand=f"{name}.{scale}", found=f"shape {tuple(scales.shape)}", expected=f"one element, or {extent}"
            )
    gradients.refuse_tangents(**{f"{name}.{part}": tensor for part, tensor in copies._asdict().items()})
    for part, tensor in copies._asdict().items():
        if tensor.requires_grad and torch.is_grad_enabled():
            raise OperandError(
                operand=f"{name}.{part}",
                found="a tensor that requires grad",
                expected=f"one that does not: the gradient goes to {name.removeprefix('of_')}",
                fix=f"`{part}.detach()`",
            )


class _Float8Linear(torch.autograd.Function):  # type: ignore[misc]
    """Its products are calls of `torch.ops.cutegen`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, *others: Any) -> Tensor:
        """Keep the copies for sums along the other modes that gradients need, and the value before an activation."""
        values, scale, across, across_scale = others[:4]
        of_weight, (activation, out_dtype, grad_dtype) = others[4:8], others[8:]
        terms = (bias, activation, None, None, None, None, scale.reshape(-1), of_weight[1].reshape(-1), out_dtype)
        out, before = ops.matmul_before(values, of_weight[0].t(), *terms)
        of_x = (across, across_scale) if ctx.needs_input_grad[1] else (None, None)
        ctx.save_for_backward(*of_x, *(of_weight[2:] if ctx.needs_input_grad[0] else (None, None)), before)
        ctx.activation, ctx.grad_dtype = activation, grad_dtype
        ctx.like = x.shape, x.dtype, weight.dtype, None if bias is None else bias.dtype
        return out.view(*x.shape[:-1], weight.shape[0])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return gradients of x, weight and bias. Raises RequestError if they are to be differentiated."""
        gradients.refuse_to_be_recorded()
        x, of_x, weight, of_weight, before = ctx.saved_tensors
        shape, x_dtype, weight_dtype, bias_dtype = ctx.like
        rows = gradients.as_rows(gradients.wide(grad))
        if before is not None:
            rows = gradients.through(ctx.activation, rows, before)
        copies = Float8Copies.of(rows, ctx.grad_dtype)
        need_x, need_weight, need_bias, *others = ctx.needs_input_grad
        # (M,N) @ (N,K), and (N,M) @ (M,K)
        to_x = _product(copies.values, copies.scale, weight, of_weight, x_dtype) if need_x else None
        to_weight = _product(copies.across.t(), copies.across_scale, x, of_x, weight_dtype) if need_weight else None
        of_bias = gradients.sum_of_rows(rows, bias_dtype) if need_bias else None
        return None if to_x is None else to_x.view(shape), to_weight, of_bias, *[None] * len(others)


def _product(a: Tensor, scale_a: Tensor, b: Tensor, scale_b: Tensor, out_dtype: torch.dtype) -> Tensor:
    found: Tensor = ops.OPS.matmul(
        a, b, None, None, None, None, None, None, scale_a.reshape(-1), scale_b.reshape(-1), out_dtype
    )
    return found
