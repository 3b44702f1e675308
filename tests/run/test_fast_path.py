"""Plain calls with torch tensors that are made again, with stand-ins for tensors of a GPU."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from cutegen.run.call.check import check_call
from cutegen.run.call.fast_path import QuickCalls
from cutegen.run.call.operands import Form

M, N, K = 16, 24, 32
STREAM = 77


@dataclass(frozen=True)
class FakeTensor:
    """As much of a torch tensor as a quick call looks at."""

    address: int
    shape: tuple[int, int]
    strides: tuple[int, int]
    requires_grad: bool = False
    dtype: str = "f16"
    device: str = "cuda:0"
    negative: bool = False

    def stride(self) -> tuple[int, int]:
        return self.strides

    def data_ptr(self) -> int:
        return self.address

    def is_neg(self) -> bool:
        return self.negative


A = FakeTensor(0x10000, (M, K), (K, 1))
B = FakeTensor(0x20000, (K, N), (1, K))
OUT = FakeTensor(0x30000, (M, N), (N, 1))


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What was launched; torch allocates at 0x40000."""

    def empty_strided(shape: Any, strides: Any, *, dtype: Any, device: Any) -> FakeTensor:
        return FakeTensor(0x40000, shape, strides, False, dtype, device)

    counted: list[FakeTensor] = []
    torch = SimpleNamespace(
        Tensor=FakeTensor,
        empty_strided=empty_strided,
        _C=SimpleNamespace(_cuda_getCurrentRawStream=lambda index: STREAM + index),
        autograd=SimpleNamespace(
            forward_ad=SimpleNamespace(_current_level=-1),
            graph=SimpleNamespace(increment_version=counted.append, counted=counted),
        ),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    return []


@pytest.fixture
def calls(launches: list[tuple[Any, ...]], contract: Any) -> QuickCalls:
    """Remembers A, B and OUT, with out= and without."""
    forms = (Form(x.shape, x.strides, "f16", ("cuda", 0), "torch", False) for x in (A, B, OUT))
    call, known = check_call(contract("kkn"), *forms), QuickCalls()
    for out in (OUT, None):
        known.remember(A, B, out, OUT, call, lambda *arguments: launches.append(arguments))
    return known


def test_a_known_call_is_launched_on_the_new_addresses(calls: QuickCalls, launches: list[Any]) -> None:
    a, b, out = (replace(x, address=x.address + 0x100000) for x in (A, B, OUT))
    assert calls(a, b, out, None) is out
    assert launches == [((a.address, b.address, out.address), (), STREAM)]


def test_a_result_is_allocated_as_the_first_one_was(calls: QuickCalls, launches: list[Any]) -> None:
    out = calls(A, B, None, None)
    assert (out.shape, out.stride(), out.dtype, out.device) == (OUT.shape, OUT.stride(), OUT.dtype, OUT.device)
    assert launches == [((A.address, B.address, out.address), (), STREAM)]


def test_the_callers_stream_is_used(calls: QuickCalls, launches: list[Any]) -> None:
    assert calls(A, B, OUT, SimpleNamespace(cuda_stream=5)) is OUT
    assert [stream for _, _, stream in launches] == [5]


def test_memory_for_a_result_on_the_callers_stream_is_not_taken_here(calls: QuickCalls, launches: list[Any]) -> None:
    assert calls(A, B, None, 5) is None
    assert launches == []


@pytest.mark.parametrize(
    ("a", "b", "out"),
    [
        (replace(A, shape=(M + 1, K)), B, OUT),
        (replace(A, strides=(K + 8, 1)), B, OUT),
        (A, replace(B, dtype="bf16"), OUT),
        (A, B, replace(OUT, device="cuda:1")),
        (replace(A, requires_grad=True), B, OUT),
        (A, replace(B, requires_grad=True), OUT),
        (A, B, replace(OUT, requires_grad=True)),
        (replace(A, negative=True), B, OUT),
        (A, replace(B, negative=True), None),
        (A, B, replace(OUT, negative=True)),
        (replace(A, address=0), B, OUT),
        (A, replace(B, address=0), None),
        (A, B, replace(OUT, address=0)),
        (replace(A, address=A.address + 8), B, OUT),
        (A, replace(B, address=B.address + 2), OUT),
        (A, B, replace(OUT, address=OUT.address + 8)),
        (A, B, replace(OUT, address=A.address)),
        (A, B, replace(OUT, address=A.address - 16)),
        (A, B, replace(OUT, address=B.address + (N * K - 8) * 2)),
        ([[1.0]], B, OUT),
        (A, B, "text"),
    ],
)
def test_whatever_is_out_of_the_ordinary_goes_the_thorough_way(
    calls: QuickCalls, launches: list[Any], a: Any, b: Any, out: Any
) -> None:
    assert calls(a, b, out, None) is None
    assert launches == []


def test_within_forward_mode_ad_every_call_goes_the_thorough_way(calls: QuickCalls, launches: list[Any]) -> None:
    sys.modules["torch"].autograd.forward_ad._current_level = 0
    assert calls(A, B, OUT, None) is None
    assert launches == []


def test_torch_is_told_of_what_the_caller_sees_written(calls: QuickCalls) -> None:
    calls(A, B, None, None)
    calls(A, B, OUT, None)
    assert sys.modules["torch"].autograd.graph.counted == [OUT]


def test_neighbours_in_memory_are_apart(calls: QuickCalls, launches: list[Any]) -> None:
    after = replace(OUT, address=A.address + M * K * 2)
    assert calls(A, B, after, None) is after
    before = replace(OUT, address=A.address - M * N * 2)
    assert calls(A, B, before, None) is before
    assert len(launches) == 2
