"""Throughput of built kernels beside torch.matmul: `python benchmarks/throughput.py ARTIFACT_DIR...` (torch and a GPU).

Each round runs every contender once on the same random operands, the L2 cache flushed before each run and the time
taken with events; the medians over the rounds are printed. Results are checked against torch first. `--cutlass FILE`
adds CUTLASS's Ampere example of the CuTe DSL, tensorop_gemm.py (fp16, both operands K-major), which needs the DSL.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch

from cutegen.run import Kernel

FLUSH_BYTES = 256 << 20
WARM_UP_ROUNDS = 3
TERA = 1e12


def times_ms(contenders: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each contender in each round, L2 cold."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    events: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in contenders}
    for _ in range(WARM_UP_ROUNDS + rounds):
        for name, run in contenders.items():
            flush.zero_()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            run()
            end.record()
            events[name].append((start, end))
        torch.cuda.synchronize()
    return {name: [s.elapsed_time(e) for s, e in pairs[WARM_UP_ROUNDS:]] for name, pairs in events.items()}


def cutlass_example(path: Path, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Callable[[], object]:
    """CUTLASS's example, compiled for these operands: `a` (M,K), `b` (K,N), both K-major, `out` (M,N) row-major."""
    import cuda.bindings.driver as cuda
    import cutlass

    spec = importlib.util.spec_from_file_location("tensorop_gemm", path)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    f16, f32 = cutlass.Float16, cutlass.Float32
    batched = (x.as_strided((1, *x.shape), (x.numel(), *x.stride())) for x in (a, b, out))
    tensors = example.mark_dynamic_layout(*batched, 2, 1, 2, f16, f16)
    problem = (a.shape[0], b.shape[1], a.shape[1], 1)
    compiled = example.compile_bmm(problem, *tensors, f16, f16, f32, (2, 2, 1))
    stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
    return partial(compiled, *tensors, stream)


def check(name: str, run: Callable[[], object], out: torch.Tensor, expected: torch.Tensor) -> None:
    """Poison the result, run, compare."""
    out.fill_(torch.nan)
    run()
    error = ((out.float() - expected).norm() / expected.norm()).item()
    if not error < 1e-2:
        raise SystemExit(f"{name}: relative error {error:.2e}")


def main() -> None:
    """Print a table: a row for each contender, a column for each problem, in TFLOP/s."""
    parser = argparse.ArgumentParser(description="TFLOP/s of artifacts beside torch.matmul.")
    parser.add_argument("artifacts", nargs="+", type=Path, help="folders as `cutegen build` prints them, fp16 TN")
    parser.add_argument("--problem", action="append", help="M,N,K; may be given several times")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--cutlass", type=Path, help="CUTLASS's tensorop_gemm.py")
    arguments = parser.parse_args()
    kernels = {kernel.contract.entry: kernel for kernel in map(Kernel.open, arguments.artifacts)}
    columns: dict[str, dict[str, list[float]]] = {}
    for problem in arguments.problem or ["4096,4096,4096"]:
        m, n, k = map(int, problem.split(","))
        a = torch.randn(m, k, dtype=torch.float16, device="cuda")
        b = torch.randn(n, k, dtype=torch.float16, device="cuda").T
        out = torch.empty(m, n, dtype=torch.float16, device="cuda")
        contenders: dict[str, Callable[[], object]] = {"torch.matmul": partial(torch.matmul, a, b, out=out)}
        if arguments.cutlass:
            contenders["CUTLASS example"] = cutlass_example(arguments.cutlass, a, b, out)
        contenders |= {name: partial(kernel, a, b, out=out) for name, kernel in kernels.items()}
        expected = a.float() @ b.float()
        for name, run in contenders.items():
            check(name, run, out, expected)
        operations = 2 * m * n * k
        measured = times_ms(contenders, arguments.rounds)
        columns[problem] = {name: [operations / ms / 1e-3 / TERA for ms in row] for name, row in measured.items()}
    width = max(map(len, columns[next(iter(columns))]))
    print(" " * width, *(f"{problem:>26}" for problem in columns))
    for name in next(iter(columns.values())):
        print(name.ljust(width), *(cell(column[name]) for column in columns.values()))


def cell(values: list[float]) -> str:
    """Median, least and most."""
    return f"{statistics.median(values):10.1f} ({min(values):6.1f}..{max(values):6.1f})"


if __name__ == "__main__":
    main()
