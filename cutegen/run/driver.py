"""The CUDA driver through cuda-python: every call is checked, every failure is a DeviceError with a suggestion."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from cutegen.errors import DeviceError

_WAYS_OUT = {
    "CUDA_ERROR_OUT_OF_MEMORY": "free device memory, for example with torch.cuda.empty_cache()",
    "CUDA_ERROR_NOT_INITIALIZED": "a process forked after CUDA initialization cannot use CUDA: start it with 'spawn'",
    "CUDA_ERROR_NO_DEVICE": "no GPU is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES",
    "CUDA_ERROR_INVALID_DEVICE": "no such GPU is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "the kernel was built for another GPU: rebuild it for this one",
    "CUDA_ERROR_INVALID_IMAGE": "the cubin is damaged or newer than this driver: rebuild it, or update the driver",
    "CUDA_ERROR_INVALID_HANDLE": "a stream must belong to the operands' GPU and still exist",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "libcuda and the kernel module differ in version: reboot or reinstall",
    "CUDA_ERROR_ILLEGAL_ADDRESS": "an earlier kernel of this process accessed invalid memory; the process must be "
    "restarted; find it with compute-sanitizer",
    "CUDA_ERROR_LAUNCH_FAILED": "an earlier kernel of this process failed; the process must be restarted; find it "
    "with compute-sanitizer",
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": "call the kernel once before the graph is captured",
    "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED": "an earlier operation in this capture failed",
}


class Driver:
    """`cuda.bindings.driver` (or a replacement) with its error codes turned into DeviceError."""

    def __init__(self, api: Any) -> None:
        self.api = api
        self._primary_contexts: dict[int, Any] = {}

    def call(self, function: str, *arguments: Any) -> Any:
        """Call `function`; return its one result, a tuple of several, or None. Raises DeviceError."""
        status, *results = getattr(self.api, function)(*arguments)
        if int(status):
            raise self.failure(function, status)
        return results[0] if len(results) == 1 else tuple(results) or None

    def failure(self, function: str, status: Any) -> DeviceError:
        """Return the error for a failed `status`: the driver's name and text for it, and a suggestion."""
        name, text = self._text("cuGetErrorName", status), self._text("cuGetErrorString", status)
        way_out = _WAYS_OUT.get(name)
        return DeviceError(f"{function}: {name} ({text})" + (f"; {way_out}" if way_out else ""))

    def _text(self, function: str, status: Any) -> str:
        unknown, text = getattr(self.api, function)(status)
        return f"error {int(status)}" if int(unknown) else text.decode()

    def entry_point(self, function: str, cuda_version: int) -> int:
        """Return the address of a driver function as of CUDA `cuda_version` (12000 is 12.0). Raises DeviceError."""
        address, _ = self.call("cuGetProcAddress", function.encode(), cuda_version, 0)
        if not address:
            major, minor = divmod(cuda_version // 10, 100)
            raise DeviceError(f"this driver has no {function}; update it to CUDA {major}.{minor} or later")
        return int(address)

    def device_name(self, ordinal: int) -> str:
        """Return the marketing name, such as `NVIDIA H200`."""
        name: bytes = self.call("cuDeviceGetName", 256, self.call("cuDeviceGet", ordinal))
        return name.split(b"\0")[0].decode()

    def attribute(self, name: str, ordinal: int) -> int:
        """Return a device attribute, named without its prefix `CU_DEVICE_ATTRIBUTE_`."""
        attribute = getattr(self.api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.call("cuDeviceGetAttribute", attribute, self.call("cuDeviceGet", ordinal)))

    def compute_capability(self, ordinal: int) -> tuple[int, int]:
        """Return (major, minor), such as (9, 0) for sm_90."""
        return (
            self.attribute("COMPUTE_CAPABILITY_MAJOR", ordinal),
            self.attribute("COMPUTE_CAPABILITY_MINOR", ordinal),
        )

    def ordinal_of(self, pointer: int) -> int:
        """Return the GPU that a device address belongs to."""
        attribute = self.api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        return int(self.call("cuPointerGetAttribute", attribute, pointer))

    def primary_context(self, ordinal: int) -> Any:
        """Return the context that the CUDA runtime, and so every framework, uses on this GPU.

        It is retained and never released: captured graphs may hold our kernels until the process ends.
        """
        if ordinal not in self._primary_contexts:
            retained = self.call("cuDevicePrimaryCtxRetain", self.call("cuDeviceGet", ordinal))
            self._primary_contexts[ordinal] = retained
        return self._primary_contexts[ordinal]

    @contextmanager
    def current(self, context: Any) -> Iterator[None]:
        """Make `context` the calling thread's context temporarily."""
        self.call("cuCtxPushCurrent", context)
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent")

    @contextmanager
    def relaxed_capture(self) -> Iterator[None]:
        """Let this thread load modules during stream capture (as frameworks' allocators do)."""
        relaxed = self.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        previous = self.call("cuThreadExchangeStreamCaptureMode", relaxed)
        try:
            yield
        finally:
            self.call("cuThreadExchangeStreamCaptureMode", previous)

    def is_capturing(self, stream: int) -> bool:
        """Return whether launches on `stream` are captured into a graph. Raises DeviceError."""
        return bool(int(self.call("cuStreamIsCapturing", stream)))

    def capture(self, stream: int) -> int:
        """Return the id of the current capture on `stream`, unique per capture. Raises DeviceError."""
        _, number, *_ = self.call("cuStreamGetCaptureInfo", stream)
        return int(number)

    def zeros(self, size_bytes: int) -> int:
        """Allocate zeroed device memory in the current context, also during stream capture."""
        with self.relaxed_capture():
            address = int(self.call("cuMemAlloc", size_bytes))
            # On a separate stream: the default one synchronizes with others, which captured streams do not allow.
            stream = self.call("cuStreamCreate", int(self.api.CUstream_flags.CU_STREAM_NON_BLOCKING))
            self.call("cuMemsetD8Async", address, 0, size_bytes, stream)
            self.call("cuStreamSynchronize", stream)
            self.call("cuStreamDestroy", stream)
        return address

    def order_after(self, ordinal: int, stream: int, producer: int) -> None:
        """Make later launches on `stream` wait for the current work on `producer`, without blocking the host."""
        flags = self.api.CUevent_flags.CU_EVENT_DISABLE_TIMING
        with self.current(self.primary_context(ordinal)):
            event = self.call("cuEventCreate", int(flags))
            try:
                self.call("cuEventRecord", event, producer)
                self.call("cuStreamWaitEvent", stream, event, 0)
            finally:
                self.call("cuEventDestroy", event)


@lru_cache(maxsize=1)
def load_driver() -> Driver:
    """Return the machine's initialized driver. Raises DeviceError if there is none, or no GPU."""
    try:
        from cuda.bindings import driver as api
    except ImportError as error:
        raise DeviceError(f"cuda-bindings cannot be imported ({error}); pip install cuda-bindings") from error
    driver = Driver(api)
    try:
        driver.call("cuInit", 0)
    except RuntimeError as error:  # cuda-python looks for libcuda at the first call
        first_line = str(error).partition("\n")[0]
        raise DeviceError(f"no NVIDIA driver on this machine ({first_line}); use CPU operands instead") from error
    return driver
