"""`cutegen.matmul` of torch tensors: straight to the kernel where nobody else has to know, else by torch's dispatcher.

The dispatcher is needed for gradients, autocast, functorch, tracing and subclasses; all of it costs the host some
microseconds, which an eager call without them does not pay.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cutegen.dispatch.formula import check_scalars
from cutegen.errors import OperandError
from cutegen.torch_ops import ops
from cutegen.torch_ops.eager import TENSORS, Call, compute, plain
from cutegen.torch_ops.sharding import register_sharding

register_sharding()  # for calls that are compiled before any was made
_PLAIN = frozenset({Tensor, torch.nn.Parameter})


def matmul(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None,
    activation: str | None,
    residual: Tensor | None,
    alpha: float | None,
    beta: float | None,
    c: Tensor | None,
    scale_a: Tensor | None,
    scale_b: Tensor | None,
    out: Tensor | None,
    out_dtype: torch.dtype | None,
) -> Tensor:
    """`cutegen.matmul` with the arguments in this order."""
    simple = residual is alpha is beta is c is scale_a is scale_b is out is out_dtype is None
    if not torch.compiler.is_compiling() and _is_nobody_elses(a, b, bias):
        if simple and (found := plain(a, b, bias, activation)) is not None:
            return found
        call = Call(a, b, bias, activation, residual, alpha, beta, c, scale_a, scale_b, out, out_dtype)
        check(call)
        others = (residual, c, scale_a, scale_b, out)
        if all(type(x) in _PLAIN and not x.requires_grad for x in others if x is not None):
            return compute(call)[0]
    return dispatched(Call(a, b, bias, activation, residual, alpha, beta, c, scale_a, scale_b, out, out_dtype))


def _is_nobody_elses(a: Tensor, b: Tensor, bias: Tensor | None) -> bool:
    """Whether plain tensors are multiplied, without a gradient, with nothing of torch's in between."""
    if type(a) not in _PLAIN or type(b) not in _PLAIN or not (bias is None or type(bias) in _PLAIN):
        return False
    wants_grad = a.requires_grad or b.requires_grad or (bias is not None and bias.requires_grad)
    if wants_grad and torch.is_grad_enabled():
        return False
    kind = a.device.type
    return (kind == "cuda" or kind == "cpu") and not (
        torch.is_autocast_enabled(kind)
        or torch._C._len_torch_dispatch_stack()
        or torch._C._is_torch_function_mode_enabled()
        or torch._C._are_functorch_transforms_active()
        or torch.autograd.forward_ad._current_level >= 0
    )


def dispatched(call: Call) -> Tensor:
    """By the ops of `torch.ops.cutegen`."""
    check(call)
    if not torch.compiler.is_compiling():
        register_sharding()
    *arguments, out, out_dtype, _ = call
    activation, residual = call.activation, call.residual
    wants_grad = torch.is_grad_enabled() and any(x.requires_grad for x in call.tensors.values())
    if out is not None:
        if wants_grad:
            raise OperandError(
                operand="out",
                found="a tensor to write to, and operands that require grad",
                expected="one of them: a result in given memory is not recorded by autograd",
                fix="leave out= away, or call under `torch.no_grad()`",
            )
        ops.OPS.matmul_out(*arguments, out_dtype, out=out)
        return out
    kept = wants_grad and activation is not None and (activation != "relu" or residual is not None)
    if kept:
        found: Tensor = ops.OPS.matmul_aux(*arguments, out_dtype)[0]
        return found
    result: Tensor = ops.OPS.matmul(*arguments, out_dtype)
    return result


def check(call: Call) -> None:
    """Refuse arguments of other kinds. Raises OperandError, RequestError."""
    for name in TENSORS:
        value: Any = getattr(call, name)
        if value is not None and not isinstance(value, Tensor):
            raise OperandError(
                operand=name,
                found=f"a {type(value).__qualname__}",
                expected="a torch tensor, as a is",
                fix=f"`torch.as_tensor({name})`",
            )
    check_scalars(call.alpha, call.beta, has_c=call.c is not None)
