"""Train a transformer block with `cutegen.Linear`, and the same block with `nn.Linear`; needs torch, but no GPU.

On a GPU cutegen's kernels compute the products, with fused bias and GELU. In host memory torch computes them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

import cutegen

WIDTH, HEADS, STEPS = 64, 4, 10
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Block(nn.Module):
    """Attention and a multilayer perceptron, each with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.activation: nn.Module = nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, rows, width) to the same shape."""
        batch, rows, _ = x.shape
        heads = self.qkv(self.first(x)).view(batch, rows, 3, HEADS, WIDTH // HEADS)
        mixed = functional.scaled_dot_product_attention(*heads.permute(2, 0, 3, 1, 4), is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, rows, WIDTH))
        return x + self.down(self.activation(self.up(self.second(x))))


def served_by_cutegen(block: Block) -> Block:
    """Replace torch's layers by cutegen's: the same parameters, with GELU fused into the kernel of `up`."""
    for name, activation in (("qkv", None), ("out", None), ("up", "gelu"), ("down", None)):
        setattr(block, name, cutegen.Linear.from_linear(getattr(block, name), activation=activation))
    block.activation = nn.Identity()
    return block


def train(block: Block) -> list[float]:
    """Train the block to predict the previous row, and return the losses."""
    optimizer = torch.optim.AdamW(block.parameters(), 1e-3)
    random = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(STEPS):
        x = torch.randn(2, 16, WIDTH, generator=random).to(DEVICE)
        loss = (block(x) - x.roll(1, 1)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


blocks = []
for _ in range(2):
    torch.manual_seed(0)
    blocks.append(Block().to(DEVICE))
theirs, ours = train(blocks[0]), train(served_by_cutegen(blocks[1]))
for step, (one, other) in enumerate(zip(theirs, ours, strict=True)):
    print(f"step {step}: nn.Linear {one:.4f}, cutegen.Linear {other:.4f}")
print(f"largest difference of a loss: {max(abs(one - other) for one, other in zip(theirs, ours, strict=True)):.1e}")
