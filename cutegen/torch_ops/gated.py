"""Activations of pairs of columns in torch, and their derivatives."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from cutegen.contract.pairs import Pairs
from cutegen.dispatch.gated import Gated


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
