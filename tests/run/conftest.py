from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Callable, Sequence
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest

import cutegen
from cutegen.contract.launch import LaunchContract, Parameter, TensorContract, gemm_parameters
from cutegen.contract.tensor_map import TensorMapContract
from tests.run.fake_tensor_maps import FakeEncoder, read_map

if TYPE_CHECKING:
    from cutegen.build import Cache
    from cutegen.run import Kernel
    from cutegen.spec import GemmSpec


def make_contract(
    majors: str = "kkn",
    dtype: str = "f16",
    align: int = 16,
    *,
    extras: tuple[TensorContract, ...] = (),
    scalars: tuple[str, ...] = (),
    epilogue: tuple[str, ...] = (),
    parameters: tuple[Parameter, ...] | None = None,
    maps: tuple[TensorMapContract, ...] = (),
    ctas_per_multiprocessor: int | None = None,
) -> LaunchContract:
    """`majors` names the contiguous mode of A, B and C, in this order."""
    modes = (("m", "k"), ("n", "k"), ("m", "n"))
    matrices = (
        TensorContract(name, dtype, mode, major, align) for name, mode, major in zip("abc", modes, majors, strict=True)
    )
    tensors = (*matrices, *extras)
    return LaunchContract(
        entry="gemm",
        tensors=tensors,
        scalars=scalars,
        epilogue=epilogue,
        parameters=gemm_parameters(tensors, scalars, maps) if parameters is None else parameters,
        cta_tile=(128, 64),
        threads=128,
        dynamic_smem_bytes=98304,
        ctas_per_multiprocessor=ctas_per_multiprocessor,
        maps=maps,
    )


@pytest.fixture(scope="module")
def compiled(kernels: Cache) -> Callable[..., Kernel]:
    """Makes the kernel of a spec, each once: for the target that it needs, or for the one that is named."""

    @cache
    def make(spec: GemmSpec, arch: str | None = None) -> Kernel:
        return cutegen.compile(spec, arch or spec.needs, cache=kernels)

    return make


@pytest.fixture
def contract() -> Callable[..., LaunchContract]:
    return make_contract


@pytest.fixture
def artifact() -> Callable[..., Any]:
    """An artifact as far as a kernel looks at it."""

    def make(contract: LaunchContract, gpu_arch: str = "sm_90a", ptx: str = "") -> Any:
        return SimpleNamespace(
            path="somewhere",
            plan_json=json.dumps({"launch": contract.to_json()}),
            cubin=b"\x7fELF",
            ptx=ptx,
            manifest=SimpleNamespace(entry=contract.entry, inputs=SimpleNamespace(gpu_arch=gpu_arch)),
        )

    return make


class CudaArray:
    """A matrix that claims to be on a GPU; its memory is the host's, and nobody looks into it."""

    def __init__(
        self, array: np.ndarray, *, ordinal: int = 0, stream: int | None = None, read_only: bool = False
    ) -> None:
        self.array, self.ordinal, self.stream, self.read_only = array, ordinal, stream, read_only

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.array.shape,
            "typestr": self.array.dtype.str,
            "data": (self.array.ctypes.data, self.read_only),
            "strides": None if self.array.flags.c_contiguous else self.array.strides,
            "stream": self.stream,
            "version": 3,
        }

    def __dlpack__(self) -> object:
        raise AssertionError("the CUDA array interface comes first")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.ordinal)


@pytest.fixture
def cuda_array() -> type[CudaArray]:
    return CudaArray


FUNCTIONS_AT = 0x70000
"""The handle of a function is this and its context."""
CLUSTER_DIMENSION = 4
"""As in `cuda.h`."""


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute, 72 bytes: what it is, and behind 8 bytes the value, here the extents of clusters."""

    _fields_ = (
        ("id", ctypes.c_int32),
        ("_", ctypes.c_int32),
        ("cluster", ctypes.c_uint32 * 3),
        ("_more", ctypes.c_uint8 * 52),
    )


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig as a C compiler lays it out, written here once more: 56 bytes."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("smem_bytes", ctypes.c_uint32),
        ("_", ctypes.c_uint32),
        ("stream", ctypes.c_uint64),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("attribute_count", ctypes.c_uint32),
    )


class FakeStatus(int):
    """CUresult."""


class FakeApi(FakeEncoder):
    """`cuda.bindings.driver` of a machine with two GPUs, which keeps a record of what it was asked."""

    CUdevice_attribute = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR="major",
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR="minor",
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN="smem",
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT="multiprocessors",
    )
    CUresult = FakeStatus
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="max_smem")
    CUpointer_attribute = SimpleNamespace(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL="ordinal")
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED="relaxed")
    CUevent_flags = SimpleNamespace(CU_EVENT_DISABLE_TIMING=2)
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
    fixed_answers: ClassVar = {
        "cuLibraryLoadData": ("library",),
        "cuLibraryGetKernel": ("kernel",),
        "cuPointerGetAttribute": (1,),
        "cuThreadExchangeStreamCaptureMode": ("global",),
        "cuEventCreate": ("event",),
    }

    def __init__(self, capability: tuple[int, int] = (9, 0), smem: int = 232448) -> None:
        super().__init__()
        self.attributes = {"major": capability[0], "minor": capability[1], "smem": smem, "multiprocessors": 132}
        self.parameters = make_contract().parameters
        self.calls: list[tuple[Any, ...]] = []
        self.launches: list[dict[str, Any]] = []
        self.failures: dict[str, int] = {}
        self.contexts = [1000]
        self._entry_points: dict[str, Any] = {}
        self.active_clusters = 66
        self.asked_to_fit: Any = None

    def names(self) -> list[str]:
        return [call[0] for call in self.calls]

    def _answer(self, name: str, *arguments: Any) -> tuple[Any, ...]:
        match name:
            case "cuDeviceGet":
                return (arguments[0],)
            case "cuDeviceGetName":
                return (b"NVIDIA Imaginary\0\0",)
            case "cuDeviceGetAttribute":
                return (self.attributes[arguments[0]],)
            case "cuDevicePrimaryCtxRetain":
                return (1000 + arguments[0],)
            case "cuGetProcAddress":
                return self.entry_point(*arguments)
            case "cuKernelGetFunction":
                return (FUNCTIONS_AT + self.contexts[-1],)
            case "cuCtxGetCurrent":
                return (self.contexts[-1],)
            case "cuCtxPopCurrent":
                return (self.contexts.pop(),)
            case "cuOccupancyMaxActiveClusters":
                self.asked_to_fit = arguments[1]
                return (self.active_clusters,)
            case _:
                return self.fixed_answers.get(name, ())

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, ...]]:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def function(*arguments: Any) -> tuple[Any, ...]:
            self.calls.append((name, *arguments))
            if name in self.failures:
                return (FakeStatus(self.failures[name]), None)
            if name == "cuCtxPushCurrent":
                self.contexts.append(arguments[0])
            return (FakeStatus(0), *self._answer(name, *arguments))

        return function

    def cuGetErrorName(self, status: int) -> tuple[int, bytes]:
        return (
            0,
            {1: b"CUDA_ERROR_INVALID_VALUE", 2: b"CUDA_ERROR_OUT_OF_MEMORY", 209: b"CUDA_ERROR_NO_BINARY_FOR_GPU"}[
                int(status)
            ],
        )

    def cuGetErrorString(self, status: int) -> tuple[int, bytes]:
        return (0, b"the driver's text")

    def raw_entry_point(self, name: str) -> int:
        """A C function in the place of the driver's, which asks the method of its name and writes what that answers."""
        if name not in self._entry_points:
            make = {"cuLaunchKernelEx": self._raw_launch}.get(name) or self._raw_question(name)
            arguments = {"cuLaunchKernelEx": 4, "cuCtxGetCurrent": 1}.get(name, 2)
            self._entry_points[name] = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * arguments)(make)
        return ctypes.cast(self._entry_points[name], ctypes.c_void_p).value or 0

    def _raw_question(self, name: str) -> Callable[..., int]:
        def ask(*arguments: int | None) -> int:
            *asked, answer_at = (x or 0 for x in arguments)
            status, *answers = getattr(self, name)(*asked)
            if status == 0:
                ctypes.c_uint64.from_address(answer_at).value = int(answers[0])
            return int(status)

        return ask

    def _raw_launch(self, config: int, function: int, parameters: int, extra: int | None) -> int:
        self.calls.append(("cuLaunchKernelEx", f"function in {function - FUNCTIONS_AT}"))
        if "cuLaunchKernelEx" in self.failures:
            return self.failures["cuLaunchKernelEx"]
        read = LaunchConfig.from_address(config)
        self._launch(
            f"function in {function - FUNCTIONS_AT}",
            (*read.grid, *read.block, read.smem_bytes),
            read.stream or 0,
            parameters,
            extra or 0,
        )
        if read.attribute_count:
            (cluster,) = read.attributes[: read.attribute_count]
            assert cluster.id == CLUSTER_DIMENSION
            self.launches[-1]["cluster"] = tuple(cluster.cluster)
        return 0

    CUlaunchAttributeID = SimpleNamespace(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION="cluster dimension")

    @staticmethod
    def CUlaunchConfig() -> Any:
        return SimpleNamespace()

    @staticmethod
    def CUlaunchAttribute() -> Any:
        return SimpleNamespace(value=SimpleNamespace(clusterDim=SimpleNamespace()))

    def _launch(self, function: Any, geometry: Sequence[Any], stream: Any, parameters: int, extra: Any) -> None:
        self.launches.append(
            {
                "function": function,
                "grid": tuple(geometry[:3]),
                "block": tuple(geometry[3:6]),
                "smem": geometry[6],
                "stream": stream,
                "values": _read_parameters(self.parameters, parameters),
                "extra": extra,
                "context": self.contexts[-1],
            }
        )


def _read_parameters(parameters: tuple[Parameter, ...], address: int) -> tuple[Any, ...]:
    """As the driver does: so many bytes from where each of the pointers points, by the entry's parameter types."""
    sizes = {"ptr": ctypes.c_uint64, "i32": ctypes.c_int32, "i64": ctypes.c_int64, "f32": ctypes.c_float}
    pointers = (ctypes.c_void_p * len(parameters)).from_address(address)
    return tuple(
        read_map(pointer) if parameter.type == "tensormap" else sizes[parameter.type].from_address(pointer).value
        for parameter, pointer in zip(parameters, pointers, strict=True)
    )


@pytest.fixture
def fake_api() -> type[FakeApi]:
    return FakeApi


class MeetingApi(FakeApi):
    """Two threads that launch at once: neither goes on before both have written what they pass."""

    def __init__(self) -> None:
        super().__init__()
        self._both_have_written = threading.Barrier(2, timeout=10)

    def cuCtxGetCurrent(self) -> tuple[int, int]:
        self._both_have_written.wait()
        return (0, 1000)

    def launch_at_once(self, kernel: Callable[..., Any], calls: Sequence[Any]) -> None:
        """Both calls, which have operands `a`, `b` and `out`, each by a thread of its own."""
        threads = [threading.Thread(target=kernel, args=(x.a, x.b), kwargs={"out": x.out}) for x in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
