"""Calls that were made before: one look-up by the tensors' attributes, then the launch.

What depends on attributes was judged by the first call. Addresses are looked at each time: how they are aligned, and
where an `out` is given, whether it lies apart. Whatever is out of the ordinary goes the thorough way again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from cutegen.dispatch.providers import providers
from cutegen.dispatch.ready import Ready, ordered
from cutegen.dispatch.resolve import Resolved
from cutegen.dispatch.settings import settings
from cutegen.torch_ops.call import Call
from cutegen.torch_ops.switches import tf32_allowed

_REMEMBERED_CALLS = 1024

# Names of their own, because every call looks each of them up.
_is_compiling = torch.compiler.is_compiling
_is_grad_enabled = torch.is_grad_enabled
_autocasts_on_gpus = torch.is_autocast_enabled
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._is_torch_function_mode_enabled
_functorch = torch._C._are_functorch_transforms_active
_forward_ad = torch.autograd.forward_ad
_count_write = torch.autograd.graph.increment_version
_Parameter = torch.nn.Parameter
_F32 = torch.float32


class _Known(NamedTuple):
    """What is left to do for a call that was made before.

    `low` are the address bits that must be 0 and `spans` the bytes from the first to the last element, in the order of
    `names`, which is the kernel's: a, b, out, and others.
    `ordinal` is the GPU's, -1 for the executor.
    """

    launch: Callable[[tuple[int, ...], tuple[float, ...], int], object]
    check_addresses: Callable[[tuple[int, ...]], None]
    low: tuple[int, ...]
    spans: tuple[int, ...]
    names: tuple[str, ...]
    allocate: Callable[[], Tensor]
    stream: Callable[[int], int]
    ordinal: int


class _Table(threading.local):
    """The calls that a thread has made: a launch's parameter block is not to be shared."""

    def __init__(self) -> None:
        self.known: dict[tuple[object, ...], _Known] = {}
        self.changes = -1


_table = _Table()


def nobody_elses(a: Tensor, b: Tensor, bias: Tensor | None) -> bool:
    """Return whether the operands are plain tensors without gradients, with nothing of torch's in between but
    autocast.
    """
    of_a, of_b = type(a), type(b)
    if (of_a is not Tensor and of_a is not _Parameter) or (of_b is not Tensor and of_b is not _Parameter):
        return False
    wants_grad = a.requires_grad or b.requires_grad
    if bias is not None:
        if type(bias) is not _Parameter and type(bias) is not Tensor:
            return False
        wants_grad = wants_grad or bias.requires_grad
    return not (
        (wants_grad and _is_grad_enabled())
        or _dispatch_modes()
        or _function_modes()
        or _functorch()
        or _forward_ad._current_level >= 0
    )


def quick(a: Tensor, b: Tensor, bias: Tensor | None, activation: str | None, out: Tensor | None) -> Tensor | None:
    """The result of `activation(a @ b + bias)`, if such a call was made before with such tensors; else None.

    Written out, because this is all that a small call costs beside its launch.
    """
    if _is_compiling() or _autocasts_on_gpus() or not nobody_elses(a, b, bias):
        return None
    dtype, table = a.dtype, _table
    key: tuple[object, ...] = (a.shape, a.stride(), dtype, a.device, b.shape, b.stride(), b.dtype, b.device, activation)
    if bias is not None:
        key = (*key, bias.shape, bias.stride(), bias.dtype, bias.device)
    if out is not None:
        if type(out) is not Tensor or out.requires_grad or out.is_neg():
            return None
        key = (*key, None, out.shape, out.stride(), out.dtype, out.device)
    known = table.known.get((*key, tf32_allowed()) if dtype is _F32 else key)
    if known is None or table.changes != providers.changes + settings.changes or a.is_neg() or b.is_neg():
        return None
    launch, _, low, spans, _, allocate, stream, ordinal = known
    if ordinal < 0 and torch.is_autocast_enabled("cpu"):
        return None
    result = allocate() if out is None else out
    at_a, at_b, at_out = a.data_ptr(), b.data_ptr(), result.data_ptr()
    if at_a & low[0] or at_b & low[1] or at_out & low[2]:
        return None
    addresses: tuple[int, ...] = (at_a, at_b, at_out)
    if bias is not None:
        at_bias = bias.data_ptr()
        if at_bias & low[3] or bias.is_neg():
            return None
        addresses = (at_a, at_b, at_out, at_bias)
    if out is None:
        launch(addresses, (), stream(ordinal))
        return result
    end = at_out + spans[2]
    apart = (end <= at_a or at_a + spans[0] <= at_out) and (end <= at_b or at_b + spans[1] <= at_out)
    if not apart or (bias is not None and at_bias < end and at_out < at_bias + spans[3]):
        return None
    launch(addresses, (), stream(ordinal))
    _count_write(out)
    return result


def _key(call: Call) -> tuple[object, ...]:
    """All that a call's kernel and launch depend on but the addresses; of simple calls as `quick` makes it."""
    a, b, bias, out = call.a, call.b, call.bias, call.out
    key: tuple[object, ...] = (a.shape, a.stride(), a.dtype, a.device, b.shape, b.stride(), b.dtype, b.device)
    key = (*key, call.activation)
    if bias is not None:
        key = (*key, *_attributes(bias))
    if out is not None:
        key = (*key, None, *_attributes(out))
    if call.has_more:
        others = (call.residual, call.c, call.scale_a, call.scale_b)
        key = (*key, *[None if x is None else _attributes(x) for x in others])
        key = (*key, call.alpha is None, call.out_dtype, call.aux)
    return (*key, tf32_allowed()) if a.dtype is _F32 else key


def _attributes(x: Tensor) -> tuple[object, ...]:
    return x.shape, x.stride(), x.dtype, x.device


def again(call: Call) -> tuple[Tensor, Tensor | None] | None:
    """The result of a call like one that was made before; None where it must go the thorough way."""
    known = _table.known.get(_key(call))
    if known is None or _table.changes != providers.changes + settings.changes:
        return None
    tensors = call.tensors
    if any(tensor.is_neg() for tensor in tensors.values()):
        return None
    out = tensors["out"] if call.out is not None else known.allocate()
    aux = known.allocate() if call.aux else None
    addresses = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    addresses["out"] = out.data_ptr()
    if aux is not None:
        addresses["aux"] = aux.data_ptr()
    pointers = tuple([addresses[name] for name in known.names])
    if any(pointer & low for pointer, low in zip(pointers, known.low, strict=True)):
        return None
    if call.out is not None:
        known.check_addresses(pointers)
    known.launch(pointers, ordered(call.scalars), known.stream(known.ordinal))
    if call.out is not None:
        _count_write(out)
    return out, aux


def _no_stream(ordinal: int) -> int:
    """Of the executor, which is done when it returns."""
    return 0


def remember(call: Call, resolved: Resolved, ready: Ready, out: Tensor) -> None:
    """Know a call of this form from now on."""
    changes = providers.changes + settings.changes
    if _table.changes != changes or len(_table.known) >= _REMEMBERED_CALLS:
        _table.known, _table.changes = {}, changes
    launch = ready.prepared.launch
    assert launch is not None
    _table.known[_key(call)] = _Known(
        launch=launch,
        check_addresses=ready.prepared.check_addresses,
        low=tuple(resolved.placements[name].matrix.align_bytes - 1 for name in ready.names),
        spans=tuple(each.span_bytes for each in ready.prepared.placed),
        names=ready.names,
        allocate=partial(torch.empty, out.shape, dtype=out.dtype, device=out.device),
        stream=torch._C._cuda_getCurrentRawStream if out.is_cuda else _no_stream,
        ordinal=out.device.index if out.is_cuda else -1,
    )
