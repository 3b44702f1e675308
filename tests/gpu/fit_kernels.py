"""Fits the models of time to what was measured, and holds their choice against it.

    python -m tests.gpu.fit_kernels             how much slower the choices of plans are than the best that was measured
    python -m tests.gpu.fit_kernels --folds 4   the same where each choice is made by constants fitted to other problems
    python -m tests.gpu.fit_kernels --write     fits constants and corrections of all families, and writes them into
                                                `cutegen/plan/search` and docs/lab/tile_model.md; three minutes
    python -m tests.gpu.fit_kernels --refine    fits those of `sm90` from where they are, and drawn to that, for what
                                                was measured since; the rows stay
    python -m tests.gpu.fit_kernels --refine-latest   fits so the corrections of kernels of the latest run alone
    python -m tests.gpu.fit_kernels --page      writes into that page what they are worth

The constants follow the slope of a loss: how much slower the kernels are that the model takes for the fastest, how far
its times of nearly the best kernels are off beside each other, and a little how far all of them are. Corrections are
drawn to 1 besides. The formulas are those of plans: `microseconds` of both models, with tensors for numbers.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS
from cutegen.plan.search import bulk, cp_async, tile_model, warpgroup_model, warpgroup_rows
from cutegen.plan.search.warpgroup_model import WarpgroupWork
from tests.gpu.estimates import compared_us, estimated_us, has_own_corrections, of_plans, row_of, work_of
from tests.gpu.measured import (
    STORED,
    STORED_H100,
    Measured,
    Regret,
    geometric_mean,
    held_out,
    latest,
    load,
    regrets,
    row_of_setting,
)
from tests.gpu.settings import TARGET, Setting
from tests.gpu.written import write, write_refined, write_regrets

MODELS: Mapping[str, tuple[ModuleType, Any]] = {
    "sm90": (warpgroup_model, warpgroup_rows.H200),
    "sm80": (tile_model, cp_async.H200),
    "sm120": (tile_model, bulk.H200),
}
FAR = 0.9
"""The log of how many times the best a kernel takes that is left out of the fit."""
NEAR = 4.0
"""How fast the weight of slower kernels falls with that log."""
ALIKE = 0.02
"""Logs of predictions that count as nearly equal."""
ROBUST = 0.05
"""Errors in logs beyond which they count by themselves, not by their squares."""
LEVEL, K_TILES, WHOLE = 0.05, 0.1, 0.2
"""Weights of a problem's common error, and of corrections, squared, of k-tiles and of the whole."""
COUNTS = {"suite": 20.0, "layer": 3.0, "random": 1.0}
"""How many random problems one of each kind counts for."""
LARGE, MORE_OF_LARGE = 2**36, 5.0
"""Multiply-adds of a problem that takes a GPU to full power, and what such a problem counts for besides."""
NEARBY, NEARBY_CONSTANTS = 0.3, 0.001
"""Weights of changes, squared, of corrections and of constants that are refined."""
KEPT: Mapping[str, Collection[str]] = {
    "sm120": tuple(asdict(bulk.H200)),
    "sm80": ("memory_share", "sum_cycles", "slice_cycles", "sum_bytes_per_cycle"),
}
"""Constants that stay as they are: too few kernels of the sweep are bound by them."""
STEPS, RATE, REFINING_RATE = 300, 0.02, 0.01
SHOWN = 12


@dataclass(frozen=True, slots=True)
class Part:
    """The samples of one family: which they are, what they count, each a tensor, and their rows."""

    at: Any
    kind: type
    counted: Mapping[str, Any]
    row: Any


@dataclass(frozen=True, slots=True)
class Samples:
    """All times as tensors: the problem of each, microseconds, and the log of how far it is behind the best.

    `counts` says how much each problem counts for.
    """

    problem: Any
    us: Any
    behind: Any
    parts: Mapping[str, Part]
    rows: Mapping[Setting, int]
    counts: Any


@dataclass(frozen=True, slots=True)
class Fitted:
    """Constants of each family, and logs of both corrections of each row."""

    constants: Mapping[str, Mapping[str, Any]]
    k_tiles: Any
    whole: Any


def samples_of(table: Sequence[Measured]) -> Samples:
    """What was measured, but for kernels that are far behind."""
    torch.set_default_dtype(torch.float64)
    rows: dict[Setting, int] = {}
    problem: list[int] = []
    us: list[float] = []
    behind: list[float] = []
    parts: dict[str, list[tuple[int, Any, int]]] = {}
    for number, measured in enumerate(table):
        best = measured.us[measured.best][0]
        for setting, (graph_us, _) in measured.us.items():
            if math.log(graph_us / best) <= FAR:
                row = rows.setdefault(row_of_setting(setting), len(rows))
                parts.setdefault(setting.family, []).append((len(us), _counted(setting, measured.problem), row))
                problem.append(number)
                us.append(graph_us)
                behind.append(math.log(graph_us / best))
    counts = torch.tensor([COUNTS[each.kind] + MORE_OF_LARGE * (math.prod(each.problem) >= LARGE) for each in table])
    joined = {family: _part(each) for family, each in parts.items()}
    return Samples(torch.tensor(problem), torch.tensor(us), torch.tensor(behind), joined, rows, counts / counts.sum())


def _counted(setting: Setting, shape: tuple[int, int, int]) -> Any:
    """The quantities of a kernel without its corrections."""
    m, n, k = shape
    work: Any = replace(work_of(setting), overall=1.0)
    if isinstance(work, WarpgroupWork):
        work = replace(work, correction=1.0, spreads=False)  # few CTAs were side by side when they were measured
    problem = ProblemShape(n, m, k) if setting.swap else ProblemShape(m, n, k)
    return MODELS[setting.family][0].quantities(work, problem, GPUS[TARGET])


def _part(found: Sequence[tuple[int, Any, int]]) -> Part:
    kind = type(found[0][1])
    counted = {x.name: torch.tensor([float(getattr(each, x.name)) for _, each, _ in found]) for x in fields(kind)}
    return Part(torch.tensor([at for at, _, _ in found]), kind, counted, torch.tensor([row for _, _, row in found]))


def predicted(samples: Samples, fitted: Fitted) -> Any:
    """Microseconds of each sample."""
    us = torch.ones(len(samples.us))
    for family, part in samples.parts.items():
        module, start = MODELS[family]
        changed = {"overall": fitted.whole[part.row].exp()}
        if family == "sm90":
            changed["correction"] = fitted.k_tiles[part.row].exp()
        counted = part.kind(**{**part.counted, **changed})
        us = us.index_put((part.at,), module.microseconds(counted, type(start)(**fitted.constants[family])))
    return us


def fit(table: Sequence[Measured], steps: int = STEPS) -> tuple[Samples, Fitted]:
    """Constants and corrections, from those of plans on, by Adam along the slope of the loss."""
    samples = samples_of(table)
    start = {family: asdict(MODELS[family][1]) for family in samples.parts}
    logs = {
        family: {
            name: torch.tensor(math.log(value), requires_grad=name not in KEPT.get(family, ()))
            for name, value in each.items()
            if value > 0
        }
        for family, each in start.items()
    }
    absent = {f: {name: torch.tensor(0.0) for name, value in each.items() if value <= 0} for f, each in start.items()}
    k_tiles, whole = (torch.zeros(len(samples.rows), requires_grad=True) for _ in range(2))
    followed = [value for each in logs.values() for value in each.values() if value.requires_grad] + [k_tiles, whole]

    def now() -> Fitted:
        found = {f: {**{name: value.exp() for name, value in each.items()}, **absent[f]} for f, each in logs.items()}
        return Fitted(found, k_tiles, whole)

    def loss() -> Any:
        drawn = K_TILES * (k_tiles**2).mean() + WHOLE * (whole**2).mean()
        return _loss(samples, predicted(samples, now()).log()) + drawn

    descend(followed, loss, RATE, steps)
    return samples, _detached(now())


def refined(table: Sequence[Measured], steps: int = STEPS, only: Collection[Setting] = ()) -> tuple[Samples, Fitted]:
    """Constants of `sm90`, and corrections of the rows that plans have, near what they are.

    With `only` these rows' corrections follow, and nothing else.
    """
    torch.set_default_dtype(torch.float64)
    samples = samples_of([each for each in map(_of_compared, table) if each.us])
    free = torch.tensor([float(_is_of_plans(each) and (not only or each in only)) for each in samples.rows])
    were = [_corrections(setting) for setting in samples.rows]
    k_tiles_were, whole_were = (torch.tensor(each).log() for each in zip(*were, strict=True))
    constants = {family: _tensors(asdict(MODELS[family][1])) for family in samples.parts}
    followed = [name for name, value in constants["sm90"].items() if value > 0 and not only]
    changes = {name: torch.tensor(0.0, requires_grad=True) for name in followed}
    k_tiles, whole = (torch.zeros(len(samples.rows), requires_grad=True) for _ in range(2))

    def now() -> Fitted:
        changed = {name: constants["sm90"][name] * change.exp() for name, change in changes.items()}
        found = {**constants, "sm90": {**constants["sm90"], **changed}}
        return Fitted(found, k_tiles_were + free * k_tiles, whole_were + free * whole)

    def loss() -> Any:
        corrected = (free * (k_tiles**2 + whole**2)).mean()
        changed = sum((change**2 for change in changes.values()), torch.tensor(0.0))
        return _loss(samples, predicted(samples, now()).log()) + NEARBY * corrected + NEARBY_CONSTANTS * changed

    descend([k_tiles, whole, *changes.values()], loss, REFINING_RATE, steps)
    return samples, _detached(now())


def _of_compared(measured: Measured) -> Measured:
    """A problem with no other kernels than plans compare for it by corrections of their own row.

    Those by size are of no row, and none of what is refined would change them. What kernels take by how they read
    A and B is taken out of their times: the model that is refined knows nothing of it.
    """
    shape, us = measured.problem, {}
    for each, (graph, launch) in measured.us.items():
        if has_own_corrections(each, shape):
            share = compared_us(each, shape) / estimated_us(each, shape)
            us[each] = graph / share, launch / share
    return replace(measured, us=us)


def _is_of_plans(setting: Setting) -> bool:
    return setting in map(row_of_setting, of_plans())


def _corrections(setting: Setting) -> tuple[float, float]:
    """Of a k-tile and of the whole, as plans have them."""
    if setting.family == "sm90":
        row = row_of(setting)
        return row.correction, row.overall
    return 1.0, work_of(setting).overall


def _tensors(values: Mapping[str, float]) -> dict[str, Any]:
    return {name: torch.tensor(value) for name, value in values.items()}


def _detached(found: Fitted) -> Fitted:
    constants = {f: {name: value.detach() for name, value in each.items()} for f, each in found.constants.items()}
    return Fitted(constants, found.k_tiles.detach(), found.whole.detach())


def descend(followed: Sequence[Any], loss: Callable[[], Any], rate: float, steps: int) -> None:
    """Follow the slope of a loss, by Adam, in steps that get smaller."""
    optimizer = torch.optim.Adam(followed, lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        schedule.step()


def _loss(samples: Samples, log_us: Any) -> Any:
    """How much slower likely choices are, and how far off times are beside those of the same problem, and at all."""
    of, zeros = samples.problem, torch.zeros(len(samples.counts))
    weight = torch.exp(-NEAR * samples.behind)
    weights = zeros.scatter_add(0, of, weight)
    error = log_us - samples.us.log()
    common = zeros.scatter_add(0, of, weight * error) / weights
    beside = zeros.scatter_add(0, of, weight * _robust(error - common[of])) / weights
    # The chance of each kernel to be taken for the fastest, as predictions are sure to `ALIKE`.
    likely = torch.exp((zeros.scatter_reduce(0, of, log_us.detach(), "amin", include_self=False)[of] - log_us) / ALIKE)
    regret = zeros.scatter_add(0, of, likely * samples.behind) / zeros.scatter_add(0, of, likely)
    return (samples.counts * (beside + LEVEL * _robust(common) + regret + 2.5 * regret**2)).sum()


def _robust(error: Any) -> Any:
    return (torch.sqrt(1 + (error / ROBUST) ** 2) - 1) * ROBUST


def cross_validated(table: Sequence[Measured], folds: int) -> list[Regret]:
    """The choice on each problem by constants that are fitted to those of the other folds."""
    found = []
    for fold in range(folds):
        samples, fitted = fit([each for number, each in enumerate(table) if number % folds != fold])
        apart = table[fold::folds]
        found += list(regrets(apart, _by(apart, samples, fitted)))
    return found


def _by(apart: Sequence[Measured], samples: Samples, fitted: Fitted) -> Any:
    """What constants say of problems that they were not fitted to."""
    torch.set_default_dtype(torch.float64)
    pairs = [(setting, each.problem) for each in apart for setting in each.us]
    times: dict[tuple[Setting, tuple[int, int, int]], float] = {}
    for family, (module, start) in MODELS.items():
        of_family = [pair for pair in pairs if pair[0].family == family]
        if not of_family or family not in samples.parts:
            continue
        part = _part([(number, _counted(*pair), 0) for number, pair in enumerate(of_family)])
        rows = [samples.rows.get(row_of_setting(setting)) for setting, _ in of_family]
        log = {
            name: torch.tensor([0.0 if row is None else float(values[row]) for row in rows])
            for name, values in (("overall", fitted.whole), ("correction", fitted.k_tiles))
        }
        changed = {name: value.exp() for name, value in log.items() if name in part.counted}
        us = module.microseconds(part.kind(**{**part.counted, **changed}), type(start)(**fitted.constants[family]))
        times |= dict(zip(of_family, us.tolist(), strict=True))
    return lambda setting, shape: times.get((setting, shape), math.inf)


def summary(what: str, found: Collection[Regret], shown: int = 0) -> Iterable[str]:
    """The choices that cost most, and all of them in a few numbers."""
    for each in sorted(found, key=lambda each: -each.factor)[:shown]:
        measured, best = each.measured, each.measured.best
        yield (
            f"{each.factor:.3f} {'x'.join(map(str, measured.problem)):18} {each.chosen.name} "
            f"{measured.us[each.chosen][0]:.2f} us, best {best.name} {measured.us[best][0]:.2f} us"
        )
    factors = [each.factor for each in found]
    mean = geometric_mean(factors)
    yield f"{what}: {len(found)} problems: {mean:.3f} times the best on average, {max(factors):.2f} at most"
    for regime, name in enumerate(("in a graph", "one launch")):
        times = [each.of_torch(regime) for each in found]
        yield f"    {name} {geometric_mean(times):.3f} times as fast as torch.matmul, {min(times):.2f} at worst"


def _judged(table: Sequence[Measured], paths: Sequence[Path]) -> Iterable[tuple[str, list[Regret], int]]:
    """The choice of plans on all problems, on those of each kind, and on those that nothing was fitted to."""
    found = list(regrets(table, compared_us))
    yield "all", found, SHOWN
    for kind in COUNTS:
        if of_kind := [each for each in found if each.measured.kind == kind]:
            yield kind, of_kind, 0
    for name, path in zip(("held out", "held out, H100"), paths, strict=False):
        if coincidence_factor := [each for each in found if each.measured.problem in held_out(path)]:
            yield name, coincidence_factor, SHOWN // 2


def main() -> int:
    """0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tables", type=Path, nargs="*", help="each of a GPU; those of both without")
    parser.add_argument("--folds", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--refine", action="store_true")
    parser.add_argument("--refine-latest", action="store_true")
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    tables = arguments.tables or [STORED, STORED_H100]
    table, apart = load(*tables), held_out(*tables)
    fitted_to = [each for each in table if each.problem not in apart]
    if arguments.write:
        samples, fitted = fit(fitted_to)
        write(samples.rows, fitted.constants, fitted.k_tiles.tolist(), fitted.whole.tolist(), fitted_to)
        print("written: run without --write for what it is worth")
        return 0
    if arguments.refine or arguments.refine_latest:
        samples, fitted = refined(fitted_to, only=latest(tables[-1]) if arguments.refine_latest else ())
        write_refined(samples.rows, fitted.constants, fitted.k_tiles.tolist(), fitted.whole.tolist())
        print("written: run without it for what it is worth")
        return 0
    if arguments.page:
        write_regrets({name: found for name, found, _ in _judged(table, tables)})
        return 0
    if arguments.folds:
        found = cross_validated(fitted_to, arguments.folds)
        print(*summary("by others", found, SHOWN), sep="\n")
        print(*summary("random, by others", [x for x in found if x.measured.kind == "random"]), sep="\n")
        return 0
    for name, found, shown in _judged(table, tables):
        print(*summary(name, found, shown), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
