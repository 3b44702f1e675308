"""Local compile processes, which can be stopped at once: each job, with the compiler it waits for, ends by a signal.

They end with the process that started them, even if that is killed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.synchronize import Event
from threading import Thread
from typing import Any, NoReturn, TypeVar

Result = TypeVar("Result")

_STOP = signal.SIGURG  # without a handler, as while a process starts, it does nothing
_stopped: Event


class StoppableProcesses(ProcessPoolExecutor):
    """Processes that leave Ctrl-C to the parent, although a terminal sends it to every process."""

    def __init__(self, count: int) -> None:
        self._others = set(active_children())
        context = get_context("spawn")
        self._stopped = context.Event()
        super().__init__(count, context, _begin, (self._stopped,))

    def submit(self, function: Callable[..., Result], /, *arguments: object, **keywords: object) -> Future[Result]:
        """Submit a job, which `stop` ends."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a process that is started here inherits it
        try:
            return super().submit(_stoppable, function, *arguments, **keywords)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def stop(self) -> None:
        """End every job and every process."""
        self._stopped.set()  # the pool has handed the next jobs to its processes, and does not cancel them
        for process in set(active_children()) - self._others:
            with suppress(ProcessLookupError):
                os.kill(process.pid or 0, _STOP)
        self.shutdown(wait=True, cancel_futures=True)


def _begin(stopped: Event) -> None:
    global _stopped
    _stopped = stopped
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait for the parent's end; a pool's process would wait for its next job for ever."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _stoppable(function: Callable[..., Any], *arguments: object, **keywords: object) -> Any:
    signal.signal(_STOP, _end_the_job)
    try:
        if _stopped.is_set():
            _end_the_job()
        return function(*arguments, **keywords)
    finally:
        signal.signal(_STOP, signal.SIG_IGN)  # a process without a job must live: a lost one breaks the pool


def _end_the_job(*_: object) -> NoReturn:
    raise SystemExit
