"""Measures the candidates of one problem in a separate process, which is replaced after a hang or a crash.

Everything a candidate does is a result. A candidate that crashed or hung is left out, and a fresh process measures the
others.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from cutegen.support.environment import seeing_gpu
from cutegen.support.typed_json import parse_object, read
from cutegen.tune.jobs import Candidate, Measured, MeasureJob, Result
from cutegen.tune.pick_winner import winner
from cutegen.tuned.record import DeviceFacts, Status, Times

START_LIMIT_S = 120.0
"""Time limit for a process to import torch and start CUDA."""
MOST_CHILDREN = 6
"""Processes that one problem may use up."""
MOST_UNEXPLAINED = 2
"""Number of them that may end while no candidate was running."""
_KILL_WAIT_S = 20.0


def measure_job(job: MeasureJob, *, gpu: str | None = None) -> Measured:
    """Check and time the candidates of `job` on the GPU with the UUID `gpu`, else the first visible one.

    If no candidate is correct, or the process could not be started, the result has `why`.
    """
    begin_s = time.monotonic()
    run, era = _Run(job), _children.era
    with _children.lock(gpu), suppress(_EndedError):
        for _ in range(MOST_CHILDREN):
            if run.over or not run.left or run.unexplained >= MOST_UNEXPLAINED:
                break
            _one_process(run, _children.take(gpu, era), gpu)
        else:
            run.why = run.why or f"{MOST_CHILDREN} processes ended in a row"
    return run.measured(time.monotonic() - begin_s)


@dataclass(slots=True)
class _Run:
    """Current knowledge about a job."""

    job: MeasureJob
    results: dict[str, Result] = field(default_factory=dict)
    duel: dict[str, Any] | None = None
    device: dict[str, Any] | None = None
    versions: tuple[tuple[str, str], ...] = ()
    at_work: str | None = None
    unexplained: int = 0
    over: bool = False
    why: str | None = None

    @property
    def left(self) -> tuple[Candidate, ...]:
        """Candidates without a final result."""
        return tuple(each for each in self.job.candidates if each.name not in self.results)

    def hear(self, message: dict[str, Any]) -> None:
        """Handle one message of the child."""
        what, name = message.get("say"), message.get("name")
        if what == "started":
            self.device = message["device"]
            self.versions = tuple((str(x), str(y)) for x, y in message["versions"])
        elif what == "begin":
            self.at_work = name
        elif what == "done":
            self.note(str(name), message["status"], message["why"])
        elif what == "timing":
            self.at_work = None
        elif what == "timed":
            times = {key: read(Times, message[key], "child", key) for key in ("graph", "launch")}
            self.note(str(name), "ok", None, rel_error=message["rel_error"], **times)
        elif what == "duel":
            self.duel = message
        elif what == "end":
            self.over = True

    def note(self, name: str, status: Status, why: str | None, **found: Any) -> None:
        """Keep the result of a candidate."""
        candidate = next(each for each in self.job.candidates if each.name == name)
        self.results[name] = Result(
            name=name,
            settled=candidate.settled,
            key=candidate.key,
            predicted_us=candidate.predicted_us,
            status=status,
            why=why,
            **found,
        )

    def broken(self, status: Status, why: str) -> None:
        """Handle the end of the process: which candidate caused it, and what else must be measured again."""
        if self.at_work is None:
            self.why, self.unexplained = why, self.unexplained + 1
            return
        self.note(self.at_work, status, why)
        self.at_work = None

    def measured(self, seconds: float) -> Measured:
        """Return the result."""
        won, tie = self._winner()
        job = self.job
        order = [self.results[each.name] for each in job.candidates if each.name in self.results]
        return Measured(
            id=job.id,
            spec_name=job.spec_name,
            asked=job.asked,
            target=job.target,
            problem=job.problem,
            sizes=None if job.sizes is None else job.sizes.name,
            results=tuple(order),
            winner=won,
            tie=tie,
            decide_by=job.settings.decide_by,
            device=None if self.device is None else DeviceFacts(**self.device),
            versions=self.versions,
            measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=seconds,
            why=None if won else self.why or "no candidate is correct",
        )

    def _winner(self) -> tuple[str | None, bool]:
        """Return the winner of the last rounds and whether the favorite stays in a tie; None without last rounds."""
        if self.duel is None:
            return None, False
        by = self.job.settings.decide_by
        return winner(self.duel[by], self.duel["launch" if by == "graph" else "graph"], self.duel["favorite"])


def _one_process(run: _Run, child: _Child, gpu: str | None) -> None:
    """Send the remaining work to a process, and listen until it is done, gone, or silent for too long."""
    job = replace(run.job, candidates=run.left)
    run.duel = None
    try:
        child.send(job)
        limit_s = START_LIMIT_S
        while not run.over:
            message = child.next_message(limit_s)
            limit_s = run.job.settings.candidate_limit_s
            if message.get("say") == "fatal":
                _children.end_one(child)
                run.broken("failed", str(message["why"]))
                return
            run.hear(message)
    except TimeoutError:
        _children.end_one(child)
        run.broken("timeout", f"no response within {run.job.settings.candidate_limit_s:g} s")
    except (EOFError, OSError):
        run.broken("failed", _children.end_one(child))
    except BaseException:  # Ctrl-C: leave no process running
        _children.end_one(child)
        raise
    else:
        _children.give_back(gpu, child)


class _Child:
    """A measuring process, and the descriptor of its messages."""

    def __init__(self, gpu: str | None) -> None:
        answers, theirs = os.pipe()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cutegen.tune.child", str(theirs)],
                stdin=subprocess.PIPE,
                stdout=self._errors,
                stderr=self._errors,
                pass_fds=(theirs,),
                env=seeing_gpu(gpu),
                start_new_session=True,  # this process handles Ctrl-C and forwards it
            )
        finally:
            os.close(theirs)
        self._answers, self._read = answers, b""

    def send(self, job: MeasureJob) -> None:
        """Send it a job. Raises OSError if it is gone."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(job)).encode() + b"\n")
        self._process.stdin.flush()

    def next_message(self, limit_s: float) -> dict[str, Any]:
        """Return the next message. Raises TimeoutError, or EOFError if it is gone."""
        end_s = time.monotonic() + limit_s
        while b"\n" not in self._read:
            readable, _, _ = select.select([self._answers], [], [], max(0.0, end_s - time.monotonic()))
            if not readable:
                raise TimeoutError
            chunk = os.read(self._answers, 1 << 16)
            if not chunk:
                raise EOFError
            self._read += chunk
        line, _, self._read = self._read.partition(b"\n")
        return parse_object(line, "a message of the measuring process")

    def end(self) -> str:
        """Kill it; return the last line that it wrote to stderr, or how it ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(0.2)
        self._process.kill()
        assert self._process.stdin is not None
        with suppress(OSError):  # input that it never read cannot be flushed
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILL_WAIT_S)
        with suppress(OSError):
            os.close(self._answers)
        self._errors.seek(0)
        text = self._errors.read()[-2000:].decode(errors="replace").strip()
        self._errors.close()
        last = " ".join((text.splitlines() or [""])[-1].split())
        return f"the process ended with {self._process.returncode}" + (f": {last[:300]}" if last else "")

    def kill(self) -> None:
        """Kill it while another thread waits for its messages, which then calls `end`."""
        self._process.kill()

    @property
    def alive(self) -> bool:
        """True if it can take another job."""
        return self._process.poll() is None


class _EndedError(Exception):
    """`end_children` was called while a problem was measured."""


class _Children:
    """One process per GPU, waiting or at work, and a lock so that one problem at a time is measured on it."""

    def __init__(self) -> None:
        self._waiting: dict[str | None, _Child] = {}
        self._at_work: set[_Child] = set()
        self._locks: dict[str | None, threading.Lock] = {}
        self._lock = threading.Lock()
        self._times_ended = 0

    @property
    def era(self) -> int:
        """The era that `take` needs: jobs that began before the last `end` receive no more processes."""
        return self._times_ended

    def lock(self, gpu: str | None) -> threading.Lock:
        """Return the entry of a GPU."""
        with self._lock:
            return self._locks.setdefault(gpu, threading.Lock())

    def take(self, gpu: str | None, era: int) -> _Child:
        """Return the waiting process, or a fresh one. Raises _EndedError."""
        with self._lock:
            if era != self._times_ended:
                raise _EndedError
            child = self._waiting.pop(gpu, None)
            if child is not None and not child.alive:
                child.end()
                child = None
            child = child or _Child(gpu)
            self._at_work.add(child)
        return child

    def end_one(self, child: _Child) -> str:
        """End a process at work, and return how it ended."""
        with self._lock:
            self._at_work.discard(child)
        return child.end()

    def give_back(self, gpu: str | None, child: _Child) -> None:
        """Keep it for the next job."""
        with self._lock:
            self._at_work.discard(child)
            self._waiting[gpu] = child

    def end(self) -> None:
        """End the waiting processes, and kill those at work: their jobs end without a winner."""
        with self._lock:
            self._times_ended += 1
            for child in self._at_work:
                child.kill()
            for gpu in list(self._waiting):
                self._waiting.pop(gpu).end()


_children = _Children()


def end_children() -> None:
    """End the processes that measure or wait for another job; they also end when this process does."""
    _children.end()
