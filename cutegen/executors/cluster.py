"""Workers of a Dask cluster, on this machine or many: `dask scheduler` and `dask worker ADDRESS --resources GPU=1`.

Dask is an optional dependency, which only this module imports. Another worker takes over the jobs of a lost one: Dask
gives a job to at most `distributed.scheduler.allowed-failures` workers that are lost with it. A job may therefore run
twice; its result is reported once. A running job cannot be stopped remotely: it must limit its own time.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from cutegen.build import Cache
from cutegen.errors import DeviceError, WorkerError, by_exit_code
from cutegen.executors import remote_job
from cutegen.executors.remote_job import Identity, Job, identity, parcels, unpack
from cutegen.executors.workers import Brings
from cutegen.support.words import plural

if TYPE_CHECKING:
    from distributed import Client

CONNECT_S = 5.0
"""Time limit for a scheduler to respond, and then for its first worker to appear."""
WATCH_S = 10.0
"""Interval of the check whether there is still a worker for a waiting job."""
IN_FLIGHT = 128
"""Jobs submitted to the scheduler at a time, of each kind."""
RESOURCE = "GPU"
"""Resource that a worker declares and a job needs."""

Result = TypeVar("Result")
_log = logging.getLogger("cutegen.executors")


class ClusterWorkers:
    """The workers of the scheduler at `address`, with their own caches: artifacts are sent if folders differ."""

    def __init__(
        self, address: str, *, cache: Cache | None = None, gpu: bool = False, connect_s: float = CONNECT_S
    ) -> None:
        """Connect, and contact each worker.

        Raises WorkerError for no distributed, no scheduler, no worker, or one of another version; with `gpu`,
        DeviceError if no worker has a GPU, or two have different ones.
        """
        self._address = address
        self._cache = cache or Cache.from_environment()
        self._closed = threading.Event()
        self._open = ExitStack()
        self._client = _client(address, connect_s)
        self._open.callback(self._client.close, timeout=connect_s)
        try:
            self._wait_for_workers(gpu, connect_s)
            self.product, self.target = self._greet(gpu)
            self._meeting = self._open.enter_context(self._cache.meeting())
        except BaseException:
            self._open.close()
            raise
        self._pools = {kind: ThreadPoolExecutor(IN_FLIGHT, "cutegen-cluster") for kind in (False, True)}
        self._watched_s = time.monotonic()
        self._watching = threading.Lock()

    @property
    def gpus(self) -> int:
        """Number of GPU jobs that run at a time, according to the current workers."""
        return sum(int(worker["resources"].get(RESOURCE, 0)) for worker in self._workers().values())

    @property
    def threads(self) -> int:
        """Number of jobs that run at a time."""
        return sum(worker["nthreads"] for worker in self._workers().values())

    def submit(
        self,
        function: Callable[..., Result],
        /,
        *arguments: Any,
        gpu: bool = False,
        needs: Sequence[str] = (),
        brings: Brings | None = None,
    ) -> Future[Result]:
        """Submit as in `Workers`. The future raises WorkerError if the cluster, or each worker of the job, was lost."""
        job = Job(
            function=function, arguments=arguments, gpu=gpu, needs=tuple(needs), brings=brings, meeting=self._meeting
        )
        return self._pools[gpu].submit(self._conducted, job)

    def close(self) -> None:
        """Cancel what has not started, forget what runs, and disconnect from the cluster."""
        self._closed.set()
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        self._open.close()  # this cancels what the pools' threads wait for
        for pool in self._pools.values():
            pool.shutdown(wait=True)

    def _conducted(self, job: Job) -> Any:
        """Run the job on a worker, send missing artifacts, and keep the returned ones."""
        answer = self._answer(job)
        if isinstance(answer, remote_job.Lacking):
            sent = parcels(self._cache, job.needs)
            if len(sent) < len(set(job.needs)):
                raise WorkerError(f"cache {self._cache.directory}: an artifact that a job needs is gone; run it again")
            answer = self._answer(replace(job, sent=sent))
        if not isinstance(answer, remote_job.Done):
            raise WorkerError(f"scheduler {self._address}: a worker does not keep the artifacts sent to it")
        for parcel in answer.brought:
            unpack(parcel, self._cache)
        return answer.value

    def _answer(self, job: Job) -> Any:
        from distributed import KilledWorker

        future = self._client.submit(
            _caller(),
            identity().parts,
            remote_job.pack(job),
            key=f"cutegen-{secrets.token_hex(8)}",
            pure=False,
            resources={RESOURCE: 1} if job.gpu else None,
            priority=1 if job.gpu else 0,
        )
        try:
            kind, found = self._waited_for(future, job)
        except KilledWorker as error:
            raise WorkerError(
                f"scheduler {self._address}: a job was given up after each worker that took it was lost: {error}"
            ) from error
        except CancelledError:
            if self._closed.is_set():
                raise
            raise WorkerError(
                f"scheduler {self._address}: the connection was lost; start the scheduler again"
            ) from None
        if kind == remote_job.REFUSED:
            raise WorkerError(_of_another_version(self._address, identity().difference(Identity(found))))
        if kind == remote_job.FAILED:
            message, exit_code = found
            raise by_exit_code(exit_code)(message)
        return remote_job.unpacked(found)

    def _waited_for(self, future: Any, job: Job) -> Any:
        while True:
            try:
                return future.result(timeout=WATCH_S)
            except TimeoutError:
                self._watch(job)

    def _watch(self, job: Job) -> None:
        """Report from time to time that a job waits for missing workers."""
        with self._watching:
            if time.monotonic() - self._watched_s < 3 * WATCH_S:
                return
            self._watched_s = time.monotonic()
        if not (self.gpus if job.gpu else self.threads):
            kind = "worker with a GPU" if job.gpu else "worker"
            _log.warning("scheduler %s: no %s is left; jobs wait for a new one", self._address, kind)

    def _workers(self) -> dict[str, Any]:
        workers: dict[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        return workers

    def _wait_for_workers(self, gpu: bool, wait_s: float) -> None:
        """Raises WorkerError, DeviceError."""
        until_s = time.monotonic() + wait_s
        while not (self.gpus if gpu else self._workers()):
            if time.monotonic() > until_s:
                break
            time.sleep(0.05)
        else:
            return
        if self._workers():
            raise DeviceError(
                f"scheduler {self._address}: found {plural(len(self._workers()), 'worker')}, none with a GPU; start "
                f"one for each: CUDA_VISIBLE_DEVICES=0 dask worker {self._address} --resources {RESOURCE}=1"
            )
        raise WorkerError(f"scheduler {self._address}: found no workers; start some: dask worker {self._address}")

    def _greet(self, gpu: bool) -> tuple[str, str]:
        """Return the product and the target of the workers' GPUs. Raises WorkerError, DeviceError."""
        here = identity()
        found: dict[tuple[str, str], str] = {}
        for name, said in self._client.run(_greeter(), on_error="return").items():
            if isinstance(said, Exception):
                raise WorkerError(_of_another_version(name, f"found {said!r}; expected the cutegen of this machine"))
            parts, device = said
            if difference := here.difference(Identity(tuple(parts))):
                raise WorkerError(_of_another_version(name, difference))
            if RESOURCE in self._workers().get(name, {"resources": ()})["resources"]:
                found.setdefault(device, name)
        if gpu and len(found) > 1:
            names = ", ".join(f"{product or 'none'} at {name}" for (product, _), name in found.items())
            raise DeviceError(f"scheduler {self._address}: found different GPUs, {names}; expected one product")
        return next(iter(found), ("", ""))


def _of_another_version(where: str, difference: str) -> str:
    return f"worker of {where}: {difference}; install the same cutegen and compiler there"


def _client(address: str, connect_s: float) -> Client:
    """Raises WorkerError."""
    import asyncio  # no other command needs it

    try:
        from distributed import Client
    except ImportError as error:
        raise WorkerError(
            "--scheduler needs Dask, which is not installed: pip install 'cutegen[tune]', or leave it out"
        ) from error
    try:
        with ThreadPoolExecutor(1) as thread:  # the caller may run an event loop
            thread.submit(asyncio.run, _reach(address, connect_s)).result()
        return Client(address, timeout=connect_s, set_as_default=False)
    except ValueError as error:
        raise WorkerError(f"scheduler: {error}; expected an address such as tcp://10.0.0.1:8786") from error
    except Exception as error:  # OSError, TimeoutError, AssertionError for an unknown host: from Dask
        raise WorkerError(
            f"scheduler {address}: not reached within {connect_s:g} s: {_first_line(error)}; start one with "
            "`dask scheduler`, which prints its address, such as tcp://10.0.0.1:8786"
        ) from error


async def _reach(address: str, connect_s: float) -> None:
    """Handshake with the listener: a `Client` that cannot connect would leave a thread behind."""
    import asyncio

    from distributed.comm import connect
    from distributed.security import Security

    comm = await asyncio.wait_for(
        connect(address, timeout=connect_s, **Security().get_connection_args("client")), connect_s
    )
    await comm.close()


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _caller() -> Callable[..., Any]:
    """A function that is sent by value: a scheduler need not have cutegen, nor a worker this version of it."""

    def call(expected: tuple[str, ...], pickled: bytes) -> Any:
        try:
            from cutegen.executors.remote_job import perform
        except ImportError:
            return "refused", ("no cutegen that knows executors",)
        return perform(expected, pickled)

    return call


def _greeter() -> Callable[[], Any]:
    """As `_caller`."""

    def greet() -> Any:
        try:
            from cutegen.executors.remote_job import greet
        except ImportError:
            return ("no cutegen that knows executors",), ("", "")
        return greet()

    return greet
