"""The figures of one run, and the JSON file that stores them: one row per time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, dataclass
from typing import Any

from benchmarks.host_cost import HostCost
from benchmarks.performance.energy import Energy
from cutegen.bench.benchmark import Result
from cutegen.bench.measure import Regime
from cutegen.contract.problem import ProblemShape

OURS = "cutegen"
SECTIONS = ("suite", "sample", "kinds", "ladder")
_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Time:
    """Microseconds of one contender on one problem in one regime: median, minimum and maximum."""

    problem: ProblemShape
    regime: Regime
    contender: str
    median_us: float
    min_us: float
    max_us: float

    @classmethod
    def of(cls, result: Result) -> Time:
        """Return the stored part of a result."""
        times = result.measurement
        us = (round(x, _DIGITS) for x in (times.median_us, times.min_us, times.max_us))
        return cls(result.problem, result.regime, result.contender, *us)

    @property
    def tflops(self) -> float:
        """10^12 operations per second, from the median."""
        return self.problem.flops / self.median_us / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The measured peak rate of one instruction."""

    instruction: str
    operands: str
    accumulator: str
    tflops: float


@dataclass(frozen=True, slots=True)
class Clock:
    """The GPU's state right after a problem's measurement: clocks, power and temperature."""

    problem: ProblemShape
    regime: Regime
    sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    power_w: float | None
    temperature_c: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One run: machine, versions, ceilings, the selected kernels, and the times of each section."""

    device: str
    sms: int
    driver: str | None
    cuda: str | None
    date: str
    versions: Mapping[str, str]
    seconds: int
    rounds: int
    processes: int = 1
    ceilings: tuple[Ceiling, ...]
    read_tb_per_s: float
    copy_tb_per_s: float
    chosen: Mapping[ProblemShape, str]
    clocks: tuple[Clock, ...] = ()
    suite: tuple[Time, ...] = ()
    sample: tuple[Time, ...] = ()
    kinds: tuple[Time, ...] = ()
    ladder: tuple[Time, ...] = ()
    energy: tuple[Energy, ...] = ()
    host: tuple[HostCost, ...] = ()

    def ceiling(self, instruction: str, operands: str) -> float:
        """Return the measured peak in TFLOP/s."""
        return next(x.tflops for x in self.ceilings if (x.instruction, x.operands) == (instruction, operands))


def by_problem(times: Iterable[Time], regime: Regime) -> dict[ProblemShape, dict[str, Time]]:
    """Return each problem's contenders in one regime, in the order of the run."""
    found: dict[ProblemShape, dict[str, Time]] = {}
    for time in times:
        if time.regime is regime:
            found.setdefault(time.problem, {})[time.contender] = time
    return found


def dumped(figures: Figures) -> str:
    """Return the text of the JSON file."""
    rows = {
        **{name: [[str(x.problem), *astuple(x)[1:]] for x in getattr(figures, name)] for name in SECTIONS},
        "clocks": [[str(x.problem), *astuple(x)[1:]] for x in figures.clocks],
        "energy": [
            [x.contender, str(x.problem), round(x.joules, _DIGITS), round(x.watts, 1), x.sm_clock_mhz]
            for x in figures.energy
        ],
        "host": [[x.kernel, x.call, round(x.median_us, 2)] for x in figures.host],
        "ceilings": [asdict(x) for x in figures.ceilings],
    }
    plain = {name: getattr(figures, name) for name in Figures.__dataclass_fields__ if name not in (*rows, "chosen")}
    plain["chosen"] = {str(problem): what for problem, what in figures.chosen.items()}
    sections = [f'"{name}": [\n{_lines(each)}\n]' for name, each in rows.items()]
    return json.dumps(plain, indent=1).removesuffix("\n}") + ",\n" + ",\n".join(sections) + "\n}\n"


def _lines(rows: Iterable[Any]) -> str:
    return ",\n".join(json.dumps(row) for row in rows)


def loaded(text: str) -> Figures:
    """Return the figures from the text of a JSON file."""
    table: dict[str, Any] = json.loads(text)
    for name, kind in (*((name, Time) for name in SECTIONS), ("clocks", Clock)):
        table[name] = tuple(kind(_extents(problem), Regime(regime), *rest) for problem, regime, *rest in table[name])
    table["chosen"] = {_extents(problem): what for problem, what in table["chosen"].items()}
    table["energy"] = tuple(Energy(name, _extents(problem), *rest) for name, problem, *rest in table["energy"])
    table["host"] = tuple(HostCost(*row) for row in table["host"])
    table["ceilings"] = tuple(Ceiling(**row) for row in table["ceilings"])
    return Figures(**table)


def _extents(text: str) -> ProblemShape:
    return ProblemShape(*map(int, text.split("x")))
