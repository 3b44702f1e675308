"""The formula of a call in torch, for tensors in host memory: in f32, and rounded once to the result's type."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

from cutegen.dispatch.block_scales import blocks_of
from cutegen.dispatch.formula import gated_of
from cutegen.dispatch.shapes import Shape
from cutegen.torch_ops import quantize
from cutegen.torch_ops.activations import activated
from cutegen.torch_ops.call import Call

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
}


def compute(call: Call, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the result, and the value before the activation, both of `dtype`."""
    a, b, bias, activation, residual, alpha, beta, c, scale_a, scale_b, *_ = call
    if scale_a is not None and scale_a.dtype in quantize.TYPES:
        assert scale_b is not None
        a, b = quantize.scaled(a, scale_a), quantize.scaled(b.mT, scale_b).mT
        scale_a, scale_b = call.scale_m, call.scale_n
    elif blocks := blocks_of({name: tensor.shape for name, tensor in call.tensors.items()}):
        a, b = scaled(a, scale_a, blocks["scale_a"]), scaled(b, scale_b, blocks["scale_b"][::-1])
        scale_a = scale_b = None
    x = multiply(a, b)
    terms = (bias, activation, residual, alpha, c, scale_a, scale_b)
    exact = dtype is torch.int32 and all(term is None for term in terms)
    if not (x.is_floating_point() or exact):
        x = x.to(torch.float32)
    if alpha is not None:
        x = alpha * x
    if scale_a is not None:
        x = per_row(scale_a, a.shape, b.shape) * x
    if scale_b is not None:
        x = per_column(scale_b, a.shape, b.shape) * x
    if c is not None:
        scale = 1.0 if beta is None else beta
        x = x + scale * c.to(torch.float32) if scale else x.expand(torch.broadcast_shapes(x.shape, c.shape))
    if bias is not None:
        x = x + (bias if x.dim() else bias.reshape(())).to(torch.float32)  # two vectors have one sum
    before = x
    if (gated := gated_of(activation)) is not None:
        x = activated(gated, x)
    elif activation is not None:
        x = ACTIVATIONS[activation](x)
    if residual is not None:
        x = x + residual.to(torch.float32)
    return rounded(x, dtype), rounded(before, dtype)


def scaled(x: Tensor, factors: Tensor, block: tuple[int, int]) -> Tensor:
    """Return matrices in f32, each block of so many rows and columns multiplied by its factor."""
    for dim, each in zip((-2, -1), block, strict=True):
        factors = factors.repeat_interleave(each, dim)
    return x.to(torch.float32) * factors[..., : x.shape[-2], : x.shape[-1]]


def per_row(scale: Tensor, a: Shape, b: Shape) -> Tensor:
    """Return a scale of A's rows in the shape that multiplies the product of such matrices."""
    if scale.numel() == 1:
        return scale.reshape(()).to(torch.float32)
    # (M,), (M,1), (batch,M) or (batch,M,1), as `place_scale` reads them; a batch of ones may be shorter
    if scale.dim() != max(len(a), len(b)):
        scale = scale.reshape(-1, 1) if scale.numel() == a[-2] else scale.unsqueeze(-1)
    return (scale if len(b) > 1 else scale.squeeze(-1)).to(torch.float32)


def per_column(scale: Tensor, a: Shape, b: Shape) -> Tensor:
    """Return a scale of B's columns in the shape that multiplies the product of such matrices."""
    if scale.numel() == 1:
        return scale.reshape(()).to(torch.float32)
    # (N,), (1,N), (batch,N) or (batch,1,N)
    if scale.dim() != max(len(a), len(b)):
        scale = scale.reshape(-1) if scale.numel() == b[-1] else scale.unsqueeze(-2)
    return (scale if len(a) > 1 or scale.dim() == 1 else scale.squeeze(-2)).to(torch.float32)


def multiply(a: Tensor, b: Tensor) -> Tensor:
    """Return the product in f32, or s32 for integers."""
    if a.is_floating_point():
        return torch.matmul(a.to(torch.float32), b.to(torch.float32))
    ends = torch.iinfo(torch.int32)  # sums saturate; float64 has larger ones exactly
    return torch.matmul(a.to(torch.float64), b.to(torch.float64)).clamp(ends.min, ends.max).to(torch.int32)


def rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Round to nearest; integers and 8-bit floats saturate, and NaN becomes the integer 0."""
    if x.dtype == dtype:
        return x
    if dtype.is_floating_point and dtype.itemsize > 1:
        return x.to(dtype)
    if dtype.is_floating_point:
        most = torch.finfo(dtype).max
        return x.clamp(-most, most).to(dtype)
    ends = torch.iinfo(dtype)
    return x.to(torch.float64).round().nan_to_num(0.0).clamp(ends.min, ends.max).to(dtype)
