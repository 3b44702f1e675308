"""Real Dask clusters on this machine for tests: each worker a process of its own, with its own folder of artifacts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import Nanny, Scheduler, SpecCluster


@dataclass(frozen=True, slots=True)
class Cluster:
    address: str
    inner: Any

    def pids(self) -> list[int]:
        """Of the workers' processes, which their nannies start again when they are killed."""
        return [nanny.pid for nanny in self.inner.workers.values()]

    def kill(self, pid: int) -> None:
        os.kill(pid, 9)


@contextmanager
def cluster(caches: Sequence[Path], *, gpu: bool = True, threads: int = 1, **environment: str) -> Iterator[Cluster]:
    """A worker for each of `caches`, on each of which a GPU is said to be."""
    workers = {
        index: {
            "cls": Nanny,
            "options": {
                "nthreads": threads,
                "resources": {"GPU": 1} if gpu else {},
                "env": {"CUTEGEN_CACHE_DIR": str(folder), **environment},
                "dashboard_address": ":0",
                "memory_limit": 0,
            },
        }
        for index, folder in enumerate(caches)
    }
    scheduler = {"cls": Scheduler, "options": {"dashboard_address": ":0", "port": 0, "host": "127.0.0.1"}}
    with SpecCluster(workers=workers, scheduler=scheduler, silence_logs=50) as found:
        yield Cluster(found.scheduler_address, found)
