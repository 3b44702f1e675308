"""Repeated calls: what was decided on the first one is looked up, and replayed on the new addresses.

    quick(a, b, ...)    by shapes and Dynamo guards: `activation(a @ b + bias)`
    quick_terms(call)   by shapes and Dynamo guards: any terms
    replay(call)        by every attribute of the tensors, and the alignment of their addresses: any call

The first call checks everything that depends on attributes, each call what depends on addresses
(`cutegen.run.call.cached_calls.replay`). Every unusual call takes the slow path. A call whose addresses allow only
narrow accesses has a kernel that serves better aligned ones slowly: it is known by its alignment alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cutegen.dispatch.placement import is_narrowed
from cutegen.dispatch.prepared_call import ServedCall, ordered_scalars
from cutegen.dispatch.providers import providers
from cutegen.dispatch.resolve import Resolved
from cutegen.dispatch.settings import settings
from cutegen.run.call import cached_calls
from cutegen.run.call.cached_calls import CACHED_SHAPES, CachedCall, Guarded, keep
from cutegen.run.call.epilogue_operands import TOO_LARGE
from cutegen.torch_ops.call import AnyCall, Call, Like
from cutegen.torch_ops.switches import tf32_allowed

_MATRICES = frozenset({"a", "b", "out", "c", "residual"})
_ALWAYS = ("a", "b", "out")
_NUMBERS = frozenset({float, int})
_RESULT = 2

# Local names, because every call looks each of them up.
is_traced = torch.compiler.is_dynamo_compiling
"""Dynamo's own test. A tracer that uses modes shows among those, which is cheaper than querying all tracers."""
_is_grad_enabled = torch.is_grad_enabled
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._is_torch_function_mode_enabled
_functorch = torch._C._are_functorch_transforms_active
_forward_ad = torch.autograd.forward_ad
count_write = torch.autograd.graph.increment_version
launch_again = cached_calls.replay
_F32 = torch.float32
_dynamos: Any = torch._C._dynamo.guards
_has_guards = all(hasattr(_dynamos, name) for name in ("TensorGuards", "_empty_strided_cpu", "_empty_strided_cuda"))
"""True if this torch has the guards, which are no part of its public API: without them calls use `replay`."""
_on_gpus = hasattr(torch._C, "_cuda_getDevice")
_current_gpu: Callable[[], int] = torch._C._cuda_getDevice if _on_gpus else lambda: -1


@dataclass(frozen=True, slots=True, eq=False)
class ByAttributes:
    """A call that is found by its attributes: `names` are those of its tensors beside A, B and the result, in order.

    With `narrowed`, a matrix is aligned less than its strides allow.
    """

    call: CachedCall
    names: tuple[str, ...]
    narrowed: bool


@dataclass(frozen=True, slots=True, eq=False)
class ByGuards:
    """A call that is found by guards: `ordinal` is the GPU that must be the current one, -1 for the executor.

    Its launch and its allocator rely on that. `changes` counts those of providers and settings before it, `tf32` is
    torch's switch if it matters, and `graded` is set if autograd records the call.
    """

    call: CachedCall
    ordinal: int
    changes: int
    tf32: bool | None
    names: tuple[str, ...]
    graded: Graded | None


@dataclass(frozen=True, slots=True, eq=False)
class Graded:
    """Needs of the gradients of `activation(a @ b + bias)`; with `b_transposed`, B is `b` transposed.

    The kernel also stores the value before the activation if `aux` requests it. The gradient of the other operand
    `needs_a` or `needs_b`; gradients are `like_a` and `like_b`.
    """

    activation: str | None
    b_transposed: bool
    aux: bool
    needs_a: bool
    needs_b: bool
    like_a: Like
    like_b: Like
    bias_dtype: torch.dtype | None


class _Table(threading.local):
    """The calls that a thread has made: threads must not share a launch's parameter block."""

    def __init__(self) -> None:
        self.by_attributes: dict[tuple[object, ...], ByAttributes] = {}
        self.by_guards: dict[tuple[object, ...], list[Guarded[ByGuards]]] = {}
        self.changes = -1

    def renew(self) -> None:
        """Forget calls that other providers or settings served, and all calls if there are too many."""
        changes = providers.changes + settings.changes
        if self.changes != changes or len(self.by_attributes) >= CACHED_SHAPES:
            self.by_attributes, self.by_guards, self.changes = {}, {}, changes


table = _Table()


def is_undisturbed() -> bool:
    """Return whether only autocast and autograd intervene between a call and its kernel."""
    return not (_dispatch_modes() or _function_modes() or _functorch() or _forward_ad._current_level >= 0)


def quick(a: Tensor, b: Tensor, bias: Tensor | None, activation: str | None) -> Tensor | None:
    """Return the result of `activation(a @ b + bias)` if such a call was made before with such tensors; else None.

    Also None for calls that autograd records.
    """
    known = lookup((a, b) if bias is None else (a, b, bias), (activation, bias is None, True, False))
    if known is None or known.graded is not None:
        return None
    found: Tensor | None = launch_again(known.call, a, b, None, () if bias is None else (bias,))
    return found


def lookup(tensors: tuple[Any, ...], terms: tuple[object, ...]) -> ByGuards | None:
    """Return what is known of a call with such tensors, which begin with A and B, and `terms`: all but values."""
    if is_traced():
        return None
    try:
        some = table.by_guards.get((tensors[0].shape, tensors[1].shape, terms, _is_grad_enabled()))
    except (AttributeError, RuntimeError, TypeError):  # other types, or no shape, which are checked elsewhere
        return None
    if some is None:
        return None
    for guards, known in some:  # noqa: B007
        if guards(*tensors):
            break
    else:
        return None
    if _dispatch_modes() or _function_modes() or _forward_ad._current_level >= 0:  # functorch shows in guards
        return None
    if known.changes != providers.changes + settings.changes:
        return None
    if known.tf32 is not None and known.tf32 is not tf32_allowed():
        return None
    return known if known.ordinal < 0 or _current_gpu() == known.ordinal else None


def quick_terms(call: Call) -> Tensor | None:
    """Return the result of a call with any terms if such a call was made before with such tensors; else None.

    Raises OperandError for an `out` that shares memory with another operand.
    """
    known = lookup(*_terms(call))
    if known is None or known.graded is not None or (scalars := _scalars(call)) is None:
        return None
    out = call.out
    beside = [getattr(call, name) for name in known.names]
    found: Tensor | None = launch_again(known.call, call.a, call.b, out, beside, scalars)
    if out is not None and found is not None:
        count_write(out)
    return found


def _terms(call: Call) -> tuple[tuple[Any, ...], tuple[object, ...]]:
    """Return a call's tensors and terms, for `lookup`."""
    a, b, bias, activation, residual, alpha, _, c, scale_a, scale_b, out, out_dtype, _, _, _, scale_m, scale_n = call
    tensors = (a, b, *[x for x in (bias, residual, c, scale_a, scale_b, out, scale_m, scale_n) if x is not None])
    missing: tuple[bool, ...]
    missing = (bias is None, residual is None, c is None, scale_a is None, scale_b is None, out is None)
    if scale_a is not None:
        missing = (*missing, scale_m is None, scale_n is None)
    return tensors, (activation, out_dtype, alpha is None, missing)


def _scalars(call: Call) -> tuple[float, ...] | None:
    """Return the numbers for the kernel; None if they are unusual."""
    alpha, beta, c = call.alpha, call.beta, call.c
    if c is not None and beta is None:
        beta = 1.0
    if (beta is None) is not (c is None):
        return None
    found = tuple([x for x in (alpha, beta) if x is not None])
    for each in found:
        if type(each) not in _NUMBERS or not -TOO_LARGE < each < TOO_LARGE:
            return None
    return found


def memoize(call: Call, result: Tensor, weight: Tensor | None = None) -> None:
    """Let guards find a call that was just made; its B was `weight` transposed if that is given."""
    if call.has_more and not call.aux:
        return keep_guards(call, result, *_terms(call), None)
    second = call.b if weight is None else weight
    tensors = [x for x in (call.a, second, call.bias, call.out) if x is not None]
    terms = (call.activation, call.bias is None, call.out is None, weight is not None)
    graded = Graded(
        activation=call.activation,
        b_transposed=weight is not None,
        aux=call.aux,
        needs_a=call.b.requires_grad,
        needs_b=call.a.requires_grad,
        like_a=Like.of(call.a),
        like_b=Like.of(call.b),
        bias_dtype=None if call.bias is None else call.bias.dtype,
    )
    return keep_guards(call, result, tuple(tensors), terms, graded if call.wants_grad else None)


def keep_guards(
    call: AnyCall, result: Tensor, tensors: tuple[Any, ...], terms: tuple[object, ...], graded: Graded | None
) -> None:
    """Let guards find a call by its tensors, A and B first, and `terms`, unless it was not remembered.

    That is kept if the call also serves better aligned tensors, and this thread's GPU is the call's.
    """
    if not _has_guards or is_negative(call) or (known := table.by_attributes.get(call.key)) is None:
        return
    cached = known.call
    on_gpu = cached.ordinal >= 0
    if known.narrowed or (on_gpu and not (_current_gpu() == cached.ordinal and _is_context_current(cached.launch))):
        return
    empty = _dynamos._empty_strided_cuda if on_gpu else _dynamos._empty_strided_cpu  # no dispatcher, as in Inductor
    cached = replace(
        cached,
        launch=getattr(cached.launch, "launch_on_current_context", cached.launch),
        allocate=partial(empty, tuple(result.shape), result.stride(), result.dtype),
    )
    tf32 = tf32_allowed() if call.a.dtype is _F32 else None
    made = ByGuards(cached, cached.ordinal, table.changes, tf32, known.names, graded)
    keep(table.by_guards, (tensors[0].shape, tensors[1].shape, terms, _is_grad_enabled()), made, tensors)


def is_negative(call: AnyCall) -> bool:
    """Return whether a tensor has the negative bit, so that its memory does not hold its values."""
    return any(tensor.is_neg() for tensor in call.tensors.values())


def _is_context_current(launch: object) -> bool:
    """Return whether this thread's context is the GPU's; otherwise each launch checks it."""
    question = getattr(launch, "is_context_current", None)
    return question is None or question()


def replay(call: AnyCall) -> tuple[Tensor, Tensor | None] | None:
    """Return the result of a call like an earlier one; None if it must take the slow path. Raises OperandError."""
    try:
        known = table.by_attributes.get(call.key)
    except RuntimeError:  # no address, as of sparse tensors, which are checked elsewhere
        return None
    if known is None or table.changes != providers.changes + settings.changes:
        return None
    if is_negative(call) or _forward_ad._current_level >= 0:  # the slow path rejects tangents
        return None
    aux = known.call.allocate() if call.aux else None
    beside = [aux if name == "aux" else getattr(call, name) for name in known.names]
    out = launch_again(known.call, call.a, call.b, call.out, beside, ordered_scalars(call.scalars))
    if out is None:
        return None
    if call.out is not None:
        count_write(out)
    return out, aux


def _no_stream(ordinal: int) -> int:
    """Return no stream: the executor is done when it returns."""
    return 0


def remember(call: AnyCall, resolved: Resolved, ready: ServedCall, out: Tensor) -> None:
    """Let `replay` find calls of this form."""
    table.renew()
    assert ready.names[:3] == _ALWAYS
    table.by_attributes[call.key] = ByAttributes(
        call=CachedCall.of(
            ready.prepared,
            given=() if call.out is None else (_RESULT,),
            allocate=partial(torch.empty, out.shape, dtype=out.dtype, device=out.device),
            stream=torch._C._cuda_getCurrentRawStream if out.is_cuda else _no_stream,
            ordinal=out.device.index if out.is_cuda else -1,
            aligned=[resolved.placements[name].matrix.align_bytes for name in ready.names],
        ),
        names=ready.names[3:],
        narrowed=any(
            is_narrowed(name, resolved.placements[name], any_rows=resolved.request.batch_invariant)
            for name in ready.names
            if name in _MATRICES
        ),
    )
