"""The interface of all workers, and those of this machine: compile processes, and one job per GPU."""

import ctypes
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.synchronize import Event
from queue import SimpleQueue
from threading import Thread
from typing import Any, NoReturn, Protocol, TypeVar

from cutegen.errors import DeviceError
from cutegen.hardware.targeting import NVML_SUCCESS, NVML_TEXT_BYTES, opened_nvml
from cutegen.support import environment
from cutegen.support.words import naturals

# The GPUs of this machine, each by a name that a child process can use in CUDA_VISIBLE_DEVICES.
#
# NVML needs no CUDA context. UUIDs are the same in every process, whatever its device order.


@dataclass(frozen=True, slots=True)
class PresentGpu:
    """`uuid` for CUDA_VISIBLE_DEVICES, `name` of the product by NVIDIA."""

    uuid: str
    name: str


def present_gpus() -> tuple[PresentGpu, ...]:
    """Return the GPUs that a process started here would see, in the order of the PCI bus; none without a driver."""
    with opened_nvml() as nvml:
        found = () if nvml is None else tuple(_found(nvml))
    visible = environment.visible_gpus()
    return found if visible is None else _visible(found, visible)


def alike(gpus: tuple[PresentGpu, ...]) -> tuple[PresentGpu, ...]:
    """Return those of the first one's product: a record must not mix times of two products.

    >>> [each.uuid for each in alike((PresentGpu("a", "H200"), PresentGpu("b", "A2"), PresentGpu("c", "H200")))]
    ['a', 'c']
    """
    return tuple(each for each in gpus if each.name == gpus[0].name)


def _found(nvml: ctypes.CDLL) -> list[PresentGpu]:
    count = ctypes.c_uint()
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != NVML_SUCCESS:
        return []
    gpus = []
    for index in range(count.value):
        device, uuid, name = (ctypes.c_void_p(), *(ctypes.create_string_buffer(NVML_TEXT_BYTES) for _ in range(2)))
        if (
            nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == NVML_SUCCESS
            and nvml.nvmlDeviceGetUUID(device, uuid, NVML_TEXT_BYTES) == NVML_SUCCESS
            and nvml.nvmlDeviceGetName(device, name, NVML_TEXT_BYTES) == NVML_SUCCESS
        ):
            gpus.append(PresentGpu(uuid.value.decode(), name.value.decode()))
    return gpus


def _visible(found: tuple[PresentGpu, ...], visible: tuple[str, ...]) -> tuple[PresentGpu, ...]:
    """Return those that CUDA_VISIBLE_DEVICES names, by number or UUID prefix, up to the first unknown one."""
    chosen: list[PresentGpu] = []
    for name in visible:
        number = naturals(name)
        by_number = found[number[0] :][:1] if number else ()
        matches = by_number or tuple(each for each in found if name and each.uuid.startswith(name))
        if len(matches) != 1 or matches[0] in chosen:
            break
        chosen.append(matches[0])
    return tuple(chosen)


# Local compile processes, which can be stopped at once: each job, with the compiler it waits for, ends by a signal.
#
# They end with the process that started them, even if that is killed.


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


# Defines the interface of all workers, and those of this machine: a compile pool, and one job per GPU.


MOST_COMPILERS = 16
"""Default limit on parallel compilers: each needs half a gigabyte."""


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
