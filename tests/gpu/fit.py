"""Holds the model of time of `sm80` and `sm120` against what `tests.gpu.sweep` measured.

    python -m tests.gpu.fit [TABLE.json]        how much slower its choices are than the best measured

It takes `--family sm120`. Without a table it is the stored one of an H200. `tests.gpu.fit_kernels` fits the constants.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cutegen.contract import ProblemShape
from cutegen.hardware import GPUS, target
from cutegen.plan.search.tile_model import ModelConstants, Work, estimate
from tests.gpu.families import FAMILIES, Family, name_of

TARGET = "sm_90"
SHOWN = 15
IN_DEFAULT_ORDER = "128x64x64_2x2_s4_k3"


@dataclass(frozen=True, slots=True)
class Measured:
    """One problem: microseconds of each kernel by its name."""

    problem: ProblemShape
    times_us: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Regret:
    """What the model chose beside what was fastest."""

    problem: ProblemShape
    chosen: str
    chosen_us: float
    best: str
    best_us: float

    @property
    def factor(self) -> float:
        """How many times the best time."""
        return self.chosen_us / self.best_us


def load(family: Family, path: Path | None = None) -> tuple[Measured, ...]:
    """A table of `tests.gpu.sweep`, the stored one by default, without torch and other tile orders than the default."""
    return tuple(
        Measured(
            ProblemShape(*map(int, problem.split("x"))),
            {name: us for name, us in times.items() if name.count("_") == IN_DEFAULT_ORDER.count("_")},
        )
        for problem, times in json.loads((path or family.table).read_text())["times_us"].items()
    )


def works(family: Family) -> dict[str, Work]:
    """Every candidate with every number of slices as the model sees it, by the names of the sweep."""
    return {
        name_of(candidate, slices): family.work_of(family.spec, target(TARGET), candidate, slices)
        for candidate in family.candidates
        for slices in family.splits
    }


def predicted(row: Measured, kernels: Mapping[str, Work], constants: ModelConstants) -> dict[str, float]:
    """The model's microseconds of each kernel that was measured and is compared."""
    return {
        name: estimate(kernels[name], row.problem, GPUS[TARGET], constants).us
        for name in row.times_us
        if name in kernels
    }


def regrets(table: Sequence[Measured], family: Family, constants: ModelConstants | None = None) -> Iterator[Regret]:
    """One for each problem, with the family's own constants by default."""
    kernels = works(family)
    for row in table:
        times = predicted(row, kernels, constants or family.constants)
        chosen, best = min(times, key=times.__getitem__), min(row.times_us, key=row.times_us.__getitem__)
        yield Regret(row.problem, chosen, row.times_us[chosen], best, row.times_us[best])


def mean_factor(found: Sequence[Regret]) -> float:
    """Geometric mean."""
    return math.exp(sum(math.log(each.factor) for each in found) / len(found))


def summary(found: Sequence[Regret]) -> list[str]:
    """The choices that cost most, and all of them in two numbers."""
    worst = sorted(found, key=lambda each: -each.factor)[:SHOWN]
    lines = [
        f"{each.factor:.3f}  {each.problem!s:18} {each.chosen:26} {each.chosen_us:8.1f} us, "
        f"best {each.best:26} {each.best_us:8.1f} us"
        for each in worst
    ]
    within = sum(each.factor <= 1.05 for each in found)
    lines.append(
        f"{len(found)} problems: {mean_factor(found):.3f} times the best on average, {worst[0].factor:.2f} at most; "
        f"{within} within 5 %"
    )
    return lines


def main() -> int:
    """0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", type=Path, nargs="?")
    parser.add_argument("--family", choices=FAMILIES, default="sm80")
    arguments = parser.parse_args()
    family = FAMILIES[arguments.family]
    table = load(family, arguments.table)
    print(*summary(list(regrets(table, family))), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
