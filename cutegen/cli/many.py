"""Shared by `cutegen build` and `cutegen pack`: naming many kernels, building them, reporting failures."""

import logging
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cutegen.build import Cache
from cutegen.cli.options import named_archs, named_file, named_problems
from cutegen.cli.output import complain
from cutegen.cli.progress import progress
from cutegen.errors import DeviceError, RequestError, by_exit_code
from cutegen.executors import ClusterWorkers, LocalWorkers, Workers, present_gpus
from cutegen.executors.workers import PresentGpu, StoppableProcesses, alike, default_compilers
from cutegen.hardware.targeting import present_target
from cutegen.pack.building import Outcome, build_all
from cutegen.pack.kernel_list import RequestedKernel, combinations, read_list
from cutegen.support.words import plural


def named_kernels(
    specs: Sequence[str] | None,
    problem: Sequence[str] | None,
    batch: int | None,
    groups: int | None,
    arch: str | None,
    listed: Path | None,
    *,
    verb: str,
) -> tuple[RequestedKernel, ...]:
    """Combine each spec with each problem and target, and add those of a list; `verb` appears in messages.

    Raises RequestError, also if they name none.
    """
    problems, archs = named_problems(problem, batch, groups), named_archs(arch)
    if problems and not specs:
        raise RequestError("--problem: found without a SPEC; the kernels of a list name their own problems")
    rows = () if listed is None else read_list(named_file("--from", listed, "a list of kernels"), archs)
    wanted = tuple(dict.fromkeys((*combinations(specs or (), problems, archs), *rows)))
    if not wanted:
        raise RequestError(f"{verb}: found neither SPEC nor --from LIST.toml; expected kernels to {verb}")
    return wanted


def built(wanted: Sequence[RequestedKernel], jobs: int | None, scheduler: str | None = None) -> tuple[Outcome, ...]:
    """Build each kernel, with a progress bar and error messages on stderr.

    Raises RequestError for --jobs with a scheduler, WorkerError for a scheduler or workers that cannot be used.
    """
    cache = Cache.from_environment()
    with _workers(scheduler, jobs) as workers, progress("kernels") as tell:
        outcomes = build_all(wanted, cache, workers=workers, jobs=jobs, tell=tell)
    for each in outcomes:
        if each.failure is not None:
            complain("error", f"{each.wanted}: {each.failure.why}")
    return outcomes


@contextmanager
def _workers(scheduler: str | None, jobs: int | None) -> Iterator[Workers | None]:
    if scheduler is None:
        yield None
        return
    with cluster_workers(scheduler, jobs) as workers:
        yield workers


@contextmanager
def opened_workers(scheduler: str | None, jobs: int | None, *, gpu: bool = True) -> Iterator[Workers]:
    """Return the workers that compile and measure: those of a scheduler, else local processes and one job per GPU.

    GPUs of another product than the first are left out with a warning. With a timer that needs no `gpu`, only workers
    of a scheduler must report one. Raises DeviceError without a GPU, RequestError for --jobs with a scheduler,
    WorkerError.
    """
    if scheduler is not None:
        with cluster_workers(scheduler, jobs, gpu=True) as workers:
            yield workers
        return
    used = _gpus_of_one_product() if gpu else ()
    target = present_target() if used else None
    # Processes: planning and rendering take half a second of Python per kernel.
    pool = StoppableProcesses(jobs or default_compilers())
    local = LocalWorkers(
        compiling=pool,
        gpus=[each.uuid for each in used] or [None],
        product=used[0].name if used else "",
        target=target.name if target else "",
    )
    try:
        yield local
    finally:
        with _undisturbed():
            pool.stop()  # after Ctrl-C or an error, some still wait for a compiler
            local.close()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignore Ctrl-C: another one would leave the processes that are being ended behind."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _gpus_of_one_product() -> tuple[PresentGpu, ...]:
    present = present_gpus()
    if not present:
        raise DeviceError(
            "tune: found no GPU; expected one, or --scheduler ADDRESS of machines with GPUs; nvidia-smi lists "
            "those of this machine, CUDA_VISIBLE_DEVICES hides some"
        )
    used = alike(present)
    if others := {each.name for each in present} - {used[0].name}:
        names = ", ".join(sorted(others))
        complain("warning", f"tuned for {used[0].name}: {names} is left out; CUDA_VISIBLE_DEVICES selects GPUs")
    return used


@contextmanager
def cluster_workers(scheduler: str, jobs: int | None, *, gpu: bool = False) -> Iterator[ClusterWorkers]:
    """Return the workers of a Dask scheduler. Raises RequestError for --jobs with it, WorkerError, DeviceError."""
    if jobs is not None:
        raise RequestError(f"--jobs: found {jobs} together with --scheduler, whose workers set their own; leave it out")
    workers = ClusterWorkers(scheduler, gpu=gpu)
    try:
        _hush_dask()
        yield workers
    finally:
        with _undisturbed():
            workers.close()


def _hush_dask() -> None:
    """Keep its own log, with its tracebacks, out of a command's stderr."""
    for name in logging.root.manager.loggerDict:
        if name.partition(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def refuse_failures(outcomes: Sequence[Outcome], consequence: str) -> None:
    """Raise an error with the exit code of the worst failure, if any, and state its `consequence`."""
    failures = [each.failure for each in outcomes if each.failure is not None]
    if failures:
        error = by_exit_code(max(failure.exit_code for failure in failures))
        raise error(f"{plural(len(failures), 'kernel')} of {len(outcomes):,} failed; {consequence}")
