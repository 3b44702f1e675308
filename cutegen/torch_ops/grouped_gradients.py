"""The backward passes of `cutegen.grouped_mm`: the gradients of each form are products of the other forms.

    form                            gradient of a                    gradient of b
    y (R,N) = a (R,K) b (G,K,N)     dy (R,N) b.mT (G,N,K)            a.mT (K,R) dy (R,N)
    y (M,C) = a (G,M,K) b (K,C)     dy (M,C) b.mT (C,K)              a.mT (G,K,M) dy (M,C)
    y (G,M,N) = a (M,K) b (K,N)     dy (G,M,N) b.mT (N,K)            a.mT (K,M) dy (G,M,N)
    y (G,R,N) = a (G,R,K) b (G,K,N) dy (G,R,N) b.mT (G,N,K), padded  a.mT dy, of rows that a group has

Nothing waits for the host. What no group has of a gradient is 0, and what it has of dy, a and b is not read.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cutegen.errors import RequestError
from cutegen.torch_ops.gradients import refuse_to_be_recorded, through, wide

COUNT = 13
"""The arguments of an op."""
_FLOAT8 = frozenset({torch.float8_e4m3fn, torch.float8_e5m2})


def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Keep what the gradient of `grouped_mm` needs: for relu the result, else the value is computed again."""
    _keep(ctx, inputs, output if inputs[5] == "relu" else None)


def keep_aux(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """Keep what the gradient of `grouped_mm_aux` needs; its second result is only for the gradient."""
    ctx.mark_non_differentiable(output[1])
    _keep(ctx, inputs, output[1])


def _keep(ctx: Any, inputs: tuple[Any, ...], before: Tensor | None) -> None:
    a, b, offs, sizes, bias, activation, _, expected, out_dtype, scale_a, scale_b, *_ = inputs
    if not (scale_a is scale_b is None) and any(ctx.needs_input_grad):
        raise RequestError(
            "grouped_mm: found factors and a tensor that requires grad; expected only a forward pass: multiply by the "
            "factors in torch, or call under `torch.no_grad()`"
        )
    if a.dtype in _FLOAT8 and any(ctx.needs_input_grad[:2]):
        raise RequestError(
            f"grouped_mm: found operands of {a.dtype} that require gradients; expected only a forward pass: their "
            "gradients are products along the other modes, which read transposed copies with their own scales"
        )
    ctx.save_for_backward(a, b, offs, sizes, bias, before if activation is not None else None)
    ctx.activation, ctx.expected, ctx.out_dtype = activation, expected, out_dtype


def backward(ctx: Any, grad: Tensor, _: Tensor | None = None) -> tuple[Tensor | None, ...]:
    """Return gradients of a, b and bias, in argument order. Raises RequestError if recorded."""
    refuse_to_be_recorded()
    a, b, offs, sizes, bias, before = ctx.saved_tensors
    need_a, need_b, _, _, need_bias = [*ctx.needs_input_grad, *[False] * COUNT][:5]
    grad = wide(grad)
    if ctx.activation is not None:
        if before is None:
            before = torch.ops.cutegen.grouped_mm(a, b, offs, sizes, bias, None, False, ctx.expected, ctx.out_dtype)
        grad = through(ctx.activation, grad, before)
    narrow = grad.to(a.dtype)
    of_a = _product(narrow, b.mT, offs, sizes, a, ctx.expected) if need_a else None
    of_b = None
    if need_b and sizes is None:
        of_b = _product(a.mT, narrow, offs, None, b, ctx.expected)
    elif need_b:
        rows = inside(offs, sizes, a.shape[1])[..., None]
        of_b = torch.ops.cutegen.matmul(a.where(rows, 0).mT, narrow.where(rows, 0))
    of_bias = _of_bias(grad, a, b, offs, sizes, bias, ctx.expected) if need_bias else None
    return (of_a, of_b, None, None, of_bias, *[None] * (COUNT - 5))[: len(ctx.needs_input_grad)]


def _product(
    x: Tensor, y: Tensor, offs: Tensor | None, sizes: Tensor | None, like: Tensor, expected: int | None
) -> Tensor:
    """Return the product in the layout of `like`, so that its gradient needs no copy."""
    terms = (offs, sizes, None, None, False, expected, None if like.dtype == x.dtype else like.dtype)
    if sizes is None and like.stride(-2) == 1 and like.stride(-1) != 1:
        transposed: Tensor = torch.ops.cutegen.grouped_mm(y.mT, x.mT, *terms)
        return transposed.mT
    found: Tensor = torch.ops.cutegen.grouped_mm(x, y, *terms)
    return found


def inside(offs: Tensor | None, sizes: Tensor | None, room: int) -> Tensor:
    """Return (room,) of packed groups, or (G, room) of padded ones: whether a group has the row, or the column."""
    given = offs if sizes is None else sizes[:, None]
    assert given is not None
    at = torch.arange(room, device=given.device)
    if sizes is not None:
        return at < given
    return at < (given.amax() if given.shape[0] else given.new_zeros(()))  # an end is not below the one before it


def _of_bias(
    grad: Tensor, a: Tensor, b: Tensor, offs: Tensor | None, sizes: Tensor | None, bias: Tensor, expected: int | None
) -> Tensor:
    """Return the gradient of a bias: sums over the rows of each group, or of all."""
    if sizes is not None:
        of_groups = grad.where(inside(offs, sizes, a.shape[1])[..., None], 0).sum(1, dtype=torch.float32)
    elif a.dim() == 2 and b.dim() == 3:
        # Sums of a group's rows are a product with ones, along K: it reads no row that no group has.
        narrow = grad.to(a.dtype)
        ones = narrow.new_ones((grad.shape[0], 1)).mT
        of_groups = torch.ops.cutegen.grouped_mm(
            ones, narrow, offs, None, None, None, False, expected, torch.float32
        ).squeeze(1)
    elif a.dim() == 2:
        of_groups = grad.sum(1, dtype=torch.float32)
    else:
        columns = inside(offs, sizes, grad.shape[-1])
        return grad.sum(0, dtype=torch.float32).where(columns, 0).to(bias.dtype)
    return (of_groups if bias.dim() == 2 else of_groups.sum(0)).to(bias.dtype)
