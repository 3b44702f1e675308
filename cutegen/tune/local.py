"""Opens the workers of a campaign: processes that compile and the GPUs of this machine, or a scheduler's."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from multiprocessing import get_context

from cutegen.errors import RequestError
from cutegen.executors import ClusterWorkers, LocalWorkers, Workers
from cutegen.executors.gpus import alike, present_gpus
from cutegen.executors.workers import default_compilers


@contextmanager
def opened_workers(scheduler: str | None, jobs: int | None, *, gpu: bool = True) -> Iterator[Workers]:
    """Open a scheduler's workers, or this machine's, of which `gpu` wants a GPU; they are closed at the end.

    Plans are made beside the compiler's processes in processes of their own: in threads they would wait for each other.
    Raises RequestError for --jobs beside a scheduler, WorkerError for a scheduler that cannot be reached.
    """
    if scheduler is not None:
        if jobs is not None:
            raise RequestError(f"--jobs: found {jobs} beside --scheduler, whose workers have their own; leave it out")
        with closing(ClusterWorkers(scheduler)) as cluster:
            yield cluster
        return
    pool = ProcessPoolExecutor(jobs or default_compilers(), get_context("spawn"), initializer=_leave_interrupts)
    try:
        with closing(LocalWorkers(gpus=_gpus() if gpu else (None,), compiling=pool)) as workers:
            yield workers
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _gpus() -> tuple[str, ...]:
    """Those of the first one's product, by UUID."""
    found = present_gpus()
    return tuple(each.uuid for each in alike(found)) if found else ()


def _leave_interrupts() -> None:
    """Have Ctrl-C heard by the process that started this one, which ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
