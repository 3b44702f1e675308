"""The formula of a call by torch, for tensors in host memory: in f32, and rounded once to the result's type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
}


def compute(
    a: Tensor,
    b: Tensor,
    *,
    bias: Tensor | None,
    activation: str | None,
    residual: Tensor | None,
    alpha: float | None,
    beta: float | None,
    c: Tensor | None,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """The result, and the value before the activation, both of `dtype`."""
    x = _product(a, b)
    if not (x.is_floating_point() or (dtype is torch.int32 and _plain(bias, activation, residual, alpha, c))):
        x = x.to(torch.float32)
    if alpha is not None:
        x = alpha * x
    if c is not None:
        scale = 1.0 if beta is None else beta
        x = x + scale * c.to(torch.float32) if scale else x.expand(torch.broadcast_shapes(x.shape, c.shape))
    if bias is not None:
        x = x + bias.to(torch.float32)
    before = x
    if activation is not None:
        x = ACTIVATIONS[activation](x)
    if residual is not None:
        x = x + residual.to(torch.float32)
    return rounded(x, dtype), rounded(before, dtype)


def _plain(*terms: Any) -> bool:
    return all(term is None for term in terms)


def _product(a: Tensor, b: Tensor) -> Tensor:
    if a.is_floating_point():
        return torch.matmul(a.to(torch.float32), b.to(torch.float32))
    return torch.matmul(a.to(torch.int32), b.to(torch.int32))


def rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """To nearest; integers and 8-bit floats stop at the ends of their range, and a NaN becomes the integer 0."""
    if x.dtype == dtype:
        return x
    if dtype.is_floating_point and dtype.itemsize > 1:
        return x.to(dtype)
    if dtype.is_floating_point:
        most = torch.finfo(dtype).max
        return x.clamp(-most, most).to(dtype)
    ends = torch.iinfo(dtype)
    return x.to(torch.float64).round().nan_to_num(0.0).clamp(ends.min, ends.max).to(dtype)
