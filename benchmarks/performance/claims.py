"""What the project claims of its speed, each held against the figures of one run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from benchmarks import host_cost
from benchmarks.performance.figures import OURS, Figures, Time, by_problem
from benchmarks.performance.kinds import PLAIN
from benchmarks.performance.problems import LADDER
from cutegen.bench.contenders import CUTLASS_HOPPER, QUACK, TORCH
from cutegen.bench.measure import Regime

ALIKE = ("NT", "NN", "TT", "TN, bf16")
WITHIN = 0.03
EIGHT_BITS = ("e4m3, promoted sums", "s8")
EIGHT_BITS_GAIN = 1.6
EPILOGUES = {"TN, bias and tanh-GELU": 0.03, "TN, bias and erf-GELU": 0.05}
BEFORE = {"sm80_hgemm_tn": 462 / 760, "sm120_hgemm_tn": 534 / 760}
"""TFLOP/s at 4096^3 over those of torch.matmul, in the run of 2026-11-20, before there was `wgmma`."""
NOISE = 0.02
SUITE_MEANS = {Regime.GRAPH: 1.05, Regime.LAUNCH: 1.04}
SUITE_WORST = 0.97
SAMPLE_MEAN, SAMPLE_WORST = 1.05, 0.8
PEERS = {QUACK: "QuACK, which tuned itself", CUTLASS_HOPPER: "the best tile of CUTLASS's Hopper example"}
BEHIND_A_PEER = 0.98


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence, what was measured of it, and whether that holds."""

    text: str
    found: str
    holds: bool


def x_torch(row: Mapping[str, Time]) -> float:
    """How many times as fast as torch.matmul cutegen's choice is."""
    return row[TORCH].median_us / row[OURS].median_us


def geometric_mean(ratios: Iterable[float]) -> float:
    """Of ratios.

    >>> geometric_mean([0.5, 2.0])
    1.0
    """
    found = list(ratios)
    return math.exp(sum(map(math.log, found)) / len(found))


def x_peer(row: Mapping[str, Time], peer: str) -> float | None:
    """How many times as fast as a peer cutegen's choice is, whose best counts; None where that peer was not timed."""
    times = [time.median_us for name, time in row.items() if name.startswith(peer)]
    return min(times) / row[OURS].median_us if times else None


def claims(figures: Figures) -> Iterator[Claim]:
    """Every claim of which something was measured."""
    if figures.suite:
        yield from _of_the_suite(figures)
        yield from _of_peers(figures)
    if figures.sample:
        yield from _of_the_sample(figures)
    if figures.kinds:
        yield from _of_kinds(figures)
    yield from _of_families(figures)
    if figures.host:
        yield _of_host_cost(figures)


def _of_the_suite(figures: Figures) -> Iterator[Claim]:
    words = {Regime.GRAPH: "in a graph", Regime.LAUNCH: "in one launch"}
    for regime, least in SUITE_MEANS.items():
        rows = by_problem(figures.suite, regime)
        mean = geometric_mean(map(x_torch, rows.values()))
        yield Claim(f"the suite {words[regime]}: at least {least} times torch on average", f"{mean:.3f}", mean >= least)
    ratios = {problem: x_torch(row) for problem, row in by_problem(figures.suite, Regime.GRAPH).items()}
    worst = min(ratios, key=ratios.__getitem__)
    text = f"no problem of the suite under {SUITE_WORST} times torch in a graph"
    yield Claim(text, f"{ratios[worst]:.2f} at {worst}", ratios[worst] >= SUITE_WORST)


def _of_peers(figures: Figures) -> Iterator[Claim]:
    for peer, words in PEERS.items():
        rows = by_problem(figures.suite, Regime.GRAPH)
        ratios = {problem: ratio for problem, row in rows.items() if (ratio := x_peer(row, peer)) is not None}
        if ratios:
            mean, worst = geometric_mean(ratios.values()), min(ratios, key=ratios.__getitem__)
            text = f"the suite in a graph: ahead of {words} on average"
            yield Claim(text, f"{mean:.3f} over {len(ratios)} problems", mean >= 1)
            text = f"and on no problem more than {1 - BEHIND_A_PEER:.0%} behind it"
            yield Claim(text, f"{ratios[worst]:.2f} at {worst}", ratios[worst] >= BEHIND_A_PEER)


def _of_the_sample(figures: Figures) -> Iterator[Claim]:
    ratios = {problem: x_torch(row) for problem, row in by_problem(figures.sample, Regime.GRAPH).items()}
    mean, worst = geometric_mean(ratios.values()), min(ratios, key=ratios.__getitem__)
    text = f"random problems in a graph: at least {SAMPLE_MEAN} times torch on average"
    yield Claim(text, f"{mean:.3f} over {len(ratios)} problems", mean >= SAMPLE_MEAN)
    text = f"and at the worst {SAMPLE_WORST}"
    yield Claim(text, f"{ratios[worst]:.2f} at {worst}", ratios[worst] >= SAMPLE_WORST)


def _of_kinds(figures: Figures) -> Iterator[Claim]:
    """Times of a kind over fp16 TN's of the same problem, the worst of all problems and kinds."""
    problems = by_problem(figures.kinds, Regime.GRAPH)

    def slowest(*kinds: str) -> tuple[float, str]:
        found = [
            (row[kind].median_us / row[PLAIN].median_us, f"{kind} at {problem}")
            for problem, row in problems.items()
            for kind in kinds
            if kind in row
        ]
        return max(found)

    ratio, where = slowest(*ALIKE)
    text = f"bf16 and all majors within {WITHIN:.0%} of fp16 TN from 2048^3 on"
    yield Claim(text, f"{ratio - 1:+.1%} time, {where}", ratio <= 1 + WITHIN)
    for kind in EIGHT_BITS:
        ratio, where = slowest(kind)
        yield Claim(
            f"{kind}: at least {EIGHT_BITS_GAIN} times fp16", f"{1 / ratio:.2f}, {where}", 1 / ratio >= EIGHT_BITS_GAIN
        )
    for kind, most in EPILOGUES.items():
        ratio, where = slowest(kind)
        yield Claim(
            f"{kind.removeprefix('TN, ')} cost at most {most:.0%}", f"{ratio - 1:+.1%}, {where}", ratio <= 1 + most
        )


def _of_families(figures: Figures) -> Iterator[Claim]:
    row = by_problem(figures.suite, Regime.LAUNCH).get(LADDER, {})
    for name, before in BEFORE.items():
        if name in row and TORCH in row:
            ratio = row[TORCH].median_us / row[name].median_us
            text = f"`{name}` at 4096^3 as fast beside torch as before there was `wgmma`, {before:.2f}"
            yield Claim(text, f"{ratio:.2f}", ratio >= before - NOISE)


def _of_host_cost(figures: Figures) -> Claim:
    us = {(x.kernel, x.call): x.median_us for x in figures.host}
    over = {name: us[name, host_cost.OURS] - us[name, host_cost.TORCH] for name, call in us if call == host_cost.OURS}
    worst = max(over, key=over.__getitem__)
    ours, torch = (us[worst, call] for call in (host_cost.OURS, host_cost.TORCH))
    text = "an eager call costs the host at most what torch's does, of every family and with an epilogue"
    return Claim(text, f"{ours:.1f} us, torch {torch:.1f} us: {worst}", ours <= torch)
