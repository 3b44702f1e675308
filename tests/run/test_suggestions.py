"""What a refused call is told to do, in the words of each framework."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cutegen.contract.launch import LaunchContract
from cutegen.errors import OperandError
from cutegen.run.call import suggestions
from cutegen.run.call.check import check_call
from cutegen.run.call.operands import Form
from cutegen.run.call.storage import CallTensor, call_tensors

MakeContract = Callable[..., LaunchContract]
M, N, K = 16, 24, 32


def form(framework: str, shape: tuple[int, ...], strides: tuple[int, ...] | None = None, dtype: str = "f16") -> Form:
    rows = tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
    return Form(shape, strides or rows, dtype, ("cpu", 0), framework, False)


def tensor(contract: LaunchContract, name: str) -> CallTensor:
    return call_tensors(contract)[name]


@pytest.mark.parametrize(("framework", "words"), [("torch", "`b.t()`"), ("numpy", "`b.T`"), ("cupy", "`b.T`")])
def test_a_transposed_b_is_named_in_the_callers_framework(contract: MakeContract, framework: str, words: str) -> None:
    with pytest.raises(OperandError) as caught:
        check_call(contract("knn"), form(framework, (M, K)), form(framework, (N, K)), form(framework, (M, N)))
    error = caught.value
    assert (error.operand, error.found) == ("b", f"shape ({N}, {K}), so K = {N}")
    assert error.fix == f"{words} if it is stored as (N, K)"
    with pytest.raises(OperandError) as caught:
        check_call(contract("knn"), form(framework, (M, K)), form(framework, (K + 8, N)), form(framework, (M, N)))
    assert caught.value.fix == "", "nothing that is transposed would fit"


@pytest.mark.parametrize(
    ("framework", "dtype", "words"),
    [
        ("torch", "f16", "`a.to(torch.float16)`"),
        ("numpy", "f16", "`a.astype(np.float16)`"),
        ("cupy", "f16", "`a.astype(cupy.float16)`"),
        ("jax", "f16", "cast it to float16"),
        ("torch", "bf16", "`a.to(torch.bfloat16)`"),
        ("numpy", "bf16", "`cutegen.run.bf16_bits(a)`, whose uint16 holds the bits of bf16"),
        ("cupy", "bf16", "cast it to bfloat16"),
    ],
)
def test_casts(contract: MakeContract, framework: str, dtype: str, words: str) -> None:
    assert suggestions.cast(tensor(contract(dtype=dtype), "a"), form(framework, (M, K), dtype="f32")) == words


@pytest.mark.parametrize(
    ("framework", "a", "b"),
    [
        ("torch", "`a.contiguous()`", "`b.t().contiguous().t()`"),
        ("numpy", "`np.ascontiguousarray(a)`", "`np.asfortranarray(b)`"),
        ("cupy", "`cupy.ascontiguousarray(a)`", "`cupy.asfortranarray(b)`"),
        (
            "jax",
            f"copy it to row-major memory with a leading stride of {K} elements",
            f"copy it to column-major memory with a leading stride of {K} elements",
        ),
    ],
)
def test_copies(contract: MakeContract, framework: str, a: str, b: str) -> None:
    """Of the kernel for K-major operands A is row-major and B column-major."""
    kernel = contract("kkn")
    assert suggestions.copy(tensor(kernel, "a"), form(framework, (M, K))) == a
    assert suggestions.copy(tensor(kernel, "b"), form(framework, (K, N))) == b


def test_copies_with_padded_rows(contract: MakeContract) -> None:
    """Rows of 13 elements, which begin at multiples of 8."""
    a = tensor(contract("kkn"), "a")
    assert suggestions.copy(a, form("torch", (M, 13))) == (
        f"`torch.empty(({M}, 16), dtype=a.dtype, device=a.device)[:, :13].copy_(a)`"
    )
    assert suggestions.copy(a, form("numpy", (M, 13))) == (
        "`np.pad(np.ascontiguousarray(a), ((0, 0), (0, 3)))[..., : 13]`"
    )


def test_fresh_copies_without_padding(contract: MakeContract) -> None:
    kernel = contract("kkn")
    assert suggestions.fresh_copy(tensor(kernel, "a"), form("numpy", (M, 16))) == "`a.copy()`"
    assert suggestions.fresh_copy(tensor(kernel, "b"), form("numpy", (16, N))) == "`b.T.copy().T`"
