"""What a call costs the host: `python benchmarks/host_cost.py ARTIFACT_DIR` (needs torch and a GPU).

The problem is small enough for the GPU to keep up. Each sample is the mean of a burst of calls that fits the launch
queue, the GPU idle before it; the calls compared take turns, and the median of the samples is printed.

Where the kernel takes tensor maps, one is made for each new address. The maps of a few results in turn are kept; of a
thousand in turn none is met again in time.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Mapping

import torch

from cutegen.run import Kernel
from cutegen.verify import compare, float64_reference, random_operands

BURST_CALLS = 200
ROUNDS = 200
PROBLEM = (128, 128, 64)
FEW, MANY = 4, 1000


def sample_us(call: Callable[[], object]) -> float:
    """Microseconds of host time per call."""
    torch.cuda.synchronize()
    start_ns = time.perf_counter_ns()
    for _ in range(BURST_CALLS):
        call()
    return (time.perf_counter_ns() - start_ns) / BURST_CALLS / 1000


def medians_us(calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Median over interleaved samples, after one round of warming up."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS + 1):
        for name, call in calls.items():
            samples[name].append(sample_us(call))
    return {name: statistics.median(values[1:]) for name, values in samples.items()}


def main() -> None:
    """Print one line per kind of call."""
    parser = argparse.ArgumentParser(description="Host cost of a kernel's call beside torch.matmul.")
    parser.add_argument("artifact", help="an artifact's folder, as `cutegen build` prints it")
    kernel = Kernel.open(parser.parse_args().artifact)
    m, n, k = PROBLEM
    a, b, out = random_operands(kernel.contract, m, n, k, seed=0, framework="torch", device="cuda")
    kernel(a, b, out=out)
    if not compare(out, float64_reference(a, b), dtype=kernel.contract.tensor("c").dtype, accumulator="f16").ok:
        raise SystemExit("the kernel's result is wrong")
    torch_out = torch.empty(m, n, dtype=a.dtype, device="cuda")
    *_, results = random_operands(kernel.contract, m, n, 8, seed=1, batch=MANY, framework="torch", device="cuda")
    few, many = itertools.cycle(list(results[:FEW])), itertools.cycle(list(results))
    stream = torch.cuda.current_stream().cuda_stream
    for name, value in medians_us(
        {
            "kernel(a, b, out=)": lambda: kernel(a, b, out=out),
            "kernel(a, b, out=, stream=)": lambda: kernel(a, b, out=out, stream=stream),
            "torch.matmul(a, b, out=)": lambda: torch.matmul(a, b, out=torch_out),
            f"kernel(a, b, out=), {FEW} in turn": lambda: kernel(a, b, out=next(few)),
            f"kernel(a, b, out=), {MANY:,} in turn": lambda: kernel(a, b, out=next(many)),
            "kernel(a, b)": lambda: kernel(a, b),
            "torch.matmul(a, b)": lambda: torch.matmul(a, b),
        }
    ).items():
        print(f"{name:34}{value:7.2f} us")


if __name__ == "__main__":
    main()
