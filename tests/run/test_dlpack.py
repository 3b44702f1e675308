"""Operands that speak DLPack: their view, their lifetime, and what a producer may do wrong."""

from __future__ import annotations

import ctypes
import gc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cutegen.errors import OperandError
from cutegen.run.call import interfaces
from cutegen.run.call.operands import CPU, Form, view_of
from tests.run.dlpack_producer import Producer

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize(
    ("tensor", "dtype", "strides"),
    [
        (torch.zeros(6, 8, dtype=torch.float16), "f16", (8, 1)),
        (torch.zeros(6, 8, dtype=torch.bfloat16).t()[2:], "bf16", (1, 8)),
        (torch.zeros(6, 8)[:, 3:], "f32", (8, 1)),
        (torch.zeros(6, 8, dtype=torch.int8), "s8", (8, 1)),
        (torch.zeros(6, 8, dtype=torch.uint8), "u8", (8, 1)),
        (torch.zeros(6, 8, dtype=torch.int32), "s32", (8, 1)),
        (torch.zeros(6, 8, dtype=torch.float8_e4m3fn), "e4m3", (8, 1)),
        (torch.zeros(6, 8, dtype=torch.float8_e5m2).t(), "e5m2", (1, 8)),
        (torch.zeros(6, 8, dtype=torch.int16), "int16", (8, 1)),
        (torch.zeros(6, 8, dtype=torch.complex64), "complex64", (8, 1)),
    ],
)
def test_dlpack(tensor: Any, dtype: str, strides: tuple[int, int], versioned: bool) -> None:
    producer = Producer(tensor, versioned=versioned)
    view = view_of(producer, "a")
    assert view.pointer == tensor.data_ptr()
    assert view.form == Form(tuple(tensor.shape), strides, dtype, CPU, "tests", False)
    assert producer.streams == [None]


def test_dlpack_of_numpy_says_read_only() -> None:
    array = np.zeros((4, 4), np.float16)
    array.flags.writeable = False
    view = view_of(SimpleNamespace(__dlpack__=array.__dlpack__, __dlpack_device__=array.__dlpack_device__), "out")
    assert view.form.read_only
    assert view.pointer == array.ctypes.data


def test_dlpack_capsule_lives_as_long_as_the_view_and_then_frees_the_tensor() -> None:
    released: list[bool] = []

    class Storage(np.ndarray):
        def __del__(self) -> None:
            if self.base is None:
                released.append(True)

    array = Storage((4, 4), np.float16)
    view: Any = view_of(Producer(array), "a")
    del array
    gc.collect()
    assert not released
    del view
    gc.collect()
    assert released


@pytest.mark.parametrize(("stream", "told"), [(None, 1), (0, 1), (2, 2), (4711, 4711)])
def test_dlpack_producer_is_told_the_stream(stream: int | None, told: int) -> None:
    producer = Producer(torch.zeros(2, 2), device=(2, 1))
    view = view_of(producer, "a", stream)
    assert view.form.device == ("cuda", 1)
    assert producer.streams == [told]
    assert view.stream == told


@pytest.mark.parametrize(
    ("device", "name"), [((3, 0), CPU), ((13, 1), ("cuda", 1)), ((10, 0), ("DLPack device type 10", 0))]
)
def test_dlpack_devices(device: tuple[int, int], name: tuple[str, int]) -> None:
    assert view_of(Producer(torch.zeros(2, 2), device=device), "a").form.device == name


def test_dlpack_that_refuses() -> None:
    tensor = torch.zeros(2, 2).requires_grad_()
    with pytest.raises(OperandError, match=r"operand a: found an object that does not export itself \(.*grad"):
        view_of(Producer(tensor), "a")


def test_dlpack_that_returns_something_else() -> None:
    class Broken(Producer):
        def __dlpack__(self, stream: int | None = None, **options: Any) -> object:
            return object()

    with pytest.raises(OperandError, match="returned no DLPack capsule"):
        view_of(Broken(None), "a")


SPOILED = {
    "ndim below zero": ({"ndim": -1}, "of -1 dimensions, expected 0 to 64"),
    "ndim huge": ({"ndim": 2**31 - 1}, "of 2147483647 dimensions"),
    "no shape": ({"shape": None}, "without a shape"),
    "another device": ({"device_type": 2, "device_id": 3}, "capsule on cuda:3, expected cpu:0"),
}


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("case", SPOILED)
def test_a_malformed_capsule_is_refused(case: str, versioned: bool) -> None:
    spoiled, message = SPOILED[case]
    if "shape" in spoiled:
        spoiled = {"shape": type(interfaces._Tensor().shape)()}
    # NumPy's destructor does not read what is spoiled here.
    producer = Producer(np.zeros((4, 8), np.float16), versioned=versioned, **spoiled)
    with pytest.raises(OperandError, match=f"operand a: found an object that does not export itself .*{message}"):
        view_of(producer, "a")


def test_a_capsule_of_an_extent_below_zero_is_refused() -> None:
    shape = (ctypes.c_int64 * 2)(-4, 8)
    producer = Producer(np.zeros((4, 8), np.float16), shape=ctypes.cast(shape, type(interfaces._Tensor().shape)))
    with pytest.raises(OperandError, match=r"of shape \(-4, 8\), expected extents of at least 0"):
        view_of(producer, "a")


def test_a_capsule_of_a_later_version_is_not_looked_into() -> None:
    class Later(Producer):
        def __dlpack__(self, stream: int | None = None, **options: Any) -> object:
            capsule = super().__dlpack__(stream, **options)
            interfaces._VersionedTensor.from_address(interfaces._get_pointer(capsule, b"dltensor_versioned")).major = 2
            return capsule

    with pytest.raises(OperandError, match="capsule of version 2"):
        view_of(Later(np.zeros((4, 8), np.float16)), "a")


def test_a_capsule_that_was_consumed_is_refused() -> None:
    class Consumed(Producer):
        def __dlpack__(self, stream: int | None = None, **options: Any) -> object:
            capsule = super().__dlpack__(stream, **options)
            torch.from_dlpack(capsule)
            return capsule

    with pytest.raises(OperandError, match="no DLPack capsule, or a consumed one"):
        view_of(Consumed(torch.zeros(4, 8)), "a")


@pytest.mark.parametrize("answer", [None, 3, (1,), (1, 0, 0), ("cpu", 0), (1.0, 0), (None, None)])
def test_a_device_that_is_none_is_refused(answer: Any) -> None:
    with pytest.raises(OperandError, match=r"__dlpack_device__: found .*, expected a device type and an ordinal"):
        view_of(Producer(torch.zeros(4, 8), device=answer), "a")


@pytest.mark.parametrize(
    ("code", "bits", "lanes", "name"),
    [
        (2, 16, 1, "f16"),
        (2, 16, 2, "float16x2"),
        (0, 8, 4, "int8x4"),
        (1, 16, 1, "uint16"),
        (0, 16, 1, "int16"),
        (2, 64, 1, "float64"),
        (4, 32, 1, "bfloat32"),
        (5, 64, 1, "complex64"),
        (6, 8, 1, "bool8"),
    ],
)
def test_a_dlpack_type_is_spelled_by_code_bits_and_lanes(code: int, bits: int, lanes: int, name: str) -> None:
    """Codes of DLDataTypeCode in dlpack.h; vectors of a type are not the type."""
    tensor: Any = SimpleNamespace(type_code=code, type_bits=bits, type_lanes=lanes)
    assert interfaces._dtype_of_tensor(tensor) == name
