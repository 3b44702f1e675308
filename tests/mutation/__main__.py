"""`python -m tests.mutation`: plant a sample of mistakes, one at a time, and list those that no test sees."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from platformdirs import user_cache_path

from tests.mutation import recording
from tests.mutation.campaign import Campaign
from tests.mutation.judge import preload
from tests.mutation.mutants import candidates, files_of, sample
from tests.mutation.recording import Recording
from tests.mutation.rehearsals import Rehearsals
from tests.mutation.source import say
from tests.mutation.verdicts import Verdicts

ROOMS = "plan,contract,algebra,ptx,run,verify"
MARKS = "not slow and not gpu"
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Each core has a process of its own, and a process without threads is better to fork."""
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
    add("--minutes", type=float, default=60, help="it ends in this time; the same one goes on (default %(default)s)")
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
    if arguments.again:
        verdicts.forget_survivors()
    preload()
    with TemporaryDirectory() as folder:
        beside = Path(folder) if arguments.tests else arguments.recording.parent
        rehearsals = Rehearsals(beside / "rehearsals.json", recording.digests(arguments.marks))
        campaign = Campaign(verdicts, found, rehearsals, beside / "kernels", arguments.jobs, until)
        for number, budget_s in enumerate(arguments.budget_s):
            campaign.round(mutants, number, budget_s)
    print(verdicts.text(rounds=len(arguments.budget_s)))
    if not found.whole:
        print("The recording is not whole: the same command goes on with it, and with what it finds.")


if __name__ == "__main__":
    main()
