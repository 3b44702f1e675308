"""Holds the model of wgmma kernels against measured times, and fits its constants to them.

    python -m tests.gpu.fit_warpgroups [TABLE.json]                  how much slower its choices are than the best
    python -m tests.gpu.fit_warpgroups [TABLE.json] --seconds 300    better constants, by random search, to be written
                                                                     into `warpgroup_tiles.py` by hand

TABLE.json is what `tests.gpu.sweep_warpgroups` measured; without one, the stored table of an H200. Constants are fitted
to all of its problems but those that are held out to judge the choice by.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS, target
from cutegen.plan.search.warpgroup_model import WarpgroupConstants, WarpgroupWork, estimate
from cutegen.plan.search.warpgroup_tiles import H200, MEASURED, Row
from cutegen.plan.search.warpgroups import candidate_of, work_of
from tests.gpu.fit import Measured, Regret, mean_factor, summary
from tests.gpu.settings import TARGET, Setting
from tests.gpu.sweep_warpgroups import LAYERS, SUITE

STORED = Path(__file__).parent / "h200_warpgroups.json"
FAMILY = "sm90"
HELD_OUT = 60
NEARLY_BEST = 1.5


def load(path: Path = STORED) -> tuple[Measured, ...]:
    """Microseconds in a graph of each problem's kernels of this family."""
    table = json.loads(path.read_text())
    names = table["names"]
    return tuple(
        Measured(
            ProblemShape(*map(int, shape.split("x"))),
            {names[index]: us for index, us, _ in rows if names[index].startswith(FAMILY)},
        )
        for shape, rows in table["us"].items()
    )


def shape_of(problem: ProblemShape) -> tuple[int, int, int]:
    """M, N and K."""
    return problem.m, problem.n, problem.k


def held_out(table: Sequence[Measured]) -> tuple[Measured, ...]:
    """Sixty of the random problems, which no constant is fitted to."""
    drawn = [row for row in table if shape_of(row.problem) not in SUITE and shape_of(row.problem)[1:] not in LAYERS]
    return tuple(drawn[1::3][:HELD_OUT])


def setting_of(row: Row, problem: ProblemShape) -> Setting:
    """The kernel of the sweep that a row is for a problem, in the order of the tiles that plans have."""
    m, n, k = row.cluster
    found = Setting(
        family=FAMILY,
        cta=row.cta,
        consumers=row.consumers,
        cluster=(m, n),
        slices=row.slices,
        reduction="cluster" if k > 1 else "workspace",
        swap=row.swap,
    )
    along = replace(found, order="m8")
    return along if along.has_order(shape_of(problem)) else found


def works() -> tuple[tuple[Row, WarpgroupWork], ...]:
    """Every row as the model sees it."""
    spec, device = Setting(family=FAMILY, cta=(128, 128, 64), consumers="cooperative").open_spec, target(TARGET)
    return tuple((row, work_of(spec, device, candidate_of(spec, device, row), row)) for row in MEASURED)


def predicted(
    measured: Measured, rows: Sequence[tuple[Row, WarpgroupWork]], constants: WarpgroupConstants
) -> dict[str, float]:
    """The model's microseconds of each row that was measured on a problem."""
    problem, found = measured.problem, {}
    exchanged = replace(problem, m=problem.n, n=problem.m)
    for row, work in rows:
        name = setting_of(row, problem).name
        if name in measured.times_us:
            found[name] = estimate(work, exchanged if row.swap else problem, GPUS[TARGET], constants).us
    return found


def regrets(table: Sequence[Measured], constants: WarpgroupConstants = H200) -> Iterator[Regret]:
    """One for each problem: what is chosen beside the best of all that were measured, compared or not."""
    rows = works()
    for measured in table:
        times = predicted(measured, rows, constants)
        chosen, best = min(times, key=times.__getitem__), min(measured.times_us, key=measured.times_us.__getitem__)
        yield Regret(measured.problem, chosen, measured.times_us[chosen], best, measured.times_us[best])


def fit(table: Sequence[Measured], seconds: float, seed: int = 0) -> WarpgroupConstants:
    """Constants that make choices better and times of nearly the best kernels more alike, by random steps."""
    apart = {measured.problem for measured in held_out(table)}
    fitted = [measured for measured in table if measured.problem not in apart]
    drawn, rows, names = random.Random(seed), works(), list(asdict(H200))
    found, least, until = H200, _loss(fitted, rows, H200), time.monotonic() + seconds
    while time.monotonic() < until:
        changed = drawn.sample(names, drawn.choice((1, 1, 2, 3)))
        tried = replace(found, **{name: getattr(found, name) * math.exp(drawn.gauss(0, 0.1)) for name in changed})
        if (loss := _loss(fitted, rows, tried)) < least:
            found, least = tried, loss
    return found


def _loss(table: Sequence[Measured], rows: Sequence[tuple[Row, WarpgroupWork]], constants: WarpgroupConstants) -> float:
    """The mean log of the regret, and the mean squared log error of nearly the best kernels."""
    total = 0.0
    for measured in table:
        times, best = predicted(measured, rows, constants), min(measured.times_us.values())
        near = [name for name in times if measured.times_us[name] < NEARLY_BEST * best]
        errors: Mapping[str, float] = {name: math.log(times[name] / measured.times_us[name]) for name in near}
        chosen = min(times, key=times.__getitem__)
        total += 0.5 * math.log(measured.times_us[chosen] / best)
        total += 2 * sum(error**2 for error in errors.values()) / max(1, len(near))
    return total / len(table)


def main() -> int:
    """0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", type=Path, nargs="?", default=STORED)
    parser.add_argument("--seconds", type=float, default=0.0)
    arguments = parser.parse_args()
    table, constants = load(arguments.table), H200
    if arguments.seconds:
        constants = fit(table, arguments.seconds)
        for name, value in asdict(constants).items():
            print(f"    {name}={value:.3g},")
    print(*summary(list(regrets(table, constants))), sep="\n")
    apart = list(regrets(held_out(table), constants))
    print(f"held out: {mean_factor(apart):.3f} on average, {max(each.factor for each in apart):.2f} at most")
    return 0


if __name__ == "__main__":
    sys.exit(main())
