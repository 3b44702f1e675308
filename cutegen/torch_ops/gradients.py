"""The backward passes: products of the same ops, and torch's derivative of the activation.

A call keeps A if the gradient of B is needed, and B if that of A is. With an activation, `cutegen.matmul` also keeps
the value before it, in the result's type; `torch.ops.cutegen.matmul` keeps what it needs to recompute that value. For
relu without a residual the result is enough.
"""

from math import prod
from typing import Any

import torch
from torch import Tensor

from cutegen.dispatch.formula import gated_of
from cutegen.errors import RequestError
from cutegen.run.call.operands import refuse_tangent
from cutegen.torch_ops import activations as gated_gradients
from cutegen.torch_ops.call import ARGUMENTS, Like
from cutegen.torch_ops.call_cache import quick
from cutegen.torch_ops.cpu_reference import per_column, per_row

_C, _SCALES = 7, (8, 9, 11, 12)
"""The indices of `c` and of scales among the arguments."""
_FLOAT8 = frozenset({torch.float8_e4m3fn, torch.float8_e5m2})
_TRANSFORMS = torch._C._functorch.TransformType


def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Keep what the gradient of `matmul` needs."""
    result_will_do = inputs[3] == "relu" and inputs[4] is None
    keep_before(ctx, inputs, output if result_will_do else None)


def keep_aux(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """Keep what the gradient of `matmul_aux` needs; its second result is only for the gradient."""
    ctx.mark_non_differentiable(output[1])
    keep_before(ctx, inputs, output[1])


def keep_before(ctx: Any, inputs: tuple[Any, ...], before: Tensor | None) -> None:
    """Keep what the gradients need of the operands and of the value before the activation; None is to be recomputed.

    Raises RequestError for unsupported gradients.
    """
    a, b, bias, activation, residual, alpha, beta, c, scale_a, scale_b, out_dtype, *seconds = inputs
    needed = _needed(ctx)
    if a.dtype in _FLOAT8 and any(needed[:2]):
        raise RequestError(
            f"matmul: found operands of {a.dtype} that require gradients; expected only a forward pass: their "
            "gradients are products along the other modes, which read transposed copies with their own scales; pass "
            "them to cutegen.float8_linear(x, weight, of_x=cutegen.Float8Copies.of(x), of_weight=...)"
        )
    if any(needed[at] for at in _SCALES):
        raise RequestError(
            "matmul: found a scale that requires grad; expected one that does not: its gradient is not supported; pass "
            "`scale.detach()`, or multiply by it in torch"
        )
    need_a, need_b, need_bias, _, _, _, _, need_c, *_ = needed
    if not (need_a or need_b or need_bias or need_c):
        activation = None  # a residual is added after it
    again = activation is not None and before is None
    before = before if activation is not None else None
    kept = (a if need_b or again else None, b if need_a or again else None, before, scale_a, scale_b)
    seconds = [*seconds, None, None][:2] if again else [None, None]
    ctx.save_for_backward(*kept, *((bias, c) if again else (None, None)), *seconds)
    ctx.activation, ctx.alpha, ctx.beta, ctx.out_dtype = activation, alpha, 1.0 if beta is None else beta, out_dtype
    ctx.like = tuple(None if x is None else Like.of(x) for x in (a, b, bias, residual, c))


def _needed(ctx: Any) -> tuple[bool, ...]:
    """Return the arguments whose gradient is needed: torch reports it for those that were given."""
    return tuple([*ctx.needs_input_grad, *[False] * ARGUMENTS][:ARGUMENTS])


def backward(ctx: Any, grad: Tensor, _: Tensor | None = None) -> tuple[Tensor | None, ...]:
    """Return gradients of a, b, bias, residual and c, in argument order. Raises RequestError if recorded."""
    refuse_to_be_recorded()
    a, b, before, scale_a, scale_b, bias, c, *seconds = ctx.saved_tensors
    need_a, need_b, need_bias, _, need_residual, _, _, need_c, *_ = _needed(ctx)
    like_a, like_b, like_bias, like_residual, like_c = ctx.like
    whole = grad = wide(grad)
    if ctx.activation is not None:
        if before is None:
            terms = (bias, None, None, ctx.alpha, None if c is None else ctx.beta, c, scale_a, scale_b, ctx.out_dtype)
            before = torch.ops.cutegen.matmul(a, b, *terms, *seconds)
        grad = through(ctx.activation, grad, before)
    scaled, need_products = grad, need_a or need_b
    if scale_a is not None and need_products:
        scaled = per_row(scale_a, like_a.shape, like_b.shape) * scaled
    if scale_b is not None and need_products:
        scaled = per_column(scale_b, like_a.shape, like_b.shape) * scaled
    found = (
        *of_product(scaled, a, b, like_a, like_b, ctx.alpha, need_a, need_b),
        of_bias(grad, like_b, like_bias.dtype) if need_bias else None,
        None,
        _of_added(whole, like_residual) if need_residual else None,
        None,
        None,
        _of_added(grad, like_c, ctx.beta) if need_c else None,
        *[None] * (ARGUMENTS - _C - 1),
    )
    return found[: len(ctx.needs_input_grad)]


def refuse_to_be_recorded() -> None:
    """Reject a backward pass that is itself recorded. Raises RequestError."""
    if torch.is_grad_enabled():
        raise RequestError(
            "matmul: found a backward pass that is to be differentiated (create_graph=True); expected one that is not: "
            "gradients of gradients are not supported; use torch.matmul for this product"
        )


def refuse_function_transforms(function: str, *, but_vmap: bool = False) -> None:
    """Reject `torch.func.grad` and similar: torch sends such calls through vmap at most. Raises RequestError."""
    if torch.compiler.is_dynamo_compiling():
        return
    active = [each.key() for each in torch._C._functorch.get_interpreter_stack() or ()]
    expected = "autograd, or vmap alone" if but_vmap else "autograd"
    for key in active:
        if key in (_TRANSFORMS.Grad, _TRANSFORMS.Jvp):
            raise RequestError(
                f"{function}: found a call under torch.func's {key.name.lower()}; expected {expected}: torch does not "
                "support custom ops there; use `backward()` or `torch.autograd.grad`, or torch.matmul there"
            )
    if _TRANSFORMS.Vmap in active and not but_vmap:
        raise RequestError(
            f"{function}: found a call under torch.func's vmap; expected one without: torch does not support it there; "
            "make the mapped dimension one of the input, whose rows are multiplied in one call"
        )


def refuse_tangents(**tensors: Tensor | None) -> None:
    """Reject tensors that forward-mode AD differentiates. Raises OperandError."""
    if torch.compiler.is_dynamo_compiling():
        return
    for name, tensor in tensors.items():
        if tensor is not None:
            refuse_tangent(tensor, name, torch)


def of_product(
    grad: Tensor, a: Tensor, b: Tensor, like_a: Like, like_b: Like, alpha: float | None, need_a: bool, need_b: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of A and B from that of `alpha a @ b`; None for one that is not needed.

    The gradient of A reads only B's values, and that of B only A's; the other tensor may be None.
    """
    shape_a, shape_b = like_a.shape, like_b.shape
    is_row, is_column = len(shape_a) == 1, len(shape_b) == 1
    # (..., M, N), even if A or B is a vector
    narrow = grad.to(like_a.dtype)
    narrow = narrow.unsqueeze(-1) if is_column else narrow
    narrow = narrow.unsqueeze(-2) if is_row else narrow
    of_a = of_b = None
    if need_a:  # (..., M, N) @ (..., N, K)
        of_a = _product(narrow, (b.unsqueeze(1) if is_column else b).mT, like_a, alpha)
        of_a = of_a.sum_to_size((1, *shape_a) if is_row else shape_a).reshape(shape_a)
    if need_b:  # (..., K, M) @ (..., M, N); a batch that B lacks becomes more rows of one product
        a = a.unsqueeze(0) if is_row else a
        if len(shape_b) <= 2 and narrow.dim() > 2:
            a, narrow = as_rows(a), as_rows(narrow)
        of_b = _product(a.mT, narrow, like_b, alpha)
        of_b = of_b.sum_to_size((*shape_b, 1) if is_column else shape_b).reshape(shape_b)
    return of_a, of_b


def of_bias(grad: Tensor, like_b: Like, dtype: torch.dtype) -> Tensor:
    """Return the gradient of a bias of this type: sums over all rows."""
    return sum_of_rows(as_rows(grad.unsqueeze(-1) if len(like_b.shape) == 1 else grad), dtype)


def _of_added(grad: Tensor, like: Like, factor: float = 1.0) -> Tensor:
    """Return the gradient of a matrix that is added `factor` times, computed in the wider of both types."""
    if like.dtype not in _FLOAT8:  # with which torch does not compute
        grad = grad.to(torch.promote_types(grad.dtype, like.dtype))
    grad = grad if factor == 1.0 else factor * grad
    return grad.sum_to_size(like.shape).to(like.dtype)


def sum_of_rows(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the sum of rows in this type, in which torch need not compute."""
    return rows.sum(0, dtype=torch.float32).to(dtype) if dtype in _FLOAT8 else rows.sum(0, dtype=dtype)


def as_rows(x: Tensor) -> Tensor:
    """View (..., N) as (M, N); `flatten` would not take `is_grads_batched=True` of `torch.autograd.grad`."""
    return x.reshape(prod(x.shape[:-1]), x.shape[-1])


def wide(x: Tensor) -> Tensor:
    """Return `x`, in f32 if it is of 8-bit floats, with which torch does not compute."""
    return x.to(torch.float32) if x.dtype in _FLOAT8 else x


def through(activation: str, grad: Tensor, before: Tensor) -> Tensor:
    """Return the gradient before the activation; in f32 for 8-bit floats.

    Slopes of the smooth activations change by less than 0.8 of the change of their argument, so the rounded value is
    sufficient: at the ends of the 8-bit range they are 0 or 1.
    """
    aten, grad, before = torch.ops.aten, wide(grad), wide(before)
    if (gated := gated_of(activation)) is not None:
        return gated_gradients.through(gated, grad, before)
    if activation == "relu":
        return aten.threshold_backward(grad, before, 0)
    if activation == "silu":
        return aten.silu_backward(grad, before)
    return aten.gelu_backward(grad, before, approximate="tanh" if activation == "gelu_tanh" else "none")


def _product(x: Tensor, y: Tensor, like: Like, alpha: float | None) -> Tensor:
    """Return `alpha x @ y` with the contiguous mode of `like`, so that gradients need no copy."""
    if len(like.shape) > 1 and like.strides[-2] == 1 and like.strides[-1] != 1:
        return _multiplied(y.mT, x.mT, like, alpha).mT
    return _multiplied(x, y, like, alpha)


def _multiplied(x: Tensor, y: Tensor, like: Like, alpha: float | None) -> Tensor:
    dtype = None if like.dtype == x.dtype else like.dtype
    if alpha is None and dtype is None and (found := quick(x, y, None, None)) is not None:
        return found
    made: Tensor = torch.ops.cutegen.matmul(x, y, None, None, None, alpha, None, None, None, None, dtype)
    return made
