"""Totals of recorded calls beside a profiler's trace: `python -m benchmarks.recorded_totals FOLDER` (needs a GPU).

A decoder block with cutegen's layers runs under torch's profiler while CUTEGEN_RECORD writes its calls to
FOLDER/calls.toml. The GPU time of its kernels in that trace is what they took in the model, which launches each of
them. `bench --from` and, with `--tune`, `tune --from` measure the recorded calls, and their totals of launches must be
within 5 % of it. The block then runs once more, with the tuned kernels. Totals in graphs are shown beside: without
pauses between launches a large GPU reaches its power limit, and its clocks fall. Exits 1 if a total is off.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import cutegen
from benchmarks.decoder_block import TOKENS, WIDTH, DecoderBlock, replaced
from cutegen.bench.measure import Regime
from cutegen.bench.recorded import bench_calls, totals
from cutegen.bench.recorded_tables import calls_lines
from cutegen.build.record import write_counts
from cutegen.pack.calls import RecordedCall, read_calls
from cutegen.support import environment
from cutegen.support.columns import aligned

PASSES = 20
MOST_OFF = 0.05


def traced_us(run: Callable[[], object], entries: Iterable[str]) -> tuple[float, int]:
    """Return the GPU time of kernels with these names in a trace of a run, in microseconds, and their launches."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
        run()
        torch.cuda.synchronize()
    names = set(entries)
    ours = [each for each in trace.key_averages() if each.key in names]
    return sum(each.self_device_time_total for each in ours), sum(each.count for each in ours)


@contextmanager
def recording(path: Path) -> Iterator[None]:
    """Have calls counted in a new list."""
    path.unlink(missing_ok=True)
    os.environ[environment.RECORD] = str(path)
    try:
        yield
        write_counts()
    finally:
        del os.environ[environment.RECORD]


def row(name: str, found_us: float, expected_us: float) -> tuple[tuple[str, ...], bool]:
    """Return the cells of a total beside the trace's, and whether it is close enough."""
    off = found_us / expected_us - 1
    return (name, f"{found_us:,.1f}", f"{expected_us:,.1f}", f"{off:+.1%}"), abs(off) <= MOST_OFF


def in_model_us(path: Path, tokens: Sequence[int]) -> float:
    """Return the GPU time of the kernels of a recorded run, whose calls the list then has, in microseconds."""
    torch.manual_seed(0)
    block = replaced(DecoderBlock(tokens=max(tokens)).to("cuda", torch.bfloat16).requires_grad_(False))
    xs = [torch.randn(1, each, WIDTH, device="cuda", dtype=torch.bfloat16) for each in tokens]
    entries = {each.kernel.contract.entry for x in xs for each in cutegen.prepare(block, x)}

    def passes(count: int) -> None:
        for _ in range(count):
            for x in xs:
                block(x)

    with torch.no_grad():
        with recording(path):  # a program whose first calls are not recorded remembers them, and records none
            passes(3)
        with recording(path):
            found_us, launches = traced_us(lambda: passes(PASSES), entries)
    listed = sum(each.times for each in read_calls(path))
    assert launches == listed, f"found {launches} launches in the trace; expected {listed}, the calls of {path}"
    return found_us


def in_process_of_its_own(path: Path, tokens: Sequence[int]) -> float:
    """Return in_model_us of a process that begins now, and so finds the kernels that were tuned until now."""
    with ProcessPoolExecutor(1, get_context("spawn")) as processes:
        return processes.submit(in_model_us, path, tokens).result()


def bench_us(calls: Sequence[RecordedCall]) -> dict[str, float]:
    """Return the totals of `bench --from` by regime, in microseconds, after its tables are shown."""
    times = list(bench_calls(calls, rounds=20))
    print(*calls_lines(times, torch.cuda.get_device_name()), sep="\n", flush=True)
    return {each.regime: each.ours_us for each in totals(times)}


def tune_us(path: Path) -> dict[str, dict[str, float]]:
    """Return the totals of `tune --from` by regime: of the model's kernels and of the tuned ones, in microseconds."""
    command = [sys.executable, "-m", "cutegen", "tune", "--from", str(path), "--most", "8", "--json"]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    rows: list[dict[str, Any]] = json.loads(said)["calls"]
    return {row["regime"]: {"the model's": row["model_us"], "the tuned": row["tuned_us"]} for row in rows}


def main(words: Sequence[str] | None = None) -> int:
    """Print the totals beside the trace's; return 1 if one is off by more than 5 %."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recorded_totals", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, nargs="+", default=list(TOKENS))
    parser.add_argument("--tune", action="store_true")
    asked = parser.parse_args(words)
    asked.folder.mkdir(parents=True, exist_ok=True)
    path = asked.folder / "calls.toml"
    expected_us = in_process_of_its_own(path, asked.tokens)
    found = bench_us(read_calls(path))
    totals_us = {regime: [(f"bench --from, {regime}", found[regime], expected_us)] for regime in Regime}
    if asked.tune:
        tuned, again_us = tune_us(path), in_process_of_its_own(asked.folder / "tuned.toml", asked.tokens)
        for regime, rows in totals_us.items():
            for whose, in_trace_us in (("the model's", expected_us), ("the tuned", again_us)):
                rows.append((f"tune --from, {regime}, {whose} kernels", tuned[regime][whose], in_trace_us))
    judged = [row(*each) for each in totals_us[Regime.LAUNCH]]
    beside = [row(*each)[0] for each in totals_us[Regime.GRAPH]]
    header = ("total", "us", "in the trace, us", "off by")
    print("", *aligned([*(cells for cells, _ in judged), *beside], header=header, right={1, 2, 3}), sep="\n")
    return 0 if all(close for _, close in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
