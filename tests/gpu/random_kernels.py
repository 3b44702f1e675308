"""Random accepted specs of a family, built and run on the GPU at hand on random problems, against float64.

    python -m tests.gpu.random_kernels --family sm90 --seed 0 --count 200 --jobs 16

The specs are the fuzzer's (`tests/fuzz/plausible.py`). Each kernel multiplies problems of every size: within a tile,
over the edges of tiles, many tiles a CTA, K of 0 and of many k-tiles, several matrices at once. Exit status 1 when
anything is wrong; each finding is printed with its spec.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from cutegen.api import compile as compile_spec
from cutegen.build import Cache
from cutegen.contract.problem import ProblemShape
from cutegen.errors import CutegenError
from cutegen.hardware.targeting import choose_target
from cutegen.plan import GemmPlan, plan
from cutegen.run import Kernel
from cutegen.spec import FAMILIES, parse_spec
from tests.fuzz.case import random_of
from tests.fuzz.plausible import plausible, toml

TRIES = 60
PROBLEMS = 5


def main() -> int:
    """Build all of them side by side, then run one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--family", choices=FAMILIES, required=True)
    parser.add_argument("--arch", help="default: the GPU at hand")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    arch = choose_target(options.arch).name
    seeds = range(options.seed, options.seed + options.count)
    start_s, wrong = time.monotonic(), 0
    with TemporaryDirectory() as folder, ProcessPoolExecutor(options.jobs) as pool:
        jobs = [(options.family, arch, seed, Path(folder)) for seed in seeds]
        built = list(pool.map(_built, jobs))
        print(f"{len(built)} kernels planned and built in {time.monotonic() - start_s:.0f} s", flush=True)
        for (text, error), job in zip(built, jobs, strict=True):
            finding = error or _run(text, job)
            if finding:
                wrong += 1
                print(f"seed {job[2]}: {finding}\n{text}", flush=True)
    problems = PROBLEMS * len(built)
    print(
        f"{len(built) - wrong} of {len(built)} kernels right on {problems} problems, {time.monotonic() - start_s:.0f} s"
    )
    return int(wrong > 0)


def _built(job: tuple[str, str, int, Path]) -> tuple[str, str]:
    """The text of a spec that is accepted, and what is wrong with its build."""
    family, arch, seed, _ = job
    rng = random_of(f"{family} on a GPU", seed)
    for _ in range(TRIES):
        table = plausible(rng, family, arch)
        table.pop("kind", None)
        text = toml(table)
        try:
            plan(parse_spec(text, name="case"), arch)
        except CutegenError:
            continue
        try:
            _kernel(text, job)
        except CutegenError as error:
            return text, f"accepted and not built: {type(error).__name__}: {str(error)[:300]}"
        return text, ""
    return "", f"none of {TRIES} specs is accepted"


def _kernel(text: str, job: tuple[str, str, int, Path]) -> Kernel:
    """The spec's kernel, from the folder's cache if it is there."""
    kernel = compile_spec(parse_spec(text, name="case"), job[1], cache=Cache(job[3]))
    assert isinstance(kernel, Kernel)
    return kernel


def _run(text: str, job: tuple[str, str, int, Path]) -> str:
    """What is wrong with the results, if anything."""
    from tests.run.on_gpu import check, made

    kernel, planned = _kernel(text, job), plan(parse_spec(text, name="case"), job[1])
    assert isinstance(planned, GemmPlan)
    for size in _problems(random_of("problems", job[2]), planned):
        try:
            check(kernel, *made(kernel, size.m, size.n, size.k, size.batch if size.batch > 1 else None))
        except AssertionError as error:
            return f"{size}: {error}"
        except CutegenError as error:
            return f"{size}: {type(error).__name__}: {error}"
    return ""


def _problems(rng: random.Random, planned: GemmPlan) -> Iterator[ProblemShape]:
    m, n, k = planned.cta_tile
    yield ProblemShape(rng.randint(1, m), rng.randint(1, n), rng.randint(1, 2 * k))
    yield ProblemShape(rng.randint(1, 3 * m), rng.randint(1, 3 * n), rng.randint(1, 9 * k))
    yield ProblemShape(rng.randint(m, 20 * m), rng.randint(n, 20 * n), rng.randint(1, 12 * k))
    yield ProblemShape(rng.randint(1, 2 * m), rng.randint(1, 2 * n), rng.choice((0, 1, 4096)))
    yield ProblemShape(rng.randint(1, 2 * m), rng.randint(1, 2 * n), rng.randint(1, 3 * k), rng.randint(1, 7))


if __name__ == "__main__":
    sys.exit(main())
