"""Random accepted specs of a family, built and run on the GPU at hand on random problems, against float64.

    python -m tests.gpu.random_kernels --family sm90 --seed 0 --count 200 --jobs 16 [--folder F [--build]]

The specs are the fuzzer's (`tests/fuzz/plausible.py`); some say nothing of how, and are planned for a problem, which
chooses tile, clusters and slices of K. Each kernel multiplies problems of every size: within a tile,
over the edges of tiles, many tiles a CTA, K of 0 and of many k-tiles, several matrices at once. A line for each kernel
as it ends; exit status 1 when anything is wrong, printed with its spec. With --folder the kernels stay there, and a
call that finds them builds none: with --build they are built and not run, which needs no GPU (name --arch).
--seconds ends the running part after so many; what was not reached is counted.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from cutegen.api import build_request
from cutegen.build import Cache, build
from cutegen.contract.problem import ProblemShape
from cutegen.errors import CutegenError
from cutegen.hardware.targeting import choose_target
from cutegen.plan import plan
from cutegen.run import Kernel
from cutegen.spec import FAMILIES, parse_spec
from tests.fuzz.case import random_of
from tests.fuzz.plausible import plausible, toml

TRIES = 60
PLANNED_FOR_A_PROBLEM, WHOLE_CHUNKS = 0.35, 0.8
"""Shares of the specs, and of extents that are multiples of 8."""
HOW = ("tile.", "mma.", "smem.", "g2s.", "s2r.", "schedule.")
MOST_WORK = 2**33
"""Multiply-adds of a problem, which the reference has to do in float64."""
RUNNERS = 4
"""Processes that share the GPU: a kernel that ends the CUDA context of one leaves those of the others."""


@dataclass(frozen=True, slots=True)
class Job:
    """A seed, and where what is made of it is kept."""

    family: str
    arch: str
    seed: int
    folder: Path


@dataclass(frozen=True, slots=True)
class Built:
    """An accepted spec, its artifact's folder or what is wrong with its build, and the problem it is planned for."""

    text: str
    artifact: str = ""
    error: str = ""
    problem: tuple[int, ...] = ()


def main() -> int:
    """Build all of them side by side, then run them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--family", choices=FAMILIES, required=True)
    parser.add_argument("--arch", help="default: the GPU at hand")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keeps the kernels, for another call")
    parser.add_argument("--build", action="store_true", help="build the kernels into --folder, and run none")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end the running part after so many")
    options = parser.parse_args()
    if options.build and options.folder is None:
        parser.error("--build builds into a --folder: name one")
    arch = choose_target(options.arch).name
    with TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        seeds = range(options.seed, options.seed + options.count)
        jobs = [Job(options.family, arch, seed, folder) for seed in seeds]
        built = build_all(jobs, options.jobs)
        return int(any(one.error for one in built)) if options.build else run_all(jobs, built, options.seconds)


def build_all(jobs: list[Job], processes: int) -> list[Built]:
    """Every seed's kernel; those that a folder has already are not built again."""
    start_s = time.monotonic()
    with ProcessPoolExecutor(processes) as pool:
        built = list(pool.map(_built, jobs))
    failed = sum(bool(one.error) for one in built)
    print(f"{len(built) - failed} of {len(built)} kernels built in {time.monotonic() - start_s:.0f} s", flush=True)
    return built


def run_all(jobs: list[Job], built: list[Built], seconds: float) -> int:
    """Run each kernel and print what became of it, as they end; 1 when one is wrong."""
    start_s, right, wrong = time.monotonic(), 0, 0
    with ProcessPoolExecutor(RUNNERS, mp_context=get_context("spawn")) as pool:
        running = {
            pool.submit(_run, one, job, time.time() + seconds): (job, one) for job, one in zip(jobs, built, strict=True)
        }
        for future in as_completed(running):
            (job, one), (finding, problems) = running[future], future.result()
            if not finding and not problems:
                continue
            right, wrong = right + (not finding), wrong + bool(finding)
            taken_s = time.monotonic() - start_s
            print(f"{taken_s:5.1f} s, seed {job.seed}: {finding or f'right on {problems} problems'}", flush=True)
            if finding:
                print(f"# {one.problem}\n{one.text}", flush=True)
    left = len(jobs) - right - wrong
    unreached = f", {left} not reached" if left else ""
    print(f"{right} of {right + wrong} kernels right{unreached}, {time.monotonic() - start_s:.0f} s")
    return int(wrong > 0)


def _built(job: Job) -> Built:
    """What a seed's spec is and where its kernel lies; kept in the job's folder and read from there."""
    kept = job.folder / f"{job.family}-{job.arch}-{job.seed}.json"
    if kept.exists():
        return Built(**json.loads(kept.read_text()))
    built = _build(job)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(asdict(built)))
    return built


def _build(job: Job) -> Built:
    rng = random_of(f"{job.family} on a GPU", job.seed)
    for _ in range(TRIES):
        table = plausible(rng, job.family, job.arch)
        table.pop("kind", None)
        problem = _log_uniform(rng) if rng.random() < PLANNED_FOR_A_PROBLEM else ()
        if problem:
            table = {key: value for key, value in table.items() if not key.startswith(HOW)}
        text = toml(table)
        try:
            plan(parse_spec(text, name="case"), job.arch, problem or None)
        except CutegenError:
            continue
        try:
            request = build_request(parse_spec(text, name="case"), job.arch, problem=problem or None)
            return Built(text, str(build(request, Cache(job.folder / "cache")).path), problem=problem)
        except CutegenError as error:
            wrong = f"accepted and not built: {type(error).__name__}: {str(error)[:300]}"
            return Built(text, error=wrong, problem=problem)
    return Built("", error=f"none of {TRIES} specs is accepted")


def _log_uniform(rng: random.Random) -> tuple[int, ...]:
    """M, N, K and perhaps a batch, of every order of magnitude that takes a moment."""
    while True:
        extents = [round(math.exp(rng.uniform(0, math.log(most)))) for most in (2048, 2048, 65536)]
        extents = [8 * math.ceil(extent / 8) if rng.random() < WHOLE_CHUNKS else extent for extent in extents]
        batch = rng.choice((1, 1, 1, 3))
        if batch * math.prod(extents) <= MOST_WORK:
            return (*extents, batch) if batch > 1 else tuple(extents)


def _run(built: Built, job: Job, end_s: float) -> tuple[str, int]:
    """What is wrong with the results, if anything, and how many there are."""
    from tests.run.against_float64 import check
    from tests.run.on_gpu import made

    if built.error:
        return built.error, 0
    if time.time() > end_s:
        return "", 0
    kernel, problems = Kernel.open(Path(built.artifact)), 0
    k_tile = json.loads(kernel.artifact.plan_json)["tile"][2]
    sizes = [ProblemShape(*built.problem)] if built.problem else []
    for size in (*sizes, *_problems(random_of("problems", job.seed), *kernel.contract.cta_tile, k_tile)):
        try:
            check(kernel, *made(kernel, size.m, size.n, size.k, size.batch if size.batch > 1 else None))
        except Exception as error:  # a CUDA error is torch's RuntimeError
            return f"{size}: {type(error).__name__}: {error}", problems
        problems += 1
    return "", problems


def _problems(rng: random.Random, m: int, n: int, k: int) -> Iterator[ProblemShape]:
    yield ProblemShape(rng.randint(1, m), rng.randint(1, n), rng.randint(1, 2 * k))
    yield ProblemShape(rng.randint(1, 3 * m), rng.randint(1, 3 * n), rng.randint(1, 9 * k))
    yield ProblemShape(rng.randint(m, 20 * m), rng.randint(n, 20 * n), rng.randint(1, 12 * k))
    yield ProblemShape(rng.randint(1, 2 * m), rng.randint(1, 2 * n), rng.choice((0, 1, 4096)))
    yield ProblemShape(rng.randint(1, 2 * m), rng.randint(1, 2 * n), rng.randint(1, 3 * k), rng.randint(1, 7))


if __name__ == "__main__":
    sys.exit(main())
