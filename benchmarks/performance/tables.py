"""The figures as Markdown: one function per block between markers."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import geometric_mean, median

from benchmarks.performance import claims
from benchmarks.performance.figures import OURS, Figures, Time, by_problem
from benchmarks.performance.kinds import KINDS, PLAIN
from benchmarks.performance.problems import LADDER
from cutegen.bench.contenders import (
    CUTLASS,
    CUTLASS_HOPPER,
    QUACK,
    TORCH,
    TORCH_INT,
    TORCH_REDUCED,
    TORCH_SCALED,
    TRITON,
)
from cutegen.bench.measure import Regime
from cutegen.contract.problem import ProblemShape
from examples.hopper_ladder import ladder as rungs

WORST = 10
WIDTH = 150
ABSENT = ""
NOT_MEASURED = "Not measured: the run reached its time limit."
ELEMENT_BYTES = 2


def run(figures: Figures) -> str:
    """Describe the machine, the versions, the run and the measured peaks."""
    versions = ", ".join(f"{name} {version}" for name, version in figures.versions.items())
    ceilings = ", ".join(f"`{x.instruction}` {x.operands} {x.tflops:.0f} TFLOP/s" for x in figures.ceilings)
    return _filled(
        f"{figures.device}, {figures.sms} SMs, driver {figures.driver}, CUDA {figures.cuda}, "
        f"{figures.date}; {versions}. {_processes(figures)} Measured peaks: {ceilings}, memory reads "
        f"{figures.read_tb_per_s:.2f} TB/s, memory copies {figures.copy_tb_per_s:.2f} TB/s. {_states(figures)}"
    )


def _processes(figures: Figures) -> str:
    """Describe how often everything was measured."""
    if figures.processes == 1:
        return f"One process, {figures.seconds} s; each time is the median of {figures.rounds} rounds."
    return (
        f"{figures.processes} processes in sequence, {figures.seconds} s in total; each time is the median of the "
        f"processes' medians of {figures.rounds} rounds."
    )


def _states(figures: Figures) -> str:
    """Describe clocks, power and temperature right after each problem's rounds."""
    clocks = [x.sm_clock_mhz for x in figures.clocks if x.sm_clock_mhz is not None]
    watts = [x.power_w for x in figures.clocks if x.power_w is not None]
    celsius = [x.temperature_c for x in figures.clocks if x.temperature_c is not None]
    if not (clocks and watts and celsius):
        return "NVML was not read."
    return (
        f"NVML after the rounds of each problem: {min(clocks)} to {max(clocks)} MHz, {min(watts):.0f} to "
        f"{max(watts):.0f} W, {min(celsius)} to {max(celsius)} degrees C."
    )


def suite_launch(figures: Figures) -> str:
    """Tabulate single launches with a cold, clean L2."""
    return _suite(figures, Regime.LAUNCH)


def suite_graph(figures: Figures) -> str:
    """Tabulate launches in a graph."""
    return _suite(figures, Regime.GRAPH)


def _suite(figures: Figures, regime: Regime) -> str:
    problems = by_problem(figures.suite, regime)
    if not problems:
        return NOT_MEASURED
    header = ["M x N x K", "torch", "reduced", "best other", "cutegen", "min to max", "selected kernel"]
    header += ["x torch", "x best other", "of roofline"]
    rows = [_suite_row(figures, problem, row) for problem, row in problems.items()]
    ratios = [claims.x_torch(row) for row in problems.values()]
    best = [min(_others(row).values()) / row[OURS].median_us for row in problems.values()]
    mean = [f"**{geometric_mean(each):.3f}**" for each in (ratios, best)]
    rows.append(["geometric mean", *[ABSENT] * 6, *mean, ABSENT])
    return _table(header, rows)


def _suite_row(figures: Figures, problem: ProblemShape, row: Mapping[str, Time]) -> list[str]:
    ours, others = row[OURS], _others(row)
    name = min(others, key=others.__getitem__)
    return [
        _spelled(problem),
        _us(row.get(TORCH)),
        _us(row.get(TORCH_REDUCED)),
        f"{_digits(others[name])} {name}",
        _us(ours),
        f"{_digits(ours.min_us)} to {_digits(ours.max_us)}",
        figures.chosen[problem],
        f"{claims.x_torch(row):.2f}",
        f"{others[name] / ours.median_us:.2f}",
        f"{roofline_us(figures, problem) / ours.median_us:.0%}",
    ]


def _others(row: Mapping[str, Time]) -> dict[str, float]:
    """Return the microseconds of contenders other than torch and cutegen; torch's if there is no other."""
    ours = (OURS, "sm80_hgemm_tn", "sm120_hgemm_tn")
    found = {name: time.median_us for name, time in row.items() if name not in (*ours, TORCH, TORCH_REDUCED)}
    return found or {TORCH: row[TORCH].median_us}


def roofline_us(figures: Figures, problem: ProblemShape) -> float:
    """Return the least time of an f16 kernel: its operations at wgmma's peak, or its compulsory bytes at read speed."""
    operations = problem.flops / figures.ceiling("wgmma", "f16") / 1e6
    return max(operations, problem.compulsory_bytes(*[ELEMENT_BYTES] * 3) / figures.read_tb_per_s / 1e6)


def contenders(figures: Figures) -> str:
    """Tabulate every contender's TFLOP/s in a graph; CUTLASS's Hopper example counts with its best tile."""
    problems = by_problem(figures.suite, Regime.GRAPH)
    if not problems:
        return NOT_MEASURED
    names = [TORCH, QUACK, CUTLASS_HOPPER, TRITON, CUTLASS, "sm80_hgemm_tn", "sm120_hgemm_tn", OURS]
    rows = []
    for problem, row in problems.items():
        every = best_tile(row)
        rows.append([_spelled(problem), *(_tflops(every.get(name)) for name in names)])
    return _table(["M x N x K", *map(_code, names)], rows)


def best_tile(row: Mapping[str, Time]) -> dict[str, Time]:
    """Reduce the tiles of CUTLASS's Hopper example to the fastest one, under the example's name."""
    tiles = [time for name, time in row.items() if name.startswith(CUTLASS_HOPPER)]
    others = {name: time for name, time in row.items() if not name.startswith(CUTLASS_HOPPER)}
    return others | {CUTLASS_HOPPER: min(tiles, key=lambda time: time.median_us)} if tiles else others


def hopper(figures: Figures) -> str:
    """Tabulate CUTLASS's Hopper example, one column per tile."""
    problems = by_problem(figures.suite, Regime.GRAPH)
    names = list(dict.fromkeys(time.contender for time in figures.suite if time.contender.startswith(CUTLASS_HOPPER)))
    if not names:
        return "Not measured: this run did not include the example."
    rows = [[_spelled(p), *(_us(row.get(name)) for name in names), _us(row[OURS])] for p, row in problems.items()]
    return _table(["M x N x K", *(name.removeprefix(CUTLASS_HOPPER).strip() for name in names), "cutegen"], rows)


def quack(figures: Figures) -> str:
    """Tabulate autotuned QuACK with torch and cutegen."""
    rows = []
    for problem, row in by_problem(figures.suite, Regime.GRAPH).items():
        if QUACK in row:
            times = [_us(row[name]) for name in (TORCH, QUACK, OURS)]
            rows.append([_spelled(problem), *times, f"{row[QUACK].median_us / row[OURS].median_us:.2f}"])
    if not rows:
        return "Not measured: this run did not include QuACK."
    ratios = _ratios_to(figures, QUACK)
    rows += [[name, *[ABSENT] * 3, f"**{mean(ratios):.2f}**"] for name, mean in MEANS.items()]
    return _table(["M x N x K", "torch", QUACK, "cutegen", "x QuACK"], rows)


MEANS: Mapping[str, Callable[[Sequence[float]], float]] = {"median": median, "geometric mean": geometric_mean}


PEERS: Mapping[str, str] = {
    QUACK: "QuACK, which tunes itself for each problem",
    CUTLASS_HOPPER: "CUTLASS's Hopper example with its best tile",
}


def _ratios_to(figures: Figures, peer: str) -> list[float]:
    """Return the speed over the peer's on each problem of the suite in a graph where it took part."""
    rows = by_problem(figures.suite, Regime.GRAPH).values()
    return [ratio for row in rows if (ratio := claims.x_peer(row, peer)) is not None]


def peers(figures: Figures) -> str:
    """Summarize the speed over that of libraries that also choose a kernel for each problem."""
    rows = []
    for peer, words in (
        (QUACK, "QuACK, which tunes itself for each problem"),
        (CUTLASS_HOPPER, "CUTLASS's Hopper example with its best tile"),
    ):
        if ratios := _ratios_to(figures, peer):
            means = [f"{mean(ratios):.2f}" for mean in MEANS.values()]
            rows.append([words, *means, f"{min(ratios):.2f} to {max(ratios):.2f}"])
    if not rows:
        return NOT_MEASURED
    return _table(["suite in a graph, speed over", *MEANS, "worst to best"], rows)


def kinds(figures: Figures) -> str:
    """Tabulate TFLOP/s of majors, types and epilogues, and their speed over f16 TN's on the same problem."""
    problems = by_problem(figures.kinds, Regime.GRAPH)
    if not problems:
        return NOT_MEASURED
    rows = []
    measured = [name for name in (*KINDS, TORCH_SCALED, TORCH_INT) if any(name in row for row in problems.values())]
    for name in measured:
        cells = [_code(name)]
        for row in problems.values():
            time = row.get(name)
            cells += [_tflops(time), ABSENT if time is None else f"{row[PLAIN].median_us / time.median_us:.2f}"]
        rows.append(cells)
    header = ["", *(cell for problem in problems for cell in (_spelled(problem), "vs. TN"))]
    return _table(header, rows)


def held(figures: Figures) -> str:
    """Tabulate each claim, the measured value, and whether the claim holds."""
    rows = [[x.text, x.found, "holds" if x.holds else "**missed**"] for x in claims.claims(figures)]
    return NOT_MEASURED if not rows else _table(["claim", "measured", ""], rows)


def sample(figures: Figures) -> str:
    """Summarize the random problems, and tabulate those with the lowest speed over torch's."""
    if not figures.sample:
        return NOT_MEASURED
    lines = []
    for regime, words in ((Regime.LAUNCH, "One launch"), (Regime.GRAPH, "In a graph")):
        ratios = sorted(claims.x_torch(row) for row in by_problem(figures.sample, regime).values())
        below = [sum(ratio < held_to for ratio in ratios) for held_to in (1, 0.97, 0.9)]
        lines.append(
            f"{words}: {len(ratios)} problems, geometric mean {geometric_mean(ratios):.3f} times the speed of "
            f"`{TORCH}`, worst {ratios[0]:.2f}, best {ratios[-1]:.2f}; {below[0]} below 1, {below[1]} below 0.97, "
            f"{below[2]} below 0.9."
        )
    return "\n".join(lines) + "\n\n" + _worst(figures)


def _worst(figures: Figures) -> str:
    graph, launch = (by_problem(figures.sample, regime) for regime in (Regime.GRAPH, Regime.LAUNCH))
    worst = sorted(graph, key=lambda problem: claims.x_torch(graph[problem]))[:WORST]
    header = ["M x N x K", "torch", "cutegen", "x torch", "of roofline", "CUTLASS example", "selected kernel"]
    header += ["x torch, one launch"]
    rows = []
    for problem in worst:
        row = graph[problem]
        rows.append(
            [
                _spelled(problem),
                _us(row[TORCH]),
                _us(row[OURS]),
                f"{claims.x_torch(row):.2f}",
                f"{roofline_us(figures, problem) / row[OURS].median_us:.0%}",
                _us(row.get(CUTLASS)),
                figures.chosen[problem],
                f"{claims.x_torch(launch[problem]):.2f}" if problem in launch else ABSENT,
            ]
        )
    return f"The {len(worst)} worst in a graph, in microseconds:\n\n" + _table(header, rows)


def ladder(figures: Figures) -> str:
    """Tabulate each rung's time and its gain over the previous rung."""
    if not figures.ladder:
        return NOT_MEASURED
    found = by_problem(figures.ladder, Regime.LAUNCH)[LADDER]
    rows, before = [], None
    for rung in rungs():
        time = found[rung.name]
        gain = ABSENT if before is None else f"{before.median_us / time.median_us:.2f}"
        keys = f"`{rung.keys}`" if "=" in rung.keys else rung.keys
        rows.append([rung.name, keys, _us(time), _figure(time.tflops), gain, rung.why])
        before = time
    rows.append([_code(TORCH), ABSENT, _us(found.get(TORCH)), _tflops(found.get(TORCH)), ABSENT, ABSENT])
    return _table(["rung", "what changes", "us", "TFLOP/s", "gain", "why"], rows)


def energy(figures: Figures) -> str:
    """Tabulate energy per GEMM."""
    if not figures.energy:
        return "Not measured: NVML counted no energy."
    header = ["kernel", "J per GEMM", "pJ per operation", "W", "TFLOP/s", "MHz"]
    rows = [
        [
            _code(x.contender),
            f"{x.joules:.3f}",
            f"{x.picojoules_per_flop:.3f}",
            f"{x.watts:.0f}",
            _figure(x.tflops),
            str(x.sm_clock_mhz),
        ]
        for x in figures.energy
    ]
    return _table(header, rows)


def host(figures: Figures) -> str:
    """Tabulate host microseconds per call, one row per kernel."""
    if not figures.host:
        return NOT_MEASURED
    names, calls = (list(dict.fromkeys(each)) for each in zip(*((x.kernel, x.call) for x in figures.host), strict=True))
    us = {(x.kernel, x.call): x.median_us for x in figures.host}
    rows = [[name, *(f"{us[name, call]:.1f}" for call in calls)] for name in names]
    return _table(["family", *map(_code, calls)], rows)


def square(figures: Figures) -> str:
    """Tabulate one problem for the README, fastest first; CUTLASS's Hopper example counts with its best tile."""
    row = best_tile(by_problem(figures.suite, Regime.GRAPH).get(LADDER, {}))
    if not row:
        return NOT_MEASURED
    ranked = sorted((time for name, time in row.items() if name != TORCH_REDUCED), key=lambda time: -time.tflops)
    ceiling = figures.ceiling("wgmma", "f16")
    rows = ([_code(x.contender), _figure(x.tflops), f"{x.tflops / ceiling:.0%}"] for x in ranked)
    caption = _filled(
        f"{_spelled(LADDER)}, fp16, A and B K-major, FP32 accumulation, in a CUDA graph on an {figures.device}. "
        f"`wgmma` alone, with both operands in shared memory, reaches {ceiling:.0f} TFLOP/s:"
    )
    return f"{caption}\n\n{_table(['kernel', 'TFLOP/s', 'share of `wgmma` alone'], rows)}"


def headline(figures: Figures) -> str:
    """Summarize the suite and the sample in four figures."""
    if not figures.suite:
        return NOT_MEASURED
    caption = _filled(
        f"Speed of the kernels that cutegen selects over that of `{TORCH}`, on an {figures.device}, fp16 with FP32 "
        f"accumulation: geometric mean (worst to best)."
    )
    rows = []
    for regime, words in ((Regime.GRAPH, "in a CUDA graph"), (Regime.LAUNCH, "one launch, L2 cold")):
        rows.append([words, _mean(by_problem(figures.suite, regime)), _mean(by_problem(figures.sample, regime))])
    problems, drawn = (len(by_problem(times, Regime.GRAPH)) for times in (figures.suite, figures.sample))
    return f"{caption}\n\n{_table([ABSENT, f'suite of {problems} problems', f'{drawn} random problems'], rows)}"


def _mean(rows: Mapping[ProblemShape, Mapping[str, Time]]) -> str:
    """Spell the mean, worst and best speed over torch's; empty if there is no problem."""
    ratios = [claims.x_torch(row) for row in rows.values()]
    return f"{geometric_mean(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else ABSENT


BLOCKS: Mapping[str, Callable[[Figures], str]] = {
    "run": run,
    "suite_graph": suite_graph,
    "suite_launch": suite_launch,
    "contenders": contenders,
    "hopper": hopper,
    "quack": quack,
    "peers": peers,
    "kinds": kinds,
    "claims": held,
    "sample": sample,
    "ladder": ladder,
    "energy": energy,
    "host": host,
    "square": square,
    "headline": headline,
}
"""The blocks that a document can name in a marker."""


def _filled(text: str) -> str:
    """Wrap text at the width of the documents."""
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)])


def _spelled(problem: ProblemShape) -> str:
    return f"{problem.m} x {problem.n} x {problem.k}"


def _code(contender: str) -> str:
    """Format names of functions and specs as code."""
    return f"`{contender}`" if set(contender) & set("._(") else contender


def _figure(tflops: float) -> str:
    """Format TFLOP/s with three digits.

    >>> [_figure(x) for x in (531.4, 99.96, 27.25, 9.0)]
    ['531', '100', '27.2', '9.00']
    """
    digits = 2 - math.floor(math.log10(float(f"{tflops:.3g}")))
    return f"{tflops:.{max(digits, 0)}f}"


def _digits(us: float) -> str:
    """Format microseconds, with more decimals for short times.

    >>> [_digits(x) for x in (5.217, 33.28, 1614.2)]
    ['5.22', '33.3', '1,614']
    """
    return f"{us:,.{2 if us < 10 else 1 if us < 1000 else 0}f}"


def _tflops(time: Time | None) -> str:
    return ABSENT if time is None else _figure(time.tflops)


def _us(time: Time | None) -> str:
    return ABSENT if time is None else _digits(time.median_us)
