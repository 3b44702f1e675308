"""Trials side by side, one fork each, until they are done or time is up."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from tests.mutation.judge import Trial, judge

POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a trial. `status`: ran, stillborn, time limit, or crashed."""

    status: str
    passed: dict[str, float]
    failed: dict[str, str]
    seconds: float


@dataclass(frozen=True, slots=True)
class _Running:
    trial: Trial
    folder: Path
    begun: float


def run_trials(trials: Iterable[Trial], jobs: int, until: float, answer: Callable[[Trial, Outcome], None]) -> None:
    """Call `answer` for each trial that ends before `until`, a time of `time.monotonic`; the others are given up."""
    waiting, running = deque(trials), dict[int, _Running]()
    gc.collect()
    gc.freeze()
    try:
        while (waiting or running) and time.monotonic() < until:
            while waiting and len(running) < jobs:
                pid, started = _start(waiting.popleft())
                running[pid] = started
            for pid in _ended(running):
                one = running.pop(pid)
                answer(one.trial, _outcome(one, os.waitstatus_to_exitcode(_reap(pid))))
            time.sleep(POLL_S)
    finally:
        for pid, one in running.items():
            _reap(pid)
            shutil.rmtree(one.folder, ignore_errors=True)


def _start(trial: Trial) -> tuple[int, _Running]:
    folder = Path(mkdtemp(prefix="mutant-"))
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads in a process that forks: they are idle
        pid = os.fork()
    if pid == 0:
        judge(trial, folder)
    return pid, _Running(trial, folder, time.monotonic())


def _ended(running: dict[int, _Running]) -> list[int]:
    """The processes that have ended, or are late."""
    found = []
    for pid, one in running.items():
        late = time.monotonic() - one.begun > one.trial.limit_s
        if late or os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            found.append(pid)
    return found


def _end(pid: int) -> None:
    """End the process and all that it has started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _reap(pid: int) -> int:
    _end(pid)  # what it has left behind; its number is nobody else's until it is waited for
    return os.waitpid(pid, 0)[1]


def _outcome(one: _Running, code: int) -> Outcome:
    seconds = time.monotonic() - one.begun
    try:
        found: dict[str, Any] = json.loads((one.folder / "verdict.json").read_text())
    except FileNotFoundError:
        late = seconds > one.trial.limit_s
        found = {"status": "time limit" if late else f"crashed with {code}", "passed": {}, "failed": {}}
    shutil.rmtree(one.folder, ignore_errors=True)
    return Outcome(**found, seconds=seconds)
