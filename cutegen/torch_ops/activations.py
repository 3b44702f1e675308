"""Torch's activations, by the names that `cutegen.matmul` has for them."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

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
