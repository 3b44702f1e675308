"""Fast path for repeated calls with torch tensors: guards recognize them, so no views are made.

Views and their lookup are half of a small call's host time. The properties that guards see were checked on the first
call; addresses, overlap and forward-mode AD are checked each time. Every unusual call is left to the slow path, which
finds the reason.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from cutegen.run.call.check import CheckedCall
from cutegen.run.call.dynamo import Guards, Known, guards_of, with_latest
from cutegen.run.call.operands import count_write
from cutegen.run.call.streams import stream_handle

_REMEMBERED_SHAPES = 256

Launch = Callable[[tuple[int, ...], tuple[float, ...], int], object]
"""Takes the addresses in the contract's order, the values of its scalars, and a stream."""


class QuickCalls:
    """The calls `kernel(a, b, out=)` that one thread has made with tensors of one GPU."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], list[_Known]] = {}

    def __call__(self, a: Any, b: Any, out: Any, stream: Any) -> Any:
        """Launch a known call and return its result; None if it must take the slow path."""
        try:
            some = self._known.get((a.shape, b.shape, out is None))
        except (AttributeError, RuntimeError, TypeError):  # not torch tensors, or some without a shape
            return None
        if some is None:
            return None
        for known in some:
            if known.guards(a, b) if out is None else known.guards(a, b, out):
                break
        else:
            return None
        if known.forward_ad._current_level >= 0:
            return None
        given = out
        if out is None:
            if stream is not None:  # memory for the result belongs to that stream
                return None
            out = known.allocate()
        at_a, at_b, at_out = a.data_ptr(), b.data_ptr(), out.data_ptr()
        end = at_out + known.span_out
        apart = (end <= at_a or at_a + known.span_a <= at_out) and (end <= at_b or at_b + known.span_b <= at_out)
        aligned = not (at_a & known.align_mask_a or at_b & known.align_mask_b or at_out & known.align_mask_out)
        if not (apart and aligned and at_a and at_b and at_out):
            return None
        known.launch((at_a, at_b, at_out), (), known.stream() if stream is None else stream_handle(stream))
        if given is not None:
            count_write(out)
        return out

    def remember(self, a: Any, b: Any, out: Any, result: Any, call: CheckedCall, launch: Launch) -> None:
        """Remember this call: `out` as it was passed, `result` as it was returned."""
        tensors = [a, b] if out is None else [a, b, out]
        if not (guards := _known_again(tensors)):
            return
        span_a, span_b, span_out = (placed.span_bytes for placed in call.placed.values())
        align_mask_a, align_mask_b, align_mask_out = (
            placed.tensor.contract.align_bytes - 1 for placed in call.placed.values()
        )
        known = _Known(
            guards=guards,
            launch=launch,
            span_a=span_a,
            span_b=span_b,
            span_out=span_out,
            align_mask_a=align_mask_a,
            align_mask_b=align_mask_b,
            align_mask_out=align_mask_out,
            allocate=_allocator(result),
            stream=partial(sys.modules["torch"]._C._cuda_getCurrentRawStream, call.device[1]),
            forward_ad=sys.modules["torch"].autograd.forward_ad,
        )
        _keep(self._known, (a.shape, b.shape, out is None), known, tensors)


class QuickFusedCalls:
    """The calls of one thread with epilogue operands, with tensors of one GPU.

    Their number varies, so they are checked in loops, which plain calls avoid.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], list[_KnownFused]] = {}

    def __call__(
        self, a: Any, b: Any, out: Any, stream: Any, named: Sequence[tuple[str, Any]], scalars: tuple[float, ...]
    ) -> Any:
        """Launch a known call and return its result; None if it must take the slow path.

        Raises OperandError for addresses that do not fit.
        """
        try:
            some = self._known.get((a.shape, b.shape, out is None, len(named)))
        except (AttributeError, RuntimeError, TypeError):  # not torch tensors, or some without a shape
            return None
        if some is None or (out is None and stream is not None):
            return None
        tensors = [a, b, *[tensor for _, tensor in named]]
        if out is not None:
            tensors.append(out)
        for known in some:
            if known.guards(*tensors):
                break
        else:
            return None
        if known.forward_ad._current_level >= 0:
            return None
        result = known.allocate() if out is None else out
        pointers = tuple([x.data_ptr() for x in (a, b, result, *tensors[2 : 2 + len(named)])])
        if 0 in pointers:
            return None
        known.check_addresses(pointers)
        known.launch(pointers, scalars, known.stream() if stream is None else stream_handle(stream))
        known.announce((out, *[tensor for name, tensor in named if name == "aux"]), pointers)
        return result

    def remember(
        self, a: Any, b: Any, out: Any, result: Any, named: Sequence[tuple[str, Any]], known: Prepared
    ) -> None:
        """Remember this call: `out` as it was passed, `result` as it was returned."""
        assert known.launch is not None
        tensors = [a, b, *[tensor for _, tensor in named], *([] if out is None else [out])]
        if not (guards := _known_again(tensors)):
            return
        made = _KnownFused(
            guards=guards,
            launch=known.launch,
            check_addresses=known.check_addresses,
            announce=known.announce,
            allocate=_allocator(result),
            stream=partial(sys.modules["torch"]._C._cuda_getCurrentRawStream, known.call.device[1]),
            forward_ad=sys.modules["torch"].autograd.forward_ad,
        )
        _keep(self._known, (a.shape, b.shape, out is None, len(named)), made, tensors)


def _known_again(tensors: list[Any]) -> Guards | None:
    """Return guards that recognize tensors; None if there are none.

    Without gradients, a tensor that requires them may be multiplied; its guards would accept it with gradients too.
    """
    guards = guards_of(tensors)
    return None if any(x.requires_grad for x in tensors) or not guards(*tensors) else guards


def _allocator(result: Any) -> Callable[[], Any]:
    """Return a function that makes another tensor like `result`."""
    like = {"dtype": result.dtype, "device": result.device}
    return partial(sys.modules["torch"].empty_strided, result.shape, result.stride(), **like)


def _keep(table: dict[tuple[object, ...], list[Known]], key: tuple[object, ...], made: Known, tensors: Any) -> None:
    if len(table) >= _REMEMBERED_SHAPES:
        table.clear()
    table[key] = with_latest(table.get(key, ()), made, tensors)


class Prepared(Protocol):
    """Knowledge about a call that took the slow path."""

    @property
    def call(self) -> CheckedCall: ...
    @property
    def launch(self) -> Launch | None: ...
    def check_addresses(self, pointers: tuple[int, ...]) -> None:
        """Raise OperandError for addresses that do not fit."""

    def announce(self, written: tuple[Any, ...], pointers: tuple[int, ...]) -> None:
        """Record what the call writes; None is not a tensor of the caller."""


class _KnownFused(NamedTuple):
    """Work that remains for a known call."""

    guards: Guards
    launch: Launch
    check_addresses: Callable[[tuple[int, ...]], None]
    announce: Callable[[tuple[Any, ...], tuple[int, ...]], None]
    allocate: Callable[[], Any]
    stream: Callable[[], int]
    forward_ad: Any


class _Known(NamedTuple):
    """Work that remains for a known call: bytes from each first to each last element, address bits that must be 0."""

    guards: Guards
    launch: Launch
    span_a: int
    span_b: int
    span_out: int
    align_mask_a: int
    align_mask_b: int
    align_mask_out: int
    allocate: Callable[[], Any]
    stream: Callable[[], int]
    forward_ad: Any
