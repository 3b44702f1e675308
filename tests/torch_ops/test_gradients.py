"""Gradients of `cutegen.matmul` in host memory against float64, and what autograd keeps for them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import cutegen  # noqa: E402
import cutegen.torch_ops.ops  # noqa: E402 - defines the ops, without a call before
from cutegen.build import Cache  # noqa: E402
from tests.torch_ops.cases import MAJORS, check_gradients, check_kept, half  # noqa: E402
from tests.torch_ops.exact import ACTIVATIONS, Exact, close, close_gradients  # noqa: E402

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
    exact, leaves = Exact(x, layer.weight.T, layer.bias, activation), (x, layer.weight, layer.bias)
    given = torch.stack([exact.random_gradient(torch.float32) for _ in range(5)])
    found = torch.autograd.grad(layer(x), leaves, given, is_grads_batched=True)
    for each, grad in zip(zip(*found, strict=True), given, strict=True):
        wanted = exact.gradients(grad)
        for grads in (each, torch.autograd.grad(layer(x), leaves, grad)):
            close(grads[0], wanted["a"], "x")
            close(grads[1].T, wanted["b"], "weight")
            close(grads[2], wanted["bias"], "bias")


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_what_is_added_to_a_product_of_8_bit_floats_has_a_gradient(activation: str | None, direct: bool) -> None:
    a, b = (half(*shape).to(torch.float8_e4m3fn) for shape in ((4, 32), (32, 6)))
    leaves = {"bias": half(6), "residual": half(4, 6), "c": torch.randn(4, 6).bfloat16()}
    for leaf in leaves.values():
        leaf.requires_grad_()
    call = torch.ops.cutegen.matmul if direct else cutegen.matmul
    found = call(a, b, activation=activation, beta=0.5, **leaves)
    exact = Exact(a, b, activation=activation, beta=0.5, **leaves)
    close(found, exact)
    grad = exact.random_gradient(found.dtype)
    found.backward(grad)
    close_gradients(leaves, exact, grad)


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("needed", ["a", "b", "bias", "residual", "c"])
def test_an_operand_may_need_its_gradient_alone(needed: str, activation: str | None, direct: bool) -> None:
    shapes = {"a": (4, 8), "b": (8, 6), "bias": (6,), "residual": (4, 6), "c": (4, 6)}
    operands = {name: half(*shape) for name, shape in shapes.items()}
    leaf, scale = operands[needed].requires_grad_(), torch.rand(4) + 0.5
    exact = Exact(**operands, activation=activation, alpha=0.5, beta=2.0, scale=scale[:, None])
    call = torch.ops.cutegen.matmul if direct else cutegen.matmul
    found = call(**operands, activation=activation, alpha=0.5, beta=2.0, scale_a=scale)
    close(found, exact)
    grad = exact.random_gradient(HALF)
    found.backward(grad)
    close_gradients({needed: leaf}, exact, grad)
    assert all(operands[name].grad is None for name in shapes.keys() - {needed})


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_gradients_of_a_bias_in_8_bit_floats(dtype: Any) -> None:
    """Added up in f32 and rounded once."""
    bias = half(6).to(dtype).requires_grad_()
    exact = Exact(half(40, 8), half(8, 6), bias)
    grad = exact.random_gradient(HALF)
    cutegen.matmul(exact.a, exact.b, bias=bias).backward(grad)
    close_gradients({"bias": bias}, exact, grad)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_of_results_in_8_bit_floats(activation: str | None, dtype: Any) -> None:
    leaves = {"a": half(40, 56), "b": half(56, 48) / 8, "bias": half(48)}
    leaves |= {"residual": half(1, 48), "c": torch.randn(1, 48).to(dtype)}
    for leaf in leaves.values():
        leaf.requires_grad_()
    scale = torch.rand(40) + 0.5
    exact = Exact(**leaves, activation=activation, beta=0.5, scale=scale[:, None])
    found = cutegen.matmul(**leaves, activation=activation, out_dtype=dtype, beta=0.5, scale_a=scale)
    close(found, exact)
    grad = exact.random_gradient(dtype)
    found.backward(grad)
    close_gradients(leaves, exact, grad)


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
    out, exact = cutegen.matmul(a, b), Exact(a, b)
    close(out, exact)
    grad = exact.random_gradient(HALF)
    out.backward(grad)
    close_gradients({"a": a, "b": b}, exact, grad)


@pytest.mark.parametrize(("of_a", "of_b"), [((8,), (8,)), ((4, 8), (8,)), ((3, 4, 8), (8,)), ((8,), (8, 6))])
@pytest.mark.parametrize("activation", [None, "gelu"])
def test_products_of_vectors_with_a_bias_have_torchs_shape_and_gradients(
    of_a: Any, of_b: Any, activation: str | None
) -> None:
    a, b, bias = (half(*shape).requires_grad_() for shape in (of_a, of_b, of_b[1:] or (1,)))
    exact = Exact(a, b, bias, activation)
    with torch.no_grad():
        out = torch.empty(torch.matmul(a, b).shape, dtype=HALF)
        close(cutegen.matmul(a, b, bias=bias, activation=activation, out=out), exact, "out")
    found = cutegen.matmul(a, b, bias=bias, activation=activation)
    close(found, exact)
    grad = exact.random_gradient(HALF)
    found.backward(grad)
    close_gradients({"a": a, "b": b, "bias": bias}, exact, grad)


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
