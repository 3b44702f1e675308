"""Plain calls with torch tensors that are made again, with stand-ins for tensors of a GPU."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from cutegen.errors import OperandError
from cutegen.run.call.check import check_call
from cutegen.run.call.fast_path import QuickCalls, QuickFusedCalls
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


BIAS, AUX = FakeTensor(0x50000, (N,), (1,)), FakeTensor(0x60000, (M, N), (N, 1))  # type: ignore[arg-type]
NAMED = (("bias", BIAS), ("aux", AUX))


@dataclass(frozen=True)
class FakePrepared:
    """A call that went the thorough way; `checked` and `announced` are what it was asked later."""

    call: Any
    launches: list[Any]
    checked: list[Any]
    announced: list[Any]

    def launch(self, *arguments: Any) -> None:
        self.launches.append(arguments)

    def check_addresses(self, pointers: tuple[int, ...]) -> None:
        self.checked.append(pointers)
        if pointers[2] in pointers[:2]:
            raise OperandError(operand="out", found="the memory of another", expected="memory of its own")

    def announce(self, written: tuple[Any, ...], pointers: tuple[int, ...]) -> None:
        self.announced.append((written, pointers))


@pytest.fixture
def prepared(launches: list[tuple[Any, ...]]) -> FakePrepared:
    return FakePrepared(SimpleNamespace(device=("cuda", 0)), launches, [], [])


@pytest.fixture
def fused(prepared: FakePrepared) -> QuickFusedCalls:
    """Remembers a call with a bias and an auxiliary result, with out= and without."""
    known = QuickFusedCalls()
    for out in (OUT, None):
        known.remember(A, B, out, OUT, NAMED, prepared)
    return known


def test_a_fused_call_is_checked_launched_and_announced_with_its_operands(
    fused: QuickFusedCalls, prepared: FakePrepared
) -> None:
    a, bias = replace(A, address=0x110000), replace(BIAS, address=0x150000)
    assert fused(a, B, OUT, None, (("bias", bias), ("aux", AUX)), (2.0,)) is OUT
    pointers = (a.address, B.address, OUT.address, bias.address, AUX.address)
    assert prepared.checked == [pointers]
    assert prepared.launches == [(pointers, (2.0,), STREAM)]
    assert prepared.announced == [((OUT, AUX), pointers)]


def test_a_fused_result_is_allocated_and_nobody_is_told_of_it(fused: QuickFusedCalls, prepared: FakePrepared) -> None:
    out = fused(A, B, None, None, NAMED, ())
    assert (out.address, out.shape) == (0x40000, OUT.shape)
    assert prepared.announced[0][0] == (None, AUX)
    assert fused(A, B, None, 5, NAMED, ()) is None


def test_addresses_of_a_fused_call_are_checked_before_it_is_launched(
    fused: QuickFusedCalls, prepared: FakePrepared
) -> None:
    with pytest.raises(OperandError):
        fused(A, B, replace(OUT, address=A.address), None, NAMED, ())
    assert prepared.launches == []


@pytest.mark.parametrize(
    ("a", "named"),
    [
        (replace(A, shape=(M + 1, K)), NAMED),
        (A, (("bias", replace(BIAS, dtype="f32")), ("aux", AUX))),
        (A, (("bias", replace(BIAS, shape=(1,))), ("aux", AUX))),
        (A, (("bias", replace(BIAS, requires_grad=True)), ("aux", AUX))),
        (A, (("bias", BIAS), ("aux", replace(AUX, negative=True)))),
        (A, (("bias", replace(BIAS, address=0)), ("aux", AUX))),
        (A, (("bias", BIAS),)),
        ("text", NAMED),
    ],
)
def test_whatever_is_out_of_the_ordinary_in_a_fused_call_goes_the_thorough_way(
    fused: QuickFusedCalls, prepared: FakePrepared, a: Any, named: Any
) -> None:
    assert fused(a, B, OUT, None, named, ()) is None
    assert prepared.launches == []


def test_a_fused_call_within_forward_mode_ad_goes_the_thorough_way(fused: QuickFusedCalls) -> None:
    sys.modules["torch"].autograd.forward_ad._current_level = 0
    assert fused(A, B, OUT, None, NAMED, ()) is None
