"""`cutegen.matmul` of torch tensors: directly to the kernel, or through torch's dispatcher if others must see the call.

Autocast, functorch, tracing and subclasses need the dispatcher, which costs the host some microseconds; an eager call
without them avoids it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cutegen.contract.launch import OPERANDS
from cutegen.dispatch.formula import TENSORS, check_scalars, is_gated
from cutegen.errors import OperandError
from cutegen.torch_ops import gradients, ops
from cutegen.torch_ops.activations import activation_name
from cutegen.torch_ops.call import Call
from cutegen.torch_ops.call_cache import (
    ByGuards,
    Graded,
    count_write,
    is_undisturbed,
    launch_again,
    lookup,
    memoize,
    quick_terms,
)
from cutegen.torch_ops.eager import compute
from cutegen.torch_ops.flops import register_flops
from cutegen.torch_ops.sharding import register_sharding

# Eager calls that need gradients: recorded by autograd directly, without torch's dispatcher.


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
