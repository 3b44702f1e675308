"""`cutegen.replace_linear`: the Linear layers of a model become `cutegen.Linear`, and back.

A layer stays the same object and gets another class. Its parameters, names, hooks of `state_dict` and attributes, and
every reference to it, therefore stay what they are: in optimizers, in lists, in tied and shared layers.
"""

import copyreg
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from cutegen.errors import RequestError
from cutegen.support.words import aligned
from cutegen.torch_ops.activations import activation_of
from cutegen.torch_ops.linear import Linear, obstacle
from cutegen.torch_ops.sharding import register_sharding

Filter = Callable[[str, nn.Linear], bool]

_BEFORE = "_class_before_cutegen"
"""Attribute of a replaced layer: its class before."""
_NEW_OBJECT: Any = vars(copyreg)["__newobj__"]
"""Python's function for copies of objects that say nothing else."""
_classes: dict[type[nn.Linear], type[Linear]] = {}
"""Classes that replace subclasses, by these."""
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_GATED = (("gate_proj", "up_proj"), ("gate", "up"), ("w1", "w3"), ("wi_0", "wi_1"))
"""Names of a gate and of the layer that it multiplies, as in Llama, Mixtral and T5."""


@dataclass(frozen=True, slots=True)
class ReplacedLayer:
    """A layer that cutegen computes now. `activation` is that of the module after it, if that was folded."""

    name: str
    out_features: int
    in_features: int
    activation: str | None = None


@dataclass(frozen=True, slots=True)
class LayerLeftAlone:
    """A layer that is still torch's: its class, and why."""

    name: str
    kind: str
    why: str


@dataclass(frozen=True, slots=True)
class ReplacedLinears:
    """Report of `replace_linear`. `gated` are pairs of layers that one product could compute; they are not joined."""

    replaced: tuple[ReplacedLayer, ...]
    left: tuple[LayerLeftAlone, ...]
    gated: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        lines = [f"{len(self.replaced)} of {len(self.replaced) + len(self.left)} Linear layers are cutegen's"]
        shown = [(x.name, f"{x.out_features}x{x.in_features}", x.activation or "") for x in self.replaced]
        lines += aligned(shown)
        if self.left:
            lines += ["left alone", *aligned([(x.name, f"{x.kind}: {x.why}") for x in self.left])]
        if self.gated:
            lines += ["gate and up, which one product could compute", *aligned(list(self.gated))]
        return "\n".join(line.rstrip() for line in lines)


def replace_linear(
    model: nn.Module, filter: Filter | None = None, *, fold_activations: bool = False
) -> ReplacedLinears:
    """Let cutegen compute the `torch.nn.Linear` layers of a model, in place; return which, and why not the others.

    The layers stay the same objects with the same parameters, so that `state_dict`, optimizers, tied weights and shared
    layers are unaffected. `filter(name, layer)` returns whether a layer may be replaced. A layer with a forward, hooks,
    computed weights or state of its own is left alone, and so is one whose weight cutegen does not multiply.

    `fold_activations` also computes the `ReLU`, `GELU` or `SiLU` after a layer in the layer's kernel, on the sum before
    it is rounded; the module becomes an identity. Only in a plain `Sequential`, where nothing else reads the sum.

    Call it before FSDP2, tensor parallelism and `torch.compile`. Raises RequestError for anything but a module.
    """
    _check_module("replace_linear", model)
    register_sharding()
    replaced: dict[nn.Linear, ReplacedLayer] = {}
    left: list[LayerLeftAlone] = []
    read_by_torch = {each.out_proj for each in model.modules() if isinstance(each, nn.MultiheadAttention)}
    for name, layer in list(model.named_modules()):
        if not isinstance(layer, nn.Linear):
            continue
        why = "torch.nn.MultiheadAttention reads its weight and does not call it" if layer in read_by_torch else None
        why = why or _why_not(layer) or (None if filter is None or filter(name, layer) else "the filter excludes it")
        if why is None:
            before = type(layer)
            layer.__class__ = _replacing(before)
            layer.activation = None
            setattr(layer, _BEFORE, before)
            replaced[layer] = ReplacedLayer(name, layer.out_features, layer.in_features)
        else:
            left.append(LayerLeftAlone(name, type(layer).__qualname__, why))
    if fold_activations:
        for layer, activation in _fold(model, replaced):
            had = replaced[layer]
            replaced[layer] = ReplacedLayer(had.name, had.out_features, had.in_features, activation)
    return ReplacedLinears(tuple(replaced.values()), tuple(left), tuple(_gated(model, replaced)))


def restore_linear(model: nn.Module) -> tuple[str, ...]:
    """Undo `replace_linear`; return the names of the layers that are torch's again.

    Raises RequestError, before it changes anything, for a layer that has got another class since, as of FSDP2.
    """
    _check_module("restore_linear", model)
    named = [(name, layer) for name, layer in model.named_modules() if _BEFORE in vars(layer)]
    for name, layer in named:
        if type(layer) is not _replacing(vars(layer)[_BEFORE]):
            found, fix = f"found a {type(layer).__qualname__}", "call restore_linear before whatever gave it that class"
            raise RequestError(f"restore_linear: {name}: {found}; expected the class of replace_linear; {fix}")
    for _, layer in named:
        layer.__class__ = vars(layer)[_BEFORE]
        delattr(layer, _BEFORE)
        del layer.activation
    for parent in list(model.modules()):
        for key, child in parent._modules.items():
            if isinstance(child, Folded):
                parent._modules[key] = child.activation.train(child.training)
    return tuple(name for name, _ in named)


class Folded(nn.Identity):  # type: ignore[misc]
    """The place of an activation that the layer before it computes; it has the module, without registering it."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        object.__setattr__(self, "activation", activation)

    def extra_repr(self) -> str:
        """Return what was here."""
        return f"{self.activation}, computed by the layer before"


def _check_module(function: str, model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise RequestError(f"{function}: found a {type(model).__qualname__}; expected a torch.nn.Module")


def _why_not(layer: nn.Linear) -> str | None:
    """Return why cutegen cannot compute a layer; None if it can."""
    if isinstance(layer, Linear):
        return "it is cutegen's already"
    if (found := obstacle(layer, Linear)) is not None:
        return f"its {found.found}"
    if hasattr(layer, "activation"):
        return "its activation is an attribute of its own, and cutegen.Linear has one"
    for name, values in layer._parameters.items():
        if values is not None and (why := _not_multiplied(values)):
            return f"its {name} is {why}"
    try:
        _replacing(type(layer))
    except TypeError as error:  # a class that forbids subclasses
        return f"its class cannot be combined with cutegen.Linear: {error}"
    return None


def _not_multiplied(values: Tensor) -> str | None:
    """Return what a parameter is if no kernel of cutegen takes it, such as quantized values of another package."""
    own = type(values)
    if own.__torch_dispatch__ is not Tensor.__torch_dispatch__ and own.__name__ not in ("DTensor", "FakeTensor"):
        return f"a {own.__qualname__}"
    return None if values.dtype in _DTYPES else f"in {values.dtype}, which cutegen.Linear does not multiply"


def _replacing(before: type[nn.Linear]) -> type[Linear]:
    """Return the class that replaces `before`: `Linear`, or for a subclass one that is still `before` otherwise.

    Raises TypeError if Python cannot combine the two.
    """
    if before is nn.Linear:
        return Linear
    if before not in _classes:
        _classes[before] = type(
            before.__name__, (Linear, before), {"__module__": before.__module__, "__reduce_ex__": _reduced}
        )
    return _classes[before]


def _reduced(self: Any, protocol: Any) -> Any:
    """Reduce a layer for copies and pickles: its class has no name in a module, that of before has."""
    before = vars(self)[_BEFORE]
    make, arguments, *state = super(_replacing(before), self).__reduce_ex__(protocol)
    return (_new, (before,), *state) if make is _NEW_OBJECT else (make, arguments, *state)


def _new(before: type[nn.Linear]) -> Linear:
    made: Linear = _replacing(before).__new__(_replacing(before))
    return made


def _fold(model: nn.Module, replaced: Mapping[nn.Linear, Any]) -> Iterator[tuple[nn.Linear, str]]:
    """Fold activations into the replaced layers before them; yield those layers, each with its activation."""
    parents = list(model.modules())
    places = [child for parent in parents for child in parent._modules.values()]
    for parent in parents:
        if getattr(parent.forward, "__func__", None) is not nn.Sequential.forward:
            continue
        names = list(parent._modules)
        for name, after in pairwise(names):
            layer, following = parent._modules[name], parent._modules[after]
            alone = layer in replaced and sum(child is layer for child in places) == 1
            activation = activation_of(following) if alone and following is not None else None
            if activation is not None:
                layer.activation = activation
                parent._modules[after] = Folded(following)
                yield layer, activation


def _gated(model: nn.Module, replaced: Mapping[nn.Linear, ReplacedLayer]) -> Iterator[tuple[str, str]]:
    """Return the names of replaced layers that read one input and are multiplied by each other, as names suggest."""
    for parent in model.modules():
        for names in _GATED:
            gate, up = (parent._modules.get(name) for name in names)
            if gate in replaced and up in replaced and _form(gate) == _form(up):
                yield replaced[gate].name, replaced[up].name


def _form(layer: Any) -> tuple[Any, ...]:
    return layer.weight.shape, layer.weight.dtype, layer.bias is None
