"""`cutegen.inductor`: which products of a graph are replaced, by whose choice, and that the graph computes the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch._inductor.config as config  # noqa: E402
from torch._inductor.custom_graph_pass import CustomGraphPass  # noqa: E402
from torch._inductor.decomposition import select_decomp_table  # noqa: E402
from torch._inductor.utils import fresh_cache  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.nn import functional  # noqa: E402

import cutegen  # noqa: E402
from cutegen.errors import DeviceError, RequestError  # noqa: E402
from cutegen.inductor import Candidate  # noqa: E402
from cutegen.inductor.enabling import Measured, in_cutegen, in_torch  # noqa: E402
from cutegen.inductor.passes import Form, MatmulPass  # noqa: E402
from tests.house.documents import ROOT, fences  # noqa: E402
from tests.house.replay import compare, execute  # noqa: E402
from tests.torch_ops.models import Decoder  # noqa: E402


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = config.post_grad_custom_pre_pass
    yield
    config.post_grad_custom_pre_pass = before
    torch._dynamo.reset()


def traced(function: Callable[..., Any], *given: Any, symbolic: bool = False) -> Any:
    """The function as a graph of Inductor, before its passes."""
    with torch.no_grad():
        mode = "symbolic" if symbolic else "fake"
        made = make_fx(function, decomposition_table=select_decomp_table(), tracing_mode=mode)(*given)
    made.graph.eliminate_dead_code()  # as Inductor does first
    return made


def passed(
    function: Callable[..., Any], *given: Any, choose: Any = lambda _: True, symbolic: bool = False
) -> tuple[Any, list[Candidate]]:
    made, ours = traced(function, *given, symbolic=symbolic), MatmulPass(choose, None)
    ours(made.graph)
    made.recompile()
    return made, ours.replaced


def targets(graph: Any) -> list[str]:
    return [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]


A, W, BIAS, C = torch.randn(6, 16), torch.randn(24, 16), torch.randn(24), torch.randn(6, 24)
X3, B3 = torch.randn(3, 6, 16), torch.randn(3, 16, 24)
ACTIVATIONS = {
    "relu": torch.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
@pytest.mark.parametrize("rank", [2, 3])
def test_a_layer_and_its_activation_become_one_call(dtype: Any, activation: str | None, rank: int) -> None:
    x, w, bias = (t.to(dtype) for t in (A if rank == 2 else X3, W, BIAS))

    def layer(x: Any, w: Any, bias: Any) -> Any:
        y = functional.linear(x, w, bias)
        return y if activation is None else ACTIVATIONS[activation](y)

    made, replaced = passed(layer, x, w, bias)
    (candidate,) = replaced
    assert (candidate.activation, candidate.bias is not None, candidate.c) == (activation, True, None)
    assert [each for each in targets(made) if "view" not in each and "permute" not in each] == [
        "cutegen.matmul.default"
    ]
    exact = layer(*(t.double() for t in (x, w, bias)))
    error, usual = ((y.double() - exact).abs().max() for y in (made(x, w, bias), layer(x, w, bias)))
    assert error <= 1.5 * usual + 4 * torch.finfo(dtype).eps * exact.abs().max()


@pytest.mark.parametrize(
    ("function", "given", "terms"),
    [
        (torch.mm, (A, W.T), {}),
        (torch.bmm, (X3, B3), {}),
        (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2.0), (C, A, W.T), {"alpha": 2.0, "beta": 0.5}),
        (lambda c, a, b: torch.baddbmm(c, a, b, beta=2.0), (torch.randn(3, 6, 24), X3, B3), {"beta": 2.0}),
    ],
)
def test_the_other_products_of_torch_are_replaced_with_their_factors(function: Any, given: Any, terms: Any) -> None:
    made, replaced = passed(function, *given)
    assert targets(made).count("cutegen.matmul.default") == len(replaced) == 1
    assert {name: getattr(replaced[0], name) for name in terms} == terms
    torch.testing.assert_close(made(*given), function(*given))


def both(x: Any, w: Any) -> Any:
    y = x @ w.T
    return functional.silu(y), y


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (lambda a, b: a @ b, (A.double(), W.T.double())),
        (lambda a, b: torch.addmm(a, a, b), (A.long(), torch.ones(16, 16).long())),
        (lambda c, a, b: torch.addmm(c, a, b), (torch.randn(1, 24), A, W.T)),  # a row for all
        (lambda c, a, b: torch.addmm(c, a, b), (BIAS.expand(6, 24)[:, :1], A, W.T)),
        (lambda c, a, b: torch.addmm(c, a, b, beta=2.0), (BIAS, A, W.T)),
        (lambda a, b: a @ b, (A[:0], W.T)),
    ],
)
def test_what_cutegen_does_not_compute_alike_stays(function: Any, given: Any) -> None:
    made, replaced = passed(function, *given)
    assert replaced == []
    assert "cutegen.matmul.default" not in targets(made)


def test_an_activation_whose_sum_is_read_elsewhere_is_not_folded() -> None:
    made, replaced = passed(both, A, W)
    assert [each.activation for each in replaced] == [None]
    for found, wanted in zip(made(A, W), both(A, W), strict=True):
        torch.testing.assert_close(found, wanted)


def test_the_choice_is_asked_with_and_then_without_the_activation() -> None:
    asked: list[str] = []

    def plain(candidate: Candidate) -> bool:
        asked.append(str(candidate))
        return candidate.activation is None

    made, replaced = passed(lambda x, w: functional.gelu(x @ w.T), A, W, choose=plain)
    assert asked == ["6x24x16, float32, gelu", "6x24x16, float32"]
    assert len(replaced) == 1
    assert "aten.erf.default" in targets(made)
    made, replaced = passed(both, A, W, choose=lambda _: False)
    assert (replaced, "cutegen.matmul.default" in targets(made)) == ([], False)


def test_dynamic_extents_are_those_of_the_trace() -> None:
    def layer(x: Any, w: Any, bias: Any) -> Any:
        return functional.gelu(functional.linear(x, w, bias))

    made, replaced = passed(layer, X3, W, BIAS, symbolic=True)
    assert [str(each) for each in replaced] == ["18x24x16, float32, bias, gelu"]
    for rows in (6, 5):
        x = torch.randn(3, rows, 16)
        torch.testing.assert_close(made(x, W, BIAS), layer(x, W, BIAS))


def candidate(device: str = "cuda") -> Candidate:
    form = Form((4, 4), (4, 1), torch.float16, torch.device(device))
    return Candidate(a=form, b=form)


@pytest.mark.parametrize(("us", "chosen"), [((10.0, 9.9), False), ((10.0, 9.0), True), ((9.0, 10.0), False)])
def test_what_is_faster_by_enough_is_chosen_and_measured_once(us: tuple[float, float], chosen: bool) -> None:
    asked: list[Candidate] = []
    measured = Measured(1.02, lambda each: asked.append(each) or us)
    assert [measured(candidate()) for _ in range(3)] == [chosen] * 3
    assert asked == [candidate()]
    assert not measured(candidate("cpu"))
    assert len(asked) == 1


@pytest.mark.parametrize("error", [DeviceError("no"), torch.OutOfMemoryError("no")])
def test_what_cannot_be_measured_is_not_chosen(error: Exception) -> None:
    def times(_: Candidate) -> tuple[float, float]:
        raise error

    assert not Measured(1.0, times)(candidate())


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
@pytest.mark.parametrize("added", [None, "bias", "c"])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_what_is_compared_computes_the_same(activation: str | None, added: str | None, batch: Any) -> None:
    if added == "bias" and batch:
        pytest.skip("torch adds no bias to a batch")

    def form(*shape: int) -> Form:
        return Form.of(torch.empty(shape))  # type: ignore[return-value]

    made = Candidate(a=form(*batch, 6, 16), b=form(*batch, 16, 24), activation=activation)
    if added is not None:
        terms: Any = {added: form(24) if added == "bias" else form(*batch, 6, 24)}
        made = replace(made, **terms, **({"alpha": 0.5, "beta": 2.0} if added == "c" else {}))
    tensors = {name: getattr(made, name).random() for name in ("a", "b", "bias", "c") if getattr(made, name)}
    torch.testing.assert_close(in_cutegen(made, tensors), in_torch(made, tensors))


class Theirs(CustomGraphPass):  # type: ignore[misc]
    """A pass of another package."""

    def __call__(self, graph: Any) -> None:
        """Do nothing."""

    def uuid(self) -> str:
        """Return a name."""
        return "theirs"


def test_it_is_one_pass_among_others_and_enabled_once() -> None:
    with cutegen.inductor.enable(choose="always") as enabled:
        assert config.post_grad_custom_pre_pass is enabled.graph_pass
        assert enabled.graph_pass.uuid() == enabled.graph_pass.uuid()
        with pytest.raises(RequestError, match=r"found it enabled; expected cutegen\.inductor\.disable\(\) before"):
            cutegen.inductor.enable()
    assert config.post_grad_custom_pre_pass is None
    config.post_grad_custom_pre_pass = theirs = Theirs()
    enabled = cutegen.inductor.enable(choose=lambda _: True)
    assert config.post_grad_custom_pre_pass == [theirs, enabled.graph_pass]
    assert enabled.graph_pass.uuid() is None  # a function has no name in torch's cache
    cutegen.inductor.disable()
    assert config.post_grad_custom_pre_pass is theirs
    with pytest.raises(RequestError, match=r'choose: found 3; expected "measured", "always" or a function'):
        cutegen.inductor.enable(choose=3)  # type: ignore[arg-type]


def test_a_torch_with_one_place_for_a_pass_keeps_the_one_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("torch._inductor.custom_graph_pass.get_custom_graph_passes")
    with cutegen.inductor.enable(choose="always"):
        pass
    config.post_grad_custom_pre_pass = theirs = Theirs()
    with pytest.raises(RequestError, match="has one place for a pass"):
        cutegen.inductor.enable()
    assert config.post_grad_custom_pre_pass is theirs


def test_a_program_for_cpp_keeps_torchs_products() -> None:
    with config.patch(cpp_wrapper=True):
        _, replaced = passed(torch.mm, A, W.T)
    assert replaced == []


def test_decisions_have_their_names_in_torchs_cache() -> None:
    names = {enable().graph_pass.uuid() for enable in (lambda: always(), lambda: measured(1.02), lambda: measured(1.5))}
    assert len(names) == 3


def always() -> Any:
    with cutegen.inductor.enable(choose="always") as enabled:
        return enabled


def measured(least: float) -> Any:
    with cutegen.inductor.enable(least_speedup=least) as enabled:
        return enabled


SCRIPT = """
import torch, cutegen
from torch.nn import functional
from tests.torch_ops.models import Decoder
torch.manual_seed(0)
model, x = Decoder(depth=1), torch.randint(64, (2, 8))
with torch.no_grad():
    wanted = model(x)
    with cutegen.inductor.enable(choose="always") as enabled:
        found = torch.compile(model, fullgraph=True)(x)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
        count = len(enabled.replaced)
        assert count >= 8, enabled.replaced
layer = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 8))
with cutegen.inductor.enable(choose="always") as enabled:
    compiled = torch.compile(layer, fullgraph=True, dynamic=True)
    for rows in (4, 7):
        x = torch.randn(rows, 16)
        out = compiled(x)
        torch.testing.assert_close(out, layer(x), rtol=1e-4, atol=1e-5)
        out.square().sum().backward()
        mine = [p.grad.clone() for p in layer.parameters()]
        layer.zero_grad()
        layer(x).square().sum().backward()
        torch.testing.assert_close(mine, [p.grad for p in layer.parameters()], rtol=1e-4, atol=1e-4)
        layer.zero_grad()
    assert len(enabled.replaced) >= 5, enabled.replaced  # two forward, and their gradients
print("ok")
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler for the CPU")
def test_inductor_compiles_a_decoder_and_trains_a_layer_at_every_length(tmp_path: Any) -> None:
    """With Inductor itself, on the CPU, in a process with a cache of its own."""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT], capture_output=True, text=True, env=environment, timeout=540
    )
    assert found.stdout == "ok\n", found.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler for the CPU")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
def test_what_the_page_shows_is_what_happens() -> None:
    python, text = (each for each in fences(ROOT / "docs" / "inductor.md") if each.language in ("python", "text"))
    with fresh_cache():  # a graph of an earlier run would not be compiled again
        compare(f"{text.document}:{text.line}", text.text, execute(python, {}))


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")  # torch's own, of its compilers and of a CUDA graph that it records empty
def test_on_a_gpu_what_is_chosen_is_faster_and_right_in_cuda_graphs() -> None:
    model, x = Decoder(width=512).to("cuda", torch.bfloat16), torch.randint(64, (8, 128), device="cuda")
    with torch.no_grad(), cutegen.inductor.enable() as enabled:
        wanted, compiled = model(x), torch.compile(model, mode="reduce-overhead", fullgraph=True)
        for _ in range(3):
            found = compiled(x).clone()
        exact = model.double()(x)
        error, usual = ((y.double() - exact).abs().max() for y in (found, wanted))
        assert error <= 2 * usual
        known = enabled.graph_pass.choose.known
        assert known
        assert all(known[each][0] >= 1.02 * known[each][1] for each in enabled.replaced)
