"""The performance claims of the project, each checked against the figures of one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import geometric_mean

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
"""TFLOP/s at 4096^3 over torch.matmul's, in the run of 2026-11-20, before cutegen used `wgmma`."""
NOISE = 0.02
SUITE_MEANS = {Regime.GRAPH: 1.05, Regime.LAUNCH: 1.04}
SUITE_WORST = 0.97
SAMPLE_MEAN, SAMPLE_WORST = 1.05, 0.8
PEERS = {QUACK: "autotuned QuACK", CUTLASS_HOPPER: "the best tile of CUTLASS's Hopper example"}
BEHIND_A_PEER = 0.98


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim, the measured value, and whether the claim holds."""

    text: str
    found: str
    holds: bool


def x_torch(row: Mapping[str, Time]) -> float:
    """Return the selected kernel's speed over torch.matmul's."""
    return row[TORCH].median_us / row[OURS].median_us


def x_peer(row: Mapping[str, Time], peer: str) -> float | None:
    """Return the selected kernel's speed over the peer's fastest; None if the peer was not timed."""
    times = [time.median_us for name, time in row.items() if name.startswith(peer)]
    return min(times) / row[OURS].median_us if times else None


def claims(figures: Figures) -> Iterator[Claim]:
    """Yield every claim that the run measured."""
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
        text = f"suite {words[regime]}: on average at least {least} times torch's speed"
        yield Claim(text, f"{mean:.3f}", mean >= least)
    ratios = {problem: x_torch(row) for problem, row in by_problem(figures.suite, Regime.GRAPH).items()}
    worst = min(ratios, key=ratios.__getitem__)
    text = f"suite in a graph: no problem below {SUITE_WORST} times torch's speed"
    yield Claim(text, f"{ratios[worst]:.2f} at {worst}", ratios[worst] >= SUITE_WORST)


def _of_peers(figures: Figures) -> Iterator[Claim]:
    for peer, words in PEERS.items():
        rows = by_problem(figures.suite, Regime.GRAPH)
        ratios = {problem: ratio for problem, row in rows.items() if (ratio := x_peer(row, peer)) is not None}
        if ratios:
            mean, worst = geometric_mean(ratios.values()), min(ratios, key=ratios.__getitem__)
            text = f"suite in a graph: on average faster than {words}"
            yield Claim(text, f"{mean:.3f} over {len(ratios)} problems", mean >= 1)
            text = f"suite in a graph: no problem more than {1 - BEHIND_A_PEER:.0%} behind {words}"
            yield Claim(text, f"{ratios[worst]:.2f} at {worst}", ratios[worst] >= BEHIND_A_PEER)


def _of_the_sample(figures: Figures) -> Iterator[Claim]:
    ratios = {problem: x_torch(row) for problem, row in by_problem(figures.sample, Regime.GRAPH).items()}
    mean, worst = geometric_mean(ratios.values()), min(ratios, key=ratios.__getitem__)
    text = f"random problems in a graph: on average at least {SAMPLE_MEAN} times torch's speed"
    yield Claim(text, f"{mean:.3f} over {len(ratios)} problems", mean >= SAMPLE_MEAN)
    text = f"random problems in a graph: no problem below {SAMPLE_WORST} times torch's speed"
    yield Claim(text, f"{ratios[worst]:.2f} at {worst}", ratios[worst] >= SAMPLE_WORST)


def _of_kinds(figures: Figures) -> Iterator[Claim]:
    """Compare the time of each kind with fp16 TN's on the same problem, and take the worst ratio."""
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
    text = f"bf16 and all majors within {WITHIN:.0%} of fp16 TN at 2048^3 and above"
    yield Claim(text, f"{ratio - 1:+.1%} time, {where}", ratio <= 1 + WITHIN)
    for kind in EIGHT_BITS:
        ratio, where = slowest(kind)
        yield Claim(
            f"{kind}: at least {EIGHT_BITS_GAIN} times fp16's speed",
            f"{1 / ratio:.2f}, {where}",
            1 / ratio >= EIGHT_BITS_GAIN,
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
            text = f"`{name}` at 4096^3: still {before:.2f} times torch's speed, as before cutegen used `wgmma`"
            yield Claim(text, f"{ratio:.2f}", ratio >= before - NOISE)


def _of_host_cost(figures: Figures) -> Claim:
    us = {(x.kernel, x.call): x.median_us for x in figures.host}
    over = {name: us[name, host_cost.OURS] - us[name, host_cost.TORCH] for name, call in us if call == host_cost.OURS}
    worst = max(over, key=over.__getitem__)
    ours, torch = (us[worst, call] for call in (host_cost.OURS, host_cost.TORCH))
    text = "host cost of an eager call at most torch's, for every family and with an epilogue"
    return Claim(text, f"{worst}: {ours:.1f} us, torch {torch:.1f} us", ours <= torch)
