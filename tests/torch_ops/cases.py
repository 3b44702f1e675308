"""Calls and layers held against float64, on whatever device: the CPU's tests and the GPU's are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import cutegen
from tests.torch_ops.exact import Exact, close, close_gradients

MAJORS = ("tn", "tt", "nn", "nt")


def half(*shape: int) -> Tensor:
    """Random f16 in host memory."""
    return torch.randn(shape, dtype=torch.float16)


def lies_as(x: Tensor, letter: str, straight: str) -> Tensor:
    """`x` as a leaf with the major that a letter of BLAS says."""
    made = x.clone() if letter == straight else x.mT.contiguous().mT
    return made.requires_grad_()


def check_gradients(
    device: str,
    majors: str,
    activation: str | None,
    *,
    bias: bool,
    residual: bool = False,
    dtype: torch.dtype = torch.float16,
    shape: tuple[int, int, int] = (40, 48, 56),
    batch: tuple[int, ...] = (),
    batched_b: bool = False,
    alpha: float | None = None,
    direct: bool = False,
) -> None:
    """Result and every gradient of a call; `direct` goes by the op, which keeps no value before the activation."""
    m, n, k = shape
    make: dict[str, Any] = {"device": device, "dtype": dtype}
    a = lies_as(torch.randn(*batch, m, k, **make) / k**0.5, majors[0], "t")
    b = lies_as(torch.randn(*(batch if batched_b else ()), k, n, **make), majors[1], "t")
    named = {"bias": torch.randn(n, **make).requires_grad_() if bias else None}
    named["residual"] = torch.randn(*batch, m, n, **make).requires_grad_() if residual else None
    if direct:
        out = torch.ops.cutegen.matmul(a, b, named["bias"], activation, named["residual"], alpha)
    else:
        out = cutegen.matmul(a, b, activation=activation, alpha=alpha, **named)
    exact = Exact(a, b, activation=activation, alpha=1.0 if alpha is None else alpha, **named)
    close(out, exact)
    grad = exact.random_gradient(dtype)
    out.backward(grad)
    close_gradients({"a": a, "b": b} | {name: x for name, x in named.items() if x is not None}, exact, grad)


def check_kept(call: Callable[[Tensor, Tensor, Tensor], Tensor], activation: str | None = None) -> None:
    """A, B and bias in turn need a gradient alone: autograd keeps what it reads, and other operands may change."""
    for needed, read in (("a", {"b"}), ("b", {"a"}), ("bias", set[str]())):
        named = {"a": half(16, 64), "b": half(32, 64).T, "bias": half(32)}
        exact = Exact(**{name: x.clone() for name, x in named.items()}, activation=activation)
        named[needed].requires_grad_()
        kept: list[int] = []

        def keep(x: Tensor, kept: list[int] = kept) -> Tensor:
            kept.append(x.data_ptr())
            return x

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            found = call(*named.values())
        assert {name for name, x in named.items() if x.data_ptr() in kept} == read, needed
        assert len(kept) == len(read) + (activation is not None), needed
        close(found, exact)
        grad = exact.random_gradient(torch.float16)
        with torch.no_grad():
            for name in named.keys() - read:
                named[name].add_(1)
        found.backward(grad)
        close_gradients({needed: named[needed]}, exact, grad)


class Block(nn.Module):
    """A block of a transformer; with `fused` the activation is the layer's."""

    def __init__(self, linear: type[nn.Linear], *, fused: bool, width: int = 64, heads: int = 4, **make: Any) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        self.first, self.second = nn.LayerNorm(width, **make), nn.LayerNorm(width, **make)
        self.qkv, self.out = linear(width, 3 * width, **make), linear(width, width, **make)
        activation = {"activation": "gelu"} if fused else {}
        self.up, self.down = linear(width, 4 * width, **make, **activation), linear(4 * width, width, **make)
        self.act = nn.Identity() if fused else nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        batch, rows, width = x.shape
        heads = self.qkv(self.first(x)).view(batch, rows, 3, self.heads, width // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, rows, width))
        return x + self.down(self.act(self.up(self.second(x))))


def train(block: nn.Module, run: Callable[[Tensor], Tensor], steps: int = 10, rows: int = 8, **to: Any) -> list[float]:
    """The losses of `steps` steps on data that are the same in each run."""
    optimizer = torch.optim.AdamW(block.parameters(), 1e-3)
    random = torch.Generator().manual_seed(5)
    losses = []
    for _ in range(steps):
        x = torch.randn(2, rows, block.width, generator=random).to(**to)  # type: ignore[call-overload]
        loss = (run(x) - x.roll(1, 1)).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def pair(**make: Any) -> tuple[Block, Block]:
    """A block of `nn.Linear` and one of `cutegen.Linear` with the same parameters."""
    theirs, mine = Block(nn.Linear, fused=False, **make), Block(cutegen.Linear, fused=True, **make)
    mine.load_state_dict(theirs.state_dict())
    return theirs, mine
