"""What one run measured, and the JSON that it is kept in: a row of the file for each time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cutegen.bench.benchmark import Result
from cutegen.contract.problem import ProblemShape

OURS = "cutegen's choice"
SECTIONS = ("peers", "sweep", "kinds", "sample")
_DIGITS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """Microseconds of one contender on one problem: the median, the least and the most."""

    problem: ProblemShape
    contender: str
    median_us: float
    min_us: float
    max_us: float

    @classmethod
    def of(cls, result: Result) -> Time:
        """What is kept of a result."""
        times = result.measurement
        median_us, min_us, max_us = (round(x, _DIGITS) for x in (times.median_us, times.min_us, times.max_us))
        return cls(
            problem=result.problem, contender=result.contender, median_us=median_us, min_us=min_us, max_us=max_us
        )

    @property
    def tflops(self) -> float:
        """10^12 operations a second, by the median."""
        return self.problem.flops / self.median_us / 1e6

    @property
    def spread(self) -> tuple[float, float]:
        """The least and the most of it."""
        return self.problem.flops / self.max_us / 1e6, self.problem.flops / self.min_us / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One run: where and with what, its ceilings, which kernels were chosen, and the times of each section."""

    device: str
    sms: int
    date: str
    versions: Mapping[str, str]
    seconds: int
    rounds: int
    mma_tflops: float
    copy_tb_per_s: float
    chosen: Mapping[ProblemShape, str]
    peers: tuple[Time, ...]
    sweep: tuple[Time, ...]
    kinds: tuple[Time, ...]
    sample: tuple[Time, ...]


def by_problem(times: Iterable[Time]) -> dict[ProblemShape, dict[str, Time]]:
    """Each problem's contenders, in the order of the run."""
    found: dict[ProblemShape, dict[str, Time]] = {}
    for time in times:
        found.setdefault(time.problem, {})[time.contender] = time
    return found


def dumped(figures: Figures) -> str:
    """The file."""
    plain = {name: getattr(figures, name) for name in Figures.__dataclass_fields__ if name not in (*SECTIONS, "chosen")}
    plain["chosen"] = {str(problem): what for problem, what in figures.chosen.items()}
    sections = [f'"{name}": [\n{_rows(getattr(figures, name))}\n]' for name in SECTIONS]
    return json.dumps(plain, indent=1).removesuffix("\n}") + ",\n" + ",\n".join(sections) + "\n}\n"


def _rows(times: Sequence[Time]) -> str:
    rows = [[str(x.problem), x.contender, x.median_us, x.min_us, x.max_us] for x in times]
    return ",\n".join(json.dumps(row) for row in rows)


def loaded(text: str) -> Figures:
    """The figures of such a file."""
    table: dict[str, Any] = json.loads(text)
    for name in SECTIONS:
        table[name] = tuple(_time(*row) for row in table[name])
    table["chosen"] = {_extents(problem): what for problem, what in table["chosen"].items()}
    return Figures(**table)


def _time(problem: str, contender: str, median_us: float, min_us: float, max_us: float) -> Time:
    return Time(problem=_extents(problem), contender=contender, median_us=median_us, min_us=min_us, max_us=max_us)


def _extents(text: str) -> ProblemShape:
    return ProblemShape(*map(int, text.split("x")))
