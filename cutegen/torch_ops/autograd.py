"""Eager calls that need gradients: recorded by autograd directly, without torch's dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cutegen.torch_ops import gradients
from cutegen.torch_ops.call import Call
from cutegen.torch_ops.call_cache import CachedCall, launch, lookup, memoize
from cutegen.torch_ops.eager import compute


def quick(
    a: Tensor, b: Tensor, bias: Tensor | None, activation: str | None, out: Tensor | None, b_transposed: bool = False
) -> Tensor | None:
    """Serve like `call_cache.quick`, also calls that autograd records, and those that write to `out`.

    With `b_transposed`, B is `b` transposed.
    """
    known = lookup(a, b, bias, activation, out, b_transposed)
    if known is None:
        return None
    return _record(known, a, b, bias) if known.recorded else launch(known, a, b, bias, out)


class CachedMatmul(torch.autograd.Function):  # type: ignore[misc]
    """A repeated, recorded `activation(a @ b + bias)`; with `b_transposed`, B is `b` transposed."""

    @staticmethod
    def forward(ctx: Any, known: CachedCall, a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
        """Keep what `Matmul` does, and `known` instead of the arguments."""
        result, aux = _launched(known, a, b, bias)
        before = aux if known.aux else None if known.activation is None else result
        ctx.save_for_backward(a if known.needs_a else None, b if known.needs_b else None, before)
        ctx.known = known
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return gradients in argument order. Raises RequestError if they are to be differentiated."""
        gradients.refuse_to_be_recorded()
        a, b, before = ctx.saved_tensors
        _, need_a, need_b, need_bias = ctx.needs_input_grad
        known: CachedCall = ctx.known
        if known.activation is not None:
            grad = gradients.through(known.activation, grad, before)
        like_a, like_b, b_transposed = known.like_a, known.like_b, known.b_transposed
        b = b.t() if b_transposed and need_a else b
        of_a, of_b = gradients.of_product(grad, a, b, like_a, like_b, None, need_a, need_b)
        of_b = of_b.t() if of_b is not None and b_transposed else of_b
        return None, of_a, of_b, gradients.of_bias(grad, like_b, known.dtype_bias) if need_bias else None


_record: Callable[..., Tensor] = super(torch.autograd.Function, CachedMatmul).apply
"""`Again.apply` without torch's functorch handling; functorch shows in the guards."""


def _launched(known: CachedCall, a: Tensor, b: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    aux = known.allocate(known.shape, known.steps, known.dtype) if known.aux else None
    if (found := launch(known, a, b, bias, None, aux)) is not None:
        return found, aux
    return compute(Call(a, b.t() if known.b_transposed else b, bias, known.activation, aux=known.aux))


class Matmul(torch.autograd.Function):  # type: ignore[misc]
    """`cutegen.matmul` of the arguments of an op; the gradients are those of `torch.ops.cutegen`."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        """Keep what `torch.ops.cutegen.matmul_aux` would."""
        call = Call(*arguments[:-1])._replace(out_dtype=arguments[-1])
        result, before = compute(call._replace(aux=call.keeps_before))
        gradients.keep_before(ctx, arguments, before if call.keeps_before else result)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return gradients in argument order. Raises RequestError if they are to be differentiated."""
        return gradients.backward(ctx, grad)


def record(call: Call, weight: Tensor | None) -> Tensor:
    """Return the result of a recorded call; its B is `weight` transposed if that is given."""
    result: Tensor = Matmul.apply(*call.of_op)
    if not call.has_more:
        memoize(call._replace(aux=call.keeps_before), result, weight)
    return result
