"""`cutegen.Linear` in the place of `nn.Linear`: parameters, training, compilation, export, accumulation."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.autograd import forward_ad  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import cutegen  # noqa: E402
from cutegen.errors import OperandError, RequestError  # noqa: E402
from cutegen.verify.error_bounds import Bounded  # noqa: E402
from tests.torch_ops.cases import pair, train  # noqa: E402
from tests.torch_ops.exact import Exact, close, close_gradients  # noqa: E402


def test_it_is_an_nn_linear_with_the_same_state() -> None:
    theirs, mine = torch.nn.Linear(16, 8), cutegen.Linear(16, 8, activation="silu")
    assert list(mine.state_dict()) == list(theirs.state_dict())
    mine.load_state_dict(theirs.state_dict())
    x = torch.randn(3, 16)
    close(mine(x), Exact(x, theirs.weight.T, theirs.bias, "silu"))
    shared = cutegen.Linear.from_linear(theirs, activation="silu")
    assert shared.weight is theirs.weight
    assert torch.equal(shared(x), mine(x))
    assert repr(shared) == "Linear(in_features=16, out_features=8, bias=True, activation='silu')"
    assert cutegen.Linear.from_linear(torch.nn.Linear(4, 2, bias=False)).bias is None
    with pytest.raises(RequestError, match=r"found a GELU; expected a torch.nn.Linear"):
        cutegen.Linear.from_linear(torch.nn.GELU())


def test_a_layer_of_a_layer_keeps_its_activation_unless_another_is_given() -> None:
    gelu = cutegen.Linear(16, 8, activation="gelu")
    assert cutegen.Linear.from_linear(gelu).activation == "gelu"
    assert cutegen.Linear.from_linear(gelu, activation="relu").activation == "relu"


@pytest.mark.filterwarnings("ignore:.*torch.nn.utils.weight_norm:FutureWarning")
def test_computed_weights_are_no_parameters_of_a_layer() -> None:
    new, old = torch.nn.utils.parametrizations.weight_norm, torch.nn.utils.weight_norm
    with pytest.raises(RequestError, match=r"whose bias is computed.*remove_parametrizations\(linear, \"bias\"\)"):
        cutegen.Linear.from_linear(new(torch.nn.Linear(4, 2), "bias", dim=None))
    for normed in (new, old):
        with pytest.raises(
            RequestError, match=r"whose weight is computed from others; expected .*`remove_weight_norm`"
        ):
            cutegen.Linear.from_linear(normed(torch.nn.Linear(4, 2)))
    theirs = new(torch.nn.Linear(4, 2))
    weight = theirs.weight
    torch.nn.utils.parametrize.remove_parametrizations(theirs, "weight")  # as the message says
    mine, x = cutegen.Linear.from_linear(theirs), torch.randn(3, 4)
    close(mine(x), Exact(x, weight.T, theirs.bias))


def test_a_layer_without_shapes_is_no_source_of_parameters() -> None:
    lazy = torch.nn.LazyLinear(8)
    with pytest.raises(RequestError, match=r"found a LazyLinear whose weight has no shape yet; .* call the layer once"):
        cutegen.Linear.from_linear(lazy)
    lazy(torch.randn(4, 16))
    assert cutegen.Linear.from_linear(lazy).weight is lazy.weight


class LowRank(torch.nn.Linear):  # type: ignore[misc]
    """Adds a product of two narrow matrices."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)
        self.down, self.up = torch.nn.Linear(in_features, 2), torch.nn.Linear(2, out_features)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return the layer's output and that of the two matrices."""
        return super().forward(input) + self.up(self.down(input))


class Doubled(torch.nn.Linear):  # type: ignore[misc]
    """A call is more than its forward."""

    def __call__(self, input: torch.Tensor) -> torch.Tensor:
        """Return twice the layer's output."""
        return 2 * super().__call__(input)


class Shifted(cutegen.Linear):  # type: ignore[misc]
    """A layer of ours with a forward of its own."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return the layer's output, and one."""
        return super().forward(input) + 1


class Counted(torch.nn.Linear):  # type: ignore[misc]
    """Has state that no call reads."""

    def __init__(self, *features: int) -> None:
        super().__init__(*features)
        self.register_buffer("calls", torch.zeros(()))


class Named(torch.nn.Linear):  # type: ignore[misc]
    """Adds nothing that a call or a checkpoint could see."""

    def __init__(self, *features: int) -> None:
        super().__init__(*features)
        self.name = "query"

    def width(self) -> int:
        """Return the number of outputs."""
        return int(self.out_features)


def replaced(layer: torch.nn.Linear) -> torch.nn.Linear:
    """A layer whose instance has another forward, as of a library that moves weights before each call."""
    forward = layer.forward
    layer.forward = lambda x: forward(x) * 3
    return layer


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (LowRank, r"a LowRank whose forward is its own; expected that of torch\.nn\.modules\.linear\.Linear: .*merge"),
        (Doubled, r"a Doubled whose __call__ is its own"),
        (Shifted, r"a Shifted whose forward is its own; expected that of cutegen\.torch_ops\.linear\.Linear"),
        (lambda *features: replaced(torch.nn.Linear(*features)), r"a Linear whose forward is its own"),
        (
            Counted,
            r"a Counted whose buffer calls is its own; expected weight and bias alone.*`delattr\(linear, 'calls'\)`",
        ),
    ],
)
def test_a_layer_that_computes_or_keeps_more_is_refused(make: Any, found: str) -> None:
    with pytest.raises(RequestError, match=rf"Linear\.from_linear: found {found}"):
        cutegen.Linear.from_linear(make(8, 8))


@pytest.mark.parametrize(
    "register",
    [
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "register_full_backward_pre_hook",
    ],
)
def test_a_layer_with_a_hook_is_refused_until_the_hook_is_removed(register: str) -> None:
    layer = torch.nn.Linear(8, 8)
    handle = getattr(layer, register)(lambda *_: None)
    with pytest.raises(RequestError, match=r"a Linear whose \w+_hooks has 1; expected none: .*remove them with their"):
        cutegen.Linear.from_linear(layer)
    handle.remove()
    assert cutegen.Linear.from_linear(layer).weight is layer.weight


@pytest.mark.parametrize("source", [Named, torch.nn.modules.linear.NonDynamicallyQuantizableLinear, cutegen.Linear])
def test_a_subclass_that_adds_nothing_is_adopted(source: type[torch.nn.Linear]) -> None:
    theirs, x = source(8, 8), torch.randn(3, 8)
    close(cutegen.Linear.from_linear(theirs)(x), Exact(x, theirs.weight.T, theirs.bias), source.__name__)


def test_a_subclass_of_ours_adopts_its_own_kind() -> None:
    theirs, x = Shifted(8, 8), torch.randn(3, 8)
    assert torch.equal(Shifted.from_linear(theirs)(x), theirs(x))
    base = torch.nn.Linear(8, 8)
    assert torch.equal(Shifted.from_linear(base)(x), cutegen.Linear.from_linear(base)(x) + 1)


def test_hooks_of_a_weight_and_its_main_grad_exclude_each_other() -> None:
    layer, x = cutegen.Linear(16, 8), torch.randn(4, 16)
    handle = layer.weight.register_hook(torch.zeros_like)
    layer(x).sum().backward()
    assert not layer.weight.grad.any()
    layer.weight.main_grad = torch.zeros(8, 16)
    with pytest.raises(OperandError, match=r"operand weight: found 1 gradient hooks and a main_grad; expected one"):
        layer(x)
    handle.remove()
    layer(x).sum().backward()
    assert layer.weight.main_grad.any()


def test_frozen_layers_keep_no_activations() -> None:
    kept: list[int] = []

    def keep(x: torch.Tensor) -> torch.Tensor:
        kept.append(x.data_ptr())
        return x

    frozen = torch.nn.Sequential(*[cutegen.Linear(16, 16) for _ in range(4)]).requires_grad_(False)
    x = torch.randn(3, 16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        frozen(x)
        assert set(kept) == {layer.weight.data_ptr() for layer in frozen}
        kept.clear()
        first = cutegen.Linear(16, 8)
        first.weight.main_grad = torch.zeros(8, 16)
        first(x.detach()).sum().backward()
    assert kept == [x.data_ptr()]
    exact = Exact(x, first.weight.T, first.bias)
    close(first.weight.main_grad.T, exact.gradients(torch.ones(3, 8))["b"], "main_grad")


@pytest.mark.slow
def test_a_compiled_block_trains_as_with_torchs_linear_at_every_length() -> None:
    theirs, mine = pair()
    compiled = torch.compile(mine, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (8, 12):
        wanted, found = train(theirs, theirs, rows=rows, steps=5), train(mine, compiled, rows=rows, steps=5)
        assert found == pytest.approx(wanted, rel=1e-4)


@pytest.mark.slow
def test_export_with_dynamic_shapes() -> None:
    _, mine = pair()
    dims = {0: torch.export.Dim("batch"), 1: torch.export.Dim("rows")}
    exported = torch.export.export(mine, (torch.randn(2, 8, 64),), dynamic_shapes={"x": dims})
    assert sum("cutegen.matmul" in str(node.target) for node in exported.graph.nodes) == 4
    x = torch.randn(3, 5, 64)
    assert torch.equal(exported.module()(x), mine(x))


def test_symbolic_trace_has_a_node_for_each_layer() -> None:
    model = torch.nn.Sequential(cutegen.Linear(8, 6, activation="gelu"), cutegen.Linear(6, 4, bias=False))
    traced = pickle.loads(pickle.dumps(torch.fx.symbolic_trace(model)))
    assert [node.name for node in traced.graph.nodes if node.op == "call_function"] == ["linear", "linear_1"]
    x = torch.randn(3, 8)
    assert torch.equal(traced(x), model(x))
    traced(x).sum().backward()
    model(x).sum().backward()
    for name, parameter in model.named_parameters():
        assert torch.equal(traced.get_parameter(name).grad, parameter.grad)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_layer_has_the_same_gradients(reentrant: bool) -> None:
    layer, x = cutegen.Linear(16, 8, activation="gelu"), torch.randn(4, 16, requires_grad=True)
    layer(x).sum().backward()
    wanted, x.grad = x.grad, None
    checkpoint(layer, x, use_reentrant=reentrant).sum().backward()
    assert torch.equal(x.grad, wanted)


@pytest.mark.parametrize("activation", [None, "gelu"])
def test_main_grad_sums_in_f32_and_leaves_grad_alone(activation: str | None) -> None:
    layer, sums = cutegen.Linear(16, 8, dtype=torch.float16, activation=activation), []
    layer.weight.main_grad = torch.zeros(8, 16)
    for _ in range(3):
        x, layer.bias.grad = torch.randn(2, 4, 16, dtype=torch.float16, requires_grad=True), None
        exact = Exact(x, layer.weight.T, layer.bias, activation)
        grad = exact.random_gradient(torch.float16)
        layer(x).backward(grad)
        close_gradients({"a": x, "bias": layer.bias}, exact, grad)
        sums.append(exact.gradients(grad)["b"])
    assert layer.weight.grad is None
    close(layer.weight.main_grad.T, Bounded(sum(x.value for x in sums), sum(x.error for x in sums)), "main_grad")


def test_main_grad_and_an_input_that_do_not_fit_are_refused_before_the_backward_pass() -> None:
    layer, x = cutegen.Linear(16, 8), torch.randn(4, 16)
    layer.weight.main_grad = torch.zeros(8, 16)
    for wrong, match in (
        (x[:, :9], r"operand input: found shape \(4, 9\); expected \(\.\.\., 16\)"),
        (x[0, 0], r"operand input: found shape \(\); expected \(\.\.\., 16\)"),
        (x.half(), r"operand input: found dtype .*16; expected .*32"),
        (x.numpy(), "found a ndarray; expected a torch tensor"),
    ):
        with pytest.raises(OperandError, match=match):
            layer(wrong)
    for main, found in (
        (torch.zeros(16, 8), r"torch\.float32, shape \(16, 8\), on cpu"),
        (torch.zeros(8, 16, dtype=torch.float64), r"torch\.float64, shape \(8, 16\), on cpu"),
        (torch.zeros(8, 16, device="meta"), r"torch\.float32, shape \(8, 16\), on meta"),
        ([0.0], "a list"),
    ):
        layer.weight.main_grad = main
        expected = r"torch\.float32, shape \(8, 16\), on cpu.*`torch\.zeros_like\(weight, dtype=torch\.float32\)`"
        with pytest.raises(OperandError, match=rf"operand weight\.main_grad: found {found}; expected {expected}"):
            layer(x)
    layer.weight.main_grad = torch.zeros(8, 16)
    with pytest.raises(RequestError, match=r"Linear with a main_grad: found a call under torch\.func's vmap"):
        torch.vmap(layer)(x[None])


def test_a_gradient_of_a_gradient_is_refused_with_main_grad() -> None:
    layer, x = cutegen.Linear(16, 8), torch.randn(4, 16, requires_grad=True)
    layer.weight.main_grad = torch.zeros(8, 16)
    with pytest.raises(RequestError, match="create_graph=True"):
        torch.autograd.grad(layer(x).sum(), x, create_graph=True)
    assert not layer.weight.main_grad.any()


def test_main_grad_of_a_frozen_weight_stays_as_it_is() -> None:
    layer = cutegen.Linear(16, 8)
    layer.weight.requires_grad_(False).main_grad = torch.zeros(8, 16)
    layer(torch.randn(4, 16, requires_grad=True)).sum().backward()
    assert not layer.weight.main_grad.any()
    assert layer.bias.grad is not None


@pytest.mark.parametrize("activation", [None, "gelu"])
def test_main_grad_under_autocast(activation: str | None) -> None:
    layer = cutegen.Linear(16, 8, activation=activation)
    narrow = torch.bfloat16
    exact_weight = layer.weight.detach().to(narrow).T
    for x in (torch.randn(4, 16, dtype=dtype, requires_grad=True) for dtype in (torch.float32, narrow)):
        exact = Exact(x.to(narrow), exact_weight, layer.bias, activation)
        grad = exact.random_gradient(narrow)
        wanted = exact.gradients(grad)
        for main in (None, torch.zeros(8, 16)):
            layer.weight.main_grad, x.grad, layer.weight.grad = main, None, None
            with torch.autocast("cpu", narrow):
                out = layer(x)
            out.backward(grad)
            close(out, exact)
            assert x.grad.dtype is x.dtype
            close(x.grad.to(narrow), wanted["a"], "x")
            close((layer.weight.grad.to(narrow) if main is None else main).T, wanted["b"], f"weight, {main}")
            assert (layer.weight.grad is None) == (main is not None)


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # torch's own, of the first dual tensor
@pytest.mark.parametrize(("main_grad", "name"), [(True, "input"), (False, "a")])
def test_a_tangent_of_forward_mode_ad_is_refused(main_grad: bool, name: str) -> None:
    layer, x = cutegen.Linear(16, 8), torch.randn(4, 16)
    if main_grad:
        layer.weight.main_grad = torch.zeros(8, 16)
    with forward_ad.dual_level(), pytest.raises(OperandError, match=rf"operand {name}: found a tensor with a tangent"):
        layer(forward_ad.make_dual(x, x))


def hooked() -> torch.nn.Module:
    module = torch.nn.ReLU()
    module.register_forward_hook(lambda *_: None)
    return module


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (torch.nn.ReLU(inplace=True), "relu"),
        (torch.nn.GELU(), "gelu"),
        (torch.nn.GELU("tanh"), "gelu_tanh"),
        (torch.nn.SiLU(), "silu"),
        (torch.relu, "relu"),
        (functional.relu, "relu"),
        (functional.gelu, "gelu"),
        (functional.silu, "silu"),
        (partial(functional.gelu, approximate="tanh"), "gelu_tanh"),
    ],
)
def test_an_activation_may_be_torchs_own(value: Any, name: str) -> None:
    torch._dynamo.reset()  # each value is compiled anew, and a function only so often
    a, b = torch.randn(5, 16), torch.randn(16, 8)
    wanted = cutegen.matmul(a, b, activation=name)
    assert torch.equal(cutegen.matmul(a, b, activation=value), wanted)
    assert torch.equal(torch.compile(cutegen.matmul, backend="eager", fullgraph=True)(a, b, activation=value), wanted)
    assert cutegen.explain(a, b, activation=value) == cutegen.explain(a, b, activation=name)
    assert cutegen.Linear(16, 8, activation=value).activation == name
    assert cutegen.Linear.from_linear(torch.nn.Linear(16, 8), activation=value).activation == name


@pytest.mark.parametrize(
    "value", [torch.tanh, torch.nn.Tanh(), torch.nn.GELU, hooked(), partial(functional.gelu, approximate="other"), 3]
)
def test_what_is_no_activation_of_ours_is_refused(value: Any) -> None:
    for call in (
        lambda: cutegen.matmul(torch.ones(2, 2), torch.ones(2, 2), activation=value),
        lambda: cutegen.Linear(2, 2, activation=value),
    ):
        with pytest.raises(RequestError, match=r"activation: found .*; expected None or one of relu, gelu"):
            call()
