"""Worker processes that try cases: one that hangs or dies is replaced, and its case is a finding."""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from pathlib import Path

from tests.fuzz.case import FOUND, MIB, Kind, Outcome
from tests.fuzz.judge import Verdict, judge

WALL_PER_CPU = 30
"""A case that waits, and takes no CPU time, is ended after so many times its limit."""
ADDRESS_SPACE_BYTES = 16 * 1024 * MIB
"""Of a worker: a request for more fails in it instead of taking the machine's memory."""

_PROCESSES = multiprocessing.get_context("fork")


class Worker:
    """A process that tries the cases of one kind, one seed at a time."""

    def __init__(self, kind: Kind, folder: str) -> None:
        self.connection, theirs = _PROCESSES.Pipe()
        self._process = _PROCESSES.Process(target=_serve, args=(kind, folder, theirs), daemon=False)
        self._process.start()
        theirs.close()
        self.connection.recv()  # it has imported what it needs
        self.seed, self._since_s, self._since_cpu_s = -1, 0.0, 0.0

    def give(self, seed: int) -> None:
        """Let it try a seed."""
        self.seed, self._since_s, self._since_cpu_s = seed, time.monotonic(), self._cpu_s()
        self.connection.send(seed)

    @property
    def spent_s(self) -> float:
        """CPU time that the case has taken so far, or the share of the time that it may wait, if that is more."""
        return max(self._cpu_s() - self._since_cpu_s, (time.monotonic() - self._since_s) / WALL_PER_CPU)

    def _cpu_s(self) -> float:
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime, proc(5)

    def end(self) -> None:
        """Stop it, whatever it does."""
        self.connection.close()
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def kill(self) -> None:
        """Stop it at once."""
        self._process.kill()
        self.end()


def verdicts(kind: Kind, seeds: Sequence[int], *, jobs: int, time_limit_s: float | None = None) -> Iterator[Verdict]:
    """The verdict of every seed, as they come; a case is ended after `time_limit_s` of CPU."""
    limit_s = time_limit_s or 2 * kind.cpu_limit_s
    waiting, busy, idle = list(reversed(seeds)), list[Worker](), list[Worker]()
    with tempfile.TemporaryDirectory(prefix="cutegen-fuzz-", ignore_cleanup_errors=True) as folder, _ended(busy, idle):
        while waiting or busy:
            while waiting and len(busy) < jobs:
                worker = idle.pop() if idle else Worker(kind, folder)
                worker.give(waiting.pop())
                busy.append(worker)
            yield from _answers(busy, idle, limit_s)


@contextmanager
def _ended(*workers: list[Worker]) -> Iterator[None]:
    try:
        yield
    finally:
        for worker in (each for some in workers for each in some):
            worker.kill()


def _answers(busy: list[Worker], idle: list[Worker], limit_s: float) -> Iterator[Verdict]:
    """Wait for some; move who has answered from `busy` to `idle`, and drop who will not."""
    ready = wait([worker.connection for worker in busy], timeout=0.5)
    for worker in tuple(busy):
        if worker.connection in ready:
            busy.remove(worker)
            yield _answer(worker, idle)
        elif (spent_s := worker.spent_s) > limit_s:
            busy.remove(worker)
            worker.kill()
            yield Verdict(worker.seed, Outcome(FOUND, f"was ended after {spent_s:.1f} s"), spent_s)


def _answer(worker: Worker, idle: list[Worker]) -> Verdict:
    try:
        verdict = worker.connection.recv()
    except (EOFError, ConnectionError):
        worker.end()
        return Verdict(worker.seed, Outcome(FOUND, "the process died of it"))
    idle.append(worker)
    assert isinstance(verdict, Verdict)
    return verdict


def _serve(kind: Kind, folder: str, connection: Connection) -> None:
    """Try what is asked for until nobody asks; temporary files lie in `folder`."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    os.environ["TMPDIR"] = folder
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    kind.module  # noqa: B018 - imported before a case is timed
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)  # those of its pool did not come along, and what asks them waits for good
    connection.send("ready")
    while True:
        try:
            seed = connection.recv()
        except EOFError:
            return
        connection.send(judge(kind, kind.module.case(seed)))
