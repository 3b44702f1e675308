"""Torch's activations, by the names that `cutegen.matmul` has for them."""

from __future__ import annotations

from torch import nn

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def activation_of(module: nn.Module) -> str | None:
    """Return the name of what a module computes; None for anything but torch's own modules without hooks.

    >>> activation_of(torch.nn.GELU("tanh"))
    'gelu_tanh'
    """
    if "forward" in vars(module) or any(getattr(module, hooks) for hooks in _HOOKS):
        return None
    if type(module) is nn.GELU:
        return {"none": "gelu", "tanh": "gelu_tanh"}.get(module.approximate)
    return {nn.ReLU: "relu", nn.SiLU: "silu"}.get(type(module))
