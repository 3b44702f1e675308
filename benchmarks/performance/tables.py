"""The figures as Markdown: one function for each block between markers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from benchmarks.performance import by_hand
from benchmarks.performance.figures import OURS, Figures, Time, by_problem
from benchmarks.performance.measure import KINDS
from benchmarks.performance.problems import LARGE
from cutegen.bench.contenders import CUTLASS
from cutegen.contract.problem import ProblemShape

HELD_TO = 0.9
WORST = 10
ABSENT = ""


def run(figures: Figures) -> str:
    """Where and with what, and what the hardware allows."""
    versions = ", ".join(f"{name} {version}" for name, version in figures.versions.items())
    return (
        f"{figures.device}, {figures.sms} multiprocessors, {figures.date}; {versions}. One run of "
        f"{figures.seconds} s, each time the median of {figures.rounds} rounds. In it `mma.sync` alone reached "
        f"{figures.mma_tflops:.0f} TFLOP/s, copies {figures.copy_tb_per_s:.2f} TB/s."
    )


def peers(figures: Figures) -> str:
    """TFLOP/s of everyone, a row for each problem."""
    problems = by_problem(figures.peers)
    names = list(dict.fromkeys(time.contender for time in figures.peers))
    header = ["M x N x K", *map(_code, names), "least to most", "which kernel", "of `mma.sync`", "to the example"]
    return _table(header, (_peers_row(figures, problem, names, row) for problem, row in problems.items()))


def _peers_row(figures: Figures, problem: ProblemShape, names: Sequence[str], row: Mapping[str, Time]) -> list[str]:
    ours = row[OURS]
    least, most = ours.spread
    return [
        _spelled(problem),
        *(_tflops(row.get(name)) for name in names),
        f"{_figure(least)} to {_figure(most)}",
        figures.chosen[problem],
        f"{ours.tflops / figures.mma_tflops:.0%}",
        _ratio(ours, row.get(CUTLASS)),
    ]


def sweep(figures: Figures) -> str:
    """CUTLASS's example in other configurations, fastest first at the first problem; then what cutegen chose."""
    problems = by_problem(figures.sweep)
    if not problems:
        return "Not measured: the run had no file of the example."
    names = dict.fromkeys(time.contender for time in figures.sweep if time.contender != OURS)
    first = next(iter(problems.values()))
    ranked = sorted(names, key=lambda name: -first[name].tflops if name in first else 0.0)
    best = [max(row[name].tflops for name in names if name in row) for row in problems.values()]
    ours = [row[OURS].tflops for row in problems.values()]
    rows = [[name, *(_tflops(row.get(name)) for row in problems.values())] for name in ranked]
    rows.append(["**the best of them**", *map(_figure, best)])
    rows.append([f"**{OURS}**", *map(_figure, ours)])
    rows.append(["ratio", *(f"{mine / theirs:.2f}" for mine, theirs in zip(ours, best, strict=True))])
    return _table(["the example's tile", *map(_spelled, problems)], rows)


def kinds(figures: Figures) -> str:
    """Majors and types beside TN."""
    (row,) = by_problem(figures.kinds).values()
    plain = row[next(iter(KINDS))]
    rows = [[name, _figure(row[name].tflops), _ratio(row[name], plain)] for name in KINDS if name in row]
    return _table(["`sm120`", "TFLOP/s", "to TN"], rows)


def sample(figures: Figures) -> str:
    """The random problems: a sentence, and those where cutegen does worst."""
    rows = [row for row in by_problem(figures.sample).values() if _peers_of(row)]
    if not rows:
        return "Not measured: the run had neither the example nor `nvcc`."
    rows.sort(key=_to_the_better)
    ratios = [_to_the_better(row) for row in rows]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    below = sum(ratio < HELD_TO for ratio in ratios)
    example = [row for row in rows if CUTLASS in row]
    wmma = [row for row in rows if by_hand.NAME in row]
    text = (
        f"{len(rows)} problems, compared with the example on {len(example)} of them and with the WMMA kernel on "
        f"{len(wmma)}: on geometric average {mean:.2f} times as fast as the better of the two, at the worst "
        f"{ratios[0]:.2f} times; {below or 'none'} below {HELD_TO}. The {min(WORST, len(rows))} worst, in microseconds:"
    )
    header = ["M x N x K", _code(OURS), "which kernel", CUTLASS, by_hand.NAME, "torch.matmul", "to the better"]
    return f"{text}\n\n" + _table(header, (_sample_row(figures, row) for row in rows[:WORST]))


def _sample_row(figures: Figures, row: Mapping[str, Time]) -> list[str]:
    ours = row[OURS]
    times = [_us(row.get(name)) for name in (CUTLASS, by_hand.NAME, "torch.matmul")]
    return [_spelled(ours.problem), _us(ours), figures.chosen[ours.problem], *times, f"{_to_the_better(row):.2f}"]


def _peers_of(row: Mapping[str, Time]) -> list[Time]:
    return [row[name] for name in (CUTLASS, by_hand.NAME) if name in row]


def _to_the_better(row: Mapping[str, Time]) -> float:
    return min(time.median_us for time in _peers_of(row)) / row[OURS].median_us


def square(figures: Figures) -> str:
    """One problem, fastest first: the README's table."""
    row = by_problem(figures.peers)[LARGE[0]]
    ranked = sorted((time for name, time in row.items() if name != OURS), key=lambda time: -time.tflops)
    rows = ([_code(x.contender), _figure(x.tflops), f"{x.tflops / figures.mma_tflops:.0%}"] for x in ranked)
    return _table(["kernel", "TFLOP/s", "of `mma.sync` alone"], rows)


BLOCKS: Mapping[str, Callable[[Figures], str]] = {
    "run": run,
    "peers": peers,
    "sweep": sweep,
    "kinds": kinds,
    "sample": sample,
    "square": square,
}
"""What a document may ask for by a marker."""


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(_lines(header, rows))


def _lines(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield "|---" * len(header) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _spelled(problem: ProblemShape) -> str:
    return f"{problem.m} x {problem.n} x {problem.k}"


def _code(contender: str) -> str:
    """Names of functions and specs as code."""
    return f"`{contender}`" if set(contender) & set("._") else contender


def _figure(tflops: float) -> str:
    """Three digits.

    >>> [_figure(x) for x in (531.4, 99.96, 27.25, 9.0)]
    ['531', '100', '27.2', '9.00']
    """
    digits = 2 - math.floor(math.log10(float(f"{tflops:.3g}")))
    return f"{tflops:.{max(digits, 0)}f}"


def _tflops(time: Time | None) -> str:
    return ABSENT if time is None else _figure(time.tflops)


def _us(time: Time | None) -> str:
    return ABSENT if time is None else f"{time.median_us:.1f}"


def _ratio(time: Time, other: Time | None) -> str:
    return ABSENT if other is None else f"{time.tflops / other.tflops:.2f}"
