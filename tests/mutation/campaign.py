"""The rounds of one run: each gives every mutant that still lives more tests than the one before."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from tests.mutation import recording
from tests.mutation.judge import Trial
from tests.mutation.mutants import Mutant
from tests.mutation.pool import Outcome, run_trials
from tests.mutation.recording import Recording
from tests.mutation.rehearsals import Rehearsals
from tests.mutation.source import say
from tests.mutation.verdicts import DEAD, NOT_COVERED, NOT_REACHED, STILLBORN, SURVIVED, Verdict, Verdicts

RUNS_KERNELS = {"ptx", "run", "verify"}
"""Rooms with no part in how a kernel is planned, rendered and built: one that is compiled serves all their mutants."""
SAVE_EVERY_S = 10.0
MUTANTS_AT_ONCE = 64
"""At least so many are rehearsed for and tried, before the next: a run that is cut short has verdicts."""
REHEARSAL_S = 15.0
"""Seconds of tests in one rehearsal: no more are lost where time runs out."""


class Campaign:
    """What time cuts short goes on in the next run, with the same recording and verdicts."""

    def __init__(
        self, verdicts: Verdicts, found: Recording, rehearsals: Rehearsals, kernels: Path, jobs: int, until: float
    ) -> None:
        self._verdicts, self._recording, self._rehearsals = verdicts, found, rehearsals
        self._kernels, self._jobs, self._until = kernels, jobs, until
        self._seconds = found.seconds | {t: s for t, s in rehearsals.seconds.items() if t in found.seconds}
        self._saved = time.monotonic()

    def round(self, mutants: Sequence[Mutant], number: int, budget_s: float) -> None:
        """Try each mutant that is due with tests of so many seconds that it has not passed."""
        due = [mutant for mutant in mutants if self._is_due(mutant, number)]
        say(f"round {number + 1}: {len(due)} mutants, {budget_s:g} s of tests each")
        at_once = max(MUTANTS_AT_ONCE, 8 * self._jobs)
        for i in range(0, len(due), at_once):
            if time.monotonic() > self._until:
                break
            self._try(due[i : i + at_once], number, budget_s)
        self._verdicts.save()

    def _is_due(self, mutant: Mutant, number: int) -> bool:
        """It lives, and has not had this round, or tests that may notice it were recorded since."""
        verdict = self._verdicts[mutant]
        if verdict.state in (DEAD, STILLBORN):
            return False
        return verdict.rounds <= number or verdict.covering < len(self._covering(mutant))

    def _try(self, mutants: Sequence[Mutant], number: int, budget_s: float) -> None:
        trials = {mutant: self._choose(mutant, budget_s) for mutant in mutants}
        self._rehearse({test for tests in trials.values() for test in tests})
        usable = {mutant: [t for t in tests if not self._rehearsals.failed(t)] for mutant, tests in trials.items()}
        chosen = [self._trial(mutant, tests) for mutant, tests in usable.items() if tests]
        for mutant in (mutant for mutant, tests in usable.items() if not tests):
            met = replace(self._verdicts[mutant], rounds=number + 1, covering=len(self._covering(mutant)))
            self._verdicts[mutant] = met
        run_trials(chosen, self._jobs, self._until, lambda trial, outcome: self._judge(trial, outcome, number))

    def _trial(self, mutant: Mutant, tests: list[str]) -> Trial:
        kernels = self._kernels if mutant.room in RUNS_KERNELS else None
        return Trial(mutant, tests, self._seconds, kernels)

    @cache  # noqa: B019  # a campaign lives as long as the process
    def _covering(self, mutant: Mutant) -> list[str]:
        return self._recording.covering(mutant)

    def _choose(self, mutant: Mutant, budget_s: float) -> list[str]:
        covering = [test for test in self._covering(mutant) if not self._rehearsals.failed(test)]
        if not covering:
            self._verdicts[mutant] = Verdict(NOT_COVERED if self._recording.whole else NOT_REACHED)
        passed = set(self._verdicts[mutant].passed)
        return recording.within([test for test in covering if test not in passed], self._seconds, budget_s)

    def _rehearse(self, tests: set[str]) -> None:
        """Run the tests as trials do, without a mistake: one that fails then says nothing."""
        new = sorted(test for test in tests if test not in self._rehearsals)
        limit_s = min(REHEARSAL_S, sum(self._seconds[test] for test in new) / self._jobs)
        parts: list[list[str]] = [[]]
        for test in new:
            if sum(self._seconds[one] for one in parts[-1]) > limit_s:
                parts.append([])
            parts[-1].append(test)
        trials = [Trial(None, part, self._seconds, self._kernels) for part in parts if part]
        if trials:
            say(f"rehearsing {len(new)} tests without a mistake")
        run_trials(trials, self._jobs, self._until, self._note)

    def _note(self, rehearsal: Trial, outcome: Outcome) -> None:
        self._rehearsals.note(rehearsal.tests, outcome.passed)
        self._seconds |= outcome.passed
        for test in rehearsal.tests:
            if test not in outcome.passed:
                say(f"left out, since it fails without a mistake: {test}")

    def _judge(self, trial: Trial, outcome: Outcome, number: int) -> None:
        mutant = trial.mutant
        assert mutant is not None
        verdict = verdict_of(outcome, len(self._covering(mutant)), number + 1)
        self._verdicts[mutant] = self._verdicts[mutant].then(verdict)
        if time.monotonic() - self._saved > SAVE_EVERY_S:
            self._saved = time.monotonic()
            self._verdicts.save()


def verdict_of(outcome: Outcome, covering: int, rounds: int) -> Verdict:
    """A mutant is dead by the first test that fails, does not end or cannot be collected, or by its process's end."""
    broken = [f"{test} {how}" for test, how in outcome.failed.items() if how != "skipped"]
    if outcome.status not in ("ran", "stillborn"):
        broken.append(outcome.status)
    state = STILLBORN if outcome.status == "stillborn" else DEAD if broken else SURVIVED
    by, passed = broken[0] if broken else "", tuple(outcome.passed) if state == SURVIVED else ()
    return Verdict(state, by, len(outcome.passed), covering, outcome.seconds, rounds, passed)
