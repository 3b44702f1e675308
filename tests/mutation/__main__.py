"""`python -m tests.mutation`: plant a sample of mistakes, one at a time, and list those that no test sees."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from platformdirs import user_cache_path

from tests.mutation import recording
from tests.mutation.judge import Trial, preload
from tests.mutation.mutants import Mutant, candidates, files_of, sample
from tests.mutation.pool import Outcome, run_trials
from tests.mutation.recording import Recording
from tests.mutation.verdicts import DEAD, NOT_COVERED, NOT_REACHED, STILLBORN, SURVIVED, Verdict, Verdicts

ROOMS = "plan,contract,algebra,ptx,run,verify"
RUNS_KERNELS = {"ptx", "run", "verify"}
"""Rooms with no part in how a kernel is planned, rendered and built: one that is compiled serves all their mutants."""
MARKS = "not slow and not gpu"
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Each core has a process of its own, and a process without threads is better to fork."""
SAVE_EVERY_S = 10.0
RECORDING_SHARE = 0.5
"""Of the time, at most; mutants are tried with the tests that were recorded by then."""
RECORDING = user_cache_path("cutegen") / "mutation" / "recording.json.gz"


def read_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    add = parser.add_argument
    add("--sample", type=int, default=1000, help="mutants to try (default %(default)s)")
    add("--seed", type=int, default=0, help="which sample (default %(default)s)")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="processes side by side (default %(default)s)")
    add("--rooms", default=ROOMS, help="rooms, or paths below cutegen/, between commas (default %(default)s)")
    add("--only", metavar="PREFIX", help="all mutants whose name begins so, as cutegen/errors.py:68")
    add("--minutes", type=float, default=60, help="the whole command ends in this time (default %(default)s)")
    add("--budget-s", type=float, nargs="+", default=[2.0, 8.0, 30.0], help="seconds of tests a mutant, round by round")
    add("--marks", default=MARKS, help="pytest's -m of the tests that are recorded (default %(default)r)")
    add("--tests", nargs="+", default=[], help="run these files alone; what they run is recorded and not kept")
    add("--recording", type=Path, default=RECORDING, help="which test runs which lines (default %(default)s)")
    add("--record-only", action="store_true", help="record, and try no mutant")
    add("--json", type=Path, help="verdicts are kept here; what has one there is not tried again")
    add("--again", action="store_true", help="try the survivors in --json again")
    return parser.parse_args(words)


def recorded(arguments: argparse.Namespace, until: float) -> Recording:
    """Which test runs which lines: of the tests that were asked for, or of all, as far as it is not known yet."""
    say("recording which test runs which lines, where that is not known yet")
    if arguments.tests:
        found, _ = recording.run(arguments.tests, arguments.jobs, arguments.marks, until)
        return recording.recording_of(found)
    return recording.up_to_date(arguments.recording, arguments.jobs, arguments.marks, until)


def say(text: str) -> None:
    """Progress, beside the result."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Campaign:
    """The rounds of one run: each gives every mutant that still lives more tests than the one before."""

    def __init__(self, verdicts: Verdicts, found: Recording, kernels: Path, jobs: int, until: float) -> None:
        self._verdicts, self._recording, self._jobs, self._until = verdicts, found, jobs, until
        self._kernels = kernels
        self._seconds = dict(found.seconds)
        self._rehearsed: set[str] = set()
        self._unreliable: set[str] = set()
        self._passed: dict[str, set[str]] = {}
        self._saved = time.monotonic()

    def round(self, mutants: Iterable[Mutant], budget_s: float) -> None:
        """Try each mutant with tests of so many seconds that it has not passed."""
        trials = {mutant: self._choose(mutant, budget_s) for mutant in mutants}
        self._rehearse({test for tests in trials.values() for test in tests})
        usable = {mutant: [t for t in tests if t not in self._unreliable] for mutant, tests in trials.items()}
        chosen = [self._trial(mutant, tests) for mutant, tests in usable.items() if tests]
        say(f"{len(chosen)} mutants, {budget_s:g} s of tests each")
        run_trials(chosen, self._jobs, self._until, self._judge)
        self._verdicts.save()

    def _trial(self, mutant: Mutant, tests: list[str]) -> Trial:
        kernels = self._kernels if mutant.room in RUNS_KERNELS else None
        return Trial(mutant, tests, self._seconds, kernels)

    @cache  # noqa: B019  # a campaign lives as long as the process
    def _covering(self, mutant: Mutant) -> list[str]:
        return self._recording.covering(mutant)

    def _choose(self, mutant: Mutant, budget_s: float) -> list[str]:
        covering = [test for test in self._covering(mutant) if test not in self._unreliable]
        if not covering:
            self._verdicts[mutant] = Verdict(NOT_COVERED)
        passed = self._passed.get(mutant.name, set())
        return recording.within([test for test in covering if test not in passed], self._seconds, budget_s)

    def _rehearse(self, tests: set[str]) -> None:
        """Run the tests as trials do, without a mistake: one that fails then says nothing."""
        new = sorted(tests - self._rehearsed)
        total_s = sum(self._seconds[test] for test in new)
        parts: list[list[str]] = [[]]
        for test in new:
            if sum(self._seconds[one] for one in parts[-1]) > total_s / self._jobs:
                parts.append([])
            parts[-1].append(test)
        passed: dict[str, float] = {}
        say(f"rehearsing {len(new)} tests without a mistake")
        trials = [Trial(None, part, self._seconds, self._kernels) for part in parts if part]
        run_trials(trials, self._jobs, self._until, lambda _, outcome: passed.update(outcome.passed))
        self._rehearsed |= set(new)
        self._seconds |= passed
        self._unreliable |= set(new) - passed.keys()
        for test in sorted(set(new) - passed.keys()):
            say(f"left out, since it fails without a mistake: {test}")

    def _judge(self, trial: Trial, outcome: Outcome) -> None:
        mutant = trial.mutant
        assert mutant is not None
        self._passed.setdefault(mutant.name, set()).update(outcome.passed)
        verdict = verdict_of(outcome, len(self._covering(mutant)))
        self._verdicts[mutant] = self._verdicts[mutant].then(verdict)
        if time.monotonic() - self._saved > SAVE_EVERY_S:
            self._saved = time.monotonic()
            self._verdicts.save()


def verdict_of(outcome: Outcome, covering: int) -> Verdict:
    """A mutant is dead by the first test that fails, does not end or cannot be collected, or by its process's end."""
    broken = [f"{test} {how}" for test, how in outcome.failed.items() if how != "skipped"]
    if outcome.status not in ("ran", "stillborn"):
        broken.append(outcome.status)
    state = STILLBORN if outcome.status == "stillborn" else DEAD if broken else SURVIVED
    return Verdict(state, broken[0] if broken else "", len(outcome.passed), covering, outcome.seconds)


def main() -> None:
    """Record if need be, try the mutants round by round, show the verdicts."""
    arguments = read_arguments()
    os.environ |= ONE_THREAD
    begun = time.monotonic()
    until = begun + 60 * arguments.minutes
    found = recorded(arguments, until if arguments.record_only else begun + 60 * arguments.minutes * RECORDING_SHARE)
    say(f"{len(found.seconds)} tests are recorded")
    if arguments.record_only:
        return
    paths = [arguments.only.partition(":")[0]] if arguments.only else files_of(arguments.rooms.split(","))
    mutants = sample(candidates(paths), sys.maxsize if arguments.only else arguments.sample, arguments.seed)
    mutants = [mutant for mutant in mutants if mutant.name.startswith(arguments.only or "")]
    verdicts = Verdicts(mutants, arguments.json)
    preload()
    states = {NOT_REACHED, *((SURVIVED, NOT_COVERED) if arguments.again else ())}
    with TemporaryDirectory() as kernels:
        campaign = Campaign(verdicts, found, Path(kernels), arguments.jobs, until)
        for budget_s in arguments.budget_s:
            campaign.round(verdicts.among(states), budget_s)
            states = {SURVIVED, NOT_REACHED}
    print(verdicts.text())


if __name__ == "__main__":
    main()
