"""Totals of recorded calls beside a profiler's trace: `python -m benchmarks.recorded_totals FOLDER` (needs a GPU).

A decoder block with cutegen's layers runs under torch's profiler while CUTEGEN_RECORD writes its calls to
FOLDER/calls.toml. The GPU time of its kernels in that trace is what they took in the model, which launches each of
them. `bench --from` and, with `--tune`, `tune --from` measure the recorded calls, and their totals of launches must be
within 5 % of it. The block then runs once more, with the tuned kernels. Totals in graphs are shown beside: without
pauses between launches a large GPU reaches its power limit, and its clocks fall. A table has the time of a launch of
each product in the trace and by each measurement. Exits 1 if a total is off.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import cutegen
from benchmarks.decoder_block import TOKENS, WIDTH, DecoderBlock, replaced
from cutegen.bench.measure import Regime
from cutegen.bench.recorded import bench_calls, entrant_of, totals
from cutegen.bench.tables import calls_lines
from cutegen.build.record import write_counts
from cutegen.contract import ProblemShape
from cutegen.pack.kernel_list import RecordedCall, read_calls
from cutegen.support import environment
from cutegen.support.words import aligned
from cutegen.torch_ops.model_calls import calls_of

PASSES = 20
MOST_OFF = 0.05


Traced = dict[str, list[float]]
"""Microseconds of the launches of each product in a trace, by its problem."""


def traced_us(run: Callable[[], object], entries: Iterable[str]) -> list[float]:
    """Return the GPU time of each kernel with one of these names in a trace of a run, in microseconds, in order."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
        run()
        torch.cuda.synchronize()
    names = set(entries)
    ours = [each for each in trace.events() if each.device_type == DeviceType.CUDA and each.name in names]
    return [each.time_range.elapsed_us() for each in sorted(ours, key=lambda each: each.time_range.start)]


def by_problem(times_us: Sequence[float], problems: Sequence[str]) -> Traced:
    """Return the times of launches, which compute these problems again and again, by problem."""
    assert len(times_us) % len(problems) == 0, f"found {len(times_us)} launches; expected passes of {len(problems)}"
    found: Traced = {}
    for us, problem in zip(times_us, cycle(problems), strict=False):
        found.setdefault(problem, []).append(us)
    return found


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


def in_model_us(path: Path, tokens: Sequence[int]) -> Traced:
    """Return the GPU times of a recorded run's kernels, whose calls the list then has."""
    torch.manual_seed(0)
    block = replaced(DecoderBlock(tokens=max(tokens)).to("cuda", torch.bfloat16).requires_grad_(False))
    xs = [torch.randn(1, each, WIDTH, device="cuda", dtype=torch.bfloat16) for each in tokens]
    entries = {each.kernel.contract.entry for x in xs for each in cutegen.prepare(block, x)}

    def passes(count: int) -> None:
        for _ in range(count):
            for x in xs:
                block(x)

    with torch.no_grad():
        problems = [str(each.problem) for x in xs for each in calls_of(block, (x,), {}, arch=None, backward=False)]
        with recording(path):  # a program whose first calls are not recorded remembers them, and records none
            passes(3)
        with recording(path):
            found_us = traced_us(lambda: passes(PASSES), entries)
    listed = sum(each.times for each in read_calls(path))
    assert len(found_us) == listed, f"found {len(found_us)} launches; expected {listed}, the calls of {path}"
    return by_problem(found_us, problems)


def in_process_of_its_own(path: Path, tokens: Sequence[int]) -> Traced:
    """Return in_model_us of a process that begins now, and so finds the kernels that were tuned until now."""
    with ProcessPoolExecutor(1, get_context("spawn")) as processes:
        return processes.submit(in_model_us, path, tokens).result()


def total_us(traced: Traced) -> float:
    """Return the time of all launches."""
    return sum(map(sum, traced.values()))


@dataclass(frozen=True, slots=True)
class Measured:
    """What a measurement found: totals by regime, and the launches of each problem by regime, in microseconds.

    `keys` are those of the kernels' artifacts.
    """

    totals_us: dict[str, float]
    each_us: dict[tuple[str, str], float]
    keys: dict[str, str]


def benched(calls: Sequence[RecordedCall]) -> Measured:
    """Return what `bench --from` finds, after its tables are shown."""
    keys = {str(each.problem): entrant_of(each)[0].kernel.artifact.key for each in calls}
    times = list(bench_calls(calls, rounds=20))
    print(*calls_lines(times, torch.cuda.get_device_name()), sep="\n", flush=True)
    each_us: dict[tuple[str, str], float] = {
        (str(x.call.problem), x.regime): x.ours.measurement.median_us for x in times if x.ours
    }
    return Measured({each.regime: each.ours_us for each in totals(times)}, each_us, keys)


def tuned(path: Path) -> tuple[Measured, Measured]:
    """Return what `tune --from` finds of the model's kernels and of the tuned ones."""
    command = [sys.executable, "-m", "cutegen", "tune", "--from", str(path), "--most", "8", "--json"]
    said = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return _measured(said, "favorite", "model_us"), _measured(said, "winner", "tuned_us")


def _measured(said: dict[str, Any], whose: str, total: str) -> Measured:
    found = Measured({row["regime"]: row[total] for row in said["calls"]}, {}, {})
    for each in said["results"]:
        problem, (kernel,) = each["problem"], (x for x in each["candidates"] if x["name"] == each[whose])
        name = str(ProblemShape(problem["m"], problem["n"], problem["k"], problem["batch"]))
        found.keys[name] = kernel["key"]
        for regime in Regime:
            found.each_us[name, regime] = kernel[regime]["median_us"]
    return found


def each_lines(traced: Traced, measured: Mapping[str, Measured]) -> list[str]:
    """Write a launch of each product in the trace beside what was measured; `*` is a kernel of another artifact."""
    first = next(iter(measured.values()))
    rows = []
    for problem, times_us in traced.items():
        cells = [problem, f"{len(times_us)}", f"{statistics.mean(times_us):,.1f}"]
        for each in measured.values():
            other = "" if each.keys.get(problem) == first.keys.get(problem) else " *"
            found = [each.each_us.get((problem, regime)) for regime in Regime]
            cells += ["" if us is None else f"{us:,.1f}{other}" for us in found]
        rows.append(cells)
    header = ("problem", "launches", "in the trace, us", *(f"{x}, {y}" for x in measured for y in Regime))
    return aligned(rows, header=header, right=set(range(1, len(header))))


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
    model = in_process_of_its_own(path, asked.tokens)
    found = {"bench": (benched(read_calls(path)), model)}
    if asked.tune:
        favorites, winners = tuned(path)
        again = in_process_of_its_own(asked.folder / "tuned.toml", asked.tokens)
        found |= {"tune, the model's": (favorites, model), "tune, the tuned": (winners, again)}
        print("", *each_lines(again, {"tune, the tuned": winners}), sep="\n")
    of_the_models = {name: each for name, (each, traced) in found.items() if traced is model}
    print("", *each_lines(model, of_the_models), sep="\n")
    rows = {
        regime: [row(f"{name}, {regime}", each.totals_us[regime], total_us(x)) for name, (each, x) in found.items()]
        for regime in Regime
    }
    cells = [each for regime in (Regime.LAUNCH, Regime.GRAPH) for each, _ in rows[regime]]
    print("", *aligned(cells, header=("total", "us", "in the trace, us", "off by"), right={1, 2, 3}), sep="\n")
    return 0 if all(close for _, close in rows[Regime.LAUNCH]) else 1


if __name__ == "__main__":
    sys.exit(main())
