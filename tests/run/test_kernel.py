"""A kernel's calls against a driver that keeps a record: what is launched where, on which stream, with which values."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cutegen.contract.launch import LaunchGeometry
from cutegen.errors import ArtifactError, DeviceError, OperandError, RequestError
from cutegen.hardware import runs_on
from cutegen.run import Kernel
from cutegen.run.call import operands
from cutegen.run.call.operands import Form
from cutegen.run.call.storage import call_tensors, empty
from cutegen.run.call.streams import stream_handle
from cutegen.run.driver import Driver, load_driver
from cutegen.run.gpu.raw_driver import LaunchConfig
from tests.run.conftest import CLUSTER_DIMENSION, MeetingApi


@pytest.fixture
def api(fake_api: Any) -> Any:
    return fake_api()


@pytest.fixture
def kernel(api: Any, artifact: Any, contract: Any) -> Kernel:
    return Kernel(artifact(contract()), driver=lambda: Driver(api))


class Call:
    """Operands (300,48) @ (48,72) that fit a kernel for K-major A and B and N-major C."""

    def __init__(self, cuda_array: Any, **options: Any) -> None:
        self.a = cuda_array(np.zeros((300, 48), np.float16), **options)
        self.b = cuda_array(np.zeros((72, 56), np.float16)[:, :48].T, **options)
        self.out = cuda_array(np.zeros((300, 72), np.float16), **options)

    @property
    def values(self) -> tuple[int, ...]:
        pointers = tuple(operand.array.ctypes.data for operand in (self.a, self.b, self.out))
        return (*pointers, 300, 72, 48, 48, 56, 72, 0, 0, 0)


@pytest.fixture
def call(cuda_array: Any) -> Call:
    return Call(cuda_array)


def test_launch_gets_addresses_sizes_and_strides_in_the_contracts_order(kernel: Kernel, api: Any, call: Call) -> None:
    assert kernel(call.a, call.b, out=call.out) is call.out
    (launch,) = api.launches
    assert launch["values"] == call.values
    assert launch["grid"] == (3 * 2, 1, 1)
    assert launch["block"] == (128, 1, 1)
    assert launch["smem"] == 98304
    assert launch["function"] == "function in 1000"


def test_parameter_order_comes_from_the_contract(api: Any, artifact: Any, contract: Any, call: Call) -> None:
    mirrored = contract(parameters=contract().parameters[::-1])
    api.parameters = mirrored.parameters
    Kernel(artifact(mirrored), driver=lambda: Driver(api))(call.a, call.b, out=call.out)
    assert api.launches[0]["values"] == call.values[::-1]


def test_second_call_of_a_form_only_looks_at_the_context_and_launches(kernel: Kernel, api: Any, call: Call) -> None:
    kernel(call.a, call.b, out=call.out)
    api.calls.clear()
    kernel(call.a, call.b, out=call.out)
    assert api.names() == ["cuCtxGetCurrent", "cuLaunchKernelEx"]


def test_nothing_in_a_call_waits_or_allocates(kernel: Kernel, api: Any, call: Call) -> None:
    kernel(call.a, call.b, out=call.out)
    forbidden = ("Synchronize", "MemAlloc", "Memcpy", "MemFree")
    assert not [name for name in api.names() if any(word in name for word in forbidden)]
    # Loading under a capture in "global" mode is only allowed to a thread that exchanged its mode, and gives it back.
    exchanges = [index for index, name in enumerate(api.names()) if name == "cuThreadExchangeStreamCaptureMode"]
    assert exchanges[0] < api.names().index("cuLibraryLoadData") < exchanges[1]
    assert [api.calls[index][1] for index in exchanges] == ["relaxed", "global"]


def test_loaded_once_for_two_gpus_and_launched_in_each_primary_context(
    kernel: Kernel, api: Any, cuda_array: Any
) -> None:
    for ordinal in (0, 1, 1, 0):
        call = Call(cuda_array, ordinal=ordinal)
        kernel(call.a, call.b, out=call.out)
    assert api.names().count("cuLibraryLoadData") == 1
    assert [launch["context"] for launch in api.launches] == [1000, 1001, 1001, 1000]
    assert [launch["function"][-4:] for launch in api.launches] == ["1000", "1001", "1001", "1000"]
    assert api.contexts == [1000], "every context that was pushed was popped"


def test_threads_do_not_share_parameters(artifact: Any, contract: Any, cuda_array: Any) -> None:
    api, calls = MeetingApi(), [Call(cuda_array) for _ in range(2)]
    api.launch_at_once(Kernel(artifact(contract()), driver=lambda: Driver(api)), calls)
    assert {launch["values"] for launch in api.launches} == {call.values for call in calls}


def test_an_empty_result_is_not_launched(kernel: Kernel, api: Any, cuda_array: Any) -> None:
    a, b = cuda_array(np.zeros((0, 48), np.float16)), cuda_array(np.zeros((72, 48), np.float16).T)
    out = cuda_array(np.zeros((0, 72), np.float16))
    assert kernel(a, b, out=out) is out
    assert api.calls == []


def test_k_zero_is_launched_like_any_other(kernel: Kernel, api: Any, cuda_array: Any) -> None:
    a, b = cuda_array(np.zeros((5, 0), np.float16)), cuda_array(np.zeros((0, 6), np.float16))
    kernel(a, b, out=cuda_array(np.ones((5, 16), np.float16)[:, :6]))
    (launch,) = api.launches
    assert launch["values"][3:] == (5, 6, 0, 0, 0, 16, 0, 0, 0)


def test_cupy_allocates_on_its_device_and_on_the_callers_stream(monkeypatch: pytest.MonkeyPatch, contract: Any) -> None:
    """CuPy as documented: Device and ExternalStream are context managers, and empty allocates within them."""
    entered: list[tuple[Any, ...]] = []

    @contextmanager
    def entering(*values: Any) -> Iterator[None]:
        entered.append(values)
        yield

    cuda = SimpleNamespace(Device=partial(entering, "device"), ExternalStream=partial(entering, "stream"))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, empty=np.empty))
    result = call_tensors(contract())["c"]
    form = Form((30, 48), (48, 1), "f16", ("cuda", 1), "cupy", False)
    out = empty(result.storage((30, 70)), "float16", None, form, 12)
    assert (out.shape, out.strides, out.dtype) == ((30, 70), (144, 2), np.float16)
    assert sorted(entered) == [("device", 1), ("stream", 12, 1)]


def test_unknown_framework_must_bring_its_result(kernel: Kernel, call: Call) -> None:
    with pytest.raises(OperandError, match="operand out: found no array, with operands of conftest; expected an array"):
        kernel(call.a, call.b)


@pytest.mark.parametrize(
    ("gpu_arch", "capability", "here"),
    [("sm_90a", (8, 0), "sm_80"), ("sm_80", (9, 0), "sm_90"), ("sm_86", (8, 0), "sm_80")],
)
def test_cubin_of_another_architecture_names_both(
    fake_api: Any, artifact: Any, contract: Any, call: Call, gpu_arch: str, capability: tuple[int, int], here: str
) -> None:
    api = fake_api(capability=capability)
    kernel = Kernel(artifact(contract(), gpu_arch=gpu_arch), driver=lambda: Driver(api))
    message = rf"compiled for {gpu_arch}; cuda:0 \(NVIDIA Imaginary\) is {here}; .* --arch {here}"
    with pytest.raises(DeviceError, match=message):
        kernel(call.a, call.b, out=call.out)
    assert "cuLibraryLoadData" not in api.names()


def test_where_cubins_run() -> None:
    assert runs_on("sm_100f", (10, 3))
    assert runs_on("sm_120a", (12, 0))
    assert not runs_on("sm_120a", (12, 1))
    with pytest.raises(DeviceError, match="expected one like sm_80"):
        runs_on("gfx90a", (9, 0))


def test_too_little_shared_memory_says_how_much(fake_api: Any, artifact: Any, contract: Any, call: Call) -> None:
    api = fake_api(capability=(12, 0), smem=65536)
    kernel = Kernel(artifact(contract(), gpu_arch="sm_120a"), driver=lambda: Driver(api))
    with pytest.raises(DeviceError, match=r"needs 98304 bytes of dynamic shared memory per CTA; cuda:0 .* has 65536"):
        kernel(call.a, call.b, out=call.out)


def test_driver_failure_has_name_text_and_way_out(kernel: Kernel, api: Any, call: Call) -> None:
    api.failures["cuLibraryLoadData"] = 209
    with pytest.raises(DeviceError) as caught:
        kernel(call.a, call.b, out=call.out)
    assert str(caught.value) == (
        "cuLibraryLoadData: CUDA_ERROR_NO_BINARY_FOR_GPU (the driver's text); "
        "the kernel was built for another GPU: rebuild it for this one"
    )
    assert caught.value.exit_code == 3
    assert api.contexts == [1000]
    api.failures = {"cuLaunchKernelEx": 2}
    with pytest.raises(DeviceError, match=r"^cuLaunchKernelEx: CUDA_ERROR_OUT_OF_MEMORY"):
        kernel(call.a, call.b, out=call.out)


def clustered(api: Any, artifact: Any, contract: Any, **changes: Any) -> Kernel:
    return Kernel(artifact(replace(contract(), **changes)), driver=lambda: Driver(api))


def test_clusters_are_an_attribute_of_the_launch(api: Any, artifact: Any, contract: Any, call: Call) -> None:
    kernel = clustered(api, artifact, contract, cluster=(2, 1))
    kernel(call.a, call.b, out=call.out, stream=5)
    (launch,) = api.launches
    assert (launch["cluster"], launch["grid"], launch["block"]) == ((2, 1, 1), (4 * 2, 1, 1), (128, 1, 1))
    assert (launch["values"], launch["smem"], launch["stream"]) == (call.values, 98304, 5)
    asked = api.asked_to_fit
    assert (asked.gridDimX, asked.blockDimX, asked.sharedMemBytes) == (2, 128, 98304)
    api.calls.clear()
    kernel(call.a, call.b, out=call.out, stream=6)
    assert api.names() == ["cuCtxGetCurrent", "cuLaunchKernelEx"]
    assert api.launches[-1]["stream"] == 6
    api.failures = {"cuLaunchKernelEx": 2}
    with pytest.raises(DeviceError, match=r"^cuLaunchKernelEx: CUDA_ERROR_OUT_OF_MEMORY"):
        kernel(call.a, call.b, out=call.out)


def test_persistent_clusters_are_as_many_as_the_gpu_holds(api: Any, artifact: Any, contract: Any, call: Call) -> None:
    api.active_clusters = 3
    kernel = clustered(api, artifact, contract, cluster=(2, 1), ctas_per_multiprocessor=1)
    kernel(call.a, call.b, out=call.out)
    assert api.launches[0]["grid"] == (6, 1, 1)


def test_a_cluster_that_finds_no_room_is_refused(api: Any, artifact: Any, contract: Any, call: Call) -> None:
    api.active_clusters = 0
    with pytest.raises(DeviceError, match=r"has no room for a cluster of 4 x 2 CTAs of this kernel; use a smaller"):
        clustered(api, artifact, contract, cluster=(4, 2))(call.a, call.b, out=call.out)


def test_stream_of_the_caller(kernel: Kernel, api: Any, call: Call) -> None:
    for stream in (
        5,
        SimpleNamespace(__cuda_stream__=lambda: (0, 6)),
        SimpleNamespace(cuda_stream=7),
        SimpleNamespace(ptr=8),
    ):
        kernel(call.a, call.b, out=call.out, stream=stream)
    assert [launch["stream"] for launch in api.launches] == [5, 6, 7, 8]
    assert "cuEventRecord" not in api.names()


def test_no_stream_at_all() -> None:
    with pytest.raises(RequestError, match="stream: found a str; expected a handle"):
        stream_handle("default")


def test_default_stream_without_torch(kernel: Kernel, api: Any, call: Call) -> None:
    kernel(call.a, call.b, out=call.out)
    assert api.launches[0]["stream"] == 1


def test_operands_stream_is_used_and_others_are_waited_for(kernel: Kernel, api: Any, cuda_array: Any) -> None:
    call, other = Call(cuda_array, stream=21), Call(cuda_array, stream=22)
    kernel(call.a, call.b, out=call.out)
    assert (api.launches[-1]["stream"], "cuStreamWaitEvent" in api.names()) == (21, False)
    kernel(call.a, other.b, out=call.out)
    assert api.launches[-1]["stream"] == 21
    waits = [one for one in api.calls if one[0] in ("cuEventRecord", "cuStreamWaitEvent", "cuEventDestroy")]
    assert waits == [("cuEventRecord", "event", 22), ("cuStreamWaitEvent", 21, "event", 0), ("cuEventDestroy", "event")]
    api.calls.clear()
    kernel(call.a, call.b, out=call.out, stream=30)
    assert api.launches[-1]["stream"] == 30
    assert ("cuEventRecord", "event", 21) in api.calls
    # A thread that never used CUDA has no context, and an event is made in the current one.
    assert (
        api.names().index("cuCtxPushCurrent")
        < api.names().index("cuEventCreate")
        < api.names().index("cuCtxPopCurrent")
    )


def test_zero_and_one_are_the_same_stream(kernel: Kernel, api: Any, cuda_array: Any) -> None:
    call = Call(cuda_array, stream=1)
    kernel(call.a, call.b, out=call.out, stream=0)
    assert "cuEventRecord" not in api.names()


def test_torch_tensors_go_to_torchs_current_stream(kernel: Kernel, api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(operands, "_torch_device", lambda device: ("cuda", 1))
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda ordinal: 900 + ordinal, raising=False)
    a, b = torch.zeros(300, 48).half(), torch.zeros(70, 48).half().t()
    result = kernel(a, b)
    (launch,) = api.launches
    assert launch["stream"] == 901
    assert launch["context"] == 1001
    assert launch["values"] == (a.data_ptr(), b.data_ptr(), result.data_ptr(), 300, 70, 48, 48, 48, 72, 0, 0, 0)
    assert (result.shape, result.stride(), result.dtype) == ((300, 70), (72, 1), torch.float16)


@pytest.mark.parametrize(
    "spoil", [lambda text: "{}", lambda text: "[", lambda text: text.replace('"entry"', '"entrance"')]
)
def test_artifact_without_a_launch_contract(artifact: Any, contract: Any, spoil: Callable[[str], str]) -> None:
    damaged = artifact(contract())
    damaged.plan_json = spoil(damaged.plan_json)
    with pytest.raises(ArtifactError, match=r"somewhere: plan\.json: (launch|not JSON)"):
        Kernel(damaged)


def test_repr(kernel: Kernel) -> None:
    assert repr(kernel) == "Kernel(gemm, a: f16 k-major, b: f16 k-major, c: f16 n-major, CTA tile 128x64, sm_90a)"


def test_each_function_may_use_the_shared_memory_that_its_kernel_asks_for(kernel: Kernel, api: Any, call: Call) -> None:
    kernel(call.a, call.b, out=call.out)
    asked = [call[1:] for call in api.calls if call[0] == "cuFuncSetAttribute"]
    (function,) = api._answer("cuKernelGetFunction")
    assert asked == [(function, "max_smem", 98304)]


def test_a_machine_without_a_driver_is_told_to_use_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("Failed to dlopen libcuda.so.1\nTried: /usr/lib")

    bindings = ModuleType("cuda.bindings")
    bindings.driver = SimpleNamespace(cuInit=fails)  # type: ignore[attr-defined]
    for name, module in (("cuda", ModuleType("cuda")), ("cuda.bindings", bindings)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", bindings.driver)
    with pytest.raises(DeviceError) as caught:
        load_driver.__wrapped__()
    assert "no NVIDIA driver on this machine (Failed to dlopen libcuda.so.1); use CPU operands" in str(caught.value)


def test_a_programmatic_launch_says_so_beside_its_clusters() -> None:
    clusters, serialization = CLUSTER_DIMENSION, 6  # as cuda.h numbers them
    for extents, programmatic, wanted in (
        ((1, 1, 1), False, []),
        ((1, 1, 1), True, [(serialization, 1)]),
        ((2, 1, 1), False, [(clusters, 2)]),
        ((2, 1, 1), True, [(clusters, 2), (serialization, 1)]),
    ):
        geometry = LaunchGeometry((2, 1, 1), (128, 1, 1), 1024, extents)
        config = LaunchConfig.of(geometry, in_clusters=extents != (1, 1, 1), programmatic=programmatic)
        found = [config.attributes[index] for index in range(config.attribute_count)]
        assert [(each.id, each.cluster[0]) for each in found] == wanted
