"""Measures the kernels that plans choose in other orders of the tiles, too: what `plan/schedule/order.py` goes by.

    python -m tests.gpu.sweep_orders build INDEX.json [--random COUNT] [--problems FILE]    where there is the CuTe DSL
    python -m tests.gpu.sweep_orders measure INDEX.json OUT.json                            where there is the GPU
    python -m tests.gpu.sweep_orders merge OUT.json OTHER.json ...                          prints them as one

FILE has a line `MxNxK` for each problem. Operands are f16, K-major, sums f32. Orders that go through a grid alike are
one. Times are those of `tests.gpu.sweep_kernels`, each result checked first: in a graph, of one launch, and in a graph
before which the GPU rests. Of several files a time is the geometric mean.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cutegen.api import build_request
from cutegen.build import Cache, build
from cutegen.contract.problem import ProblemShape
from cutegen.plan import GemmPlan, plan
from cutegen.plan.kernel.scheduler import TileOrder
from cutegen.run import Kernel
from cutegen.spec import GemmSpec, Operand, Problem, Raster
from tests.gpu.measured import geometric_mean
from tests.gpu.settings import TARGET
from tests.gpu.sweep_kernels import Shape, flusher, measure_problem, shape_of

ORDERS = ("m8", "n8", "m4", "n4", "m3", "n3", "m6", "n6", "m16", "n16", "m8z", "n8z")
REGIMES = ("graph", "launch", "rested")
ROUNDS = 20, 12
SMALLEST_SIDE, LARGEST_SIDE = 64, 8192
LEAST_FMAS, MOST_FMAS = 2**27, 2**37

Row = dict[str, Any]


def order_of(name: str) -> TileOrder:
    """`m8z` are bands of 8 along m, every second one backwards."""
    return TileOrder("m" if name[0] == "m" else "n", int(name[1:].rstrip("z")), name.endswith("z"))


def name_of(order: TileOrder) -> str:
    """Its name, as `order_of` reads it."""
    return f"{order.along}{order.group}{'z' if order.zigzag else ''}"


def multiplied(row: Mapping[str, Any], shape: Shape) -> ProblemShape:
    """The problem as the kernel of a row multiplies it."""
    m, n, k = shape
    return ProblemShape(n, m, k) if row["swap"] else ProblemShape(m, n, k)


def grid_of(row: Mapping[str, Any], shape: Shape) -> tuple[int, int]:
    """Clusters along M and N of what it multiplies."""
    problem, (tile_m, tile_n, _), (ctas_m, ctas_n, _) = multiplied(row, shape), row["tile"], row["cluster"]
    return -(-problem.m // (tile_m * ctas_m)), -(-problem.n // (tile_n * ctas_n))


def unlike(names: Iterable[str], grid: tuple[int, int]) -> Iterator[str]:
    """Those that go through the grid otherwise than the ones before.

    >>> list(unlike(("m8", "m16", "m4", "n8", "m8z"), (8, 16)))
    ['m8', 'm4', 'n8']
    """
    seen = set()
    for name in names:
        way = b"".join(each.tobytes() for each in order_of(name).tiles(grid))
        if way not in seen:
            yield name
        seen.add(way)


def random_problems(count: int, seed: int = 5) -> Iterator[Shape]:
    """Sides log-uniform, multiples of 8, 64 or 128."""
    drawn = np.random.default_rng(seed)
    while count:
        sides = np.exp(drawn.uniform(math.log(SMALLEST_SIDE), math.log(LARGEST_SIDE), 3))
        multiple = int(drawn.choice([8, 64, 128]))
        m, n, k = (int(side) for side in np.maximum(np.round(sides / multiple), 1) * multiple)
        if LEAST_FMAS < m * n * k < MOST_FMAS:
            count -= 1
            yield m, n, k


def built(shape: Shape) -> Row:
    """Where the kernel of a problem is, in each order; the one that the plan has comes first."""
    row = Operand("f16", "k")
    problem = Problem(a=row, b=row, c=Operand("f16", "n"), accumulator="f32")
    spec = GemmSpec(problem=problem, name="orders", family="sm90")
    made = plan(spec, TARGET, shape)
    assert isinstance(made, GemmPlan)
    found: Row = {"tile": made.cta_tile, "cluster": made.mma.cluster, "swap": made.swapped, "paths": {}}
    for name in unlike((name_of(made.scheduler.order), *ORDERS), grid_of(found, shape)):
        order = order_of(name)
        schedule = replace(spec.schedule, raster=Raster(order.along, order.group, order.zigzag))
        request = build_request(replace(spec, schedule=schedule), TARGET, problem=shape)
        found["paths"][name] = str(build(request, Cache.from_environment()).path)
    return found


def measured(shape: Shape, row: Row, flush: Any) -> Row:
    """A row with microseconds of each order and of torch.matmul, a number for each regime, in place of paths."""
    kernels = {name: Kernel.open(path) for name, path in row["paths"].items()}
    times, wrong = measure_problem(shape, kernels, flush, ROUNDS, rested=True)
    if wrong:
        raise SystemExit(f"{shape}: {wrong} wrong")
    us = {name: [round(regime[name], 2) for regime in times] for name in times[0]}
    return {"tile": row["tile"], "cluster": row["cluster"], "swap": row["swap"], "us": us}


def merged(tables: Sequence[Mapping[str, Any]]) -> Row:
    """The geometric mean of each time over the tables that have the problem; all have its kernel in the same orders."""
    problems: dict[str, list[Row]] = {}
    for table in tables:
        for text, row in table["problems"].items():
            problems.setdefault(text, []).append(row)
    return {**tables[0], "problems": {text: _mean(rows) for text, rows in problems.items()}}


def _mean(rows: Sequence[Row]) -> Row:
    times = {name: zip(*(row["us"][name] for row in rows), strict=True) for name in rows[0]["us"]}
    return {**rows[0], "us": {name: [round(geometric_mean(each), 2) for each in us] for name, us in times.items()}}


def measure_all(index: Path, out: Path) -> None:
    """Write OUT after each problem."""
    import torch

    rows = json.loads(index.read_text())
    table: Row = {"device": torch.cuda.get_device_name(), "regimes": REGIMES, "problems": {}}
    flush = flusher()
    for text, row in rows.items():
        found = measured(shape_of(text), row, flush)
        table["problems"][text] = found
        out.write_text(json.dumps(table, separators=(",", ":")))
        print(text, {name: us[0] for name, us in found["us"].items()}, flush=True)


def main() -> int:
    """0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    building = verbs.add_parser("build")
    building.add_argument("index", type=Path)
    building.add_argument("--random", type=int, default=0)
    building.add_argument("--problems", type=Path)
    building.add_argument("--workers", type=int, default=16)
    measuring = verbs.add_parser("measure")
    measuring.add_argument("index", type=Path)
    measuring.add_argument("out", type=Path)
    merging = verbs.add_parser("merge")
    merging.add_argument("tables", type=Path, nargs="+")
    arguments = parser.parse_args()
    if arguments.verb == "build":
        lines = arguments.problems.read_text().split() if arguments.problems else ()
        shapes = tuple(dict.fromkeys((*map(shape_of, lines), *random_problems(arguments.random))))
        with ProcessPoolExecutor(arguments.workers) as pool:
            rows = dict(zip(("x".join(map(str, shape)) for shape in shapes), pool.map(built, shapes), strict=True))
        arguments.index.write_text(json.dumps(rows))
    elif arguments.verb == "measure":
        measure_all(arguments.index, arguments.out)
    else:
        print(json.dumps(merged([json.loads(path.read_text()) for path in arguments.tables]), separators=(",", ":")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
