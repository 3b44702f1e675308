"""`python -m tests.fuzz`: try seeded cases of every kind; each finding names the command that repeats it."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.fuzz.case import ACCEPTED, FOUND, KINDS, REFUSED, Kind
from tests.fuzz.judge import Verdict
from tests.fuzz.workers import verdicts

PROGRESS_EVERY_S = 5.0


@dataclass(slots=True)
class Tally:
    """What was tried of one kind."""

    kind: Kind
    words: Counter[str] = field(default_factory=Counter)
    slowest: Verdict | None = None
    largest_bytes: int = 0
    wall_s: float = 0.0

    def add(self, verdict: Verdict) -> None:
        """Count one more."""
        self.words[verdict.outcome.word] += 1
        self.largest_bytes = max(self.largest_bytes, verdict.memory_bytes)
        if self.slowest is None or verdict.cpu_s > self.slowest.cpu_s:
            self.slowest = verdict

    @property
    def row(self) -> str:
        """A line of the table at the end."""
        slowest = f"{self.slowest.cpu_s:6.2f} s, seed {self.slowest.seed}" if self.slowest else ""
        numbers = (self.words.total(), *(self.words[word] for word in (ACCEPTED, REFUSED, FOUND)))
        cells = "".join(f"{number:>10,}" for number in numbers)
        return f"{self.kind.name:<10}{cells}{self.largest_bytes >> 20:>8} MiB{self.wall_s:>8.0f} s  {slowest}"


HEADING = f"{'kind':<10}{'cases':>10}{'accepted':>10}{'refused':>10}{'findings':>10}{'memory':>12}{'wall':>10}  slowest"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 when anything was found."""
    options = _parser().parse_args(arguments)
    tallies = []
    for kind in [KINDS[name] for name in options.kind or KINDS]:
        count = kind.count if options.count is None else options.count
        seeds = range(options.seed, options.seed + count)
        if options.show:
            print("\n".join(kind.module.case(seed).text for seed in seeds))
        else:
            tallies.append(_try_all(kind, seeds, options))
    if tallies:
        print(HEADING, *(tally.row for tally in tallies), sep="\n")
        empty = [tally.kind.name for tally in tallies if not tally.words[ACCEPTED]]
        if empty:
            print(f"nothing was accepted of {', '.join(empty)}: little was tried there")
    return int(any(tally.words[FOUND] for tally in tallies))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this kind; may be given several times")
    parser.add_argument("--count", type=_positive, help="so many cases of each kind; else those of a full run")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; the others follow it")
    parser.add_argument("--jobs", type=int, default=1, help="so many processes at once")
    parser.add_argument("--time-limit", type=float, metavar="SECONDS", help="end a case after so many of CPU")
    parser.add_argument("--show", action="store_true", help="print the cases and try none")
    return parser


def _positive(text: str) -> int:
    """A number of cases: a run of none would find nothing."""
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"found {count}; expected at least 1 case")
    return count


def _try_all(kind: Kind, seeds: range, options: argparse.Namespace) -> Tally:
    """Try every seed, and print findings as they come."""
    tally, start_s = Tally(kind), time.monotonic()
    said_s = start_s
    for verdict in verdicts(kind, seeds, jobs=options.jobs, time_limit_s=options.time_limit):
        tally.add(verdict)
        if verdict.outcome.word == FOUND:
            print(f"{kind.name} {verdict.seed}: {verdict.outcome.detail[:500]}")
            print(f"    python -m tests.fuzz --kind {kind.name} --count 1 --seed {verdict.seed}", flush=True)
        if time.monotonic() - said_s > PROGRESS_EVERY_S:
            said_s = time.monotonic()
            _say(kind, tally, len(seeds), said_s - start_s)
    tally.wall_s = time.monotonic() - start_s
    return tally


def _say(kind: Kind, tally: Tally, count: int, wall_s: float) -> None:
    counts = ", ".join(f"{number} {word}" for word, number in sorted(tally.words.items()))
    print(f"{kind.name}: {tally.words.total()} of {count} in {wall_s:.0f} s: {counts}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
