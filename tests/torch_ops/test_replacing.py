"""`replace_linear` and `restore_linear`: what is replaced, what is left alone, and that nothing else changes."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import cutegen  # noqa: E402
from cutegen.errors import RequestError  # noqa: E402
from tests.torch_ops.exact import Exact, close  # noqa: E402
from tests.torch_ops.models import Decoder, Vision  # noqa: E402
from tests.torch_ops.test_linear import Counted, Doubled, LowRank, Named, Shifted, replaced  # noqa: E402


def named(model: nn.Module) -> dict[str, Any]:
    """Every module by every name, as an object."""
    return {name: id(each) for name, each in model.named_modules(remove_duplicate=False)}


def tokens() -> torch.Tensor:
    return torch.randint(64, (3, 7))


def images() -> torch.Tensor:
    return torch.randn(3, 3, 16, 8)


MODELS: list[tuple[Callable[[], nn.Module], Callable[[], torch.Tensor], int, list[str]]] = [
    (Decoder, tokens, 15, []),
    (Vision, images, 6, ["encoder.layers.0.self_attn.out_proj", "encoder.layers.1.self_attn.out_proj"]),
]


@pytest.mark.parametrize(("make", "draw", "count", "left"), MODELS, ids=["decoder", "vision"])
def test_a_model_computes_trains_and_is_restored(make: Any, draw: Any, count: int, left: list[str]) -> None:
    model, x = make(), draw()
    exact, theirs = copy.deepcopy(model).double(), copy.deepcopy(model)
    objects, state, parameters = named(model), model.state_dict(keep_vars=True), list(model.parameters())
    report = cutegen.replace_linear(model, fold_activations=True)
    assert len(report.replaced) == count
    assert [each.name for each in report.left] == left
    kept = model.state_dict(keep_vars=True)
    assert list(kept) == list(state)
    assert all(kept[name] is state[name] for name in state)
    assert list(map(id, model.parameters())) == list(map(id, parameters))
    for each in (exact, theirs, model):
        each(x.double() if each is exact and x.is_floating_point() else x).square().mean().backward()
    for found, other, wanted in zip(*(dict(x.named_parameters()).items() for x in (model, theirs, exact)), strict=True):
        error, usual = ((y[1].grad.double() - wanted[1].grad).abs().max() for y in (found, other))
        assert error <= 2 * usual + 1e-6 * wanted[1].grad.abs().max(), found[0]
    outputs = [each(x.double() if each is exact and x.is_floating_point() else x) for each in (model, theirs, exact)]
    error, usual = ((y.double() - outputs[2]).abs().max() for y in outputs[:2])
    assert error <= 2 * usual + 1e-6 * outputs[2].abs().max()
    assert cutegen.restore_linear(model) == tuple(each.name for each in report.replaced)
    assert named(model) == objects
    assert torch.equal(model(x), theirs(x))
    assert not [each for each in model.modules() if isinstance(each, cutegen.Linear)]
    assert "_class_before_cutegen" not in vars(model.get_submodule(report.replaced[0].name))


def test_the_report_lists_layers_reasons_and_gated_pairs() -> None:
    model = Vision()
    model.mlp = nn.ModuleDict({"gate_proj": nn.Linear(8, 16), "up_proj": nn.Linear(8, 16), "down": nn.Linear(16, 8)})
    report = cutegen.replace_linear(model, lambda name, _: name != "mlp.down", fold_activations=True)
    assert report.gated == (("mlp.gate_proj", "mlp.up_proj"),)
    assert str(report).splitlines() == [
        "8 of 11 Linear layers are cutegen's",
        "  encoder.layers.0.linear1  64x32",
        "  encoder.layers.0.linear2  32x64",
        "  encoder.layers.1.linear1  64x32",
        "  encoder.layers.1.linear2  32x64",
        "  head.0                    32x32  gelu_tanh",
        "  head.2                    10x32",
        "  mlp.gate_proj             16x8",
        "  mlp.up_proj               16x8",
        "left alone",
        "  encoder.layers.0.self_attn.out_proj  NonDynamicallyQuantizableLinear: torch.nn.MultiheadAttention",
        "                                       reads its weight and does not call it",
        "  encoder.layers.1.self_attn.out_proj  NonDynamicallyQuantizableLinear: torch.nn.MultiheadAttention",
        "                                       reads its weight and does not call it",
        "  mlp.down                             Linear: the filter excludes it",
        "gate and up, which one product could compute",
        "  mlp.gate_proj  mlp.up_proj",
    ]
    model.mlp["up_proj"] = nn.Linear(8, 16, bias=False)  # another form: no pair
    assert cutegen.replace_linear(model).gated == ()


class Packed(torch.Tensor):  # type: ignore[misc]
    """Values of a package that quantizes."""

    @staticmethod
    def __new__(cls, rows: int, columns: int) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, (rows, columns), dtype=torch.float32)

    @classmethod
    def __torch_dispatch__(cls, call: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        return cls(*given[0].shape)  # a parameter is made of a detached one


def with_hook() -> nn.Linear:
    layer = nn.Linear(8, 8)
    layer.register_forward_hook(lambda *_: None)
    return layer


def quantized() -> nn.Linear:
    layer = nn.Linear(8, 8)
    layer.weight = nn.Parameter(Packed(8, 8), requires_grad=False)
    return layer


def busy() -> nn.Linear:
    layer = nn.Linear(8, 8)
    layer.activation = "of another package"
    return layer


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: LowRank(8, 8), "its forward is its own"),
        (lambda: Doubled(8, 8), "its __call__ is its own"),
        (lambda: replaced(nn.Linear(8, 8)), "its forward is its own"),
        (lambda: Counted(8, 8), "its buffer calls is its own"),
        (with_hook, "its _forward_hooks has 1"),
        (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), "its weight is computed from others"),
        (lambda: nn.LazyLinear(8), "its weight has no shape yet"),
        (quantized, "its weight is a Packed"),
        (lambda: nn.Linear(8, 8).double(), "its weight is in torch.float64, which cutegen.Linear does not multiply"),
        (busy, "its activation is an attribute of its own, and cutegen.Linear has one"),
        (lambda: cutegen.Linear(8, 8), "it is cutegen's already"),
        (lambda: Shifted(8, 8), "it is cutegen's already"),
    ],
)
def test_a_layer_that_is_more_than_a_linear_is_left_alone(make: Any, why: str) -> None:
    model = nn.ModuleDict({"mine": make(), "plain": nn.Linear(8, 8)})
    kind = type(model["mine"])
    report = cutegen.replace_linear(model)
    assert [(each.name, each.kind, each.why) for each in report.left] == [("mine", kind.__qualname__, why)]
    assert type(model["mine"]) is kind
    assert "plain" in [each.name for each in report.replaced]  # of a LowRank, also the layers inside of it
    cutegen.restore_linear(model)
    assert type(model["mine"]) is kind
    assert type(model["plain"]) is nn.Linear


def test_a_subclass_that_adds_nothing_to_calls_stays_one_also_in_copies_and_pickles() -> None:
    layer, x = Named(8, 4), torch.randn(3, 8)
    assert len(cutegen.replace_linear(layer).replaced) == 1  # the model itself is a layer
    for each in (layer, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert isinstance(each, cutegen.Linear)
        assert isinstance(each, Named)
        assert (each.name, each.width()) == ("query", 4)
        close(each(x), Exact(x, layer.weight.T, layer.bias))
        assert cutegen.restore_linear(each) == ("",)
        assert type(each) is Named
        assert torch.equal(each(x), nn.functional.linear(x, layer.weight, layer.bias))


class Slotted(nn.Linear):  # type: ignore[misc]
    """Its instances have another layout in memory."""

    __slots__ = ("place",)


class Final(nn.Linear):  # type: ignore[misc]
    """Has no subclasses."""

    def __init_subclass__(cls) -> None:
        raise TypeError(f"{cls.__base__.__name__} comes first")


def test_a_class_that_cannot_be_combined_is_left_alone_with_pythons_reason() -> None:
    model = nn.Sequential(Slotted(8, 8), Final(8, 8))
    report = cutegen.replace_linear(model)
    assert [each.name for each in report.replaced] == ["0"]
    assert report.left[0].why == "its class cannot be combined with cutegen.Linear: Linear comes first"
    assert type(model[1]) is Final
    cutegen.restore_linear(model)
    assert type(model[0]) is Slotted


def test_shared_layers_and_tied_weights_stay_shared() -> None:
    layer, tied = nn.Linear(8, 8), nn.Linear(8, 8)
    tied.weight = layer.weight
    model = nn.ModuleDict(
        {"first": layer, "again": layer, "tied": tied, "nested": nn.ModuleList([nn.ModuleList([layer])])}
    )
    elsewhere = [layer]
    report = cutegen.replace_linear(model)
    assert [each.name for each in report.replaced] == ["first", "tied"]
    assert model["first"] is model["again"] is model["nested"][0][0] is elsewhere[0]
    assert isinstance(elsewhere[0], cutegen.Linear)
    assert model["tied"].weight is model["first"].weight
    x = torch.randn(3, 8)
    (model["first"](x) + model["again"](x) + model["tied"](x)).sum().backward()
    once = x.sum(0).expand(8, 8)
    torch.testing.assert_close(layer.weight.grad, 3 * once)


def test_activations_are_folded_only_where_nothing_else_reads_the_sum() -> None:
    shared, act, hooked = nn.Linear(8, 8), nn.SiLU(), nn.ReLU()
    hooked.register_forward_hook(lambda *_: None)

    class Twice(nn.Sequential):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + self[0](x)

    model = nn.ModuleDict(
        {
            "plain": nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 8), act),
            "shared": nn.Sequential(shared, act),
            "reads": nn.Sequential(shared),
            "own": Twice(nn.Linear(8, 8), nn.ReLU()),
            "hooked": nn.Sequential(nn.Linear(8, 8), hooked),
            "other": nn.Sequential(nn.Linear(8, 8), nn.GELU("none"), nn.Tanh(), nn.Linear(8, 8), nn.Tanh()),
            "list": nn.ModuleList([nn.Linear(8, 8), nn.ReLU()]),
        }
    )
    x, objects = torch.randn(5, 8), named(model)
    run = [name for name in model if name != "list"]
    wanted = {name: model[name](x) for name in run}
    plain = cutegen.replace_linear(model)
    assert {each.activation for each in plain.replaced} == {None}
    cutegen.restore_linear(model)
    report = cutegen.replace_linear(model, fold_activations=True)
    folded = {each.name: each.activation for each in report.replaced if each.activation}
    assert folded == {"plain.0": "relu", "plain.2": "silu", "other.0": "gelu"}
    assert repr(model["plain"][1]) == "Folded(ReLU(inplace=True), computed by the layer before)"
    assert type(model["shared"][1]) is nn.SiLU  # the module at the other place
    for name in run:
        torch.testing.assert_close(model[name](x), wanted[name], msg=lambda text, name=name: f"{name}: {text}")
    model.eval()
    cutegen.restore_linear(model)
    assert named(model) == objects
    assert not model["plain"][1].training


def test_a_model_on_meta_is_replaced_and_gets_its_memory_later() -> None:
    with torch.device("meta"):
        model = nn.Sequential(OrderedDict(up=nn.Linear(8, 16), gelu=nn.GELU(), down=nn.Linear(16, 4, bias=False)))
    assert len(cutegen.replace_linear(model, fold_activations=True).replaced) == 2
    assert model(torch.empty(3, 8, device="meta")).shape == (3, 4)
    model.to_empty(device="cpu")
    theirs = nn.Sequential(OrderedDict(up=nn.Linear(8, 16), gelu=nn.GELU(), down=nn.Linear(16, 4, bias=False)))
    assert list(model.state_dict()) == list(theirs.state_dict())
    model.load_state_dict(theirs.state_dict(), assign=True)
    x = torch.randn(3, 8)
    torch.testing.assert_close(model(x), theirs(x))


@pytest.mark.slow
def test_a_replaced_model_compiles_whole_and_a_compiled_one_notices() -> None:
    model, x, counts = Decoder(depth=1), tokens(), []
    wanted = model(x)

    def count(graph: Any, _: Any) -> Any:
        counts.append(sum("cutegen" in str(node.target) for node in graph.graph.nodes))
        return graph

    compiled = torch.compile(model, fullgraph=True, backend=count)
    torch.testing.assert_close(compiled(x), wanted)
    cutegen.replace_linear(model)
    torch.testing.assert_close(compiled(x), wanted)
    assert counts == [0, 8]


def test_what_is_no_model_or_no_longer_ours_is_refused() -> None:
    with pytest.raises(RequestError, match=r"replace_linear: found a dict; expected a torch\.nn\.Module"):
        cutegen.replace_linear({})
    with pytest.raises(RequestError, match=r"restore_linear: found a list; expected a torch\.nn\.Module"):
        cutegen.restore_linear([])
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    cutegen.replace_linear(model)
    model[1].__class__ = type("Wrapped", (cutegen.Linear,), {})  # as FSDP2 does
    with pytest.raises(RequestError, match=r"restore_linear: 1: found a Wrapped; expected the class of replace_linear"):
        cutegen.restore_linear(model)
    assert isinstance(model[0], cutegen.Linear)
    assert cutegen.restore_linear(nn.Linear(8, 8)) == ()
