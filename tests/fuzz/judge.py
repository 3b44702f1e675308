"""Tries one case in this process: its outcome, and what it took."""

from __future__ import annotations

import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.case import FOUND, Case, Kind, Outcome

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of the case of `seed`, and the CPU time and further memory that it took."""

    seed: int
    outcome: Outcome
    cpu_s: float = 0.0
    memory_bytes: int = 0


def judge(kind: Kind, case: Case) -> Verdict:
    """Try the case; exceptions, long times and much memory are findings."""
    before_bytes = _forget_peak()
    start_s = time.process_time()
    try:
        outcome = kind.module.check(case)
    except Exception as error:
        outcome = Outcome(FOUND, exception_text(error))
    cpu_s = time.process_time() - start_s
    memory_bytes = max(0, _peak_bytes() - before_bytes)
    return Verdict(case.seed, _within_limits(kind, outcome, cpu_s, memory_bytes), cpu_s, memory_bytes)


def _within_limits(kind: Kind, outcome: Outcome, cpu_s: float, memory_bytes: int) -> Outcome:
    if outcome.word == FOUND:
        return outcome
    if cpu_s > kind.cpu_limit_s:
        return Outcome(FOUND, f"took {cpu_s:.1f} s of CPU, more than {kind.cpu_limit_s:g}; then {outcome.word}")
    if memory_bytes > kind.memory_limit_bytes:
        return Outcome(FOUND, f"took {memory_bytes >> 20} MiB of memory, more than {kind.memory_limit_bytes >> 20}")
    return outcome


def exception_text(error: BaseException) -> str:
    """The exception with the innermost lines of this project that it came through, in one line."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_ours(frame.filename)]
    places = [f"{Path(frame.filename).relative_to(ROOT)}:{frame.lineno}" for frame in frames[-2:]]
    message = " ".join(str(error).split())[:300]
    return f"{type(error).__name__} at {' > '.join(places)}: {message}"


def _is_ours(filename: str) -> bool:
    return filename.startswith((str(ROOT / "cutegen"), str(ROOT / "tests")))


def _forget_peak() -> int:
    """Let the peak begin anew (Linux's clear_refs); the memory that is resident now."""
    with suppress(OSError):  # else it is the peak since the process began: too much, never too little
        Path("/proc/self/clear_refs").write_text("5")
    return _peak_bytes()


def _peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
