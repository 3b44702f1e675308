"""Defines the interface of all workers, and those of this machine: a compile pool, and one job per GPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from cutegen.errors import DeviceError

MOST_COMPILERS = 16
"""Default limit on parallel compilers: each needs half a gigabyte."""

Result = TypeVar("Result")
Brings = Callable[[Any], Iterable[str]]
"""Maps a job's result to the keys of its artifacts."""


class Workers(Protocol):
    """Runs jobs; `concurrent.futures.as_completed`, `wait` and `Future.cancel` work on the returned futures.

    GPU jobs have a GPU called `product`, whose kernels are for `target`; both are empty if there is none or it is not
    known.
    """

    @property
    def product(self) -> str:
        """The name of the GPUs, such as `NVIDIA H200`."""

    @property
    def target(self) -> str:
        """Their target, such as `sm_90`."""

    @property
    def gpus(self) -> int:
        """Number of GPU jobs that run at a time."""

    def submit(
        self,
        function: Callable[..., Result],
        /,
        *arguments: Any,
        gpu: bool = False,
        needs: Sequence[str] = (),
        brings: Brings | None = None,
    ) -> Future[Result]:
        """Submit `function(*arguments)` and return at once.

        With `gpu` it has a GPU to itself and receives one more keyword, `gpu`: the value of CUDA_VISIBLE_DEVICES for
        the processes that it starts, None if they inherit it. The artifacts with the keys `needs`, which the caller's
        cache has, are then in the worker's cache; those with the keys `brings(result)` are in the caller's when the
        future is done.
        """

    def close(self) -> None:
        """Start nothing more; wait for jobs on this machine, and forget those elsewhere."""


class LocalWorkers:
    """Workers of one machine: threads that wait for compiler processes, and one thread per GPU.

    `gpus` are those of `present_gpus`, or None for a GPU that a job's children find by themselves. The caller and the
    workers share one cache. `compiling` is any other executor for jobs without a GPU, whose processes share the cache's
    folder; it is not closed.
    """

    def __init__(
        self,
        *,
        compilers: int | None = None,
        gpus: Sequence[str | None] = (),
        compiling: Executor | None = None,
        product: str = "",
        target: str = "",
    ) -> None:
        self.product, self.target = product, target
        self._own = None if compiling else ThreadPoolExecutor(compilers or default_compilers(), "cutegen-compile")
        self._compiling = compiling or self._own
        self._measuring = ThreadPoolExecutor(max(len(gpus), 1), "cutegen-measure")
        self._free: SimpleQueue[str | None] = SimpleQueue()
        self._gpus = len(gpus)
        for each in gpus:
            self._free.put(each)

    @property
    def gpus(self) -> int:
        """Number of GPU jobs that run at a time."""
        return self._gpus

    def submit(
        self,
        function: Callable[..., Result],
        /,
        *arguments: Any,
        gpu: bool = False,
        needs: Sequence[str] = (),
        brings: Brings | None = None,
    ) -> Future[Result]:
        """Submit as in `Workers`. Raises DeviceError for a GPU job if there is no GPU."""
        if gpu:
            if not self._gpus:
                raise DeviceError(
                    "found no GPU on this machine; expected one; --scheduler ADDRESS uses those of other machines"
                )
            return self._measuring.submit(self._on_a_gpu, function, *arguments)
        assert self._compiling is not None
        return self._compiling.submit(function, *arguments)

    def close(self) -> None:
        """Start nothing more, and wait for running jobs."""
        for pool in (self._measuring, self._own):
            if pool is not None:
                pool.shutdown(wait=True, cancel_futures=True)

    def _on_a_gpu(self, function: Callable[..., Result], *arguments: Any) -> Result:
        name = self._free.get()  # there are as many names as threads
        try:
            return function(*arguments, gpu=name)
        finally:
            self._free.put(name)


def cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0))


def default_compilers() -> int:
    """Return the default number of parallel compilers."""
    return min(cores(), MOST_COMPILERS)
