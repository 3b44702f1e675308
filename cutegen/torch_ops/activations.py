"""Torch's activations, by the names that `cutegen.matmul` has for them; those of pairs of columns, and derivatives."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from cutegen.contract.problem import Pairs
from cutegen.dispatch.formula import Gated

# Torch's activations, by the names that `cutegen.matmul` has for them.


_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_GELUS = {"none": "gelu", "tanh": "gelu_tanh"}


def activation_of(module: nn.Module) -> str | None:
    """Return the name of what a module computes; None for anything but torch's own modules without hooks.

    >>> activation_of(torch.nn.GELU("tanh"))
    'gelu_tanh'
    """
    if "forward" in vars(module) or any(getattr(module, hooks) for hooks in _HOOKS):
        return None
    if type(module) is nn.GELU:
        return _GELUS.get(module.approximate)
    return {nn.ReLU: "relu", nn.SiLU: "silu"}.get(type(module))


def activation_name(value: Any) -> Any:
    """Return the name of one of torch's modules or functions; anything else as it is, to be checked as a name.

    >>> activation_name(torch.nn.functional.silu), activation_name("relu"), activation_name(torch.tanh) is torch.tanh
    ('silu', 'relu', True)
    """
    if isinstance(value, nn.Module):
        return activation_of(value) or value
    if isinstance(value, partial) and value.func is functional.gelu and not value.args:
        if value.keywords.keys() <= {"approximate"}:
            return _GELUS.get(value.keywords.get("approximate", "none"), value)
        return value
    if value is torch.relu or value is functional.relu:
        return "relu"
    if value is functional.gelu:
        return "gelu"
    return "silu" if value is functional.silu else value


# Activations of pairs of columns in torch, and their derivatives.


def members(x: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """Return the gates and the ups of columns (..., N), each (..., N/2)."""
    width = pairs.width or x.shape[-1] // 2
    blocks = (
        x.unflatten(-1, (-1, 2, width)) if x.numel() else x.reshape(*x.shape[:-1], x.shape[-1] // 2 // width, 2, width)
    )
    first, second = (blocks.select(-2, at).flatten(-2) for at in (0, 1))
    return (first, second) if pairs.first == "gate" else (second, first)


def columns(gate: Tensor, up: Tensor, pairs: Pairs) -> Tensor:
    """Return the columns (..., N) of gates and ups, in the order of the weight's."""
    first, second = (gate, up) if pairs.first == "gate" else (up, gate)
    width = pairs.width or gate.shape[-1]
    return torch.stack([each.unflatten(-1, (-1, width)) for each in (first, second)], dim=-2).flatten(-3)


def activated(gated: Gated, x: Tensor) -> Tensor:
    """Return the activation of columns (..., N), which is (..., N/2)."""
    gate, up = members(x, gated.pairs)
    match gated.name:
        case "swiglu":
            return functional.silu(gate) * up
        case "geglu" | "geglu_tanh":
            return functional.gelu(gate, approximate="tanh" if gated.name == "geglu_tanh" else "none") * up
        case "reglu":
            return functional.relu(gate) * up
    gate = gate.clamp(max=gated.limit)
    return (up.clamp(-gated.limit, gated.limit) + 1) * gate * torch.sigmoid(gated.alpha * gate)


def through(gated: Gated, grad: Tensor, before: Tensor) -> Tensor:
    """Return the gradient of columns (..., N) from that of their activation."""
    aten, (gate, up) = torch.ops.aten, members(before, gated.pairs)
    match gated.name:
        case "swiglu":
            of_gate, of_up = aten.silu_backward(grad * up, gate), grad * functional.silu(gate)
        case "geglu" | "geglu_tanh":
            approximate = "tanh" if gated.name == "geglu_tanh" else "none"
            of_gate = aten.gelu_backward(grad * up, gate, approximate=approximate)
            of_up = grad * functional.gelu(gate, approximate=approximate)
        case "reglu":
            of_gate, of_up = aten.threshold_backward(grad * up, gate, 0), grad * functional.relu(gate)
        case _:
            limited, added = gate.clamp(max=gated.limit), up.clamp(-gated.limit, gated.limit) + 1
            sigmoid = torch.sigmoid(gated.alpha * limited)
            slope = sigmoid * (1 + gated.alpha * limited * (1 - sigmoid))
            of_gate = grad * added * slope * (gate <= gated.limit)
            of_up = grad * limited * sigmoid * (up.abs() <= gated.limit)
    return columns(of_gate, of_up, gated.pairs)
