"""Kernels that take tensor maps, against a driver that keeps a record of what they are encoded from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cutegen.contract.launch import LaunchContract
from cutegen.contract.tensor_map import TensorMapContract
from cutegen.errors import DeviceError, OperandError
from cutegen.hardware.dtypes import DTYPES
from cutegen.run import Kernel
from cutegen.run.driver import Driver
from cutegen.run.gpu import launch as tensor_maps
from tests.run.conftest import MeetingApi
from tests.run.fake_tensor_maps import FakeEncoder, FakeMap

A, B, C = (TensorMapContract(name, box, 128) for name, box in (("a", (64, 128)), ("b", (64, 64)), ("c", (64, 32))))
M, N, K = 300, 72, 48


@pytest.fixture
def api(fake_api: Any) -> Any:
    return fake_api()


@pytest.fixture
def mapped(contract: Callable[..., LaunchContract]) -> LaunchContract:
    """Persistent CTAs, one for each multiprocessor, and all three matrices by their maps."""
    return contract(maps=(A, B, C), ctas_per_multiprocessor=1)


@pytest.fixture
def kernel(api: Any, artifact: Any, mapped: LaunchContract) -> Kernel:
    api.parameters = mapped.parameters
    return Kernel(artifact(mapped), driver=lambda: Driver(api))


class Call:
    """Operands (300,48) @ (48,72) with a padded B; with a batch, B is shared by it."""

    def __init__(self, cuda_array: Any, batch: int | None = None) -> None:
        lead = () if batch is None else (batch,)
        self.a = cuda_array(np.zeros((*lead, M, K), np.float16))
        self.b = cuda_array(np.zeros((N, 56), np.float16)[:, :K].T)
        self.out = cuda_array(np.zeros((*lead, M, N), np.float16))

    @property
    def addresses(self) -> tuple[int, ...]:
        return tuple(x.array.ctypes.data for x in (self.a, self.b, self.out))

    @property
    def maps(self) -> tuple[FakeMap, ...]:
        a, b, c = self.addresses
        batch = 1 if self.a.array.ndim == 2 else len(self.a.array)
        a_stride, c_stride = (0, 0) if batch == 1 else (M * K * 2, M * N * 2)
        return (
            FakeMap(a, (K, M, batch), (K * 2, a_stride), (64, 128, 1)),
            FakeMap(b, (K, N, batch), (56 * 2, 0), (64, 64, 1)),
            FakeMap(c, (N, M, batch), (N * 2, c_stride), (64, 32, 1)),
        )


def test_maps_say_where_operands_are_and_what_form_they_have(kernel: Kernel, api: Any, cuda_array: Any) -> None:
    """`FakeMap` has the enumerators of f16, a swizzle of 128 bytes, 128 bytes into L2, zeros where nothing is."""
    call = Call(cuda_array)
    kernel(call.a, call.b, out=call.out)
    (launch,) = api.launches
    assert launch["values"] == (*call.maps, M, N, K)
    assert launch["grid"] == (3 * 2, 1, 1)
    assert api.encoded_in == [1000] * 3, "the driver makes no map for a thread without a context"


def test_operands_without_a_map_are_addresses_and_strides(
    api: Any, artifact: Any, contract: Any, cuda_array: Any
) -> None:
    loads = contract(maps=(A, B))
    api.parameters, call = loads.parameters, Call(cuda_array)
    Kernel(artifact(loads), driver=lambda: Driver(api))(call.a, call.b, out=call.out)
    assert [parameter.name for parameter in loads.parameters[2:]] == ["c", "m", "n", "k", "ldc", "batch_stride_c"]
    assert api.launches[0]["values"] == (*call.maps[:2], call.addresses[2], M, N, K, N, 0)


def test_a_batch_is_the_third_mode_and_a_shared_operand_does_not_move_along_it(
    kernel: Kernel, api: Any, cuda_array: Any
) -> None:
    call = Call(cuda_array, batch=40)
    kernel(call.a, call.b, out=call.out)
    (launch,) = api.launches
    assert launch["values"] == (*call.maps, M, N, K)
    assert call.maps[1].strides_bytes == (112, 0)


@pytest.mark.parametrize(("multiprocessors", "ctas"), [(132, 6), (2, 4), (1, 2)])
def test_persistent_ctas_are_as_many_as_fit_the_gpu(
    fake_api: Any, artifact: Any, contract: Any, cuda_array: Any, multiprocessors: int, ctas: int
) -> None:
    """Six tiles of each result, two CTAs on a multiprocessor."""
    api, two_each = fake_api(), contract(maps=(A,), ctas_per_multiprocessor=2)
    api.attributes["multiprocessors"], api.parameters = multiprocessors, two_each.parameters
    call = Call(cuda_array, batch=9)
    Kernel(artifact(two_each), driver=lambda: Driver(api))(call.a, call.b, out=call.out)
    assert api.launches[0]["grid"] == (ctas, 1, 9)


def test_the_same_addresses_again_are_only_launched(kernel: Kernel, api: Any, cuda_array: Any) -> None:
    call = Call(cuda_array)
    kernel(call.a, call.b, out=call.out)
    api.calls.clear()
    kernel(call.a, call.b, out=call.out)
    assert api.names() == ["cuCtxGetCurrent", "cuLaunchKernelEx"]
    assert len(api.encoded) == 3


def test_what_moved_is_encoded_and_what_comes_back_is_known(kernel: Kernel, api: Any, cuda_array: Any) -> None:
    here, there = Call(cuda_array), Call(cuda_array)
    calls = [(here.a, here.b, here.out), (here.a, here.b, there.out), (there.a, here.b, here.out)] * 2
    for a, b, out in calls:
        kernel(a, b, out=out)
    assert len(api.encoded) == 5
    for (a, b, out), launch in zip(calls, api.launches, strict=True):
        assert [x.address for x in launch["values"][:3]] == [x.array.ctypes.data for x in (a, b, out)]


def test_few_addresses_are_kept(kernel: Kernel, api: Any, cuda_array: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_maps, "_REMEMBERED_ADDRESSES", 64)
    call, rows = Call(cuda_array), np.zeros((M + 200, K), np.float16)
    forms = [cuda_array(rows[first : first + M]) for first in range(200)]
    for a in (*forms, *forms):
        kernel(a, call.b, out=call.out)
    assert [x["values"][0].address for x in api.launches] == [x.array.ctypes.data for x in (*forms, *forms)]
    assert len(api.encoded) == 402


def test_a_refusal_names_the_operand_and_what_was_asked_for(kernel: Kernel, api: Any, cuda_array: Any) -> None:
    call, other = Call(cuda_array), Call(cuda_array)
    kernel(call.a, call.b, out=call.out)
    api.refuse = lambda made: made.address == other.addresses[1]
    with pytest.raises(DeviceError) as caught:
        kernel(other.a, other.b, out=other.out)
    assert str(caught.value) == (
        f"cuTensorMapEncodeTiled for operand b at {other.addresses[1]:#x} with TensorMapFields(dtype='f16', "
        "extents=(48, 72, 1), strides_bytes=(112, 0), box=(64, 64, 1), swizzle_bytes=128): "
        "CUDA_ERROR_INVALID_VALUE (the driver's text)"
    )
    assert api.contexts == [1000]
    kernel(call.a, call.b, out=call.out)
    assert api.launches[-1]["values"][:3] == call.maps, "A's map of the call that failed must not stay"


def test_a_driver_without_tensor_maps_must_be_updated(kernel: Kernel, api: Any, cuda_array: Any) -> None:
    api.has_tensor_maps, call = False, Call(cuda_array)
    with pytest.raises(DeviceError, match=r"has no cuTensorMapEncodeTiled; update it to CUDA 12\.0 or later"):
        kernel(call.a, call.b, out=call.out)


def test_operands_without_elements_get_maps_that_can_be_encoded(kernel: Kernel, api: Any, cuda_array: Any) -> None:
    """Nothing of them is read. Frameworks give them the address 0, which the driver need not take."""
    out = cuda_array(np.ones((5, 16), np.float16)[:, :6])
    a, b = (Nowhere(cuda_array(np.zeros(shape, np.float16))) for shape in ((5, 0), (0, 6)))
    kernel(a, b, out=out)
    (launch,) = api.launches
    at = out.array.ctypes.data
    assert launch["values"] == (
        FakeMap(at, (1, 1, 1), (16, 16), (64, 128, 1)),
        FakeMap(at, (1, 1, 1), (16, 16), (64, 64, 1)),
        FakeMap(at, (6, 5, 1), (32, 0), (64, 32, 1)),
        *(5, 6, 0),
    )


class Nowhere:
    """An array at address 0."""

    def __init__(self, array: Any) -> None:
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, "data": (0, False)}


@pytest.mark.parametrize(("offset", "batch_stride", "what"), [(4, 16, "address"), (0, 20, "batch stride 20")])
def test_addresses_and_batch_strides_are_multiples_of_16_bytes(
    kernel: Kernel, cuda_array: Any, offset: int, batch_stride: int, what: str
) -> None:
    flat = np.zeros(400, np.float16)
    first = -flat.ctypes.data // 2 % 8 + offset
    a = np.lib.stride_tricks.as_strided(flat[first:], (2, 1, 16), (batch_stride * 2, 32, 2))
    with pytest.raises(OperandError, match=rf"operand a: found {what}.* a multiple of 16 bytes"):
        kernel(cuda_array(a), cuda_array(np.zeros((8, 16), np.float16).T), out=cuda_array(np.zeros((2, 1, 8), "f2")))


def test_threads_do_not_share_maps(artifact: Any, mapped: LaunchContract, cuda_array: Any) -> None:
    api, calls = MeetingApi(), [Call(cuda_array) for _ in range(2)]
    api.parameters = mapped.parameters
    api.launch_at_once(Kernel(artifact(mapped), driver=lambda: Driver(api)), calls)
    assert {launch["values"][:3] for launch in api.launches} == {call.maps for call in calls}


def test_every_element_type_has_a_data_type_of_its_size() -> None:
    sizes = {"8": 8, "16": 16, "32": 32}
    for row in DTYPES.values():
        name = tensor_maps.data_type(row.name)
        assert sizes[name.lstrip("BFLOATUIN")] == row.bits
        assert hasattr(FakeEncoder.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{name}")


def test_the_stand_ins_enumerators_are_the_drivers() -> None:
    real = pytest.importorskip("cuda.bindings.driver")
    for kind, fake in vars(FakeEncoder).items():
        if kind.startswith("CUtensorMap"):
            assert {name: int(getattr(getattr(real, kind), name)) for name in vars(fake)} == vars(fake)
