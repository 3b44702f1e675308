"""Compare a decoder block with PyTorch's own: `python -m benchmarks.decoder_block [--out FILE.json]` (needs a GPU).

The block is one of Llama's: RMSNorm, rotary attention, SwiGLU, in bf16 without biases, by default with the extents of
the 8-billion-parameter Llama 3. All contenders have the same weights, which are read from device memory: they are
several times as large as the L2 cache. Results are compared with float64 first. Times are medians of interleaved runs:

GPU   one forward pass in a CUDA graph
call  one forward pass as a program makes it, in a burst that starts with an idle GPU: the longer of host and GPU
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import cutegen
import cutegen.inductor
from cutegen.bench.measure import captured, graph_times
from cutegen.support.words import aligned

WIDTH, HEADS, INNER = 4096, 32, 14336
TOKENS = (1, 64, 4096)
ROUNDS = 20
BURST_S = 0.05
"""How long a burst takes, about."""
MOST_ERROR = 1.25
"""Root mean square of a contender's errors over that of eager torch: both round every intermediate result to bf16."""
EAGER, COMPILED = "torch, eager", "torch, compiled"
THEIRS = (EAGER, COMPILED)

Forward = Callable[[Tensor], Tensor]


class Attention(nn.Module):
    """Causal attention with rotary embedding and four projections."""

    def __init__(self, width: int, heads: int, tokens: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(width, width, bias=False) for _ in range(4))
        half = width // heads // 2
        rates = 10_000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(tokens, dtype=torch.float64)[:, None] * rates
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, tokens, width) to the same shape."""
        batch, tokens, width = x.shape
        q, k, v = (
            layer(x).view(batch, tokens, self.heads, width // self.heads).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed = functional.scaled_dot_product_attention(self.rotated(q), self.rotated(k), v, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, tokens, width))

    def rotated(self, x: Tensor) -> Tensor:
        """Rotate pairs of the columns of (batch, heads, tokens, width of a head) by their angles."""
        cos, sin = self.cos[: x.shape[-2]], self.sin[: x.shape[-2]]
        left, right = x.chunk(2, -1)
        return torch.cat([left * cos - right * sin, left * sin + right * cos], -1)


class Gated(nn.Module):
    """down(silu(gate(x)) * up(x)): SwiGLU, as models have it."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., width) to the same shape."""
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Joined(nn.Module):
    """The same with gates and ups in one weight, multiplied and combined by one kernel."""

    def __init__(self, of: Gated) -> None:
        super().__init__()
        width, weight = of.gate_proj.in_features, torch.cat([of.gate_proj.weight, of.up_proj.weight])
        options: dict[str, Any] = {"bias": False, "device": weight.device, "dtype": weight.dtype}
        pairs: dict[str, Any] = {"activation": "swiglu", "pairs": "halves", "first": "gate"}
        self.gate_up_proj = cutegen.Linear(width, len(weight), **pairs, **options)
        self.gate_up_proj.weight = nn.Parameter(weight.detach(), requires_grad=False)
        self.down_proj = cutegen.Linear.from_linear(of.down_proj)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., width) to the same shape."""
        return self.down_proj(self.gate_up_proj(x))


class DecoderBlock(nn.Module):
    """Attention and a gated multilayer perceptron, each after an RMSNorm and with a residual connection."""

    def __init__(self, width: int = WIDTH, heads: int = HEADS, inner: int = INNER, tokens: int = max(TOKENS)) -> None:
        super().__init__()
        self.before, self.after = nn.RMSNorm(width, eps=1e-6), nn.RMSNorm(width, eps=1e-6)
        self.attention, self.mlp = Attention(width, heads, tokens), Gated(width, inner)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, tokens, width) to the same shape."""
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.after(x))


def replaced(block: DecoderBlock) -> DecoderBlock:
    """Return a block with cutegen's layers and the same parameters."""
    made = deepcopy(block)
    cutegen.replace_linear(made)
    return made


def joined(block: DecoderBlock) -> DecoderBlock:
    """Return a block with cutegen's layers whose gates and ups are joined, too."""
    made = replaced(block)
    made.mlp = Joined(block.mlp)  # type: ignore[assignment]
    return made


class Chosen(DecoderBlock):
    """The same, compiled anew: Dynamo would find the program of another block, since it shares them by class."""


def contenders(block: DecoderBlock, x: Tensor) -> dict[str, Forward]:
    """Return forward passes by name, called once: compiled, and with every kernel built."""
    ours, one_kernel, chosen = replaced(block), joined(block), deepcopy(block)
    chosen.__class__ = Chosen
    made: dict[str, Forward] = {
        EAGER: block,
        COMPILED: torch.compile(block, dynamic=False),
        "replace_linear, eager": ours,
        "replace_linear, compiled": torch.compile(ours, dynamic=False),
        "gates and ups joined, eager": one_kernel,
        "gates and ups joined, compiled": torch.compile(one_kernel, dynamic=False),
    }
    for call in made.values():
        call(x)
    with cutegen.inductor.enable() as enabled:
        compiled = torch.compile(chosen, dynamic=False)
        compiled(x)
    return {**made, f"inductor.enable, {len(enabled.replaced)} of 7 products": compiled}


def rms_errors(calls: Mapping[str, Forward], block: DecoderBlock, x: Tensor) -> dict[str, float]:
    """Return the root mean square of each contender's errors, of results that must be finite.

    Raises AssertionError for one that is MOST_ERROR times eager torch's or more.
    """
    exact = deepcopy(block).double()(x.double())
    found = {name: (call(x).double() - exact).square().mean().sqrt().item() for name, call in calls.items()}
    wrong = {name: error for name, error in found.items() if not error < MOST_ERROR * found[EAGER]}
    assert not wrong, f"found errors of {wrong}; expected less than {MOST_ERROR} x {found[EAGER]:.3g}"
    return found


def burst_us(call: Callable[[], object], count: int) -> float:
    """Return the time per call of a burst, until the GPU has done it, in microseconds."""
    torch.cuda.synchronize()
    start_ns = time.perf_counter_ns()
    for _ in range(count):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter_ns() - start_ns) / count / 1000


def call_times(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median time per call of bursts, in microseconds; contenders run in a new order each round."""
    counts = {name: max(3, int(1e6 * BURST_S / burst_us(call, 3))) for name, call in calls.items()}
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name in random.sample(list(calls), len(calls)):
            found[name].append(burst_us(calls[name], counts[name]))
    return {name: statistics.median(values) for name, values in found.items()}


def measured(block: DecoderBlock, tokens: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return GPU and call times in microseconds, and errors, of each contender."""
    x = torch.randn(1, tokens, block.before.weight.numel(), device="cuda", dtype=torch.bfloat16)
    torch._dynamo.reset()
    with torch.no_grad():
        forwards = contenders(block, x)
        errors = rms_errors(forwards, block, x)
        calls = {name: (lambda forward=forward: forward(x)) for name, forward in forwards.items()}
        on_gpu = graph_times({name: captured([call]) for name, call in calls.items()}, rounds=rounds)
        called = call_times(calls, rounds)
    return {
        name: {"gpu_us": on_gpu[name].median_us, "call_us": called[name], "rms_error": errors[name]} for name in calls
    }


def lines(tokens: int, found: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Write a table: times, and speeds relative to the faster of eager and compiled torch. Losses are marked."""
    best = {key: min(found[name][key] for name in THEIRS) for key in ("gpu_us", "call_us")}
    rows = []
    for name, each in found.items():
        speeds = {key: best[key] / each[key] for key in best}
        said = {key: "" if name in THEIRS else f"{x:.2f}{' lost' if x < 1 else ''}" for key, x in speeds.items()}
        times = (f"{each['gpu_us']:,.1f}", said["gpu_us"], f"{each['call_us']:,.1f}", said["call_us"])
        rows.append((name, *times, f"{each['rms_error']:.2e}"))
    header = ("", "GPU, us", "x torch", "call, us", "x torch", "rms error")
    return [f"{tokens} token{'s' * (tokens > 1)}", *aligned(rows, header=header, right=set(range(1, 6)))]


def main(words: Sequence[str] | None = None) -> None:
    """Print a table for each number of tokens, and write them to a file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decoder_block", description=__doc__.partition("\n")[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=list(TOKENS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args(words)
    torch.manual_seed(0)
    block = DecoderBlock(tokens=max(asked.tokens)).to("cuda", torch.bfloat16).requires_grad_(False)
    print(f"on {torch.cuda.get_device_name()}, torch {torch.__version__}; x torch: of the faster of eager and compiled")
    found = {}
    for tokens in asked.tokens:
        found[tokens] = measured(block, tokens, asked.rounds)
        print("", *lines(tokens, found[tokens]), sep="\n", flush=True)
    if asked.out is not None:
        asked.out.write_text(json.dumps({"device": torch.cuda.get_device_name(), "tokens": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
