"""Compare calls with PyTorch's own: `python benchmarks/torch_calls.py [OUT.json]` (needs a GPU).

Host cost is measured on a problem that is small enough for the GPU to keep up. Each sample is the mean of a burst of
calls that starts with an idle GPU. The layers' times come from a CUDA graph of calls over more weights than the L2
holds. Both interleave the compared calls in a new order each round and print medians. Results are checked first.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

import cutegen

BURST_CALLS, HOST_ROUNDS, GRAPH_ROUNDS = 200, 60, 15
CHAIN = 16
"""Products of a compiled program, so that what the program itself costs is a small part of each."""
LAYERS = ((4096, 4096, 4096), (64, 8192, 8192))
L2_BYTES = 160 << 20
HALF: dict[str, Any] = {"device": "cuda", "dtype": torch.float16}


def in_turns(samples: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Return the median of each sample, after one warm-up round."""
    found: dict[str, list[float]] = {name: [] for name in samples}
    for _ in range(rounds + 1):
        for name in random.sample(list(samples), len(samples)):
            found[name].append(samples[name]())
    return {name: statistics.median(values[1:]) for name, values in found.items()}


def host_us(call: Callable[[], object]) -> float:
    """Return the host time per call in microseconds."""
    torch.cuda.synchronize()
    start_ns = time.perf_counter_ns()
    for _ in range(BURST_CALLS):
        call()
    return (time.perf_counter_ns() - start_ns) / BURST_CALLS / 1000


def host_costs() -> dict[str, float]:
    """Time eager calls on 64 x 64 x 64 on the host, with and without an epilogue or gradients."""
    a, b, bias, out = (torch.randn(*shape, **HALF) for shape in ((64, 64), (64, 64), (64,), (64, 64)))
    layer, theirs = cutegen.Linear(64, 64, **HALF), torch.nn.Linear(64, 64, **HALF)
    calls: dict[str, Callable[[], object]] = {
        "torch.matmul": lambda: torch.matmul(a, b),
        "cutegen.matmul": lambda: cutegen.matmul(a, b),
        "torch.matmul(out=)": lambda: torch.matmul(a, b, out=out),
        "cutegen.matmul(out=)": lambda: cutegen.matmul(a, b, out=out),
        "F.linear with bias": lambda: functional.linear(a, b, bias),
        "cutegen.matmul with bias": lambda: cutegen.matmul(a, b, bias=bias),
        "torch.ops.cutegen.matmul": lambda: torch.ops.cutegen.matmul(a, b),
        "nn.Linear": lambda: theirs(a),
        "cutegen.Linear": lambda: layer(a),
        "torch.addmm with alpha": lambda: torch.addmm(out, a, b, alpha=2.0),
        "cutegen.matmul with alpha, c": lambda: cutegen.matmul(a, b, alpha=2.0, c=out),
    }
    x, y = a.clone().requires_grad_(), b.clone().requires_grad_()
    recorded: dict[str, Callable[[], object]] = {
        "torch.matmul, recorded": lambda: torch.matmul(x, y),
        "cutegen.matmul, recorded": lambda: cutegen.matmul(x, y),
        "nn.Linear, recorded": lambda: theirs(a),
        "cutegen.Linear, recorded": lambda: layer(a),
    }
    found = {}
    for grad, some in ((False, calls), (True, recorded)):
        with torch.set_grad_enabled(grad):
            assert (cutegen.matmul(a, b).double() - a.double() @ b.double()).abs().max() < 0.1
            found |= in_turns({name: (lambda call=call: host_us(call)) for name, call in some.items()}, HOST_ROUNDS)
    return found


def compiled_costs() -> dict[str, float]:
    """Time a product of 64 x 64 x 64 on the host in a compiled program of CHAIN of them, one after the other."""
    x, ws = torch.randn(64, 64, **HALF), [torch.randn(64, 64, **HALF) / 8 for _ in range(CHAIN)]

    def theirs(x: torch.Tensor) -> torch.Tensor:
        for w in ws:
            x = torch.matmul(x, w)
        return x

    def ours(x: torch.Tensor) -> torch.Tensor:
        for w in ws:
            x = cutegen.matmul(x, w)
        return x

    with torch.no_grad():
        programs = {each.__name__: torch.compile(each, fullgraph=True, dynamic=False) for each in (theirs, ours)}
        assert (programs["ours"](x).double() - theirs(x).double()).abs().max() < 0.1
        samples = {name: (lambda call=call: host_us(lambda: call(x)) / CHAIN) for name, call in programs.items()}
        found = in_turns(samples, HOST_ROUNDS)
    return {"torch.matmul, compiled": found["theirs"], "cutegen.matmul, compiled": found["ours"]}


def graph_of(call: Callable[[torch.Tensor, torch.Tensor], object], xs: list[Any], ws: list[Any]) -> Callable[[], float]:
    """Return a function that times one call, in microseconds, within a graph of calls over all weights."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for x, w in zip(xs, ws, strict=True):
            call(x, w)
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for x, w in zip(xs, ws, strict=True):
            call(x, w)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def sample() -> float:
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1000 / len(xs)

    return sample


def layer_times(m: int, n: int, k: int) -> dict[str, float]:
    """Time a Linear layer with bias and GELU."""
    count = max(2, -(-L2_BYTES // (2 * (n * k + m * k))))
    xs = [torch.randn(m, k, **HALF) for _ in range(count)]
    ws = [torch.randn(n, k, **HALF) / k**0.5 for _ in range(count)]
    bias = torch.randn(n, **HALF)

    def eager(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return functional.gelu(functional.linear(x, w, bias))

    calls = {
        "eager torch": eager,
        "compiled torch": torch.compile(eager, fullgraph=True),
        "cutegen": lambda x, w: cutegen.matmul(x, w.T, bias=bias, activation="gelu"),
        "torch, GEMM only": lambda x, w: torch.matmul(x, w.T),
        "cutegen, GEMM only": lambda x, w: cutegen.matmul(x, w.T),
    }
    with torch.no_grad():
        wanted = functional.gelu(xs[0].float() @ ws[0].float().T + bias.float())
        for name, call in calls.items():
            worst = (call(xs[0], ws[0]).float() - wanted).abs().max().item()
            assert "GEMM only" in name or worst < 0.05, (name, worst)
        return in_turns({name: graph_of(call, xs, ws) for name, call in calls.items()}, GRAPH_ROUNDS)


def main() -> None:
    """Print the figures, and write them to the given file."""
    found = {"host cost, us": host_costs() | compiled_costs()}
    found |= {f"Linear with bias and GELU, {m}x{n}x{k}, us": layer_times(m, n, k) for m, n, k in LAYERS}
    for title, rows in found.items():
        print(title)
        for name, value in rows.items():
            print(f"  {name:28} {value:8.2f}")
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
