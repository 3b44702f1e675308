"""Measure the host cost of a call for kernels of every family: `python benchmarks/host_cost.py [SPEC_OR_FOLDER ...]`.

Needs torch and a GPU. The problem is small enough for the GPU to keep up. Each sample is the mean of a burst of calls
that fits in the launch queue and starts with an idle GPU. The compared calls are interleaved in random order, and the
median of the samples is reported.

If the kernel takes tensor maps, the host encodes one for each new address. It caches the maps of a few outputs. When
thousands of outputs rotate, each map is evicted before its address returns.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cutegen.api import compile_gemm
from cutegen.bench.contenders import Entrant
from cutegen.errors import CheckError
from cutegen.run import Kernel
from cutegen.spec import GemmSpec, Operand, Problem, SpecLike, as_spec
from cutegen.support.words import aligned
from cutegen.verify import compare, expected_outcome, random_extras, random_operands

BURST_CALLS = 200
ROUNDS = 100
PROBLEM = (128, 128, 128)
FEW, MANY = 4, 5000
PLAIN_SIMT = GemmSpec(
    family="simt",
    problem=Problem(a=Operand("f32", "k"), b=Operand("f32", "k"), c=Operand("f32", "n"), accumulator="f32"),
    name="simt_plain",
)
FAMILIES: Mapping[str, SpecLike] = {
    "simt": PLAIN_SIMT,
    "sm80": "sm80_hgemm_tn",
    "sm80, split-K": "sm80_split_k_tn",
    "sm120": "sm120_hgemm_tn",
    "sm90": "sm90_hgemm_tn",
    "sm90, clusters": "cutlass_hopper_cooperative",
    "simt, alpha and beta": "simt_sgemm_tn",
    "sm90, bias and GELU": "sm90_hgemm_bias_gelu",
}
"""One spec per family, per kind of launch within a family, and for calls with more operands."""
OURS, ON_STREAM, NEW_RESULT = "kernel(a, b, out=)", "kernel(a, b, out=, stream=)", "kernel(a, b)"
IN_TURN = "kernel(a, b, out=), {:,} outputs"
TORCH, TORCH_NEW = "torch, out=", "torch"
"""torch.matmul; for kernels with an epilogue, torch.addmm and the further calls that compute the same result."""


@dataclass(frozen=True, slots=True)
class HostCost:
    """Microseconds of host time for one call of one kernel."""

    kernel: str
    call: str
    median_us: float


def sample_us(call: Callable[[], object]) -> float:
    """Return the host time per call in microseconds."""
    import torch

    torch.cuda.synchronize()
    start_ns = time.perf_counter_ns()
    for _ in range(BURST_CALLS):
        call()
    return (time.perf_counter_ns() - start_ns) / BURST_CALLS / 1000


def medians_us(calls: Mapping[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, float]:
    """Return the median over interleaved samples, after one warm-up round."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    order = random.Random(0)
    for _ in range(rounds + 1):
        for name in order.sample(list(calls), len(calls)):
            samples[name].append(sample_us(calls[name]))
    return {name: statistics.median(values[1:]) for name, values in samples.items()}


def host_costs(kernels: Mapping[str, Kernel], rounds: int = ROUNDS) -> list[HostCost]:
    """Return the host cost of each kernel, whose result is checked first, and of torch on the same operands."""
    found = []
    for name, kernel in kernels.items():
        calls, _kept = _calls(name, kernel)
        found += [HostCost(name, call, us) for call, us in medians_us(calls, rounds).items()]
    return found


def _calls(name: str, kernel: Kernel) -> tuple[dict[str, Callable[[], object]], object]:
    """Return the compared calls, and the objects that must outlive them."""
    import torch

    (m, n, k), contract = PROBLEM, kernel.contract
    options: dict[str, Any] = {"framework": "torch", "device": "cuda"}
    a, b, out = random_operands(contract, m, n, k, seed=0, **options)
    extras = random_extras(contract, m, n, seed=0, **options)
    kernel(a, b, out=out, **extras)
    accumulator = Entrant(name, kernel).types.accumulator
    expected = expected_outcome(contract, a, b, extras, accumulator=accumulator).result
    if not compare(out, expected, dtype=contract.tensor("c").dtype, accumulator=accumulator).ok:
        raise CheckError(f"{name}: the kernel's result is wrong")
    *_, results = random_operands(contract, m, n, 8, seed=1, batch=MANY, **options)
    few, many = itertools.cycle(list(results[:FEW])), itertools.cycle(list(results))
    stream = torch.cuda.current_stream().cuda_stream
    given, (into, new) = partial(kernel, **extras), _of_torch(a, b, extras, torch.empty_like(out))
    return {
        OURS: lambda: given(a, b, out=out),
        TORCH: into,
        ON_STREAM: lambda: given(a, b, out=out, stream=stream),
        IN_TURN.format(FEW): lambda: given(a, b, out=next(few)),
        IN_TURN.format(MANY): lambda: given(a, b, out=next(many)),
        NEW_RESULT: lambda: given(a, b),
        TORCH_NEW: new,
    }, (a, b, out, results)


Call = Callable[[], object]


def _of_torch(a: Any, b: Any, extras: Mapping[str, Any], out: Any) -> tuple[Call, Call]:
    """Return torch's equivalent calls: one writes to `out`, one to new memory."""
    import torch

    if "bias" in extras:
        bias, gelu = extras["bias"].to(out.dtype), torch.nn.functional.gelu
        return (
            lambda: gelu(torch.addmm(bias, a, b, out=out)),
            lambda: gelu(torch.addmm(bias, a, b)),
        )
    if "c" in extras:
        c, alpha, beta = (extras[name] for name in ("c", "alpha", "beta"))
        return (
            lambda: torch.addmm(c, a, b, alpha=alpha, beta=beta, out=out),
            lambda: torch.addmm(c, a, b, alpha=alpha, beta=beta),
        )
    return lambda: torch.matmul(a, b, out=out), lambda: torch.matmul(a, b)


def kernels_of(names: Iterable[str]) -> dict[str, Kernel]:
    """Return kernels by the names of specs or artifact folders."""
    return {
        name: Kernel.open(name) if (Path(name) / "manifest.json").is_file() else compile_gemm(as_spec(name))
        for name in names
    }


def main() -> None:
    """Print a row per kind of call, a column per kernel."""
    parser = argparse.ArgumentParser(
        description="Host cost of a kernel call compared with torch.matmul, in microseconds."
    )
    parser.add_argument("kernels", nargs="*", help="specs or artifact folders (default: one per family)")
    asked = parser.parse_args().kernels
    kernels = kernels_of(asked) if asked else {name: compile_gemm(as_spec(spec)) for name, spec in FAMILIES.items()}
    costs = host_costs(kernels)
    calls = list(dict.fromkeys(cost.call for cost in costs))
    us = {(cost.kernel, cost.call): cost.median_us for cost in costs}
    rows = [(call, *(f"{us[kernel, call]:.2f}" for kernel in kernels)) for call in calls]
    print("\n".join(aligned(rows, header=("us", *kernels), right=range(1, len(kernels) + 1), width=200)))


if __name__ == "__main__":
    main()
