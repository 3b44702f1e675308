"""Measures kernels on many problems: what the choice among kernels is fitted to and judged by.

    python -m tests.gpu.sweep_kernels build INDEX.json                  where there is the CuTe DSL
    python -m tests.gpu.sweep_kernels measure INDEX.json OUT.json       where there is the GPU

`build` takes `--names FILE`, kernels by their names in the order in which they are built, and `measure` takes
`--problems FILE`, a line `MxNxK` for each; without them, those of `tests/gpu/settings.py` and the problems below.
With `--contest` every kernel of INDEX.json is measured on every problem, in more rounds, and all times are printed: it
decides between a few kernels that the model has alike. `--behind` says how many times the least prediction a kernel may
be expected to take; 1.4, and of a contest as many as it likes.

Every result is checked before it is timed. Two times of each kernel and problem, torch.matmul's among them, kernels in
a new random order each round, medians: of a launch in a CUDA graph that goes through more operands than the L2 holds,
and of one launch with the host ahead and the L2 cold and clean, that is, read over and not written over. `--rested`
takes a third: in a graph of a millisecond or more before which the GPU rests for two. What lowers the clock of a GPU
that multiplies without a pause does not hold it up there, and other kernels are the fastest.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.performance.problems import SUITE as BENCHMARKED
from cutegen.api import build_request
from cutegen.build import Cache, build
from cutegen.run import Kernel
from tests.gpu.estimates import estimated_us, of_plans
from tests.gpu.settings import TARGET, Setting, by_name, parsed

Shape = tuple[int, int, int]
Calls = Mapping[str, Callable[..., object]]

SUITE: tuple[Shape, ...] = tuple((each.m, each.n, each.k) for each in BENCHMARKED)
LAYERS = ((4096, 4096), (14336, 4096), (4096, 14336), (6144, 4096), (8192, 8192), (5120, 2048))
TOKENS = (1, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048)
LAYER_PROBLEMS, RANDOM_PROBLEMS = 36, 180
SMALLEST_SIDE, LARGEST_SIDE = 16, 8192
REPLAYS, LAUNCHES = 5, 3
"""Rounds of each regime."""
OF_A_CONTEST = 25, 25
ROTATED_BYTES, MOST_SETS = 160 << 20, 32
FLUSHED_BYTES = 256 << 20
REST_S, RESTED_US = 0.002, 1000.0
"""How long a GPU rests, and what it multiplies after that at least."""
HOPELESS, BEHIND = 1.5, 1.4
"""Times the least bound, and the least prediction, of any kernel: one with more is not measured."""


def problems() -> tuple[Shape, ...]:
    """The suite, then by turns layers of language models and problems whose sides are log-uniform multiples of 8."""
    drawn = np.random.default_rng(3)
    sides = np.exp(drawn.uniform(math.log(SMALLEST_SIDE), math.log(LARGEST_SIDE), (RANDOM_PROBLEMS, 3)))
    shapes = [(int(m), int(n), int(k)) for m, n, k in np.maximum(np.round(sides / 8), 2) * 8]
    layers = [(m, *layer) for layer in LAYERS for m in TOKENS]
    picked = [layers[index] for index in drawn.permutation(len(layers))[:LAYER_PROBLEMS]]
    mixed = [
        shape
        for index, shape in enumerate(shapes)
        for shape in (shape, *picked[index // 5 : index // 5 + (index % 5 == 0)])
    ]
    return tuple(dict.fromkeys((*SUITE, *mixed)))


def bound_us(setting: Setting, shape: Shape) -> float:
    """No kernel of this setting is much faster: bytes and tensor cores, by waves of CTAs, and a launch."""
    m, n, k = (shape[1], shape[0], shape[2]) if setting.swap else shape
    cta_m, cta_n, cta_k = setting.cta
    tiles = math.ceil(m / cta_m) * math.ceil(n / cta_n) * setting.slices
    k_tiles = math.ceil(math.ceil(k / cta_k) / setting.slices)
    flops = 4096 if setting.family == "sm90" else 2600
    fetched = (cta_m / setting.cluster[1] + cta_n / setting.cluster[0]) * cta_k * 2
    cycles = max(2 * cta_m * cta_n * cta_k / flops, fetched / 75)
    in_cluster = setting.reduction == "cluster"
    room = 132 if math.prod(setting.cluster) * (setting.slices if in_cluster else 1) <= 2 else 120
    busy = math.ceil(tiles / room) * k_tiles * cycles / 1700
    added = 0.5 if in_cluster else 1.5 + setting.slices * cta_m * cta_n * 4 / 100 / 1700
    sums = 0.0 if setting.slices == 1 else added
    moved = 2 * (m * k + n * k + m * n) / 4.5e6
    if setting.slices > 1 and (tiles > 2 * 132 or k_tiles < 2):
        return math.inf
    return 2 + max(busy, moved) + sums


def build_all(index: Path, wanted: Mapping[str, Setting], workers: int) -> int:
    """Builds every kernel into the cache; INDEX says where each is, and is written as they come."""
    begin, found, failed = time.monotonic(), {}, 0
    with ProcessPoolExecutor(workers) as pool:
        jobs = {pool.submit(build_one, setting): name for name, setting in wanted.items()}
        for job in as_completed(jobs):
            try:
                path, registers, spilled = job.result()
            except Exception as error:
                failed += 1
                print(f"FAILED {jobs[job]}: {type(error).__name__}: {error}"[:300], flush=True)
                continue
            found[jobs[job]] = path
            index.write_text(json.dumps(found))
            if spilled:
                print(f"{jobs[job]}: {registers} registers, {spilled} bytes spilled", flush=True)
    print(f"{len(found)} kernels in {time.monotonic() - begin:.0f} s, {failed} failed")
    return 1 if failed else 0


def build_one(setting: Setting) -> tuple[str, int, int]:
    """Where its artifact is, its registers and spilled bytes."""
    artifact = build(build_request(setting.spec, TARGET), Cache.from_environment())
    return str(artifact.path), artifact.manifest.registers, artifact.manifest.spill_bytes


def worth_measuring(kernels: Iterable[str], shape: Shape, behind: float = BEHIND) -> list[str]:
    """Leave out what no bound or prediction lets win, and orders of the tiles that no plan has for the problem."""
    settings = {name: parsed(name) for name in kernels}
    having = {name: each for name, each in settings.items() if each.slices > 1 or each.has_order(shape)}
    bounds = {name: bound_us(each, shape) for name, each in having.items()}
    times = {name: estimated_us(each, shape) for name, each in having.items()}
    least_us = min(*times.values(), *(estimated_us(each, shape) for each in of_plans()))
    most, latest = HOPELESS * min(bounds.values()), behind * least_us
    return [name for name in having if bounds[name] <= most and times[name] <= latest]


def measure_all(
    index: Path,
    out: Path,
    shapes: Sequence[Shape],
    seconds: float,
    *,
    contest: bool = False,
    behind: float | None = None,
    rested: bool = False,
) -> int:
    """Writes OUT after each problem, and begins none after `seconds`."""
    import torch

    begin = time.monotonic()
    kernels = {name: Kernel.open(path) for name, path in json.loads(index.read_text()).items()}
    names = ["torch", *kernels]
    table: dict[str, Any] = {"device": torch.cuda.get_device_name(), "names": names, "us": {}}
    flush = flusher()
    print(f"{len(kernels)} kernels opened in {time.monotonic() - begin:.1f} s", flush=True)
    wrong = 0
    for shape in shapes:
        if time.monotonic() - begin > seconds:
            break
        all_of_them = contest and behind is None
        chosen = kernels if all_of_them else {x: kernels[x] for x in worth_measuring(kernels, shape, behind or BEHIND)}
        rounds = OF_A_CONTEST if contest else (REPLAYS, LAUNCHES)
        times, failures = measure_problem(shape, chosen, flush, rounds, rested)
        replayed, launched = times[:2]
        wrong += failures
        table["us"]["x".join(map(str, shape))] = [
            [names.index(name), *(round(regime[name], 2) for regime in times)] for name in replayed
        ]
        out.write_text(json.dumps(table))
        best = min((name for name in replayed if name != "torch"), key=replayed.__getitem__, default="torch")
        print(
            f"{time.monotonic() - begin:4.0f} s {shape}: {len(replayed)}, {best} {replayed[best]:.1f} us, "
            f"x torch {replayed['torch'] / replayed[best]:.3f}, {launched['torch'] / launched[best]:.3f}",
            flush=True,
        )
        if contest:
            print(*ranked(times), sep="\n", flush=True)
    print(f"{len(table['us'])} problems, {wrong} wrong")
    return 1 if wrong else 0


def flusher() -> Callable[[], object]:
    """Return what leaves the L2 cold and clean: it reads, and what a fill writes the next kernel would write back."""
    import torch

    read = torch.randn(FLUSHED_BYTES // 4, device="cuda").view(1, -1)
    total = torch.empty(1, device="cuda")
    return lambda: torch.sum(read, dim=1, out=total)


def ranked(times: Sequence[Mapping[str, float]]) -> Iterable[str]:
    """A line for each kernel, the fastest in a graph first: microseconds of each regime, and x torch."""
    for name in sorted(times[0], key=times[0].__getitem__):
        regimes = (f"{us[name]:9.2f} us {us['torch'] / us[name]:.3f}" for us in times)
        yield f"  {'  '.join(regimes)}  {name}"


def measure_problem(
    shape: Shape, kernels: Mapping[str, Kernel], flush: Callable[[], object], rounds: tuple[int, int], rested: bool
) -> tuple[list[dict[str, float]], int]:
    """Microseconds of each regime, by name, and how many results were wrong, which are left out."""
    import torch

    m, n, k = shape
    count = max(2, min(MOST_SETS, ROTATED_BYTES // (2 * (m * k + n * k + m * n)) + 1))
    new = lambda rows, columns: torch.randn(rows, columns, device="cuda", dtype=torch.float16)  # noqa: E731
    sets = [(new(m, k), new(n, k).T, new(m, n)) for _ in range(count)]
    a, b, c = sets[0]
    reference = a.float() @ b.float()
    scale = reference.norm()
    calls: dict[str, Callable[..., object]] = {"torch": lambda a, b, c: torch.matmul(a, b, out=c)}
    wrong = 0
    for name, kernel in kernels.items():
        c.fill_(math.nan)
        try:
            kernel(a, b, out=c)
        except Exception as refused:
            wrong += 1
            print(f"FAILED {name} at {shape}: {type(refused).__name__}: {refused}"[:300], flush=True)
            continue
        error = ((c.float() - reference).norm() / scale).item()
        if error < 2e-3:
            calls[name] = lambda a, b, c, kernel=kernel: kernel(a, b, out=c)
        else:
            wrong += 1
            print(f"WRONG {name} at {shape}: {error}", flush=True)
    replays, launches = rounds
    times = [_replayed(calls, sets, replays), _launched(calls, sets[0], flush, launches)]
    if rested:
        times.append(_replayed(calls, sets, replays, math.ceil(RESTED_US / len(sets) / times[0]["torch"]), REST_S))
    return times, wrong


def _replayed(
    calls: Calls, sets: Sequence[tuple[Any, ...]], rounds: int, repeats: int = 1, rest_s: float = 0.0
) -> dict[str, float]:
    """Microseconds of a launch in a graph that goes through all sets of operands."""
    import torch

    graphs, side = {}, torch.cuda.Stream()
    for name, call in calls.items():
        with torch.cuda.stream(side):
            call(*sets[0])
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            for operands in (*sets,) * repeats:
                call(*operands)
        graph.replay()
        graphs[name] = graph
    torch.cuda.synchronize()
    replays = {name: graph.replay for name, graph in graphs.items()}
    return _medians(replays, rounds, 1 / (len(sets) * repeats), lambda: None, rest_s)


def _launched(calls: Calls, operands: tuple[Any, ...], flush: Callable[[], object], rounds: int) -> dict[str, float]:
    """Microseconds of one launch."""
    ready = {name: (lambda call=call: call(*operands)) for name, call in calls.items()}
    return _medians(ready, rounds, 1.0, flush)


def _medians(
    calls: Mapping[str, Callable[[], object]],
    rounds: int,
    share: float,
    flush: Callable[[], object],
    rest_s: float = 0.0,
) -> dict[str, float]:
    import torch

    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        events = []
        for name, call in random.sample(list(calls.items()), len(calls)):
            if rest_s:
                torch.cuda.synchronize()
                time.sleep(rest_s)
            torch.cuda._sleep(100_000)
            flush()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            call()
            end.record()
            events.append((name, start, end))
        torch.cuda.synchronize()
        for name, start, end in events:
            times[name].append(start.elapsed_time(end) * 1e3 * share)
    return {name: sorted(found)[len(found) // 2] for name, found in times.items()}


def main() -> int:
    """0 when everything was built, or every result was right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    building = verbs.add_parser("build")
    building.add_argument("index", type=Path)
    building.add_argument("--names", type=Path)
    building.add_argument("--workers", type=int, default=16)
    measuring = verbs.add_parser("measure")
    measuring.add_argument("index", type=Path)
    measuring.add_argument("out", type=Path)
    measuring.add_argument("--problems", type=Path)
    measuring.add_argument("--seconds", type=float, default=180.0)
    measuring.add_argument("--contest", action="store_true")
    measuring.add_argument("--behind", type=float)
    measuring.add_argument("--rested", action="store_true")
    arguments = parser.parse_args()
    if arguments.verb == "build":
        names = arguments.names.read_text().split() if arguments.names else ()
        return build_all(arguments.index, {name: parsed(name) for name in names} or by_name(), arguments.workers)
    lines = arguments.problems.read_text().split() if arguments.problems else ()
    shapes = tuple(shape_of(line) for line in lines) or problems()
    how = {"contest": arguments.contest, "behind": arguments.behind, "rested": arguments.rested}
    return measure_all(arguments.index, arguments.out, shapes, arguments.seconds, **how)


def shape_of(text: str) -> Shape:
    """M, N and K of "MxNxK"."""
    m, n, k = map(int, text.split("x"))
    return m, n, k


if __name__ == "__main__":
    sys.exit(main())
