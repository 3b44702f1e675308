"""Measures the tiles that a plan chooses from on many problems: what its model of time is fitted to and judged by.

    python -m tests.gpu.sweep build DIR [--arch sm_90]      where there is the CuTe DSL: an artifact for each candidate
    python -m tests.gpu.sweep measure DIR OUT.json          where there is the GPU; a few minutes

Both take `--family sm120` to measure another family's candidates than sm80's.
Every result is checked against float64 before it is timed; times are medians with a cold L2, all candidates of a
problem in turn (`cutegen/bench/measure.py`), torch.matmul among them.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cutegen.api import build_request
from cutegen.bench.measure import launch_times
from cutegen.bench.suites import SUITES
from cutegen.build import Cache, build
from cutegen.contract.problem import ProblemShape
from cutegen.plan.search.problem import Candidate
from cutegen.run import Kernel
from cutegen.run.driver import load_driver
from cutegen.spec import GemmSpec, Mma, Raster, Schedule, Tile
from cutegen.verify import compare, float64_reference, random_operands
from tests.gpu.families import FAMILIES, Family, name_of

ROUNDS = 9
LARGEST_SIDE, SMALLEST_SIDE = 8192, 16
RANDOM_PROBLEMS = 60
MOST_WAVES_WHEN_SPLIT = 3
LEAST_K_PER_SLICE = 128
RASTERS = {
    f"{along}{group}{'z' if zigzag else ''}": Raster(along, group, zigzag)
    for along, groups, zigzag in (("n", (1, 4, 16), False), ("m", (1, 4, 8, 16), False), ("n", (8,), True))
    for group in groups
}
FIRST = "first"


def specs(family: Family) -> Iterator[GemmSpec]:
    """Each candidate with every number of slices; some of them in other tile orders too."""
    for candidate in family.candidates:
        for slices in family.slices_of(candidate):
            yield _spec(family, candidate, slices, None)
    for index in family.in_orders:
        for raster in RASTERS:
            yield _spec(family, family.candidates[index], 1, raster)


def _spec(family: Family, candidate: Candidate, slices: int, raster: str | None) -> GemmSpec:
    return replace(
        family.spec,
        tile=Tile(candidate.cta, candidate.stages),
        mma=Mma(atom_layout=candidate.atom_layout),
        schedule=Schedule(RASTERS[raster] if raster else None, slices),
        name=name_of(candidate, slices, raster),
    )


def problems() -> tuple[ProblemShape, ...]:
    """The suites of `cutegen bench`, then problems whose sides are log-uniform multiples of 8."""
    random = np.random.default_rng(0)
    low, high = math.log(SMALLEST_SIDE), math.log(LARGEST_SIDE)
    drawn = np.exp(random.uniform(low, high, (RANDOM_PROBLEMS, 3)))
    sides = (np.maximum(np.round(drawn / 8), 2) * 8).astype(int)
    shipped = [extents for suite in SUITES.values() for extents in suite]
    return tuple(dict.fromkeys((*shipped, *(ProblemShape(*map(int, row)) for row in sides))))


def worth_measuring(candidate: Candidate, slices: int, problem: ProblemShape, sms: int) -> bool:
    """Leaves out what cannot win: far more slices than the GPU has room for, or slices of hardly any K."""
    m, n, _ = candidate.cta
    tiles = -(-problem.m // m) * -(-problem.n // n)
    wasted = tiles * m * n > 4 * max(problem.m, 16) * max(problem.n, 16)
    long_enough = slices == 1 or problem.k // slices >= LEAST_K_PER_SLICE
    few_enough = slices == 1 or tiles * slices <= MOST_WAVES_WHEN_SPLIT * sms
    small_enough = tiles <= 64 * sms
    return long_enough and few_enough and small_enough and not wasted


def build_all(family: Family, directory: Path, arch: str) -> int:
    """Builds what is not there yet."""
    cache, start, warnings, count = Cache(directory / "cache"), time.monotonic(), 0, 0
    for spec in specs(family):
        artifact = build(build_request(spec, arch), cache)
        target = directory / spec.name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(artifact.path, target)
        warnings += len(artifact.manifest.warnings)
        count += 1
        spilled = f", {artifact.manifest.spill_bytes} bytes spilled" if artifact.manifest.spill_bytes else ""
        print(f"{spec.name}: {artifact.manifest.registers} registers{spilled}", *artifact.manifest.warnings, sep="; ")
    shutil.rmtree(directory / "cache")
    print(f"{count} artifacts in {directory}, {time.monotonic() - start:.0f} s, {warnings} warnings")
    return 1 if warnings else 0


def measure_all(family: Family, directory: Path, out: Path) -> int:
    """Writes OUT after each problem, so that a run that is cut off leaves what it has."""
    driver, start = load_driver(), time.monotonic()
    sms = driver.attribute("MULTIPROCESSOR_COUNT", 0)
    kernels = {
        path.name: Kernel.open(path) for path in sorted(directory.iterdir()) if (path / "manifest.json").exists()
    }
    table: dict[str, Any] = {
        "family": family.name,
        "device": driver.device_name(0),
        "sms": sms,
        "what": "median microseconds, cold L2, f16 TN, f32 accumulation",
        "rounds": ROUNDS,
        "registers": {name: kernel.artifact.manifest.registers for name, kernel in kernels.items()},
        "times_us": {},
    }
    wrong = 0
    for problem in problems():
        chosen = [name for name in kernels if _is_chosen(family, name, problem, sms)]
        times, failures = _measure(problem, {name: kernels[name] for name in chosen})
        wrong += failures
        table["times_us"]["x".join(map(str, (problem.m, problem.n, problem.k)))] = times
        out.write_text(json.dumps(table, indent=0))
        best = min((name for name in times if name != "torch"), key=times.__getitem__)
        print(
            f"{time.monotonic() - start:4.0f} s  {problem}: {len(times) - 1} kernels, {best} {times[best]:.1f} us = "
            f"{problem.flops / times[best] / 1e6:.1f} TFLOP/s; torch {times['torch']:.1f} us",
            flush=True,
        )
    return 1 if wrong else 0


def _is_chosen(family: Family, name: str, problem: ProblemShape, sms: int) -> bool:
    tile, _, _, slices, *raster = name.split("_")
    candidate = next(x for x in family.candidates if name.startswith(name_of(x, int(slices[1:]))))
    assert tile == "x".join(map(str, candidate.cta))
    waves = -(-problem.m // candidate.cta[0]) * -(-problem.n // candidate.cta[1]) / sms
    return worth_measuring(candidate, int(slices[1:]), problem, sms) and (not raster or waves > 1)


def _measure(problem: ProblemShape, kernels: dict[str, Kernel]) -> tuple[dict[str, float], int]:
    """Median microseconds by name, and how many results were wrong, which are said and left out."""
    import torch

    contract = next(iter(kernels.values())).contract
    a, b, out = random_operands(contract, problem.m, problem.n, problem.k, seed=1, framework="torch", device="cuda")
    reference = float64_reference(a, b)
    # The first of a round waits for the host, so that is a call which nobody looks at.
    calls: dict[str, Callable[[], object]] = {FIRST: partial(torch.matmul, a, b), "torch": partial(torch.matmul, a, b)}
    wrong = 0
    for name, kernel in kernels.items():
        out.fill_(math.nan)
        kernel(a, b, out=out)
        found = compare(out, reference, dtype="f16")
        if found.ok:
            calls[name] = partial(kernel, a, b, out=out)
        else:
            wrong += 1
            print(f"WRONG {name} at {problem}: {found}", flush=True)
    measured = launch_times(calls, rounds=ROUNDS)
    return {name: round(times.median_us, 2) for name, times in measured.items() if name != FIRST}, wrong


def main() -> int:
    """0 when everything was built as planned, or every result was right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    building = verbs.add_parser("build")
    building.add_argument("directory", type=Path)
    building.add_argument("--arch", default="sm_90")
    measuring = verbs.add_parser("measure")
    measuring.add_argument("directory", type=Path)
    measuring.add_argument("out", type=Path)
    for verb in (building, measuring):
        verb.add_argument("--family", choices=FAMILIES, default="sm80")
    arguments = parser.parse_args()
    family = FAMILIES[arguments.family]
    if arguments.verb == "build":
        return build_all(family, arguments.directory, arguments.arch)
    return measure_all(family, arguments.directory, arguments.out)


if __name__ == "__main__":
    sys.exit(main())
