"""Calls and layers held against float64, on whatever device: the CPU's tests and the GPU's are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import cutegen

ACTIVATIONS: dict[str | None, Callable[[Tensor], Tensor]] = {
    None: lambda x: x,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
}
MAJORS = ("tn", "tt", "nn", "nt")
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 2e-5}
"""Of the largest magnitude: a few roundings to the type, of the result and of what is kept for the gradient."""


def half(*shape: int) -> Tensor:
    """Random f16 in host memory."""
    return torch.randn(shape, dtype=torch.float16)


def lies_as(x: Tensor, letter: str, straight: str) -> Tensor:
    """`x` as a leaf with the major that a letter of BLAS says."""
    made = x.clone() if letter == straight else x.mT.contiguous().mT
    return made.requires_grad_()


def close(found: Tensor, wanted: Tensor, dtype: torch.dtype, what: str, times: float = 1.0) -> None:
    """Compare with a float64 reference, on the scale of its largest element."""
    assert found.shape == wanted.shape, f"{what}: {found.shape}, {wanted.shape}"
    assert torch.isfinite(found).all(), what
    scale = max(wanted.abs().max().item(), 1e-3) if wanted.numel() else 1.0
    worst = (found.double() - wanted).abs().max().item() if wanted.numel() else 0.0
    assert worst <= times * TOLERANCE[dtype] * scale, f"{what}: {worst} of {scale}"


def close_with_gradients(out: Any, wanted: Any, leaves: dict[str, tuple[Any, Any]]) -> None:
    """A product and a random gradient's way back, each leaf beside its float64."""
    grad = torch.randn_like(out)
    out.backward(grad)
    wanted.backward(grad.double())
    close(out, wanted, torch.float16, "result")
    for name, (leaf, exact) in leaves.items():
        close(leaf.grad, exact.grad, torch.float16, name, times=2)


def random_gradient(inner: Tensor, dtype: torch.dtype) -> Tensor:
    """Of an activation's result, given the exact values before it: 0 where one of them is within its rounding of 0.

    relu's slope jumps there, and a sum that is right to its last bit may lie on either side.
    """
    grad = torch.randn(inner.shape, dtype=dtype, device=inner.device)
    return grad.masked_fill(inner.abs() <= TOLERANCE[dtype], 0.0)


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
    exact = {"a": a, "b": b} | {name: x for name, x in named.items() if x is not None}
    exact = {name: x.detach().double().requires_grad_() for name, x in exact.items()}
    inner = (1.0 if alpha is None else alpha) * (exact["a"] @ exact["b"]) + exact.get("bias", 0.0)
    wanted = ACTIVATIONS[activation](inner) + exact.get("residual", 0.0)
    grad = random_gradient(inner, dtype)
    out.backward(grad)
    wanted.backward(grad.double())
    close(out, wanted, dtype, "result")
    for name, x in exact.items():
        leaf = {"a": a, "b": b, **named}[name]
        assert leaf is not None
        close(leaf.grad, x.grad, dtype, f"gradient of {name}", times=2.0)


def check_kept(call: Callable[[Tensor, Tensor, Tensor], Tensor], activation: str | None = None) -> None:
    """A, B and bias in turn need a gradient alone: autograd keeps what it reads, and other operands may change."""
    for needed, read in (("a", {"b"}), ("b", {"a"}), ("bias", set[str]())):
        named = {"a": half(16, 64), "b": half(32, 64).T, "bias": half(32)}
        exact = {name: x.double().requires_grad_() for name, x in named.items()}
        named[needed].requires_grad_()
        kept: list[int] = []

        def keep(x: Tensor, kept: list[int] = kept) -> Tensor:
            kept.append(x.data_ptr())
            return x

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            found = call(*named.values())
        assert {name for name, x in named.items() if x.data_ptr() in kept} == read, needed
        assert len(kept) == len(read) + (activation is not None), needed
        inner = exact["a"] @ exact["b"] + exact["bias"]
        grad = random_gradient(inner, torch.float16)
        with torch.no_grad():
            for name in named.keys() - read:
                named[name].add_(1)
        found.backward(grad)
        ACTIVATIONS[activation](inner).backward(grad.double())
        close(named[needed].grad, exact[needed].grad, torch.float16, f"gradient of {needed}", times=2)


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
