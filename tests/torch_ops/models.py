"""Small models of the kinds that people have: a decoder block, an encoder, a vision transformer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS = 32, 4


class RMSNorm(nn.Module):  # type: ignore[misc]
    """x / rms(x), scaled by column."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) -> (..., width)."""
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


def rotated(x: Tensor) -> Tensor:
    """Rotary embedding of (batch, heads, tokens, width of a head)."""
    half = x.shape[-1] // 2
    rates = 100.0 ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
    angles = torch.arange(x.shape[-2], device=x.device, dtype=torch.float64)[:, None] * rates
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    left, right = x[..., :half], x[..., half:]
    return torch.cat([left * cos - right * sin, left * sin + right * cos], -1)


class Attention(nn.Module):  # type: ignore[misc]
    """Causal attention with four projections, as in Llama."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, width) -> (batch, tokens, width)."""
        batch, tokens, width = x.shape
        q, k, v = (
            layer(x).view(batch, tokens, HEADS, width // HEADS).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed = functional.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, tokens, width))


class SwiGLU(nn.Module):  # type: ignore[misc]
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) -> (..., width)."""
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderBlock(nn.Module):  # type: ignore[misc]
    """As in Llama."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.before, self.after = RMSNorm(width), RMSNorm(width)
        self.attention, self.mlp = Attention(width), SwiGLU(width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, width) -> (batch, tokens, width)."""
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.after(x))


class Decoder(nn.Module):  # type: ignore[misc]
    """Tokens to logits, with the embedding's weight also in the head."""

    def __init__(self, words: int = 64, width: int = WIDTH, depth: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(DecoderBlock(width) for _ in range(depth))
        self.norm, self.head = RMSNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, tokens) of integers -> (batch, tokens, words)."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Vision(nn.Module):  # type: ignore[misc]
    """Patches of an image, torch's own encoder, and a head of a Sequential."""

    def __init__(self, width: int = WIDTH, classes: int = 10) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        layer = nn.TransformerEncoderLayer(width, HEADS, 2 * width, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU("tanh"), nn.Linear(width, classes))

    def forward(self, images: Tensor) -> Tensor:
        """(batch, 3, height, width) -> (batch, classes)."""
        return self.head(self.encoder(self.patches(images).flatten(2).mT).mean(1))
