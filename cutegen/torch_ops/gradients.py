"""The backward passes: products of the same ops, and torch's derivative of the activation.

Without an activation, a call keeps A and B. With one, `cutegen.matmul` also keeps the value before it, in the result's
type, if a gradient will be needed; `torch.ops.cutegen.matmul` keeps what it needs to recompute that value. For relu
without a residual the result is enough.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cutegen.errors import RequestError
from cutegen.torch_ops.by_torch import per_column, per_row
from cutegen.torch_ops.remembered import quick

COUNT = 11
"""The arguments of an op."""
_FLOAT8 = frozenset({torch.float8_e4m3fn, torch.float8_e5m2})


def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Keep what the gradient of `matmul` needs."""
    result_will_do = inputs[3] == "relu" and inputs[4] is None
    keep_before(ctx, inputs, output if result_will_do else None)


def keep_aux(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """Keep what the gradient of `matmul_aux` needs; its second result is only for the gradient."""
    ctx.mark_non_differentiable(output[1])
    keep_before(ctx, inputs, output[1])


def keep_before(ctx: Any, inputs: tuple[Any, ...], before: Tensor | None) -> None:
    """Keep the operands and the value before the activation; None if it is to be recomputed.

    Raises RequestError for unsupported gradients.
    """
    a, b, bias, activation, residual, alpha, beta, c, scale_a, scale_b, out_dtype = inputs
    needed = _needed(ctx)
    if a.dtype in _FLOAT8 and any(needed):
        raise RequestError(
            f"matmul: found operands of {a.dtype} that require gradients; expected only a forward pass: their "
            "gradients are products along the other modes, which read transposed copies with their own scales; pass "
            "them to cutegen.float8_linear(x, weight, of_x=cutegen.Float8Copies.of(x), of_weight=...)"
        )
    if needed[8] or needed[9]:
        raise RequestError(
            "matmul: found a scale that requires grad; expected one that does not: its gradient is not supported; pass "
            "`scale.detach()`, or multiply by it in torch"
        )
    again = activation is not None and before is None
    before = before if activation is not None else None
    ctx.save_for_backward(a, b, before, scale_a, scale_b, *((bias, c) if again else (None, None)))
    ctx.activation, ctx.alpha, ctx.beta, ctx.out_dtype = activation, alpha, 1.0 if beta is None else beta, out_dtype
    ctx.like = tuple(None if x is None else (x.shape, x.dtype) for x in (bias, residual, c))


def _needed(ctx: Any) -> tuple[bool, ...]:
    """Return the arguments whose gradient is needed: torch reports it for those that were given."""
    return tuple([*ctx.needs_input_grad, *[False] * COUNT][:COUNT])


def backward(ctx: Any, grad: Tensor, _: Tensor | None = None) -> tuple[Tensor | None, ...]:
    """Return gradients of a, b, bias, residual and c, in argument order. Raises RequestError if recorded."""
    refuse_to_be_recorded()
    a, b, before, scale_a, scale_b, bias, c = ctx.saved_tensors
    need_a, need_b, need_bias, _, need_residual, _, _, need_c, *_ = _needed(ctx)
    like_bias, like_residual, like_c = ctx.like
    whole = grad = wide(grad)
    if ctx.activation is not None:
        if before is None:
            terms = (bias, None, None, ctx.alpha, None if c is None else ctx.beta, c, scale_a, scale_b, ctx.out_dtype)
            before = torch.ops.cutegen.matmul(a, b, *terms)
        grad = through(ctx.activation, grad, before)
    scaled = grad
    if scale_a is not None:
        scaled = per_row(scale_a, a, b) * scaled
    if scale_b is not None:
        scaled = per_column(scale_b, a, b) * scaled
    found = (
        *of_product(scaled, a, b, ctx.alpha, need_a, need_b),
        of_bias(grad, b, like_bias[1]) if need_bias else None,
        None,
        whole.sum_to_size(like_residual[0]).to(like_residual[1]) if need_residual else None,
        None,
        None,
        (ctx.beta * grad).sum_to_size(like_c[0]).to(like_c[1]) if need_c else None,
        None,
        None,
        None,
    )
    return found[: len(ctx.needs_input_grad)]


def refuse_to_be_recorded() -> None:
    """Reject a backward pass that is itself recorded. Raises RequestError."""
    if torch.is_grad_enabled():
        raise RequestError(
            "matmul: found a backward pass that is to be differentiated (create_graph=True); expected one that is not: "
            "gradients of gradients are not supported; use torch.matmul for this product"
        )


def of_product(
    grad: Tensor, a: Tensor, b: Tensor, alpha: float | None, need_a: bool, need_b: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of A and B from that of `alpha a @ b`; None for one that is not needed."""
    # (..., M, N), even if A or B is a vector
    as_a = a.unsqueeze(0) if a.dim() == 1 else a
    as_b = b.unsqueeze(1) if b.dim() == 1 else b
    narrow = grad.to(a.dtype)
    narrow = narrow.unsqueeze(-1) if b.dim() == 1 else narrow
    narrow = narrow.unsqueeze(-2) if a.dim() == 1 else narrow
    of_a = _grad_a(narrow, as_a, as_b, alpha).reshape(a.shape) if need_a else None
    return of_a, _grad_b(narrow, as_a, as_b, alpha).reshape(b.shape) if need_b else None


def of_bias(grad: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the gradient of a bias of this type: sums over all rows."""
    return as_rows(grad.unsqueeze(-1) if b.dim() == 1 else grad).sum(0, dtype=dtype)


def as_rows(x: Tensor) -> Tensor:
    """View (..., N) as (M, N), also without elements, for which `reshape` cannot infer M."""
    return x.flatten(0, -2) if x.dim() > 1 else x.unsqueeze(0)


def wide(x: Tensor) -> Tensor:
    """Return `x`, in f32 if it is of 8-bit floats, with which torch does not compute."""
    return x.to(torch.float32) if x.dtype in _FLOAT8 else x


def through(activation: str, grad: Tensor, before: Tensor) -> Tensor:
    """Return the gradient before the activation; in f32 for 8-bit floats.

    Slopes of the smooth activations change by less than 0.8 of the change of their argument, so the rounded value is
    sufficient: at the ends of the 8-bit range they are 0 or 1.
    """
    aten, grad, before = torch.ops.aten, wide(grad), wide(before)
    if activation == "relu":
        return aten.threshold_backward(grad, before, 0)
    if activation == "silu":
        return aten.silu_backward(grad, before)
    return aten.gelu_backward(grad, before, approximate="tanh" if activation == "gelu_tanh" else "none")


def _grad_a(of_z: Tensor, a: Tensor, b: Tensor, alpha: float | None) -> Tensor:
    """Return (..., M, N) @ (..., N, K) in the layout of A."""
    return _product(of_z, b.mT, a, alpha).sum_to_size(a.shape)


def _grad_b(of_z: Tensor, a: Tensor, b: Tensor, alpha: float | None) -> Tensor:
    """Return (..., K, M) @ (..., M, N) in the layout of B; a batch that B lacks becomes more rows of one product."""
    if b.dim() == 2 and of_z.dim() > 2:
        a, of_z = as_rows(a), as_rows(of_z)
    return _product(a.mT, of_z, b, alpha).sum_to_size(b.shape)


def _product(x: Tensor, y: Tensor, like: Tensor, alpha: float | None) -> Tensor:
    """Return `alpha x @ y` with the contiguous mode of `like`, so that gradients need no copy."""
    if like.stride(-2) == 1 and like.stride(-1) != 1:
        return _multiplied(y.mT, x.mT, like, alpha).mT
    return _multiplied(x, y, like, alpha)


def _multiplied(x: Tensor, y: Tensor, like: Tensor, alpha: float | None) -> Tensor:
    dtype = None if like.dtype == x.dtype else like.dtype
    if alpha is None and dtype is None and (found := quick(x, y, None, None, None)) is not None:
        return found
    made: Tensor = torch.ops.cutegen.matmul(x, y, None, None, None, alpha, None, None, None, None, dtype)
    return made
