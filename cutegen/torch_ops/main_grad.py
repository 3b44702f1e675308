"""A layer whose kernel adds the weight gradient to an f32 buffer.

beta is 1, and nothing is rounded to the parameters' type between the steps of an accumulation.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cutegen.errors import OperandError
from cutegen.torch_ops import gradients, ops


def check_main_grad(weight: Tensor) -> None:
    """Reject a `main_grad` to which the weight's gradient cannot be added, before the backward pass does.

    Raises OperandError, RequestError.
    """
    gradients.refuse_function_transforms("Linear with a main_grad")
    if weight._backward_hooks:
        raise OperandError(
            operand="weight",
            found=f"{len(weight._backward_hooks)} gradient hooks and a main_grad",
            expected="one of both: the kernel adds the gradient to main_grad, and a hook does not see it",
            fix="remove the hooks with their handles, or `weight.main_grad = None`",
        )
    main: Any = weight.main_grad
    found = f"a {type(main).__qualname__}"
    if isinstance(main, Tensor):
        if (main.dtype, main.shape, main.device) == (torch.float32, weight.shape, weight.device):
            return
        found = f"{main.dtype}, shape {tuple(main.shape)}, on {main.device}"
    raise OperandError(
        operand="weight.main_grad",
        found=found,
        expected=f"torch.float32, shape {tuple(weight.shape)}, on {weight.device}, like the weight",
        fix="`torch.zeros_like(weight, dtype=torch.float32)`",
    )


class AccumulatingLinear(torch.autograd.Function):  # type: ignore[misc]
    """`activation(x @ weight.T + bias)`, whose backward pass adds the gradient of `weight` to `weight.main_grad`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None) -> Tensor:
        """Keep x, the weight if x needs a gradient, and the value before an activation; of autocast's type."""
        ctx.main_grad = weight.main_grad
        if torch.is_autocast_enabled(x.device.type):
            wanted = torch.get_autocast_dtype(x.device.type)
            x, weight = x.to(wanted), weight.to(wanted)
        out, before = ops.matmul_before(x, weight.t(), bias, activation)
        ctx.save_for_backward(x, weight if ctx.needs_input_grad[0] else None, before)
        ctx.activation = activation
        ctx.bias_dtype = None if bias is None else bias.dtype
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return gradients of x and of the bias; None for the weight, whose gradient is already added.

        Raises RequestError if they are to be differentiated.
        """
        gradients.refuse_to_be_recorded()
        x, weight, before = ctx.saved_tensors
        if before is not None:
            grad = gradients.through(ctx.activation, grad, before)
        rows = gradients.as_rows(grad).to(x.dtype)
        main = ctx.main_grad
        ops.OPS.matmul_out(rows.t(), gradients.as_rows(x), None, None, None, None, 1.0, main, out=main)
        need_x, _, need_bias, _ = ctx.needs_input_grad
        of_x = ops.OPS.matmul(rows, weight).reshape(x.shape) if need_x else None
        return of_x, None, gradients.sum_of_rows(rows, ctx.bias_dtype) if need_bias else None, None
