"""What was measured of kernels on many problems, and what the choice of plans costs beside the best of it.

A table is `{"device", "held_out", "runs": [{"names", "us"}]}`: of each run the kernels by their names, torch.matmul the
first, and of each problem rows of `[kernel, microseconds in a graph, microseconds of one launch]`, in some runs with a
fourth, in a graph before which the GPU rested. `held_out` are problems that nothing is fitted to. Times of several runs
of a problem count in the unit of torch.matmul's there. What a kernel takes in a graph is the geometric mean of both
where both are known: nobody says to a plan whether its kernel is to run without a pause. Nor does anybody say on which
GPU: of a kernel that was measured on two, a time is the geometric mean of both, in the unit of all such kernels.
Where a table is not `in_turns`, kernels that end so were measured before they did, and count as what the model of time
says that they gained. Few CTAs were side by side in all of them, which takes 4 % longer on average than to spread them,
and count as they were measured (`h100_spread.json` has both). Where a table has no `slices_shared`, the last CTA of a
tile added what slices left in a workspace when it was measured: times of such kernels of warpgroups are left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from tests.gpu.estimates import since_in_turns
from tests.gpu.settings import Setting, parsed
from tests.gpu.sweep_kernels import LAYERS, SUITE, Shape, shape_of

STORED = Path(__file__).parent / "h200_kernels.json"
STORED_H100 = Path(__file__).parent / "h100_kernels.json"
"""An H100 has as many multiprocessors as an H200, and slower memory. 149 of its problems were measured there alone."""
TORCH = "torch"
Times = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Measured:
    """A problem: microseconds of each kernel in a graph and of one launch, and torch.matmul's."""

    problem: Shape
    us: Mapping[Setting, Times]
    torch_us: Times

    @property
    def best(self) -> Setting:
        """The kernel that was fastest in a graph."""
        return min(self.us, key=lambda setting: self.us[setting][0])

    @property
    def kind(self) -> str:
        """Where the problem comes from."""
        return "suite" if self.problem in SUITE else "layer" if self.problem[1:] in LAYERS else "random"


@dataclass(frozen=True, slots=True)
class Regret:
    """What was chosen beside what was fastest."""

    measured: Measured
    chosen: Setting

    @property
    def factor(self) -> float:
        """How many times the best time, in a graph."""
        return self.measured.us[self.chosen][0] / self.measured.us[self.measured.best][0]

    def of_torch(self, regime: int = 0) -> float:
        """How many times as fast as torch.matmul, in a graph or in one launch."""
        return self.measured.torch_us[regime] / self.measured.us[self.chosen][regime]


@cache
def load(*paths: Path) -> tuple[Measured, ...]:
    """Every problem, in the unit of the first table that has it; of kernels in several orders of the tiles the one that
    plans have.

    What was measured in the others, too, counts as much. Without `paths`, those of both GPUs.
    """
    first, *others = paths or (STORED, STORED_H100)
    found = _loaded(first)
    for other in others:
        found |= {shape: _on_both(found.get(shape, each), each) for shape, each in _loaded(other).items()}
    return tuple(found.values())


def _loaded(path: Path) -> dict[Shape, Measured]:
    stored = json.loads(path.read_text())
    found: dict[Shape, list[dict[str, Sequence[float]]]] = {}
    for run in stored["runs"]:
        for text, rows in run["us"].items():
            times = {run["names"][index]: regimes for index, *regimes in rows}
            found.setdefault(shape_of(text), []).append(times)
    settings = {name: parsed(name) for run in stored["runs"] for name in run["names"] if name != TORCH}
    since = (lambda _setting, _shape: 1.0) if stored.get("in_turns") else since_in_turns
    gone = () if stored.get("slices_shared") else [each for each in settings.values() if each.through_workspace]
    return {shape: _joined(shape, runs, settings, since, frozenset(gone)) for shape, runs in found.items()}


def _on_both(measured: Measured, other: Measured) -> Measured:
    """A problem's times on two GPUs, in the unit of the first: of the kernels that were measured on both."""
    on_both = measured.us.keys() & other.us.keys()
    if not on_both:
        return measured
    units = [geometric_mean([measured.us[x][regime] / other.us[x][regime] for x in on_both]) for regime in (0, 1)]
    us = dict(measured.us)
    for setting, times in other.us.items():
        graph, launch = (of_other * unit for of_other, unit in zip(times, units, strict=True))
        was = us.get(setting, (graph, launch))
        us[setting] = math.sqrt(was[0] * graph), math.sqrt(was[1] * launch)
    return replace(measured, us=us)


@cache
def held_out(*paths: Path) -> frozenset[Shape]:
    """Problems that nothing is fitted to; without `paths`, of the tables of both GPUs."""
    tables = (json.loads(path.read_text()) for path in paths or (STORED, STORED_H100))
    return frozenset(shape_of(text) for table in tables for text in table["held_out"])


def latest(path: Path = STORED) -> frozenset[Setting]:
    """Rows of the kernels that were measured last."""
    return frozenset(row_of_setting(parsed(name)) for name in json.loads(path.read_text())["runs"][-1]["names"][1:])


def _joined(
    shape: Shape,
    runs: Sequence[Mapping[str, Sequence[float]]],
    settings: Mapping[str, Setting],
    since_measured: Callable[[Setting, Shape], float],
    gone: frozenset[Setting],
) -> Measured:
    """A problem's times of all runs, but for kernels that are no more; of one that was in several the average."""
    graph, launch = (geometric_mean([run[TORCH][which] for run in runs]) for which in (0, 1))
    shares: dict[Setting, tuple[list[float], ...]] = {}
    for run in runs:
        for name, us in run.items():
            if name == TORCH or settings[name] in gone:
                continue
            # Of slices of K every order counts: which one a plan has, the grid says.
            if settings[name].slices > 1 or settings[name].has_order(shape):
                of_kernel = shares.setdefault(settings[name], ([], [], []))
                for found, of_regime, of_torch in zip(of_kernel, us, run[TORCH], strict=False):
                    found.append(of_regime / of_torch)
    times: dict[Setting, Times] = {}
    for setting, (busy, launched, rested) in shares.items():
        in_graph = math.sqrt(geometric_mean(busy) * geometric_mean(rested or busy))
        since = since_measured(setting, shape)
        times[setting] = since * graph * in_graph, since * launch * geometric_mean(launched)
    return Measured(shape, times, (graph, launch))


def row_of_setting(setting: Setting) -> Setting:
    """What plans choose, and corrections are of: a kernel whatever the order of its tiles; without wgmma, a tile."""
    if setting.family == "sm90":
        return replace(setting, order="n8")
    return replace(setting, slices=1)


def regrets(table: Iterable[Measured], us_of: Callable[[Setting, Shape], float]) -> Iterator[Regret]:
    """One for each problem: what is predicted to be fastest, beside the best of all that were measured."""
    for measured in table:
        yield Regret(measured, min(measured.us, key=lambda setting: us_of(setting, measured.problem)))


def geometric_mean(values: Collection[float]) -> float:
    """The mean of logs."""
    return math.exp(sum(map(math.log, values)) / len(values))


def merged(tables: Sequence[Mapping[str, Any]], held: Sequence[str]) -> dict[str, Any]:
    """One table of several that `tests.gpu.sweep_kernels` wrote."""
    runs = [{"names": table["names"], "us": table["us"]} for table in tables]
    return {"device": tables[0]["device"], "held_out": list(held), "runs": runs}
