"""`cutegen.matmul` under `torch.vmap`: a batch at once, or one by one where more than A and B is batched."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import cutegen  # noqa: E402
from cutegen.torch_ops import eager  # noqa: E402
from tests.torch_ops.cases import half  # noqa: E402
from tests.torch_ops.exact import Exact, close, close_gradients  # noqa: E402


def test_vmap_is_a_batch_or_a_loop() -> None:
    a, b, bias = half(5, 4, 8), half(5, 8, 6), half(5, 6)
    one = torch.vmap(lambda x, y: cutegen.matmul(x, y))(a, b)
    close(one, Exact(a, b))
    assert torch.equal(one, cutegen.matmul(a, b))
    shared = torch.vmap(lambda x: cutegen.matmul(x, b[0]), in_dims=1)(a)
    close(shared, Exact(a.transpose(0, 1), b[0]))
    assert torch.equal(shared, cutegen.matmul(a.transpose(0, 1), b[0]))
    each = torch.vmap(lambda x, y, z: cutegen.matmul(x, y, bias=z, activation="gelu"))(a, b, bias)
    for one, (x, y, z) in zip(each, zip(a, b, bias, strict=True), strict=True):
        close(one, Exact(x, y, z, "gelu"))
        assert torch.equal(one, cutegen.matmul(x, y, bias=z, activation="gelu"))


def test_vmap_over_nothing_is_empty_with_gradients() -> None:
    x, bias, w = (tensor.requires_grad_() for tensor in (half(0, 8), half(0, 6), half(8, 6)))
    rows, matrices = half(0, 4, 8), half(4, 0, 8)
    for mine, theirs, given in (
        (cutegen.matmul, torch.matmul, (x,)),
        (lambda x, w, y: cutegen.matmul(x, w, bias=y), lambda x, w, y: x @ w + y, (x, bias)),
        (lambda x, w, y: cutegen.matmul(x, w, bias=y, activation="silu"), lambda x, w, y: x @ w + y, (rows, bias)),
    ):
        found, wanted = (
            torch.vmap(function, in_dims=(0, None, *[0] * (len(given) - 1)))(given[0], w, *given[1:])
            for function in (mine, theirs)
        )
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        leaves = [w, *(tensor for tensor in given if tensor.requires_grad)]
        for one, other in zip(*(torch.autograd.grad(each.sum(), leaves) for each in (found, wanted)), strict=True):
            assert torch.equal(one, other)
    assert torch.vmap(lambda x: cutegen.matmul(x, w, scale_a=torch.ones(4, 1)), in_dims=1)(matrices).shape == (0, 4, 6)
    narrow = torch.vmap(lambda x: cutegen.matmul(x, w.detach().to(torch.float8_e5m2)))
    assert narrow(torch.empty(0, 8).to(torch.float8_e5m2)).dtype is torch.bfloat16


def test_vmap_takes_scales_of_a_batch() -> None:
    a, b, scale = half(3, 2, 4, 8), half(8, 6), torch.rand(2, 4) + 0.5
    found = torch.vmap(lambda x: cutegen.matmul(x, b, scale_a=scale))(a)
    close(found, Exact(a, b, scale=scale[..., None]))
    assert torch.equal(found, torch.stack([cutegen.matmul(x, b, scale_a=scale) for x in a]))


def test_vmap_multiplies_a_batch_at_once_where_nothing_else_is_batched(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a C of any shape beside it, which no scale is."""
    a, b, c = half(5, 4, 8), half(8, 6), half(1, 1, 6)
    calls: list[Any] = []
    monkeypatch.setattr("cutegen.torch_ops.ops.compute", lambda call: calls.append(call) or eager.compute(call))
    found = torch.vmap(lambda x: cutegen.matmul(x[None], b, c=c, beta=1.0))(a)
    assert (len(calls), calls[0].a.shape) == (1, (5, 1, 4, 8))
    close(found, Exact(a[:, None], b, c=c))
    assert torch.equal(found, torch.stack([cutegen.matmul(x[None], b, c=c, beta=1.0) for x in a]))
    calls.clear()
    matrices = half(5, 8, 6)
    close(torch.vmap(cutegen.matmul)(a, matrices), Exact(a, matrices))
    assert [call.b.shape for call in calls] == [(5, 8, 6)]


@pytest.mark.parametrize("activation", [None, "gelu"])
def test_gradients_of_a_batch_under_vmap(activation: str | None) -> None:
    a, b = half(5, 4, 8).requires_grad_(), half(8, 6).requires_grad_()
    found = torch.vmap(lambda x: cutegen.matmul(x, b, activation=activation))(a)
    exact = Exact(a, b, activation=activation)
    close(found, exact)
    grad = exact.random_gradient(found.dtype)
    found.backward(grad)
    close_gradients({"a": a, "b": b}, exact, grad)
