"""Shared by `cutegen build` and `cutegen pack`: many kernels named, built with progress, their failures told."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from multiprocessing import get_context
from pathlib import Path

from cutegen.build import Cache
from cutegen.cli.options import named_archs, named_file, named_problems
from cutegen.cli.output import complain
from cutegen.cli.progress import progress
from cutegen.errors import CheckError, CutegenError, DeviceError, OutsideError, RequestError
from cutegen.executors import ClusterWorkers, LocalWorkers, Workers, present_gpus
from cutegen.executors.gpus import PresentGpu, alike
from cutegen.executors.workers import default_compilers
from cutegen.hardware.targeting import present_target
from cutegen.pack.building import Outcome, build_all
from cutegen.pack.wanted import Wanted, combinations, read_list
from cutegen.support.words import plural

_BY_EXIT_CODE = {error.exit_code: error for error in (CheckError, RequestError, OutsideError)}


def named_kernels(
    specs: Sequence[str] | None,
    problem: Sequence[str] | None,
    batch: int | None,
    arch: str | None,
    listed: Path | None,
    *,
    verb: str,
) -> tuple[Wanted, ...]:
    """Each spec for each problem and target, and those of a list, as options of `verb` name them.

    Raises RequestError, also where they name none.
    """
    problems, archs = named_problems(problem, batch), named_archs(arch)
    if problems and not specs:
        raise RequestError("--problem: found no SPEC beside it; the kernels of a list name their own problems")
    rows = () if listed is None else read_list(named_file("--from", listed, "a list of kernels"), archs)
    wanted = tuple(dict.fromkeys((*combinations(specs or (), problems, archs), *rows)))
    if not wanted:
        raise RequestError(f"{verb}: found neither SPEC nor --from LIST.toml; expected kernels to {verb}")
    return wanted


def built(wanted: Sequence[Wanted], jobs: int | None, scheduler: str | None = None) -> tuple[Outcome, ...]:
    """Build each, with a bar on stderr meanwhile, and complain there of what failed.

    Raises RequestError for --jobs beside a scheduler, WorkerError for a scheduler or workers that cannot be used.
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
    """Workers that compile and measure: those of a scheduler, else processes of this machine, and one job a GPU.

    GPUs that are not of the first one's product are left out, with a word. Without `gpu`, for a stand-in timer, none is
    needed, but workers of a scheduler that say they have one. Raises DeviceError where there is no GPU, RequestError
    for --jobs beside a scheduler, WorkerError.
    """
    if scheduler is not None:
        with cluster_workers(scheduler, jobs, gpu=True) as workers:
            yield workers
        return
    used = _gpus_of_one_product() if gpu else ()
    target = present_target() if used else None
    # Processes: planning and rendering take half a second of Python a kernel. Ctrl-C is this process's to hear.
    ignoring = (signal.SIGINT, signal.SIG_IGN)
    pool = ProcessPoolExecutor(jobs or default_compilers(), get_context("spawn"), signal.signal, ignoring)
    local = LocalWorkers(
        compiling=pool,
        gpus=[each.uuid for each in used] or [None],
        product=used[0].name if used else "",
        target=target.name if target else "",
    )
    with closing(local):
        try:
            yield local
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _gpus_of_one_product() -> tuple[PresentGpu, ...]:
    present = present_gpus()
    if not present:
        raise DeviceError(
            "tune: found no GPU; expected one, or --scheduler ADDRESS of machines with some; nvidia-smi lists those of "
            "this machine, and CUDA_VISIBLE_DEVICES hides them"
        )
    used = alike(present)
    if others := {each.name for each in present} - {used[0].name}:
        names = ", ".join(sorted(others))
        complain("warning", f"tuned for {used[0].name}: {names} is left out; CUDA_VISIBLE_DEVICES chooses")
    return used


@contextmanager
def cluster_workers(scheduler: str, jobs: int | None, *, gpu: bool = False) -> Iterator[ClusterWorkers]:
    """Those of a Dask scheduler. Raises RequestError for --jobs beside it, WorkerError, DeviceError."""
    if jobs is not None:
        raise RequestError(f"--jobs: found {jobs} beside --scheduler, whose workers have their own; leave it out")
    with closing(ClusterWorkers(scheduler, gpu=gpu)) as workers:
        _hush("distributed")
        yield workers


def _hush(library: str) -> None:
    """Keep a library's own log, which has tracebacks where cutegen has one line, out of a command's stderr."""
    for name in logging.root.manager.loggerDict:
        if name.partition(".")[0] == library:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def refuse_failures(outcomes: Sequence[Outcome], consequence: str) -> None:
    """Raise an error with the exit code of the worst failure, if there is any; say what `consequence` it has."""
    failures = [each.failure for each in outcomes if each.failure is not None]
    if failures:
        error: type[CutegenError] = _BY_EXIT_CODE[max(failure.exit_code for failure in failures)]
        raise error(f"{plural(len(failures), 'kernel')} of {len(outcomes):,} failed; {consequence}")
