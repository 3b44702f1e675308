"""Merge the figures of several processes. A claim of a difference below 5 % needs three processes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from benchmarks.host_cost import HostCost
from benchmarks.performance.energy import Energy
from benchmarks.performance.figures import SECTIONS, Ceiling, Figures, Time
from cutegen.errors import OutsideError

_T = TypeVar("_T")


def merged(runs: Sequence[Figures]) -> Figures:
    """Return the median of each figure over the runs that have it, the overall minimum and maximum, and total seconds.

    Raises OutsideError if the runs differ in machine, versions or kernels.
    """
    first, *rest = runs
    if not rest:
        return first
    for other in rest:
        _demand_alike(first, other)
    times = {section: _groups((getattr(run, section) for run in runs), _of_a_time) for section in SECTIONS}
    return replace(
        first,
        seconds=sum(run.seconds for run in runs),
        processes=sum(run.processes for run in runs),
        ceilings=tuple(map(_ceiling, _groups((run.ceilings for run in runs), lambda x: (x.instruction, x.operands)))),
        read_tb_per_s=statistics.median(run.read_tb_per_s for run in runs),
        copy_tb_per_s=statistics.median(run.copy_tb_per_s for run in runs),
        clocks=tuple(chain.from_iterable(run.clocks for run in runs)),
        energy=tuple(map(_energy, _groups((run.energy for run in runs), lambda x: (x.contender, x.problem)))),
        host=tuple(map(_host, _groups((run.host for run in runs), lambda x: (x.kernel, x.call)))),
        **{section: tuple(map(_time, groups)) for section, groups in times.items()},
    )


def _demand_alike(first: Figures, other: Figures) -> None:
    for name in ("device", "sms", "driver", "cuda", "versions", "rounds", "chosen"):
        mine, its = getattr(first, name), getattr(other, name)
        if mine != its:
            raise OutsideError(f"cannot merge runs that differ in {name}: {_unlike(mine, its)}")


def _unlike(mine: object, its: object) -> str:
    """Return both values, or of two mappings the first entry that differs."""
    if not isinstance(mine, Mapping) or not isinstance(its, Mapping):
        return f"{mine} and {its}"
    key = next(key for key in (*mine, *its) if mine.get(key) != its.get(key))
    return f"{key} is {mine.get(key)} and {its.get(key)}"


def _groups(rows: Iterable[Sequence[_T]], key: Callable[[_T], Hashable]) -> list[list[_T]]:
    """Group the rows of all runs by key, in the order of the first run that has the key."""
    found: dict[Hashable, list[_T]] = {}
    for row in chain.from_iterable(rows):
        found.setdefault(key(row), []).append(row)
    return list(found.values())


def _of_a_time(time: Time) -> Hashable:
    return time.problem, time.regime, time.contender


def _time(rows: Sequence[Time]) -> Time:
    return replace(
        rows[0],
        median_us=statistics.median(row.median_us for row in rows),
        min_us=min(row.min_us for row in rows),
        max_us=max(row.max_us for row in rows),
    )


def _ceiling(rows: Sequence[Ceiling]) -> Ceiling:
    return replace(rows[0], tflops=statistics.median(row.tflops for row in rows))


def _energy(rows: Sequence[Energy]) -> Energy:
    return sorted(rows, key=lambda row: row.joules)[len(rows) // 2]


def _host(rows: Sequence[HostCost]) -> HostCost:
    return replace(rows[0], median_us=statistics.median(row.median_us for row in rows))
