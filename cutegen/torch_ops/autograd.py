"""Eager calls that need gradients: recorded by autograd directly, without torch's dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cutegen.dispatch.gated import is_gated
from cutegen.torch_ops import gradients
from cutegen.torch_ops.call import Call
from cutegen.torch_ops.call_cache import ByGuards, Graded, count_write, launch_again, lookup, memoize
from cutegen.torch_ops.eager import compute


def quick(
    a: Tensor, b: Tensor, bias: Tensor | None, activation: str | None, out: Tensor | None, b_transposed: bool = False
) -> Tensor | None:
    """Serve like `call_cache.quick`, also calls that autograd records, and those that write to `out`.

    With `b_transposed`, B is `b` transposed.
    """
    tensors: tuple[Tensor, ...] = (a, b) if bias is None else (a, b, bias)
    if out is not None:
        tensors += (out,)
    if (known := lookup(tensors, (activation, bias is None, out is None, b_transposed))) is None:
        return None
    if known.graded is not None:
        return _record(known, a, b, bias)
    found: Tensor | None = launch_again(known.call, a, b, out, () if bias is None else (bias,))
    if out is not None and found is not None:
        count_write(out)
    return found


class CachedMatmul(torch.autograd.Function):  # type: ignore[misc]
    """A repeated, recorded `activation(a @ b + bias)`; with `b_transposed`, B is `b` transposed."""

    @staticmethod
    def forward(ctx: Any, known: ByGuards, a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
        """Keep what `Matmul` does, and what is known instead of the arguments."""
        graded = known.graded
        assert graded is not None
        aux = known.call.allocate() if graded.aux else None
        beside = [x for x in (bias, aux) if x is not None]
        result: Tensor | None = launch_again(known.call, a, b, None, beside)
        if result is None:
            call = Call(a, b.t() if graded.b_transposed else b, bias, graded.activation, aux=graded.aux)
            result, aux = compute(call)
        before = aux if graded.aux else None if graded.activation is None else result
        ctx.save_for_backward(a if graded.needs_a else None, b if graded.needs_b else None, before)
        ctx.graded = graded
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return gradients in argument order. Raises RequestError if they are to be differentiated."""
        gradients.refuse_to_be_recorded()
        a, b, before = ctx.saved_tensors
        _, need_a, need_b, need_bias = ctx.needs_input_grad
        graded: Graded = ctx.graded
        if graded.activation is not None:
            grad = gradients.through(graded.activation, grad, before)
        b = b.t() if graded.b_transposed and need_a else b
        of_a, of_b = gradients.of_product(grad, a, b, graded.like_a, graded.like_b, None, need_a, need_b)
        of_b = of_b.t() if of_b is not None and graded.b_transposed else of_b
        return None, of_a, of_b, gradients.of_bias(grad, graded.like_b, graded.bias_dtype) if need_bias else None


_record: Callable[..., Tensor] = super(torch.autograd.Function, CachedMatmul).apply
"""`CachedMatmul.apply` without torch's functorch handling; functorch shows in the guards."""


class Matmul(torch.autograd.Function):  # type: ignore[misc]
    """`cutegen.matmul` of the arguments of an op; the gradients are those of `torch.ops.cutegen`."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        """Keep what `torch.ops.cutegen.matmul_aux` would."""
        call = Call.of_arguments(arguments)
        result, before = compute(call._replace(aux=call.keeps_before))
        result_will_do = not is_gated(call.activation)
        gradients.keep_before(ctx, arguments, before if call.keeps_before else result if result_will_do else None)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return gradients in argument order. Raises RequestError if they are to be differentiated."""
        return gradients.backward(ctx, grad)


def record(call: Call, weight: Tensor | None) -> Tensor:
    """Return the result of a recorded call; its B is `weight` transposed if that is given."""
    result: Tensor = Matmul.apply(*call.of_op)
    if not call.has_more and not is_gated(call.activation):
        memoize(call._replace(aux=call.keeps_before), result, weight)
    return result
