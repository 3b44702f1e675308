"""Activations of pairs of columns in calls: against float64 and torch's autograd, in every order of the columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import cutegen  # noqa: E402
from cutegen.dispatch.formula import GATED, gated_of, paired  # noqa: E402
from cutegen.dispatch.model import spec_of  # noqa: E402
from cutegen.dispatch.request import Request  # noqa: E402
from cutegen.errors import OperandError, RequestError  # noqa: E402
from tests.seeding import new_generator  # noqa: E402

functional = torch.nn.functional
ORDERS = [("halves", "gate"), ("halves", "up"), ("interleaved", "gate"), ("interleaved", "up"), (8, "gate"), (24, "up")]


def taken_apart(x: Any, pairs: str | int, first: str) -> tuple[Any, Any]:
    """Gates and ups by slices, of torch's tensors or of NumPy's."""
    n = x.shape[-1]
    if pairs == "halves":
        one, other = x[..., : n // 2], x[..., n // 2 :]
    elif pairs == "interleaved":
        one, other = x[..., ::2], x[..., 1::2]
    else:
        assert isinstance(pairs, int)
        at = [i for i in range(n) if i // pairs % 2 == 0]
        one, other = x[..., at], x[..., [i + pairs for i in at]]
    return (one, other) if first == "gate" else (other, one)


def by_torch(name: str, x: Any, pairs: str | int, first: str) -> Any:
    gate, up = taken_apart(x, pairs, first)
    if name == "swiglu_oai":
        gate, up = gate.clamp(max=7), up.clamp(-7, 7)
        return (up + 1) * gate * torch.sigmoid(1.702 * gate)
    return {
        "swiglu": functional.silu,
        "geglu": functional.gelu,
        "geglu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
        "reglu": functional.relu,
    }[name](gate) * up


@pytest.mark.parametrize(("pairs", "first"), ORDERS)
@pytest.mark.parametrize("name", GATED)
def test_values_and_gradients_are_those_of_autograd_in_float64(name: str, pairs: str | int, first: str) -> None:
    """Values reach beyond gpt-oss's limit on all sides."""
    a, b, bias, residual = (3 * torch.randn(x) for x in ((5, 16), (48, 16), (48,), (5, 24)))
    tensors = [x.requires_grad_() for x in (a, b, bias, residual)]
    result = cutegen.matmul(a, b.T, bias=bias, activation=name, pairs=pairs, first=first, residual=residual)
    exact = [x.detach().double().requires_grad_() for x in tensors]
    before = exact[0] @ exact[1].T + exact[2]
    gate, up = taken_apart(before, pairs, first)
    assert (gate > 7).any()
    assert (abs(up) > 7).any()
    wanted = by_torch(name, before, pairs, first) + exact[3]
    # A sum of 16 products is exact to 2^-20 of the largest in f32, and is multiplied by another sum.
    close = 2.0**-20 * float(before.detach().abs().max()) ** 2
    torch.testing.assert_close(result.double(), wanted, rtol=0, atol=close)
    grad = torch.randn(5, 24)
    found = torch.autograd.grad(result, tensors, grad)
    # Gradients are sums of up to 48 products of these with values below 10.
    for mine, theirs in zip(found, torch.autograd.grad(wanted, exact, grad.double()), strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=0, atol=32 * close)


def test_a_batch_and_no_rows() -> None:
    a, b = torch.randn(3, 4, 16), torch.randn(16, 32)
    result = cutegen.matmul(a, b, activation="reglu", pairs=16, first="up")
    torch.testing.assert_close(result, by_torch("reglu", a @ b, 16, "up"))
    for pairs in ("halves", "interleaved", 8):
        assert cutegen.matmul(a[:, :0], b, activation="swiglu", pairs=pairs, first="gate").shape == (3, 0, 16)


def test_parameters_of_gpt_oss_may_be_others() -> None:
    x, w = torch.randn(6, 16), torch.randn(16, 32)
    result = cutegen.matmul(x, w, activation="swiglu_oai(1.5, 2)", pairs="interleaved", first="gate")
    gate, up = taken_apart(x @ w, "interleaved", "gate")
    gate = gate.clamp(max=2)
    torch.testing.assert_close(result, (up.clamp(-2, 2) + 1) * gate * torch.sigmoid(1.5 * gate))


@pytest.mark.parametrize("grad", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_layer_compiles_and_trains_like_its_formula(grad: bool) -> None:
    layer = cutegen.Linear(16, 32, activation="swiglu", pairs="halves", first="gate")
    x = torch.randn(4, 16, requires_grad=grad)
    eager = layer(x)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")(x)
    wanted = by_torch("swiglu", functional.linear(x, layer.weight, layer.bias), "halves", "gate")
    for found in (eager, compiled):
        torch.testing.assert_close(found, wanted)
        if grad:
            mine = torch.autograd.grad(found.sum(), (x, layer.weight, layer.bias), retain_graph=True)
            theirs = torch.autograd.grad(wanted.sum(), (x, layer.weight, layer.bias), retain_graph=True)
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_a_layer_adds_to_main_grad() -> None:
    layer = cutegen.Linear(16, 32, bias=False, activation="geglu", pairs=8, first="up")
    layer.weight.main_grad = torch.zeros(32, 16)
    x = torch.randn(4, 16)
    layer(x).sum().backward()
    weight = layer.weight.detach().clone().requires_grad_()
    by_torch("geglu", x @ weight.T, 8, "up").sum().backward()
    torch.testing.assert_close(layer.weight.main_grad, weight.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_op_keeps_its_promises() -> None:
    a, b = torch.randn(4, 16, requires_grad=True), torch.randn(16, 32, requires_grad=True)
    torch.library.opcheck(torch.ops.cutegen.matmul.default, (a, b, None, paired("swiglu", "halves", "gate")))


@pytest.mark.dsl
@pytest.mark.parametrize(
    ("pairs", "first", "major"),
    [
        pytest.param("halves", "gate", "k", marks=pytest.mark.slow),
        pytest.param("interleaved", "up", "n", marks=pytest.mark.slow),
        pytest.param(32, "gate", "n", marks=pytest.mark.slow),
    ],
)
def test_arrays_are_computed_by_the_executor(pairs: str | int, first: str, major: str) -> None:
    """An interleaved weight along N is copied for the call: no tensor map takes its columns apart."""
    generator = new_generator()
    a, w = (generator.standard_normal(x).astype(np.float16) for x in ((9, 64), (128, 64)))
    b = w.T if major == "k" else np.ascontiguousarray(w.T)
    found = cutegen.matmul(a, b, activation="swiglu", pairs=pairs, first=first, out_dtype="float32")
    gate, up = taken_apart(a.astype(np.float64) @ w.T.astype(np.float64), pairs, first)
    np.testing.assert_allclose(found, gate / (1 + np.exp(-gate)) * up, rtol=1e-4, atol=1e-3)
    said = cutegen.explain(a, b, activation="swiglu", pairs=pairs, first=first)
    assert "x, y -> silu(x) * y" in said
    assert ("takes its pairs of columns apart" in said) == (pairs == "interleaved")


def test_a_request_names_expression_and_order_and_reads_them_back() -> None:
    a, b = (
        torch.empty(8, 64, device="meta", dtype=torch.bfloat16),
        torch.empty(64, 96, device="meta", dtype=torch.bfloat16),
    )
    prepared = cutegen.explain(a, b.T.contiguous().T, arch="h100", activation="swiglu", pairs=8, first="up")
    assert "family sm" in prepared
    from cutegen.dispatch.formula import Formula
    from cutegen.torch_ops.eager import resolved_tensors

    formula = Formula(paired("swiglu", 8, "up"), bias=False)
    request = resolved_tensors({"a": a, "b": b}, formula, None, "h100").request
    assert Request.from_json(request.as_json(), "a list") == request
    spec = spec_of(request)
    assert spec.epilogue.expression == "x, y -> silu(x) * y"
    assert spec.epilogue.pairs is not None
    assert spec.epilogue.pairs.value == request.pairs


def test_operands_that_no_tensor_map_reads_are_copied() -> None:
    """Only kernels that copy by tensor maps have pairs."""
    a, w = (torch.empty(x, 17, device="meta", dtype=torch.bfloat16) for x in (5, 32))
    said = cutegen.explain(a, w.T, arch="h100", activation="swiglu", pairs="halves", first="gate")
    assert "copied: a  it is aligned to only 2 bytes" in said
    assert "copied: b  it is aligned to only 2 bytes" in said
    assert "family sm" in said


@pytest.mark.parametrize("name", [*GATED, "swiglu_oai(2.5, 1e3)"])
def test_an_activation_is_one_text_within_the_library(name: str) -> None:
    for pairs, first in ORDERS:
        found = gated_of(paired(name, pairs, first))
        assert found is not None
        assert (found.name, found.layout, found.first) == (name.partition("(")[0], pairs, first)
    assert gated_of(name) is None
    assert gated_of("gelu") is None


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"activation": "swiglu"}, r"pairs: found None with swiglu; expected the order of the weight's columns"),
        ({"activation": "swiglu", "pairs": "halves"}, r"first: found None with swiglu"),
        (
            {"activation": "gelu", "pairs": "halves", "first": "up"},
            r"pairs: found with activation='gelu'; expected one of",
        ),
        ({"activation": "swiglu", "pairs": 12, "first": "up"}, r"pairs: found 12; expected .* a multiple of 8"),
        ({"activation": "swiglu", "pairs": "half", "first": "up"}, r'pairs: found "half"; expected "halves"'),
        ({"activation": "swiglu", "pairs": "halves", "first": "w1"}, r'first: found "w1"; expected "gate" or "up"'),
        (
            {"activation": "geglu(1, 2)", "pairs": "halves", "first": "up"},
            r"expected parameters, .* only of swiglu_oai",
        ),
        ({"activation": "swiglu_oai(1, 0)", "pairs": "halves", "first": "up"}, r"a limit above 0"),
    ],
)
def test_what_names_no_order_is_refused(terms: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        cutegen.matmul(torch.zeros(4, 16), torch.zeros(16, 32), **terms)


def test_a_layer_whose_columns_are_not_all_in_pairs_is_refused_when_it_is_made() -> None:
    told = r"^Linear: out_features: found 7; expected a multiple of 2: halves of B's columns"
    pairs = {"activation": "swiglu", "pairs": "halves", "first": "gate"}
    with pytest.raises(RequestError, match=told):
        cutegen.Linear(8, 7, **pairs)
    with pytest.raises(RequestError, match=told):
        cutegen.Linear.from_linear(torch.nn.Linear(8, 7), **pairs)
    with pytest.raises(RequestError, match=r"^Linear: activation: found .*; did you mean gelu"):
        cutegen.Linear(8, 8, activation="geluu")


def test_half_a_pair_and_other_shapes_are_refused() -> None:
    a, terms = torch.zeros(4, 16), {"activation": "swiglu", "pairs": 8, "first": "gate"}
    with pytest.raises(OperandError, match=r"b: found shape \(16, 24\); expected .* N a multiple of 16"):
        cutegen.matmul(a, torch.zeros(16, 24), **terms)
    with pytest.raises(OperandError, match=r"residual: found shape \(4, 32\)"):
        cutegen.matmul(a, torch.zeros(16, 32), residual=torch.zeros(4, 32), **terms)
    with pytest.raises(OperandError, match=r"bias: found shape \(16,\)"):
        cutegen.matmul(a, torch.zeros(16, 32), bias=torch.zeros(16), **terms)
    with pytest.raises(RequestError, match=r"c: found with swiglu; expected none"):
        cutegen.matmul(a, torch.zeros(16, 32), c=torch.zeros(4, 16), **terms)


@pytest.mark.gpu
@pytest.mark.parametrize(("pairs", "first"), ORDERS)
@pytest.mark.parametrize("major", ["k", "n"])
def test_calls_on_a_gpu_are_those_of_torch(pairs: str | int, first: str, major: str) -> None:
    """Repeated calls, and one replayed in a graph; the gradient computes the sums again."""
    x = torch.randn(77, 128, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(480, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    b = w.T if major == "k" else w.T.contiguous()
    wanted = by_torch("swiglu", (x.double() @ w.double().T), pairs, first)
    for _ in range(3):
        found = cutegen.matmul(x, b, activation="swiglu", pairs=pairs, first=first)
        torch.testing.assert_close(
            found.double(), wanted, rtol=2.0**-8, atol=2.0**-8 * float(wanted.detach().abs().max())
        )
    grad = torch.randn_like(found)
    (mine,), (theirs,) = (torch.autograd.grad(y, w, g) for y, g in ((found, grad), (wanted, grad.double())))
    torch.testing.assert_close(mine.double(), theirs.double(), rtol=2.0**-6, atol=2.0**-6 * float(theirs.abs().max()))
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        replayed = cutegen.matmul(x, b, activation="swiglu", pairs=pairs, first=first)
    graph.replay()
    assert torch.equal(replayed, found.detach())
