"""Repeated calls with more terms than bias and activation: one lookup by shapes and guards, as in `quick`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cutegen.dispatch.formula import TENSORS
from cutegen.dispatch.providers import providers
from cutegen.dispatch.settings import settings
from cutegen.run.call.dynamo import guards_of, with_latest
from cutegen.run.call.epilogue_operands import TOO_LARGE
from cutegen.torch_ops import call_cache
from cutegen.torch_ops.call import Call
from cutegen.torch_ops.switches import tf32_allowed

_NUMBERS = frozenset({float, int})
_F32 = torch.float32


class Fused:
    """Remaining work of such a call. `order` maps the kernel's tensors to those of the call and its result.
    `align_mask` are the address bits of each that must be 0.
    """

    __slots__ = (
        *(
            "allocate",
            "launch_on_current_context",
            "check_addresses",
            "dtype",
            "graded",
            "guards",
            "align_mask",
            "order",
            "ordinal",
        ),
        *("shape", "steps", "stream", "tf32"),
    )

    def __init__(self, known: call_cache.Known, call: Call, guards: Callable[..., bool], result: Tensor) -> None:
        self.guards, self.order = guards, tuple(TENSORS.index(name) for name in known.names)
        self.graded = any(tensor.requires_grad for tensor in call.tensors.values())
        self.tf32 = tf32_allowed() if call.a.dtype is _F32 else None
        self.launch_on_current_context, self.ordinal = (
            getattr(known.launch, "launch_on_current_context", known.launch),
            known.ordinal,
        )
        self.allocate, self.stream = call_cache.allocator(known.ordinal), known.stream
        self.shape, self.steps, self.dtype = tuple(result.shape), result.stride(), result.dtype
        self.align_mask, self.check_addresses = known.align_mask, known.check_addresses


def quick_fused(call: Call) -> Tensor | None:
    """Return the result if such a call was made before with such tensors; else None.

    Raises OperandError for an `out` that shares memory with another operand.
    """
    if call_cache.is_traced() or not call_cache.is_undisturbed():
        return None
    a, b, bias, activation, residual, alpha, beta, c, scale_a, scale_b, out, out_dtype, _ = call
    table, given = call_cache.table, (bias, residual, c, scale_a, scale_b)
    try:
        key = (
            a.shape,
            b.shape,
            activation,
            out_dtype,
            alpha is None,
            out is None,
            *[x is None for x in given],
        )
        some = table.fused.get(key)
    except (AttributeError, RuntimeError, TypeError):  # other types, or no shape, which are checked elsewhere
        return None
    if some is None or table.changes != providers.changes + settings.changes:
        return None
    tensors = [a, b, *[x for x in given if x is not None]]
    if out is not None:
        tensors.append(out)
    for known in some:
        if known.guards(*tensors):
            break
    else:
        return None
    if (known.graded and torch.is_grad_enabled()) or (known.tf32 is not None and known.tf32 is not tf32_allowed()):
        return None
    if known.ordinal >= 0 and call_cache.current_gpu() != known.ordinal:
        return None
    scalars: tuple[float, ...] = ()
    if alpha is not None:
        if type(alpha) not in _NUMBERS or not -TOO_LARGE < alpha < TOO_LARGE:
            return None
        scalars = (alpha,)
    if c is not None:
        beta = 1.0 if beta is None else beta
        scalars = (*scalars, beta)
    if beta is not None and (c is None or type(beta) not in _NUMBERS or not -TOO_LARGE < beta < TOO_LARGE):
        return None
    result = known.allocate(known.shape, known.steps, known.dtype) if out is None else out
    every = (a, b, *given, result)
    addresses = tuple([every[place].data_ptr() for place in known.order])  # type: ignore[union-attr]
    for address, align_mask in zip(addresses, known.align_mask, strict=True):
        if address & align_mask or not address:  # 0: its memory was freed
            return None
    if out is not None:
        known.check_addresses(addresses)
    known.launch_on_current_context(addresses, scalars, known.stream(known.ordinal))
    if out is not None:
        call_cache.count_write(out)
    return result


def memoize_fused(call: Call, result: Tensor) -> None:
    """Let `quick_fused` know a call that was just made."""
    if call.aux or (known := call_cache.known_here(call)) is None:
        return
    given = (call.bias, call.residual, call.c, call.scale_a, call.scale_b)
    tensors = [call.a, call.b, *[x for x in given if x is not None]]
    if call.out is not None:
        tensors.append(call.out)
    guards = guards_of(tensors)
    if not guards(*tensors):
        return
    nothing = [x is None for x in given]
    shapes = (call.a.shape, call.b.shape, call.activation, call.out_dtype)
    key = (*shapes, call.alpha is None, call.out is None, *nothing)
    made = Fused(known, call, guards, result)
    call_cache.table.fused[key] = with_latest(call_cache.table.fused.get(key, ()), made, tensors)
