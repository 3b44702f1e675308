"""Operands at the edges of what a call takes: the largest, the strides that are refused, the bytes that they span."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cutegen.contract.launch import LaunchContract, TensorContract
from cutegen.contract.problem import MAX_BATCH, MAX_EXTENT
from cutegen.errors import DeviceError, OperandError
from cutegen.run import KeptCopies
from cutegen.run.call.check import check_inputs, place
from cutegen.run.call.dlpack import _dtype
from cutegen.run.call.operands import CPU, Form, view_of
from cutegen.run.call.storage import CallTensor, call_tensor
from cutegen.run.call.transposed_copies import Transposed
from cutegen.run.driver import load_driver
from cutegen.run.probe import Probe, ProbeContract, _poisoned

MakeContract = Callable[..., LaunchContract]


def form(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str = "f16", framework: str = "numpy") -> Form:
    return Form(shape, strides, dtype, CPU, framework, False)


def test_57_bits_of_addresses_may_be_spanned(contract: MakeContract) -> None:
    """Five-level paging has virtual addresses of 57 bits."""
    tensor = call_tensor(contract().tensor("a"))
    stride = (1 << 57) // 2 - 8  # elements of 2 bytes
    assert place(tensor, form((2, 8), (stride, 1))).span_bytes == 1 << 57
    with pytest.raises(OperandError, match="at most 144,115,188,075,855,872"):
        place(tensor, form((2, 8), (stride + 8, 1)))


def test_a_batch_fills_grid_z(contract: MakeContract) -> None:
    def shape(batch: int) -> tuple[int, ...]:
        return check_inputs(contract(), form((batch, 8, 8), (64, 8, 1)), form((8, 8), (1, 8)))

    assert shape(MAX_BATCH) == (65535, 8, 8)
    with pytest.raises(OperandError, match="a batch of 65536; expected at most 65535"):
        shape(MAX_BATCH + 1)


def test_the_tiles_of_a_matrix_have_numbers_of_32_bits(contract: MakeContract) -> None:
    """The driver would take the low 32 bits of a larger grid, and leave most of the result unwritten."""
    small = replace(contract(align=2), cta_tile=(1, 32))

    def shape(n: int) -> tuple[int, ...]:
        return check_inputs(small, form((MAX_EXTENT, 8), (8, 1)), form((8, n), (1, 8)))

    assert shape(32) == (MAX_EXTENT, 32)
    with pytest.raises(OperandError, match="so 4294705152 tiles of 1 x 32; expected at most 2147352576") as caught:
        shape(33)
    assert caught.value.fix == "split the problem, or compile with a larger tile.cta"


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_a_batch_spans_to_the_end_of_its_last_matrix(contract: MakeContract, batch: int) -> None:
    array = np.zeros((batch, 6, 24), np.float16)[:, :, :16]
    placed = place(call_tensor(contract().tensor("a")), view_of(array, "a").form)
    first, end = np.lib.array_utils.byte_bounds(array)
    assert placed.span_bytes == end - first


@pytest.mark.parametrize(("stride", "oddity"), [(-64, "reversed"), (0, "broadcast")])
def test_only_a_matrix_of_the_other_major_is_told_to_compile_for_it(
    contract: MakeContract, stride: int, oddity: str
) -> None:
    """Strides (1, 64) would be the other major; reversed or broadcast columns fit no major."""
    tensor = call_tensor(contract().tensor("a"))
    with pytest.raises(OperandError, match=re.escape('or compile with problem.a.major = "m"')):
        place(tensor, form((64, 48), (1, 64)))
    with pytest.raises(OperandError, match="contiguous in neither mode") as caught:
        place(tensor, form((64, 48), (1, stride)))
    assert f"({oddity})" in caught.value.found
    assert "compile with" not in caught.value.fix


@pytest.mark.parametrize("dtype", ["f16", "s8", "f32"])
@pytest.mark.parametrize("other", ["float64", "uint16", "uint8", "None"])
def test_a_type_that_numpy_has_is_not_carried_by_another(contract: MakeContract, dtype: str, other: str) -> None:
    with pytest.raises(OperandError, match=f"a: found dtype {other}"):
        check_inputs(contract(dtype=dtype), form((8, 8), (8, 1), other), form((8, 8), (1, 8), dtype))


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
    assert _dtype(tensor) == name


@pytest.mark.parametrize(("at", "kept"), [("first", False), ("last", False), ("before", True), ("behind", True)])
def test_a_copy_goes_when_any_byte_of_its_tensor_is_written(at: str, kept: bool) -> None:
    torch = pytest.importorskip("torch")
    given = CallTensor("b", ("k", "n"), TensorContract("b", "f16", ("n", "k"), "n", 2))
    read = CallTensor("b", ("k", "n"), TensorContract("b", "f16", ("n", "k"), "k", 16))
    copies = KeptCopies()
    b = torch.zeros(7, 30, dtype=torch.float16)[:, :5]
    Transposed(given, read, copies)(b, None)
    begin = b.data_ptr()
    last = b[6, 4:].data_ptr() + 1
    byte = {"first": begin, "last": last, "before": begin - 1, "behind": last + 1}[at]
    copies.written(byte, byte + 1)
    assert bool(copies.entries) is kept


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


def test_tables_of_registers_need_an_allocator(contract: MakeContract) -> None:
    tensor = call_tensor(contract().tensor("a"))
    with pytest.raises(OperandError, match=r"operand a: found an array of cupy; expected an array of torch or NumPy"):
        _poisoned(tensor, (32, 4), None, "cupy")


def test_a_probe_receives_every_stage(artifact: Any, contract: MakeContract, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers of a thread are those of one k-tile, times the stages; so is K."""
    table = {"tile": [64, 32, 16], "stages": 3, "values": {"a": 8, "b": 4}}
    launch = contract()
    monkeypatch.setattr(
        "cutegen.run.probe.PlanTable.of",
        lambda *_: SimpleNamespace(table=table, file="plan.json", launch=launch),
    )
    found = ProbeContract.of(artifact(launch))
    assert (found.extents, found.values) == ((64, 32, 48), (24, 12))


def test_a_probe_waits_for_the_other_operands_stream() -> None:
    told: list[tuple[int, int, int]] = []
    driver = SimpleNamespace(order_after=lambda *words: told.append(words))
    probe: Any = SimpleNamespace(_load_driver=lambda: driver)
    views: Any = [SimpleNamespace(form=SimpleNamespace(framework="cupy"), stream=stream) for stream in (7, 9)]
    assert Probe._order(probe, SimpleNamespace(device=("cuda", 1)), views) == 7  # type: ignore[arg-type]
    assert told == [(1, 7, 9)]
