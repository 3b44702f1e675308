"""The chain as code: it computes what the expression says, in lines that fit, and defines what it calls."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations, product
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutegen.plan import plan
from cutegen.plan.epilogue.store import choose_fusion
from cutegen.plan.values.epilogue import Fusion
from cutegen.render import render
from cutegen.render.epilogue import DSL, helpers, kernel_lines, torch_lines, written
from cutegen.render.python_text import LINE_WIDTH
from cutegen.spec import Bias, Binary, Extra, Name, Negation, Number, Tile
from cutegen.spec.steps import FUNCTIONS, OPERANDS, ExpressionError, Step, chain_of, parse_expression, steps
from cutegen.verify.error_bounds import Bounded, run_chain
from tests.run.epilogues import CASES, spec

KNOWN = {"x": 1.25, "alpha": -0.75, "beta": 2.5, "c": 3.5, "residual": -0.625, "bias_n": 0.125}
texts = st.recursive(
    st.sampled_from(["x", "x", "x", "alpha", "beta", "c", "residual", "bias_n", "2", "0.5", "1e-3"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map("".join),
        inner.map("({})".format),
        inner.map("-{}".format),
        inner.map("abs({})".format),
        st.tuples(inner, inner).map(lambda pair: f"max({pair[0]},{pair[1]})"),
    ),
    max_leaves=30,
)


def full_like(like: float, value: float) -> float:
    assert like == KNOWN["x"]
    return value


@given(texts)
@settings(max_examples=300, deadline=None)
def test_lines_compute_what_the_expression_says(text: str) -> None:
    try:
        parse_expression(f"x -> {text}", OPERANDS)
        expected = eval(text, {"abs": abs, "max": max}, dict(KNOWN))
    except (ExpressionError, ZeroDivisionError):
        return
    lines = kernel_lines(Fusion(steps(None, f"x -> {text}"), (), (), False))
    assert all(len(line) <= LINE_WIDTH - 8 for line in lines if not line.startswith("#"))
    scope = {
        **KNOWN,
        **{fragment: KNOWN[name] for name, fragment in DSL.operands.items() if name in KNOWN},
        "maximum": max,
        "cute": SimpleNamespace(full_like=full_like, math=SimpleNamespace(absf=abs)),
    }
    for line in lines:
        if "= load_" not in line:
            exec(line, scope)
    assert math.isclose(scope["x"], expected, rel_tol=1e-9, abs_tol=1e-9)


def test_parentheses_only_where_they_are_needed() -> None:
    x, y = Name("x"), Name("alpha")
    assert written(Binary("-", x, Binary("-", y, x)), DSL) == "x - (alpha - x)"
    assert written(Binary("-", Binary("-", x, y), x), DSL) == "x - alpha - x"
    assert written(Binary("*", Binary("+", x, y), Negation(x)), DSL) == "(x + alpha) * -x"
    assert written(Binary("*", x, Number(-2.0)), DSL) == "x * -2.0"


def test_a_long_expression_is_taken_apart_under_its_own_text() -> None:
    text = "x -> x + " + " + ".join(["sigmoid(alpha * c)"] * 8)
    first, *lines = kernel_lines(Fusion(steps(None, text), (), ("alpha",), False))
    assert first.startswith("tCrSource = load_operand(")
    assert lines[0] == f"# {text}"
    assert lines[-1].startswith("x = t")


def test_an_operand_is_loaded_once_and_where_it_is_first_used() -> None:
    chain = steps(("alpha", "residual", "relu"), "x -> x + residual * c")
    lines = kernel_lines(Fusion(chain, (), ("alpha",), False))
    assert [line.split(" = ")[0] for line in lines] == ["x", "tCrResidual", "x", "x", "tCrSource", "x"]


def test_operands_of_one_expression_are_loaded_in_its_order() -> None:
    """The text is in the artifact's key: it must not follow the order of a set of strings, which no process shares."""
    names = ("residual", "c", "bias_n")
    for order in permutations(names):
        lines = kernel_lines(Fusion(steps(None, f"x -> x * {' * '.join(order)}"), (), (), False))
        assert [line.split(" = ")[0] for line in lines[:3]] == [DSL.operands[name] for name in order]


def test_the_file_defines_what_it_calls() -> None:
    for name in FUNCTIONS:
        arguments = "x, c" if FUNCTIONS[name].arity == 2 else "x"
        called = DSL.functions[name]
        found = helpers((Step("expression", f"x -> {name}({arguments})"),), narrow=False)
        assert (called in found) is not called.startswith("cute.")
    for case in CASES.values():
        text = render(plan(case, "sm_80")).text
        for helper in ("relu", "sigmoid", "silu", "gelu_tanh", "gelu_erf", "maximum", "minimum"):
            assert (f"def {helper}(" in text) is (helper in helpers(case.epilogue.steps, narrow=False))
        assert ("def load_operand(" in text) is any(x in text for x in ("tCrSource", "tCrResidual"))
        assert ("def load_vector(" in text) is any(x in text for x in ("tCrBias", "tCrScale"))
        assert ("def store_result(" in text) is (text.count("store_result(") > 1)


def test_the_files_own_check_says_the_same_in_pytorch() -> None:
    torch = pytest.importorskip("torch")
    m, n = 5, 7
    generator = torch.Generator().manual_seed(0)
    scope = {name: torch.randn(m, n, generator=generator) for name in ("source", "residual")}
    for case in CASES.values():
        bias_m = "bias_m" in case.epilogue.operands
        scope |= {"bias": torch.randn(m if bias_m else n, generator=generator), "alpha": 1.25, "beta": -0.75}
        along = {name: m if name.endswith("m") else n for name in ("bias_m", "scale_m", "bias_n", "scale_n")}
        scope |= {name: torch.randn(extent, generator=generator) for name, extent in along.items()}
        two_biases = {"bias_n", "bias_m"} <= set(case.epilogue.operands)
        x = torch.randn(m, n, generator=generator).double()
        local = {"torch": torch, "x": x, **scope}
        for line in torch_lines(choose_fusion(case)[0]):
            exec(line, local)
        operands = {
            "c": scope["source"].double(),
            "residual": scope["residual"].double(),
            "bias_n": scope["bias_n" if two_biases else "bias"].double(),
            "bias_m": scope["bias_m" if two_biases else "bias"].double()[:, None],
            "scale_n": scope["scale_n"].double(),
            "scale_m": scope["scale_m"].double()[:, None],
            "alpha": 1.25,
            "beta": -0.75,
        }
        known = {name: operands[name] for name in case.epilogue.operands if name in operands}
        expected = run_chain(Bounded(x, 0 * x), case.epilogue.steps, known)
        assert torch.allclose(local["x"], expected.result.value, rtol=1e-9, atol=1e-9), case.name
        if expected.aux is not None:
            assert torch.allclose(local["expected_aux"], expected.aux.value), case.name


def helper(name: str, result: str = "f32", *, tanh_units: int = 0) -> Callable[[Any], Any]:
    """A function of x that generated kernels with such a `result` define, run on float32 arrays: one rounding an
    operation, as in registers, and tanh larger by so many units in the last place.
    """
    torch = pytest.importorskip("torch")
    case = spec("helper", "gelu_erf", "gelu_tanh", "silu", c=result)
    text = render(plan(case, "sm_80")).text
    single = {"dtype": torch.float32}

    def tanh(x: Any, fastmath: bool) -> Any:
        value = torch.tanh(x.double())
        off = torch.where(x.abs() < 9, tanh_units * 2.0**-23, 0.0)  # beyond it is -1 or 1
        return (value * (1 + off)).clamp(-1, 1).float()

    math = SimpleNamespace(
        absf=torch.abs,
        exp2=lambda x, fastmath: torch.exp2(x.double()).float(),
        fma=lambda a, b, c: (a.double() * b.double() + c.double()).float(),
        max=lambda a, b, propagate_nan: torch.maximum(a, b),
        min=lambda a, b, propagate_nan: torch.minimum(a, b),
        rcp=lambda x, approx, ftz: torch.reciprocal(x.double()).float(),
        tanh=tanh,
    )
    cute = SimpleNamespace(math=math, full_like=lambda x, value: torch.full_like(x, value, **single))
    scope: dict[str, Any] = {"cute": cute}
    exec(text[text.index("def logistic(") : text.index("def tile_coordinate(")].replace("@cute.jit", ""), scope)
    called: Callable[[Any], Any] = scope[name]
    takes_half = result != "f32" and name.startswith("gelu_")
    return (lambda x: called(0.5 * x)) if takes_half else called


@pytest.mark.parametrize("result", ["f32", "f16"])
@pytest.mark.parametrize("name", ["gelu_erf", "gelu_tanh", "silu", "sigmoid"])
def test_a_function_of_the_kernel_is_within_its_bound(name: str, result: str) -> None:
    """Every float32 near 0, and out to where all of them are flat, beside float64."""
    torch = pytest.importorskip("torch")
    near = torch.linspace(-14, 14, 2_000_001, dtype=torch.float32)
    far = torch.tensor([1e-30, 1e-4, 88.0, 127.5, 3e4, 1e30, 3e38])
    x = torch.cat([near, far, -far])
    start, chain = Bounded(x.double(), 0 * x.double()), chain_of([f"x -> {name}(x)"])
    expected = run_chain(start, chain, {}, narrow=result != "f32").result
    functional = torch.nn.functional
    exact = {
        "gelu_erf": functional.gelu,
        "gelu_tanh": lambda v: functional.gelu(v, approximate="tanh"),
        "silu": functional.silu,
        "sigmoid": torch.sigmoid,
    }[name](x.double())
    assert torch.allclose(expected.value, exact, rtol=1e-12, atol=1e-14)
    # 124 units in the last place is what an H200's tanh.approx.f32 was found to be off at most (docs/ptx.md).
    for of_tanh in (0, 124, -124) if name.startswith("gelu") and result == "f16" else (0,):
        found = helper(name, result, tanh_units=of_tanh)(x).double()
        assert ((found - expected.value).abs() <= expected.error).all(), of_tanh


def test_a_narrow_gelu_by_erf_is_right_to_a_quarter_of_what_f16_rounds_to() -> None:
    """Where GELU is not next to nothing, which it is below -3.4, if the special function unit made no error."""
    torch = pytest.importorskip("torch")
    x = torch.linspace(-20, 20, 2_000_001, dtype=torch.float32)
    exact = torch.nn.functional.gelu(x.double())
    off = (helper("gelu_erf", "f16")(x).double() - exact).abs()
    assert (off <= 1e-4 * exact.abs() + 1e-7)[x >= -3.4].all()
    assert (off <= 3e-6)[x < -3.4].all()


def test_functions_at_the_ends_of_the_numbers() -> None:
    """GELU's limits at the infinities, or no number as PyTorch has it; a NaN stays one."""
    torch = pytest.importorskip("torch")
    x = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0])
    for name, result in product(("gelu_erf", "gelu_tanh"), ("f32", "f16")):
        found = helper(name, result)(x)
        assert found[0] == torch.inf
        if (name, result) == ("gelu_erf", "f32"):
            assert abs(found[1]) < 1e-13
        else:
            assert torch.isnan(found[1])
        assert torch.isnan(found[2])
        assert found[3] == 0


@pytest.mark.parametrize(
    ("ops", "apart"),
    [((), False), (("silu",), True), (("alpha", "aux", "relu"), True), (("bias_n", "silu"), False)],
)
def test_parts_are_kept_apart_where_a_chain_reads_nothing(ops: tuple[str, ...], apart: bool) -> None:
    """Else ptxas computes all of them before the first is stored; what is read part by part prevents that."""
    extras: dict[str, Any] = {"bias": Bias("f32")} if "bias_n" in ops else {}
    extras |= {"aux": Extra("f16", "n")} if "aux" in ops else {}
    assert ("if m > -part:" in rendered_for_hopper(*ops, **extras)) is apart


def rendered_for_hopper(*ops: str, **extras: Any) -> str:
    case = replace(spec("fused", *ops, **extras), family="sm90", tile=Tile())
    return render(plan(case, "sm_90")).text


@pytest.mark.parametrize(("result", "by_tanh"), [("f16", True), ("bf16", True), ("f32", False)])
@pytest.mark.parametrize("name", ["gelu_tanh", "gelu_erf"])
def test_gelu_is_by_one_tanh_where_results_are_narrow(name: str, result: str, by_tanh: bool) -> None:
    """PyTorch's own fused call does so; float32 has more digits than that instruction gives."""
    text = render(plan(spec("fused", name, c=result), "sm_80")).text
    assert ("cute.math.tanh(" in text, "cute.math.exp2(" in text) == (by_tanh, not by_tanh)


@pytest.mark.parametrize(
    ("ops", "expression", "line"),
    [
        (("bias_n", "gelu_erf"), None, "x = gelu_erf(half_sum(x, tCrBias))  # bias_n, gelu_erf"),
        (("gelu_tanh",), None, "x = gelu_tanh(0.5 * x)  # gelu_tanh"),
        (("bias_n", "aux", "gelu_erf"), None, "x = gelu_erf(0.5 * x)  # gelu_erf"),
        (("residual", "gelu_erf"), None, "x = gelu_erf(0.5 * x)  # gelu_erf"),
        (None, "x -> 2 * gelu_tanh(x + bias_n) - x", "x = 2.0 * gelu_tanh(half_sum(x, tCrBias)) - x"),
        (None, "x -> gelu_erf(gelu_tanh(x * alpha))", "x = gelu_erf(0.5 * gelu_tanh(0.5 * (x * alpha)))"),
    ],
)
def test_a_narrow_gelu_takes_half_of_its_argument(ops: Any, expression: str | None, line: str) -> None:
    """A vector is added by the instruction that halves; what is stored between, and matrices, are added before."""
    tensors = choose_fusion(spec("fused", *ops or (), expression=expression, c="f16"))[0]
    assert any(found.startswith(line) for found in kernel_lines(tensors, narrow=True))
    assert not any("half_sum" in found or "0.5" in found for found in kernel_lines(tensors))
    defined = helpers(tensors.steps, narrow=True)
    assert ("half_sum" in defined) == ("half_sum" in line)
    assert "gelu_by_tanh" in defined
