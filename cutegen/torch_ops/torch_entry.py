"""`cutegen.matmul` of torch tensors: directly to the kernel, or through torch's dispatcher if others must see the call.

Autocast, functorch, tracing and subclasses need the dispatcher, which costs the host some microseconds; an eager call
without them avoids it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cutegen.contract.launch import OPERANDS
from cutegen.dispatch.formula import TENSORS, check_scalars
from cutegen.errors import OperandError
from cutegen.torch_ops import gradients, ops
from cutegen.torch_ops.activations import activation_name
from cutegen.torch_ops.autograd import quick, record
from cutegen.torch_ops.call import Call
from cutegen.torch_ops.call_cache import is_undisturbed, memoize, quick_terms
from cutegen.torch_ops.eager import compute
from cutegen.torch_ops.flops import register_flops
from cutegen.torch_ops.sharding import register_sharding

register_sharding()  # before the first call, for compiled calls
_PLAIN = frozenset({Tensor, torch.nn.Parameter})


def matmul(call: Call, weight: Tensor | None = None) -> Tensor:
    """Serve a `cutegen.matmul` that `quick` does not know.

    B is the transpose of `weight`, if `quick` was called with it.
    """
    if (known := quick_terms(call)) is not None:
        return known
    check(call)
    call = _with_floats(call)
    kind = call.a.device.type
    tensors = call.tensors.values()
    traced = torch.compiler.is_compiling() or torch.jit.is_tracing()
    alone = not traced and is_undisturbed() and kind in ("cuda", "cpu")
    if not (alone and all(type(x) in _PLAIN for x in tensors)):
        return dispatched(call)
    if torch.is_autocast_enabled(kind):
        return dispatched(call)
    if not call.wants_grad:
        found = compute(call)[0]
        memoize(call, found, weight)
        return found
    return dispatched(call) if call.out is not None else record(call, weight)  # the dispatcher refuses it


def quantized(call: Call) -> tuple[Tensor, Tensor]:
    """Serve a call whose result is quantized: its values and their factors. No gradients pass."""
    check(call)
    call = _with_floats(call)
    kind = call.a.device.type
    traced = torch.compiler.is_compiling() or torch.jit.is_tracing()
    alone = not traced and is_undisturbed() and kind in ("cuda", "cpu") and not torch.is_autocast_enabled(kind)
    with torch.no_grad():
        if alone and all(type(x) in _PLAIN for x in call.tensors.values()):
            values, factors = compute(call)
            assert factors is not None
            return values, factors
        if call.out is None or call.scale_c is None:
            made: tuple[Tensor, Tensor] = ops.OPS.matmul_quantized(*call.of_op, quantize=call.quantize)
            return made
        ops.OPS.matmul_quantized_out(*call.of_op, quantize=call.quantize, out=call.out, scale_c=call.scale_c)
        return call.out, call.scale_c


def dispatched(call: Call) -> Tensor:
    """Call through the ops of `torch.ops.cutegen`."""
    gradients.refuse_function_transforms("matmul", but_vmap=True)
    gradients.refuse_tangents(**call.tensors)
    if not torch.compiler.is_compiling():
        register_flops()
        register_sharding()
    if (out := call.out) is not None:
        ops.refuse_out_with_grad(call.wants_grad)  # the op itself does so only when the program runs
        ops.OPS.matmul_out(*call.of_op, out=out)
        return out
    # torch.jit.trace checks the program against a second one, traced without gradients: the same op for both
    if call.wants_grad and call.keeps_before and not torch.jit.is_tracing():
        found: Tensor = ops.OPS.matmul_aux(*call.of_op)[0]
        return found
    result: Tensor = ops.OPS.matmul(*call.of_op)
    return result


def check(call: Call) -> None:
    """Reject arguments of other types. Raises OperandError, RequestError."""
    for name in TENSORS:
        value: Any = getattr(call, name)
        if not isinstance(value, Tensor) and (value is not None or name in OPERANDS):
            raise OperandError(
                operand=name,
                found=f"a {type(value).__qualname__}",
                expected="a torch tensor" if name == "a" else "a torch tensor, like a",
                fix=f"`torch.as_tensor({name})`",
            )
        if value is not None and value.is_nested:
            fix = f"`torch.nested.to_padded_tensor({name}, 0.0)`"
            raise OperandError(operand=name, found="a nested tensor", expected="a dense one", fix=fix)
    check_scalars(call.alpha, call.beta, has_c=call.c is not None)


def _with_floats(call: Call) -> Call:
    """Convert numbers that torch does not multiply by, such as Fraction or NumPy's, to floats."""
    if all(value is None or isinstance(value, (float, int)) for value in (call.alpha, call.beta)):
        return call
    alpha, beta = (None if value is None else float(value) for value in (call.alpha, call.beta))
    return call._replace(alpha=alpha, beta=beta)


__all__ = ["Call", "Tensor", "activation_name", "matmul", "quantized", "quick"]
