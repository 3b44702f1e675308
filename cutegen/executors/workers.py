"""Defines the interface of all workers, and those of this machine: a pool that compiles, and one job a GPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from cutegen.errors import DeviceError

MOST_COMPILERS = 16
"""Compilers beside each other unless more are asked for: each takes half a gigabyte."""

Result = TypeVar("Result")
Brings = Callable[[Any], Iterable[str]]
"""The keys of the artifacts that a job's result tells of."""


class Workers(Protocol):
    """Runs jobs; `concurrent.futures.as_completed`, `wait` and `Future.cancel` serve for what it answers.

    Jobs that need a GPU have one called `product`, for which kernels of `target` are; both are empty where there is
    none, or where nobody knows.
    """

    @property
    def product(self) -> str:
        """The name of the GPUs, as in `NVIDIA H200`."""

    @property
    def target(self) -> str:
        """The target for them, as in `sm_90`."""

    @property
    def gpus(self) -> int:
        """The number of jobs that need a GPU and run at a time."""

    def submit(
        self,
        function: Callable[..., Result],
        /,
        *arguments: Any,
        gpu: bool = False,
        needs: Sequence[str] = (),
        brings: Brings | None = None,
    ) -> Future[Result]:
        """Have `function(*arguments)` called where there is room, and answer at once.

        With `gpu` it has a GPU to itself and is called with one more keyword, `gpu`: the value of CUDA_VISIBLE_DEVICES
        for the processes that it starts, None where they inherit it. The artifacts with the keys `needs`, which the
        caller's cache has, lie in the worker's cache then; those with the keys `brings(result)` lie in the caller's
        when the future is done.
        """

    def close(self) -> None:
        """Begin nothing more; wait for what runs on this machine, and forget what runs elsewhere."""


class LocalWorkers:
    """Workers of one machine: threads that wait for compilers' processes, and one thread a GPU.

    `gpus` are what `present_gpus` names, or None for a GPU that a job's children find by themselves. Jobs of the caller
    and of the workers share one cache. `compiling` is any other executor for jobs without a GPU, whose processes share
    the cache's folder; it is not closed.
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
        """The number of jobs that need a GPU and run at a time."""
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
        """As in `Workers`. Raises DeviceError for a job that needs a GPU where there is none."""
        if gpu:
            if not self._gpus:
                raise DeviceError(
                    "found no GPU on this machine; expected one; --scheduler ADDRESS uses other machines'"
                )
            return self._measuring.submit(self._on_a_gpu, function, *arguments)
        assert self._compiling is not None
        return self._compiling.submit(function, *arguments)

    def close(self) -> None:
        """Begin nothing more, and wait for what runs."""
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
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def default_compilers() -> int:
    """The number of compilers that run beside each other unless a number is given."""
    return min(cores(), MOST_COMPILERS)
