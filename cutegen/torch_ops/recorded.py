"""An eager call whose gradients will be asked for: recorded by autograd at once, without torch's dispatcher."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cutegen.torch_ops import gradients
from cutegen.torch_ops.call import Call
from cutegen.torch_ops.eager import compute
from cutegen.torch_ops.remembered import quick, shorten


class Recorded(torch.autograd.Function):  # type: ignore[misc]
    """`cutegen.matmul` of the arguments of an op; the gradients are those of `torch.ops.cutegen`."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        """Keeps what `torch.ops.cutegen.matmul_aux` would."""
        a, b, bias, activation, residual, *others, out_dtype = arguments
        simple = residual is None and out_dtype is None and others.count(None) == len(others)
        aux = activation is not None and (activation != "relu" or residual is not None)
        if simple and not aux and (found := quick(a, b, bias, activation, None)) is not None:
            gradients.keep(ctx, arguments, found)
            return found
        call = Call(a, b, bias, activation, residual, *others)._replace(out_dtype=out_dtype, aux=aux)
        found, before = compute(call)
        if before is not None:
            gradients.keep_before(ctx, arguments, before)
            return found
        if simple:
            shorten(call, found)
        gradients.keep(ctx, arguments, found)
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients in the places of their arguments. Raises RequestError where they are to be differentiated."""
        return gradients.backward(ctx, grad)
