"""Repeated calls: one lookup by the tensors' attributes, then the launch.

`lookup` knows simple calls, by shapes and Dynamo guards; `replay` knows all calls, by every attribute.

The first call checks everything that depends on attributes. Each call checks addresses: their alignment, and whether
`out` overlaps an operand. Every unusual call takes the slow path again. A call whose addresses allow only narrow
accesses has a kernel that serves better aligned ones slowly: it is known to `replay` alone, by its alignment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cutegen.dispatch.placement import VECTOR_BYTES, is_narrowed
from cutegen.dispatch.prepared_call import ServedCall, ordered_scalars
from cutegen.dispatch.providers import providers
from cutegen.dispatch.resolve import Resolved
from cutegen.dispatch.settings import settings
from cutegen.run.call.dynamo import guards_of, with_latest
from cutegen.torch_ops.call import Call, Like
from cutegen.torch_ops.switches import tf32_allowed

_REMEMBERED_CALLS = 1024
_MATRICES = frozenset({"a", "b", "out", "c", "residual"})

# Local names, because every call looks each of them up.
is_traced = torch.compiler.is_dynamo_compiling
"""From Dynamo. A tracer that uses modes shows among those, which is cheaper than querying all tracers."""
_is_grad_enabled = torch.is_grad_enabled
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._is_torch_function_mode_enabled
_functorch = torch._C._are_functorch_transforms_active
_forward_ad = torch.autograd.forward_ad
count_write = torch.autograd.graph.increment_version
_F32 = torch.float32
_dynamos: Any = torch._C._dynamo.guards
_has_guards = all(hasattr(_dynamos, name) for name in ("TensorGuards", "_empty_strided_cpu", "_empty_strided_cuda"))
"""Not part of torch's public API: if a version lacks them, calls use `replay`."""
_on_gpus = hasattr(torch._C, "_cuda_getDevice")
current_gpu: Callable[[], int] = torch._C._cuda_getDevice if _on_gpus else lambda: -1


class Known(NamedTuple):
    """Remaining work of a call that was made before.

    `align_mask` are the address bits that must be 0 and `spans` the bytes from the first to the last element, in the
    order of `names`, which is the kernel's: a, b, out, and others. `ordinal` is the GPU's, -1 for the executor. With
    `narrowed`, a matrix is aligned less than its strides allow.
    """

    launch: Callable[[tuple[int, ...], tuple[float, ...], int], object]
    check_addresses: Callable[[tuple[int, ...]], None]
    align_mask: tuple[int, ...]
    spans: tuple[int, ...]
    names: tuple[str, ...]
    allocate: Callable[[], Tensor]
    stream: Callable[[int], int]
    ordinal: int
    narrowed: bool


class CachedCall:
    """Remaining work of a simple call: `activation(a @ b + bias)`, with or without `out`.

    `guards` are Dynamo's, in C++: they compare shapes, strides, types, devices and dispatch keys, which show autocast,
    functorch and the negative bit. `align_mask` are the address bits of a, b and out that must be 0. Memory is
    allocated and `launch_on_current_context` launches while the tensors' GPU, `ordinal`, is the current one; -1 is the
    executor. `recorded` is True if autograd records the call: the kernel then also stores the value before the
    activation if `aux` requests it. The gradient of the other operand then `needs_a` or `needs_b`; gradients are
    `like_a` and `like_b`.
    """

    __slots__ = (
        *(
            "activation",
            "b_transposed",
            "allocate",
            "launch_on_current_context",
            "aux",
            "dtype",
            "dtype_bias",
            "guards",
            "like_a",
            "like_b",
        ),
        *(
            "align_mask",
            "align_mask_bias",
            "needs_a",
            "needs_b",
            "ordinal",
            "recorded",
            "shape",
            "span_a",
            "span_b",
            "span_bias",
        ),
        *("span_out", "steps", "stream", "tf32"),
    )

    def __init__(self, known: Known, call: Call, tensors: list[Tensor], out: Tensor, *, b_transposed: bool) -> None:
        self.guards = guards_of(tensors)
        self.activation, self.aux, self.b_transposed = call.activation, call.aux, b_transposed
        self.recorded, self.dtype_bias = call.wants_grad, None if call.bias is None else call.bias.dtype
        self.like_a, self.like_b = Like.of(call.a), Like.of(call.b)
        self.needs_a, self.needs_b = call.b.requires_grad, call.a.requires_grad
        self.tf32 = tf32_allowed() if tensors[0].dtype is _F32 else None
        self.launch_on_current_context, self.ordinal = (
            getattr(known.launch, "launch_on_current_context", known.launch),
            known.ordinal,
        )
        self.allocate, self.stream = allocator(known.ordinal), known.stream
        self.shape, self.steps, self.dtype = tuple(out.shape), out.stride(), out.dtype
        self.align_mask, self.align_mask_bias = max(known.align_mask[:3]), (*known.align_mask, 0)[3]
        self.span_a, self.span_b, self.span_out, self.span_bias = (*known.spans, 0)[:4]


class _Table(threading.local):
    """The calls that a thread has made: threads must not share a launch's parameter block."""

    def __init__(self) -> None:
        self.known: dict[tuple[object, ...], Known] = {}
        self.simple: dict[tuple[object, ...], list[CachedCall]] = {}
        self.fused: dict[tuple[object, ...], list[Any]] = {}
        self.changes = -1

    def renew(self) -> None:
        """Forget calls that other providers or settings served, and all calls if there are too many."""
        changes = providers.changes + settings.changes
        most = max(len(self.known), len(self.simple), len(self.fused))
        if self.changes != changes or most >= _REMEMBERED_CALLS:
            self.known, self.simple, self.fused, self.changes = {}, {}, {}, changes


table = _Table()


def allocator(ordinal: int) -> Callable[..., Tensor]:
    """Return an allocator for the current GPU, or the host for -1, without the dispatcher, as Inductor does."""
    found: Callable[..., Tensor] = _dynamos._empty_strided_cuda if ordinal >= 0 else _dynamos._empty_strided_cpu
    return found


def is_undisturbed() -> bool:
    """Return whether only autocast and autograd intervene between a call and its kernel."""
    return not (_dispatch_modes() or _function_modes() or _functorch() or _forward_ad._current_level >= 0)


def quick(a: Tensor, b: Tensor, bias: Tensor | None, activation: str | None) -> Tensor | None:
    """Return the result of `activation(a @ b + bias)` if such a call was made before with such tensors; else None.

    Also None for calls that autograd records.
    """
    known = lookup(a, b, bias, activation, None, b_transposed=False)
    return None if known is None or known.recorded else launch(known, a, b, bias, None)


def lookup(
    a: Tensor, b: Tensor, bias: Tensor | None, activation: str | None, out: Tensor | None, b_transposed: bool
) -> CachedCall | None:
    """Look up a call of `activation(a @ b + bias)`; with `b_transposed`, B is `b` transposed. None if it is not known.

    Written out, like `launch`, because the two are the entire cost of a small call.
    """
    if is_traced():
        return None
    try:
        some = table.simple.get(
            (a.shape, b.shape, activation, bias is None, out is None, b_transposed, _is_grad_enabled())
        )
    except (AttributeError, RuntimeError, TypeError):  # other types, or no shape, which are checked elsewhere
        return None
    if some is None or table.changes != providers.changes + settings.changes:
        return None
    for known in some:
        if out is None:
            fits = known.guards(a, b) if bias is None else known.guards(a, b, bias)
        else:
            fits = known.guards(a, b, out) if bias is None else known.guards(a, b, out, bias)
        if fits:
            break
    else:
        return None
    if _dispatch_modes() or _function_modes() or _forward_ad._current_level >= 0:  # functorch shows in guards
        return None
    if known.tf32 is not None and known.tf32 is not tf32_allowed():
        return None
    return known if known.ordinal < 0 or current_gpu() == known.ordinal else None


def launch(
    known: CachedCall, a: Tensor, b: Tensor, bias: Tensor | None, out: Tensor | None, aux: Tensor | None = None
) -> Tensor | None:
    """Return the result of a known call; None if addresses do not meet the kernel's requirements.

    The value before the activation goes to `aux` if `known.aux` requests it.
    """
    result = known.allocate(known.shape, known.steps, known.dtype) if out is None else out
    at_a, at_b, at_out = a.data_ptr(), b.data_ptr(), result.data_ptr()
    if (at_a | at_b | at_out) & known.align_mask or not (at_a and at_b and at_out):  # 0: its memory was freed
        return None
    addresses: tuple[int, ...] = (at_a, at_b, at_out)
    if bias is not None:
        at_bias = bias.data_ptr()
        if at_bias & known.align_mask_bias or not at_bias:
            return None
        addresses = (at_a, at_b, at_out, at_bias)
    if aux is not None:
        addresses = (*addresses, aux.data_ptr())
    if out is not None:
        end = at_out + known.span_out
        apart = (end <= at_a or at_a + known.span_a <= at_out) and (end <= at_b or at_b + known.span_b <= at_out)
        if not apart or (bias is not None and at_bias < end and at_out < at_bias + known.span_bias):
            return None
    known.launch_on_current_context(addresses, (), known.stream(known.ordinal))
    if out is not None:
        count_write(out)
    return result


def memoize(call: Call, result: Tensor, weight: Tensor | None = None) -> None:
    """Let `lookup` know a simple call that was just made; its B was `weight` transposed if that is given."""
    known = known_here(call)
    if known is None:
        return
    second = call.b if weight is None else weight
    key = (call.a.shape, second.shape, call.activation, call.bias is None, call.out is None, weight is not None)
    tensors = [x for x in (call.a, second, call.out, call.bias) if x is not None]
    made = CachedCall(known, call, tensors, result, b_transposed=weight is not None)
    if made.guards(*tensors):
        whole = (*key, _is_grad_enabled())
        table.simple[whole] = with_latest(table.simple.get(whole, ()), made, tensors)


def known_here(call: Call) -> Known | None:
    """Return the call's entry if it also serves better aligned tensors, and this thread's GPU is the entry's."""
    known = None if is_negative(call) or not _has_guards else table.known.get(_key(call))
    if known is not None and known.narrowed:
        return None
    if known is None or known.ordinal < 0 or (current_gpu() == known.ordinal and _is_context_current(known.launch)):
        return known
    return None


def is_negative(call: Call) -> bool:
    """Return whether a tensor has the negative bit, so that its memory does not hold its values."""
    return any(tensor.is_neg() for tensor in call.tensors.values())


def _is_context_current(launch: object) -> bool:
    """Return whether this thread's context is the GPU's; otherwise each launch checks it."""
    question = getattr(launch, "is_context_current", None)
    return question is None or question()


def _key(call: Call) -> tuple[object, ...]:
    """Return everything that a call's kernel and launch depend on, of the addresses only their alignment."""
    a, b, bias, out = call.a, call.b, call.bias, call.out
    key = (*_attributes(a), *_attributes(b), call.activation)
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
    address = x.data_ptr()
    return x.shape, x.stride(), x.dtype, x.device, address & -address & (VECTOR_BYTES - 1)


def replay(call: Call) -> tuple[Tensor, Tensor | None] | None:
    """Return the result of a call like an earlier one; None if it must take the slow path."""
    try:
        known = table.known.get(_key(call))
    except RuntimeError:  # no address, as of sparse tensors, which are checked elsewhere
        return None
    if known is None or table.changes != providers.changes + settings.changes:
        return None
    if is_negative(call) or _forward_ad._current_level >= 0:  # the slow path rejects tangents
        return None
    tensors = call.tensors
    out = tensors["out"] if call.out is not None else known.allocate()
    aux = known.allocate() if call.aux else None
    addresses = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    addresses["out"] = out.data_ptr()
    if aux is not None:
        addresses["aux"] = aux.data_ptr()
    pointers = tuple([addresses[name] for name in known.names])
    if 0 in pointers:  # its memory was freed; their alignment is in the key
        return None
    if call.out is not None:
        known.check_addresses(pointers)
    known.launch(pointers, ordered_scalars(call.scalars), known.stream(known.ordinal))
    if call.out is not None:
        count_write(out)
    return out, aux


def _no_stream(ordinal: int) -> int:
    """Return no stream: the executor is done when it returns."""
    return 0


def remember(call: Call, resolved: Resolved, ready: ServedCall, out: Tensor) -> None:
    """Remember calls of this form."""
    table.renew()
    launch = ready.prepared.launch
    assert launch is not None
    table.known[_key(call)] = Known(
        launch=launch,
        check_addresses=ready.prepared.check_addresses,
        align_mask=tuple(resolved.placements[name].matrix.align_bytes - 1 for name in ready.names),
        spans=tuple(each.span_bytes for each in ready.prepared.placed),
        names=ready.names,
        allocate=partial(torch.empty, out.shape, dtype=out.dtype, device=out.device),
        stream=torch._C._cuda_getCurrentRawStream if out.is_cuda else _no_stream,
        ordinal=out.device.index if out.is_cuda else -1,
        narrowed=any(
            is_narrowed(name, resolved.placements[name], any_rows=resolved.request.batch_invariant)
            for name in ready.names
            if name in _MATRICES
        ),
    )
