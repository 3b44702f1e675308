"""Gradients of `cutegen.matmul` in host memory against float64, and what autograd keeps for them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import cutegen  # noqa: E402
import cutegen.torch_ops.ops  # noqa: E402 - defines the ops, without a call before
from cutegen.build import Cache  # noqa: E402
from tests.torch_ops.cases import (  # noqa: E402
    ACTIVATIONS,
    MAJORS,
    check_gradients,
    check_kept,
    close,
    close_with_gradients,
    half,
)

HALF = torch.float16


@pytest.mark.parametrize("majors", MAJORS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_of_all_majors_and_activations(majors: str, activation: str | None) -> None:
    for direct in (False, True):
        check_gradients("cpu", majors, activation, bias=True, alpha=0.5, direct=direct)


@pytest.mark.parametrize("activation", [None, "relu", "silu"])
def test_gradients_of_batches_and_residuals(activation: str | None) -> None:
    check_gradients("cpu", "tn", activation, bias=True, residual=True, batch=(3, 2))
    check_gradients("cpu", "nt", activation, bias=False, batch=(3, 2), batched_b=True, residual=True)


@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_autograd_keeps_only_what_a_needed_gradient_reads(activation: str | None) -> None:
    check_kept(lambda a, b, bias: cutegen.matmul(a, b, bias=bias, activation=activation), activation)
    if activation != "gelu":  # which the op recomputes from all operands
        check_kept(lambda a, b, bias: torch.ops.cutegen.matmul(a, b, bias, activation), activation)


def test_a_residual_that_alone_needs_a_gradient_keeps_nothing() -> None:
    kept: list[Any] = []
    residual = half(4, 6).requires_grad_()
    for call in (cutegen.matmul, lambda a, b, **terms: torch.ops.cutegen.matmul(a, b, **terms)):
        with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda x: x):
            found = call(half(4, 8), half(8, 6), activation="silu", residual=residual)
        (grad,) = torch.autograd.grad(found.sum(), residual)
        assert torch.equal(grad, torch.ones(4, 6, dtype=HALF))
    assert kept == []


@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_a_batch_of_gradients_is_that_of_each(activation: str | None) -> None:
    layer, x = cutegen.Linear(8, 3, activation=activation), torch.randn(2, 4, 8, requires_grad=True)
    given, leaves = torch.randn(5, 2, 4, 3), (x, layer.weight, layer.bias)
    found = torch.autograd.grad(layer(x), leaves, given, is_grads_batched=True)
    for at, one in enumerate(given):
        for leaf, grads in zip(torch.autograd.grad(layer(x), leaves, one), found, strict=True):
            assert torch.allclose(grads[at], leaf, atol=1e-5)


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_what_is_added_to_a_product_of_8_bit_floats_has_a_gradient(activation: str | None, direct: bool) -> None:
    a, b = (half(*shape).to(torch.float8_e4m3fn) for shape in ((4, 32), (32, 6)))
    leaves = half(6).requires_grad_(), half(4, 6).requires_grad_(), torch.randn(4, 6).bfloat16().requires_grad_()
    exact = tuple(leaf.detach().double().requires_grad_() for leaf in leaves)
    call = torch.ops.cutegen.matmul if direct else cutegen.matmul
    found = call(a, b, bias=leaves[0], activation=activation, residual=leaves[1], beta=0.5, c=leaves[2])
    wanted = ACTIVATIONS[activation](a.double() @ b.double() + exact[0] + 0.5 * exact[2]) + exact[1]
    grad = torch.randn_like(found)
    found.backward(grad)
    wanted.backward(grad.double())
    for leaf, other in zip(leaves, exact, strict=True):
        close(leaf.grad, other.grad, torch.bfloat16, "gradient", times=2)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_gradients_of_a_bias_in_8_bit_floats(dtype: Any) -> None:
    bias = half(6).to(dtype).requires_grad_()
    (grad,) = torch.autograd.grad(cutegen.matmul(half(4, 8), half(8, 6), bias=bias).sum(), bias)
    assert torch.equal(grad, torch.full((6,), 4.0).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_of_results_in_8_bit_floats(activation: str | None, dtype: Any) -> None:
    a, b, residual = half(40, 56), half(56, 48) / 8, half(1, 48)
    bias, c, scale = half(48), torch.randn(1, 48).to(dtype), torch.rand(40) + 0.5
    leaves = [x.requires_grad_() for x in (a, b, bias, residual, c)]
    exact = [x.detach().double().requires_grad_() for x in leaves]
    wanted = scale.double()[:, None] * (exact[0] @ exact[1]) + 0.5 * exact[4] + exact[2]
    wanted = ACTIVATIONS[activation](wanted) + exact[3]
    terms = {"bias": bias, "residual": residual, "beta": 0.5, "c": c, "scale_a": scale}
    grad = torch.randn(40, 48).sign().to(dtype)
    cutegen.matmul(a, b, activation=activation, out_dtype=dtype, **terms).backward(grad)
    wanted.backward(grad.double())
    for leaf, x in zip(leaves, exact, strict=True):
        assert leaf.grad.dtype is leaf.dtype
        error = (leaf.grad.double() - x.grad).norm() / x.grad.norm()
        assert error < 0.12  # of the value before the activation, and of c; one that relu sees as 0 makes 0.03


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize(
    ("majors", "activation"), [("tn", "gelu"), ("tt", "relu"), ("nn", "silu"), ("nt", "gelu_tanh")]
)
def test_gradients_by_the_executor(
    majors: str, activation: str, kernels: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    with cutegen.matmul_settings(cpu_tensors="executor"):
        check_gradients("cpu", majors, activation, bias=True, shape=(16, 32, 64))


@pytest.mark.parametrize(
    ("of_a", "of_b"),
    [((8,), (8,)), ((8,), (8, 4)), ((4, 8), (8,)), ((3, 4, 8), (8,)), ((8,), (3, 8, 4)), ((5, 1, 4, 8), (3, 8, 2))],
)
def test_vectors_and_broadcast_batches_are_torchs_with_their_gradients(of_a: Any, of_b: Any) -> None:
    a, b = half(*of_a).requires_grad_(), half(*of_b).requires_grad_()
    out = cutegen.matmul(a, b)
    exact_a, exact_b = (x.detach().double().requires_grad_() for x in (a, b))
    close_with_gradients(out, torch.matmul(exact_a, exact_b), {"a": (a, exact_a), "b": (b, exact_b)})


@pytest.mark.parametrize(("of_a", "of_b"), [((8,), (8,)), ((4, 8), (8,)), ((3, 4, 8), (8,)), ((8,), (8, 6))])
@pytest.mark.parametrize("activation", [None, "gelu"])
def test_products_of_vectors_with_a_bias_have_torchs_shape_and_gradients(
    of_a: Any, of_b: Any, activation: str | None
) -> None:
    a, b, bias = (half(*shape).requires_grad_() for shape in (of_a, of_b, of_b[1:] or (1,)))
    exact = [x.detach().double().requires_grad_() for x in (a, b, bias)]
    wanted = torch.matmul(*exact[:2])
    wanted = ACTIVATIONS[activation](wanted + (exact[2] if wanted.dim() else exact[2].sum()))
    with torch.no_grad():
        out = torch.empty(wanted.shape, dtype=HALF)
        close(cutegen.matmul(a, b, bias=bias, activation=activation, out=out), wanted, HALF, "out")
    found = cutegen.matmul(a, b, bias=bias, activation=activation)
    leaves = {name: pair for name, *pair in zip(("a", "b", "bias"), (a, b, bias), exact, strict=True)}
    close_with_gradients(found, wanted, leaves)


@pytest.mark.parametrize(
    ("of_a", "of_b"),
    [
        *[((0, 8), (8, 4)), ((4, 0), (0, 5)), ((0, 4, 8), (8, 5)), ((0,), (0,))],
        *[((2, 3, 0), (0, 5)), ((2, 3, 8), (8, 0)), ((2, 0, 8), (8, 5)), ((2, 3, 0), (0,))],
    ],
)
def test_empty_products_are_torchs_with_their_gradients(of_a: Any, of_b: Any) -> None:
    a, b = half(*of_a).requires_grad_(), half(*of_b).requires_grad_()
    bias = half(of_b[-1] if len(of_b) > 1 else 1).requires_grad_()
    assert torch.equal(cutegen.matmul(a, b), torch.matmul(a, b))
    found = torch.autograd.grad(cutegen.matmul(a, b, bias=bias).sum(), (a, b, bias))
    for one, other in zip(found, torch.autograd.grad((torch.matmul(a, b) + bias).sum(), (a, b, bias)), strict=True):
        assert torch.equal(one, other)
