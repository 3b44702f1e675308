"""The bound of the running error analysis holds what float32 does, and not much more."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cutegen.spec import OPS, STORE
from cutegen.spec.steps import chain_of
from cutegen.verify.error_bounds import Bounded, run_chain
from cutegen.verify.reference import compare
from tests.run.epilogues import EVERY_FUNCTION

torch = pytest.importorskip("torch")
SINGLE = [
    *(text for text in OPS.values() if text != STORE),
    *(f"x -> {name}(x)" for name in ("abs", "erf", "exp", "sigmoid", "tanh")),
    "x -> max(x, c) * min(x, residual) / (3 + bias_n * bias_n)",
    "x -> x - 1e-3 * (x * x - alpha)",
    EVERY_FUNCTION,
]


NUMBERS = (("alpha", 0.75), ("beta", -1.25))


def in_float32(x: Any, text: str, operands: dict[str, Any]) -> Any:
    """PyTorch's float32 functions, another implementation, through Python's reading of the same text."""
    functional = torch.nn.functional
    functions = {
        "abs": torch.abs,
        "erf": torch.erf,
        "exp": torch.exp,
        "gelu_erf": functional.gelu,
        # 1 + tanh, as PyTorch has it, cancels where x is well below zero; the kernels compute the same as a sigmoid.
        "gelu_tanh": lambda x: x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)),
        "max": lambda x, y: torch.maximum(*_both(x, y)),
        "min": lambda x, y: torch.minimum(*_both(x, y)),
        "relu": torch.relu,
        "sigmoid": torch.sigmoid,
        "silu": functional.silu,
        "tanh": torch.tanh,
    }
    return eval(text.removeprefix("x -> "), {**functions, **operands, "x": x})


def _both(x: Any, y: Any) -> tuple[Any, Any]:
    return torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y, dtype=torch.float32)


@pytest.mark.parametrize("text", SINGLE)
@pytest.mark.parametrize("scale", [1e-4, 1.0, 30.0])
def test_float32_is_within_the_bound_and_the_bound_is_close(text: str, scale: float) -> None:
    generator = torch.Generator().manual_seed(len(text))
    names = ("x", "c", "residual", "bias_n", "bias_m", "scale_m", "scale_n")
    single = {name: scale * torch.randn(4000, generator=generator) for name in names}
    single |= {"alpha": 0.75, "beta": -1.25}
    double = {name: value if isinstance(value, float) else value.double().numpy() for name, value in single.items()}
    x = double.pop("x")
    exact = run_chain(Bounded(x, np.zeros_like(x)), chain_of([text]), double).result
    found = in_float32(single.pop("x"), text, single).double().numpy()
    finite = np.abs(exact.value) < 3e38
    assert (np.abs(found - exact.value) <= exact.error)[finite].all()
    tight = np.abs(exact.value) + np.abs(x) + 1
    assert np.median((exact.error / tight)[finite]) < 1e-4


def test_a_sigmoid_is_bounded_as_kernels_compute_it() -> None:
    """1 / (1 + 2**(-x log2 e)) in float32: the exponent is rounded twice, which far below zero is most of the error."""
    x = np.linspace(-80, -20, 20001, dtype=np.float32)
    found = 1 / (1 + np.exp2(x * np.float32(-1.0 / math.log(2))))
    exact = run_chain(Bounded(x.astype(np.float64), np.zeros(len(x))), chain_of(["x -> sigmoid(x)"]), {}).result
    assert found.dtype == np.float32
    units = np.abs(found - exact.value) / exact.value * 2**24
    assert units.max() > 16  # of more than the function's own 8 roundings
    assert (np.abs(found - exact.value) <= exact.error).all()
    assert (exact.error <= (2 * np.abs(x) + 9) * 2.0**-24 * exact.value + 2.0**-126).all()


def test_an_error_of_x_is_passed_on() -> None:
    """Values moved by what x may be off stay within the bound."""
    x = np.linspace(-6, 6, 1001)
    vectors = {"bias_n": 0.5 + 0 * x, "bias_m": x / 7, "scale_m": x / 3, "scale_n": -2 + x / 5}
    for text in SINGLE[:-2]:
        operands = {"c": x[::-1], "residual": x[::-1], "alpha": 1.0, "beta": 0.5, **vectors}
        exact = run_chain(Bounded(x, np.full_like(x, 1e-3)), chain_of([text]), operands).result
        for moved in (x + 1e-3, x - 1e-3):
            other = run_chain(Bounded(moved, 0 * x), chain_of([text]), operands).result
            assert (np.abs(other.value - exact.value) <= exact.error + 1e-12).all(), text


def test_where_a_divisor_may_be_zero_there_is_no_bound() -> None:
    x = np.array([0.0, 1.0])
    found = run_chain(Bounded(x, np.array([1e-3, 1e-3])), chain_of(["x -> 1 / x"]), {}).result
    assert found.error[0] == math.inf
    assert found.error[1] < 2e-3


@pytest.mark.parametrize("text", ["x -> exp(x) * 1e-30", "x -> exp(x) / (1 + exp(x))", "x -> (x - 3e38 * x) / 1e36"])
def test_where_float32_may_overflow_on_the_way_there_is_no_bound(text: str) -> None:
    """In float64 the results are finite; in float32 they are infinite, or NaN."""
    x = np.array([[100.0, 0.5]])
    found = run_chain(Bounded(x, np.full((1, 2), 1e-6)), chain_of([text]), {}).result
    assert np.isfinite(found.value).all()
    for value in (math.inf, math.nan):
        assert compare(np.array([[value, found.value[0, 1]]], np.float32), found, dtype="f32").ok
    assert compare(np.array([[0.0, math.inf]], np.float32), found, dtype="f32").wrong == 1


def test_zero_times_what_has_no_bound_has_none_and_every_value_passes() -> None:
    x = np.array([[0.0, 1.0]])
    for text in ("x -> gelu_tanh(0) / x", "x -> beta * (1 / x)", "x -> (0 / x) * beta"):
        chain = run_chain(Bounded(x, np.array([[1e-3, 1e-3]])), chain_of([text]), {"beta": 0.0}).result
        assert chain.error[0, 0] == math.inf, text
        assert math.isfinite(chain.error[0, 1]), text
        for value in (math.nan, math.inf, 7.0):
            found = compare(np.array([[value, chain.value[0, 1]]], np.float32), chain, dtype="f32")
            assert found.ok, text
            assert math.isfinite(found.rel_error), text
        assert compare(np.array([[0.0, math.nan]], np.float32), chain, dtype="f32").wrong == 1


@pytest.mark.parametrize(
    "text", ["relu(relu(beta))", "gelu_tanh(alpha)", "gelu_erf(exp(alpha))", "max(beta, 2) * silu(alpha)"]
)
def test_a_part_without_a_matrix_is_a_number(text: str) -> None:
    x = np.zeros((2, 3))
    made = run_chain(Bounded(x, x), chain_of([f"x -> x + {text}"]), dict(NUMBERS)).result
    expected = in_float32(torch.zeros(2, 3), f"x -> {text}", {name: torch.tensor(value) for name, value in NUMBERS})
    assert (abs(made.value - expected.double().numpy()) <= made.error + 1e-6).all()


def test_torch_and_numpy_agree() -> None:
    x = np.linspace(-4, 4, 101)
    operands = {"c": x / 2, "residual": x / 3, "bias_n": x / 4, "alpha": 0.5, "beta": 1.5}
    in_numpy = run_chain(Bounded(x, 1e-6 * x**2), chain_of([EVERY_FUNCTION, STORE]), operands)
    tensors = {name: v if isinstance(v, float) else torch.from_numpy(v.copy()) for name, v in operands.items()}
    start = Bounded(torch.from_numpy(x), torch.from_numpy(1e-6 * x**2))
    in_torch = run_chain(start, chain_of([EVERY_FUNCTION, STORE]), tensors)
    assert np.allclose(in_numpy.result.value, in_torch.result.value.numpy(), rtol=1e-12, atol=1e-14)
    assert np.allclose(in_numpy.result.error, in_torch.result.error.numpy(), rtol=1e-9)
    assert in_torch.aux is in_torch.result


@pytest.mark.parametrize("text", ["x -> exp(x)", "x -> sigmoid(x)", OPS["silu"], OPS["gelu_tanh"]])
def test_bounds_stay_bounds_where_functions_under_and_overflow(text: str) -> None:
    x = Bounded(np.array([-2000.0, 2000.0, -2000.0]), np.array([1500.0, 1500.0, 0.1]))
    assert not np.isnan(run_chain(x, chain_of([text]), {}).result.error).any()
