"""A call with torch tensors again: known by the tensors' own attributes, so that no views are made for it.

Views and their look-up are half of what a small call costs the host. What depends on attributes was checked when the
call was first made; addresses, overlap and autograd are looked at each time, and whatever is out of the ordinary is
left to the thorough way, which knows the reason.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from cutegen.run.call.check import CheckedCall
from cutegen.run.call.operands import count_write, differs_from_memory
from cutegen.run.call.streams import stream_handle

_REMEMBERED_CALLS = 256

Launch = Callable[[tuple[int, ...], tuple[float, ...], int], object]
"""Takes the addresses in the contract's order, the values of its scalars, and a stream."""


class QuickCalls:
    """The calls `kernel(a, b, out=)` that one thread has made with tensors of one GPU."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], _Known] = {}

    def __call__(self, a: Any, b: Any, out: Any, stream: Any) -> Any:
        """Launch a call that is known and give its result; None when it must go the thorough way."""
        try:
            known = self._known.get(_attributes(a, b, out))
        except (AttributeError, RuntimeError, TypeError):  # no torch tensors, or some without strides
            return None
        if known is None or known.unusual(a) or known.unusual(b):
            return None
        given = out
        if out is None:
            if stream is not None:  # memory for the result belongs to that stream
                return None
            out = known.allocate()
        elif known.unusual(out):
            return None
        at_a, at_b, at_out = a.data_ptr(), b.data_ptr(), out.data_ptr()
        end = at_out + known.span_out
        apart = (end <= at_a or at_a + known.span_a <= at_out) and (end <= at_b or at_b + known.span_b <= at_out)
        aligned = not (at_a & known.low_a or at_b & known.low_b or at_out & known.low_out)
        if not (apart and aligned and at_a and at_b and at_out):
            return None
        known.launch((at_a, at_b, at_out), (), known.stream() if stream is None else stream_handle(stream))
        if given is not None:
            count_write(out)
        return out

    def remember(self, a: Any, b: Any, out: Any, result: Any, call: CheckedCall, launch: Launch) -> None:
        """Know this call from now on: `out` as it was handed in, `result` what came of it."""
        if len(self._known) >= _REMEMBERED_CALLS:
            self._known.clear()
        torch = sys.modules["torch"]
        span_a, span_b, span_out = (placed.span_bytes for placed in call.placed.values())
        low_a, low_b, low_out = (placed.tensor.contract.align_bytes - 1 for placed in call.placed.values())
        like_result = {"dtype": result.dtype, "device": result.device}
        self._known[_attributes(a, b, out)] = _Known(
            launch=launch,
            span_a=span_a,
            span_b=span_b,
            span_out=span_out,
            low_a=low_a,
            low_b=low_b,
            low_out=low_out,
            allocate=partial(torch.empty_strided, result.shape, result.stride(), **like_result),
            stream=partial(torch._C._cuda_getCurrentRawStream, call.device[1]),
            forward_ad=torch.autograd.forward_ad,
        )


class QuickFusedCalls:
    """The calls of one thread that hand in what the epilogue takes, with tensors of one GPU.

    Their number is open, so that all of them are looked at in loops, which plain calls are spared.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], _KnownFused] = {}

    def __call__(
        self, a: Any, b: Any, out: Any, stream: Any, named: Sequence[tuple[str, Any]], scalars: tuple[float, ...]
    ) -> Any:
        """Launch a call that is known and give its result; None when it must go the thorough way.

        Raises OperandError for addresses that do not fit.
        """
        extras = [tensor for _, tensor in named]
        try:
            known = self._known.get(_attributes_of_all(a, b, *extras, out))
        except (AttributeError, RuntimeError, TypeError):  # no torch tensors, or some without strides
            return None
        if known is None or (out is None and stream is not None):
            return None
        result = known.allocate() if out is None else out
        tensors = [a, b, result, *extras]
        for tensor in tensors:
            if tensor.requires_grad or differs_from_memory(tensor, known.forward_ad):
                return None
        pointers = tuple([tensor.data_ptr() for tensor in tensors])
        if 0 in pointers:
            return None
        known.check_addresses(pointers)
        known.launch(pointers, scalars, known.stream() if stream is None else stream_handle(stream))
        known.announce((out, *[tensor for name, tensor in named if name == "aux"]), pointers)
        return result

    def remember(
        self, a: Any, b: Any, out: Any, result: Any, named: Sequence[tuple[str, Any]], known: Prepared
    ) -> None:
        """Know this call from now on: `out` as it was handed in, `result` what came of it."""
        assert known.launch is not None
        if len(self._known) >= _REMEMBERED_CALLS:
            self._known.clear()
        torch = sys.modules["torch"]
        extras = [tensor for _, tensor in named]
        self._known[_attributes_of_all(a, b, *extras, out)] = _KnownFused(
            launch=known.launch,
            check_addresses=known.check_addresses,
            announce=known.announce,
            allocate=partial(
                torch.empty_strided, result.shape, result.stride(), dtype=result.dtype, device=result.device
            ),
            stream=partial(torch._C._cuda_getCurrentRawStream, known.call.device[1]),
            forward_ad=torch.autograd.forward_ad,
        )


class Prepared(Protocol):
    """Memory of a call that went the thorough way."""

    @property
    def call(self) -> CheckedCall: ...
    @property
    def launch(self) -> Launch | None: ...
    def check_addresses(self, pointers: tuple[int, ...]) -> None:
        """Raises OperandError."""

    def announce(self, written: tuple[Any, ...], pointers: tuple[int, ...]) -> None:
        """Tell of what the call writes; None is no tensor of the caller's."""


class _KnownFused(NamedTuple):
    """Work left for a known call."""

    launch: Launch
    check_addresses: Callable[[tuple[int, ...]], None]
    announce: Callable[[tuple[Any, ...], tuple[int, ...]], None]
    allocate: Callable[[], Any]
    stream: Callable[[], int]
    forward_ad: Any


class _Known(NamedTuple):
    """Work left for a known call: bytes from each first to each last element, address bits that must be 0."""

    launch: Launch
    span_a: int
    span_b: int
    span_out: int
    low_a: int
    low_b: int
    low_out: int
    allocate: Callable[[], Any]
    stream: Callable[[], int]
    forward_ad: Any

    def unusual(self, tensor: Any) -> bool:
        """Return whether there is more to a tensor than its attributes and its memory say."""
        return tensor.requires_grad or differs_from_memory(tensor, self.forward_ad)


def _attributes_of_all(*tensors: Any) -> tuple[object, ...]:
    """All of the tensors but their addresses; a result that is not given has none."""
    return tuple([None if x is None else (x.shape, x.stride(), x.dtype, x.device) for x in tensors])


def _attributes(a: Any, b: Any, out: Any) -> tuple[object, ...]:
    """All of the tensors but their addresses. Raises AttributeError for no tensor, RuntimeError for a sparse one."""
    inputs = (a.shape, a.stride(), a.dtype, a.device, b.shape, b.stride(), b.dtype, b.device)
    return inputs if out is None else (*inputs, out.shape, out.stride(), out.dtype, out.device)
