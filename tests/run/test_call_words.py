"""What a refused call is told in each framework, what a table of CUDA memory may hold, and the ends of number types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cutegen.contract.launch import LaunchContract
from cutegen.errors import OperandError
from cutegen.run.call import suggestions
from cutegen.run.call.bits import bf16_bits
from cutegen.run.call.check import check_call
from cutegen.run.call.cuda_array import read
from cutegen.run.call.operands import Form
from cutegen.run.call.storage import CallTensor, MatrixStorage, call_tensors

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
    ("framework", "words"),
    [
        ("torch", "`a.to(torch.float16)`"),
        ("numpy", "`a.astype(np.float16)`"),
        ("cupy", "`a.astype(cupy.float16)`"),
        ("jax", "cast it to float16"),
    ],
)
def test_casts(contract: MakeContract, framework: str, words: str) -> None:
    assert suggestions.cast(tensor(contract(), "a"), form(framework, (M, K), dtype="f32")) == words


@pytest.mark.parametrize(
    ("framework", "words"),
    [
        ("numpy", "`cutegen.run.bf16_bits(a)`, whose uint16 holds the bits of bf16"),
        ("torch", "`a.to(torch.bfloat16)`"),
        ("cupy", "cast it to bfloat16"),
    ],
)
def test_casts_to_what_numpy_has_no_type_for(contract: MakeContract, framework: str, words: str) -> None:
    assert suggestions.cast(tensor(contract(dtype="bf16"), "a"), form(framework, (M, K), dtype="f32")) == words


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


TABLE: dict[str, Any] = {"version": 3, "data": (4096, False), "shape": (4, 8), "typestr": "<f2"}


@pytest.mark.parametrize(
    "change", [{}, {"version": 0}, {"stream": None}, {"stream": 0}, {"stream": 2**64 - 1}, {"data": [0, True]}]
)
def test_tables_of_cuda_memory_that_are_taken(change: dict[str, Any]) -> None:
    found = read({**TABLE, **change})
    assert (found.shape, found.stream) == ((4, 8), change.get("stream"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": -1}, "version"),
        ({"stream": -1}, "stream"),
        ({"stream": 2**64}, "stream"),
        ({"stream": "1"}, "stream"),
        ({"data": 4096}, "data"),
        ({"data": "ab"}, "data"),
        ({"data": {1: 2, 3: 4}}, "data"),
        ({"typestr": "|V0"}, "typestr"),
        ({"shape": (4, -8)}, "shape"),
    ],
)
def test_tables_of_cuda_memory_that_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}: found"):
        read({**TABLE, **change})


@pytest.mark.parametrize(
    ("bits", "rounded"),
    [
        (0x3F808000, 0x3F80),  # a tie, to even
        (0x3F818000, 0x3F82),
        (0x3F808001, 0x3F81),
        (0x3F807FFF, 0x3F80),
        (0x7F7FFFFF, 0x7F80),
        (0xFF800000, 0xFF80),
    ],
)
def test_rounding_to_bf16(bits: int, rounded: int) -> None:
    assert bf16_bits(np.array([bits], np.uint32).view(np.float32)).tolist() == [rounded]


@pytest.mark.parametrize("align", [1, 8])
def test_a_host_buffer_is_found_wherever_memory_begins(align: int) -> None:
    """Of (3, 8) elements with `align` elements: one less in front at most."""
    storage = MatrixStorage(rows=3, columns=8, stride=8, transposed=False, align=align)
    assert storage.host_elems == 24 + align - 1
    flat = np.zeros(storage.host_elems, np.float16)
    for address in range(0, 16, 2):
        assert storage.host_buffer(flat, address).shape == (3, 8)
