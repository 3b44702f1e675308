"""Calls with torch tensors that are made again, with tensors of the host and a stand-in for the launch."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cutegen.errors import OperandError
from cutegen.run.call.cached_calls import CachedCalls
from cutegen.run.call.check import check_call
from cutegen.run.call.operands import view_of
from cutegen.run.kernel import PreparedCall, announce

M, N, K = 16, 24, 32
STREAM = 77
HALF = torch.float16


def new(rows: int, columns: int, offset: int = 0, dtype: torch.dtype = HALF) -> torch.Tensor:
    """A row-major matrix `offset` elements into memory of its own."""
    return torch.zeros(rows * columns + offset, dtype=dtype)[offset:].view(rows, columns)


def without_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, whose memory is given back."""
    tensor.untyped_storage().resize_(0)
    return tensor


# One piece of memory, so that B lies behind A, and room for C before, between and behind them.
MEMORY = torch.zeros(M * N + M * K + K * N + M * N, dtype=HALF)
AT_A, AT_B = M * N, M * N + M * K
A, B = MEMORY[AT_A:AT_B].view(M, K), MEMORY[AT_B : AT_B + K * N].view(N, K).T
OUT = new(M, N)


def result_at(element: int) -> torch.Tensor:
    """A result that begins at that element of the operands' memory."""
    return MEMORY[element : element + M * N].view(M, N)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What was launched."""
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: STREAM + index, raising=False)
    return []


@pytest.fixture
def calls(launches: list[tuple[Any, ...]], contract: Any) -> CachedCalls:
    """Remembers A, B and OUT, with out= and without."""
    known = CachedCalls()
    for out in (OUT, None):
        remember(known, contract, A, B, out, launches)
    return known


def remember(known: CachedCalls, contract: Any, a: Any, b: Any, out: Any, launches: list[Any]) -> None:
    call = check_call(contract("kkn"), *(view_of(x, "x").form for x in (a, b, OUT)))
    known.remember(a, b, out, OUT, PreparedCall.of(call, lambda *arguments: launches.append(arguments)), 0)


def test_a_known_call_is_launched_on_the_new_addresses(calls: CachedCalls, launches: list[Any]) -> None:
    a, b, out = new(M, K), new(N, K).T, new(M, N)
    assert calls(a, b, out, None) is out
    assert launches == [((a.data_ptr(), b.data_ptr(), out.data_ptr()), (), STREAM)]


def test_a_result_is_allocated_as_the_first_one_was(calls: CachedCalls, launches: list[Any]) -> None:
    out = calls(A, B, None, None)
    assert (out.shape, out.stride(), out.dtype, out.device) == (OUT.shape, OUT.stride(), OUT.dtype, OUT.device)
    assert launches == [((A.data_ptr(), B.data_ptr(), out.data_ptr()), (), STREAM)]


def test_the_callers_stream_is_used(calls: CachedCalls, launches: list[Any]) -> None:
    assert calls(A, B, OUT, SimpleNamespace(cuda_stream=5)) is OUT
    assert [stream for _, _, stream in launches] == [5]


def test_memory_for_a_result_on_the_callers_stream_is_not_taken_here(calls: CachedCalls, launches: list[Any]) -> None:
    assert calls(A, B, None, 5) is None
    assert launches == []


@pytest.mark.parametrize(
    ("a", "b", "out"),
    [
        (new(M + 1, K), B, OUT),
        (torch.zeros(M, K + 8, dtype=HALF)[:, :K], B, OUT),
        (A, new(N, K, dtype=torch.bfloat16).T, OUT),
        (A, B, OUT.to("meta")),
        (A.clone().requires_grad_(), B, OUT),
        (A, B.clone().requires_grad_(), OUT),
        (A, B, OUT.clone().requires_grad_()),
        (torch._neg_view(A), B, OUT),
        (A, torch._neg_view(B), None),
        (A, B, torch._neg_view(OUT)),
        (A.to_sparse(), B, OUT),
        (torch.nn.Parameter(A, requires_grad=False), B, OUT),
        (without_memory(new(M, K)), B, OUT),
        (A, without_memory(new(N, K).T), None),
        (A, B, without_memory(new(M, N))),
        (new(M, K, 4), B, OUT),
        (A, new(N, K, 1).T, OUT),
        (A, B, new(M, N, 4)),
        (A.numpy(), B, OUT),
        ([[1.0]], B, OUT),
        (A, B, "text"),
    ],
)
def test_whatever_is_out_of_the_ordinary_goes_the_thorough_way(
    calls: CachedCalls, launches: list[Any], a: Any, b: Any, out: Any
) -> None:
    assert calls(a, b, out, None) is None
    assert launches == []


def test_within_forward_mode_ad_every_call_goes_the_thorough_way(calls: CachedCalls, launches: list[Any]) -> None:
    with torch.autograd.forward_ad.dual_level():
        assert calls(A, B, OUT, None) is None
    assert launches == []


def test_what_was_multiplied_without_gradients_is_not_known_with_them(contract: Any, launches: list[Any]) -> None:
    known, graded = CachedCalls(), A.clone().requires_grad_()
    with torch.no_grad():
        remember(known, contract, graded, B, OUT, launches)
    assert known(graded, B, OUT, None) is None


def test_a_tensor_may_be_both_operands(contract: Any, launches: list[Any]) -> None:
    known, square, out = CachedCalls(), new(K, K), new(K, K)
    call = check_call(contract("knn"), *(view_of(x, "x").form for x in (square, square, out)))
    prepared = PreparedCall.of(call, lambda *arguments: launches.append(arguments))
    known.remember(square, square, out, out, prepared, 0)
    assert known(square, square, out, None) is out
    assert known(square, new(K, K), out, None) is None
    assert len(launches) == 1


def test_tensors_of_the_same_shapes_are_known_beside_each_other(
    calls: CachedCalls, contract: Any, launches: list[Any]
) -> None:
    wide = torch.zeros(M, K + 8, dtype=HALF)[:, :K]
    remember(calls, contract, wide, B, OUT, launches)
    assert calls(wide, B, OUT, None) is OUT
    assert calls(A, B, OUT, None) is OUT
    assert [addresses[0] for addresses, _, _ in launches] == [wide.data_ptr(), A.data_ptr()]


def test_torch_is_told_what_a_repeated_call_wrote_of_the_callers_tensors() -> None:
    out, aux, fresh = new(M, N), new(M, N), new(M, N)
    announce(out, out, aux)
    announce(fresh, None, aux)
    assert (out._version, aux._version, fresh._version) == (1, 2, 0)


def test_neighbors_in_memory_are_apart(calls: CachedCalls, launches: list[Any]) -> None:
    before, after = result_at(AT_A - M * N), result_at(AT_B + K * N)
    assert calls(A, B, after, None) is after
    assert calls(A, B, before, None) is before
    assert len(launches) == 2


@pytest.mark.parametrize(
    ("element", "named"), [(AT_A, "a"), (AT_A - 8, "a"), (AT_B - 8, "[ab]"), (AT_B + N * K - 8, "b")]
)
def test_a_result_in_the_memory_of_an_operand_is_refused(
    calls: CachedCalls, launches: list[Any], element: int, named: str
) -> None:
    with pytest.raises(OperandError, match=f"memory shared with {named}"):
        calls(A, B, result_at(element), None)
    assert launches == []


BIAS, AUX = torch.zeros(N, dtype=HALF), new(M, N)
BESIDE = (BIAS, AUX)


@dataclass(frozen=True)
class FakePrepared:
    """A call with a bias and an auxiliary result that went the slow path; `checked` is what it was asked later."""

    launches: list[Any]
    checked: list[Any]
    names: tuple[str, ...] = ("a", "b", "out", "bias", "aux")
    apart: tuple[tuple[int, int], ...] = ((2, 0), (2, 1), (2, 3), (4, 0), (4, 1), (4, 2), (4, 3))

    @property
    def placed(self) -> list[Any]:
        spans = {"a": M * K * 2, "b": K * N * 2, "bias": N * 2}
        return [
            SimpleNamespace(
                align_bytes=16,
                span_bytes=spans.get(name, M * N * 2),
                tensor=SimpleNamespace(written=name in ("out", "aux")),
            )
            for name in self.names
        ]

    def launch(self, *arguments: Any) -> None:
        self.launches.append(arguments)

    def check_addresses(self, pointers: tuple[int, ...]) -> None:
        self.checked.append(pointers)
        if "c" not in self.names:
            raise OperandError(operand="out", found="the memory of another", expected="memory of its own")


@pytest.fixture
def prepared(launches: list[tuple[Any, ...]]) -> FakePrepared:
    return FakePrepared(launches, [])


@pytest.fixture
def fused(prepared: FakePrepared) -> CachedCalls:
    """Remembers a call with a bias and an auxiliary result, with out= and without."""
    known = CachedCalls()
    for out in (OUT, None):
        known.remember(A, B, out, OUT, prepared, 0, BESIDE)
    return known


def test_a_call_is_launched_with_its_tensors_and_numbers(fused: CachedCalls, prepared: FakePrepared) -> None:
    a, bias = new(M, K), BIAS.clone()
    assert fused(a, B, OUT, None, (bias, AUX), (2.0,)) is OUT
    pointers = tuple(x.data_ptr() for x in (a, B, OUT, bias, AUX))
    assert (prepared.launches, prepared.checked) == ([(pointers, (2.0,), STREAM)], [])


def test_a_result_of_several_tensors_is_allocated(fused: CachedCalls, prepared: FakePrepared) -> None:
    out = fused(A, B, None, None, BESIDE)
    assert (out.shape, out.stride(), out.dtype) == (OUT.shape, OUT.stride(), OUT.dtype)
    assert prepared.launches[0][0][2] == out.data_ptr()
    assert fused(A, B, None, 5, BESIDE) is None


@pytest.mark.parametrize("out", [OUT, None], ids=["out", "no out"])
def test_each_result_of_the_caller_is_apart_from_what_the_kernel_reads(
    fused: CachedCalls, prepared: FakePrepared, out: Any
) -> None:
    with pytest.raises(OperandError):
        fused(A, B, out, None, (BIAS, result_at(AT_A)))
    if out is not None:
        with pytest.raises(OperandError):
            fused(A, B, result_at(AT_A), None, BESIDE)
        with pytest.raises(OperandError):
            fused(A, B, AUX[:], None, BESIDE)
    assert prepared.launches == []


@pytest.mark.parametrize(
    ("a", "beside"),
    [
        (new(M + 1, K), BESIDE),
        (A, (BIAS.float(), AUX)),
        (A, (BIAS[:1], AUX)),
        (A, (BIAS.clone().requires_grad_(), AUX)),
        (A, (BIAS, torch._neg_view(AUX))),
        (A, (without_memory(BIAS.clone()), AUX)),
        (A, (torch.zeros(N + 1, dtype=HALF)[1:], AUX)),
        (A, (BIAS,)),
        (A, (BIAS, OUT)),
        (A, (BIAS.numpy(), AUX)),
        ("text", BESIDE),
    ],
)
def test_whatever_is_out_of_the_ordinary_beside_a_and_b_goes_the_thorough_way(
    fused: CachedCalls, prepared: FakePrepared, a: Any, beside: Any
) -> None:
    assert fused(a, B, OUT, None, beside) is None
    assert prepared.launches == []


def test_a_call_of_several_tensors_within_forward_mode_ad_goes_the_thorough_way(fused: CachedCalls) -> None:
    with torch.autograd.forward_ad.dual_level():
        assert fused(A, B, OUT, None, BESIDE) is None


def test_a_result_may_be_what_is_added(launches: list[Any]) -> None:
    apart = ((2, 0), (2, 1), (2, 3))
    prepared, known, c = FakePrepared(launches, [], ("a", "b", "out", "c"), apart), CachedCalls(), new(M, N)
    known.remember(A, B, c, c, prepared, 0, (c,))
    assert known(A, B, c, None, (c,), (1.0, 0.5)) is c
    addresses = A.data_ptr(), B.data_ptr(), c.data_ptr(), c.data_ptr()
    assert (launches, prepared.checked) == ([(addresses, (1.0, 0.5), STREAM)], [addresses])
    assert known(A, B, OUT, None, (c,), (1.0, 0.5)) is None
