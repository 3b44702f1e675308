"""Finds the CUDA stream of a call."""

import sys
from typing import Any

from cutegen.errors import RequestError
from cutegen.run.call.operands import LEGACY_STREAM, Device, TensorView


def stream_handle(stream: Any) -> int:
    """Return the driver's handle of a stream: an int, or an object of torch, CuPy, cuda.core or cuda.bindings.

    >>> stream_handle(0)
    0

    Raises RequestError for anything else.
    """
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):  # the protocol of cuda.core: (version, handle)
        return int(stream.__cuda_stream__()[1])
    for attribute in ("cuda_stream", "ptr"):  # torch, CuPy
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute))
    if hasattr(stream, "__int__"):  # cuda.bindings
        return int(stream)
    raise RequestError(
        f"stream: found a {type(stream).__qualname__}; expected a handle, or an object with __cuda_stream__, "
        "cuda_stream or ptr; omit stream= for the current stream"
    )


def current_stream(views: tuple[TensorView, ...], device: Device) -> int:
    """Return the stream of a call without `stream=`: torch's current one, else an operand's, else the default."""
    named = LEGACY_STREAM
    for view in reversed(views):
        if view.form.framework == "torch":
            # The value of torch.cuda.current_stream(device).cuda_stream, without building the Stream object.
            return int(sys.modules["torch"]._C._cuda_getCurrentRawStream(device[1]))
        named = view.stream or named
    return named


def producers(stream: int, views: tuple[TensorView, ...]) -> set[int]:
    """Return the streams other than `stream` whose work must finish first (0 and 1 both are the default stream)."""
    return {view.stream for view in views if view.stream} - {stream or LEGACY_STREAM}
