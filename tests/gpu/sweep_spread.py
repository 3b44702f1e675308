"""Measures kernels of few CTAs on every second SM and side by side: what `Persistent.spreads` goes by.

    python -m tests.gpu.sweep_spread build INDEX.json --names FILE --problems FILE    where there is the CuTe DSL
    python -m tests.gpu.sweep_spread measure INDEX.json OUT.json                      where there is the GPU

FILE has a kernel's name for each line, as `tests.gpu.settings` has it, or a problem, `MxNxK`; each kernel is planned
for each problem that it has enough CTAs and K for. Operands are f16, K-major, sums f32. Times are those of
`tests.gpu.sweep_kernels`, each result checked first: in a graph and of one launch, and where CTAs are spread those of
them side by side, too.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from cutegen.api import build_request
from cutegen.build import Cache, build
from cutegen.contract.problem import ProblemShape
from cutegen.errors import SpecError
from cutegen.hardware import GPUS
from cutegen.run import Kernel
from tests.gpu.settings import TARGET, parsed
from tests.gpu.sweep_kernels import Shape, flusher, measure_problem, shape_of

ROUNDS = 25, 15
FEWEST_CTAS, MOST_CTAS = 8, 264
SIDE_BY_SIDE = "side by side"

Paths = dict[str, str]


def ctas_of(name: str, shape: Shape) -> int:
    """CTAs that a problem has for a kernel.

    >>> ctas_of("sm90_64x8x256_cooperative_c1x1_k1_n8_swap", (8, 4096, 4096))
    64
    """
    setting, (m, n, _) = parsed(name), shape
    if setting.swap:
        m, n = n, m
    return math.ceil(m / setting.cta[0]) * math.ceil(n / setting.cta[1]) * setting.slices


def is_for(name: str, shape: Shape) -> bool:
    """Return whether a kernel has enough CTAs and k-tiles, and not too many CTAs."""
    setting = parsed(name)
    return FEWEST_CTAS <= ctas_of(name, shape) <= MOST_CTAS and shape[2] >= setting.cta[2] * setting.slices


def built(job: tuple[str, Shape]) -> str | None:
    """Where the kernel of a name is, planned for the problem; None where no plan has it."""
    name, shape = job
    spec = parsed(name).spec
    spec = replace(spec, schedule=replace(spec.schedule, raster=None), name="spread")
    try:
        return str(build(build_request(spec, TARGET, problem=shape), Cache.from_environment()).path)
    except SpecError as refused:
        print(f"{name} at {shape}: {refused}"[:200], flush=True)
        return None


def build_all(names: list[str], shapes: list[Shape], workers: int) -> dict[str, Paths]:
    """Where the kernels of each problem are."""
    jobs = [(name, shape) for shape in shapes for name in names if is_for(name, shape)]
    with ProcessPoolExecutor(workers) as pool:
        paths = list(pool.map(built, jobs))
    found: dict[str, Paths] = {}
    for (name, shape), path in zip(jobs, paths, strict=True):
        if path is not None:
            found.setdefault("x".join(map(str, shape)), {})[name] = path
    return found


def side_by_side(path: str) -> Kernel:
    """The kernel as a launch without CTAs to spare has it."""
    kernel = Kernel.open(path)
    kernel._gpu._contract = replace(kernel._gpu._contract, spread=False)
    return kernel


def measured(shape: Shape, paths: Paths, flush: Any) -> dict[str, list[float]]:
    """Microseconds in a graph and of one launch; spread, and where that is another launch side by side."""
    kernels = {name: Kernel.open(path) for name, path in paths.items()}
    problem, sms = ProblemShape(*shape), GPUS[TARGET].sms
    for name, path in paths.items():
        contract = kernels[name].contract
        launches = (contract, replace(contract, spread=False))
        if len({each.geometry(problem, multiprocessors=sms) for each in launches}) == 2:
            kernels[f"{name}, {SIDE_BY_SIDE}"] = side_by_side(path)
    times, wrong = measure_problem(shape, kernels, flush, ROUNDS, rested=False)
    if wrong:
        raise SystemExit(f"{shape}: {wrong} wrong")
    return {name: [round(regime[name], 2) for regime in times] for name in times[0]}


def measure_all(index: Path, out: Path) -> None:
    """Write OUT after each problem."""
    import torch

    table: dict[str, Any] = {"device": torch.cuda.get_device_name(), "problems": {}}
    flush = flusher()
    for text, paths in json.loads(index.read_text()).items():
        found = measured(shape_of(text), paths, flush)
        table["problems"][text] = found
        out.write_text(json.dumps(table, separators=(",", ":")))
        best = min((name for name in found if name != "torch"), key=lambda name: found[name][0])
        print(f"{text}: torch {found['torch'][0]}, best {found[best][0]} {best}", flush=True)


def main() -> int:
    """0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    building = verbs.add_parser("build")
    building.add_argument("index", type=Path)
    building.add_argument("--names", type=Path, required=True)
    building.add_argument("--problems", type=Path, required=True)
    building.add_argument("--workers", type=int, default=16)
    measuring = verbs.add_parser("measure")
    measuring.add_argument("index", type=Path)
    measuring.add_argument("out", type=Path)
    arguments = parser.parse_args()
    if arguments.verb == "measure":
        measure_all(arguments.index, arguments.out)
        return 0
    shapes = list(map(shape_of, arguments.problems.read_text().split()))
    found = build_all(arguments.names.read_text().split(), shapes, arguments.workers)
    arguments.index.write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
