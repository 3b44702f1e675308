"""Plans and compiles many kernels in parallel, reports the outcome of each, and writes them into a pack or folders."""

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

from cutegen.api import build_request
from cutegen.build import Artifact, Cache, build
from cutegen.build.pack_file import PackIndex, ToPack, write_pack
from cutegen.errors import CacheError, CutegenError, OutsideError, RequestError
from cutegen.executors import Workers
from cutegen.executors.remote_job import kept
from cutegen.executors.workers import default_compilers
from cutegen.pack.kernel_list import RequestedKernel

# Plans and compiles many kernels in parallel, and reports the outcome of each.


Tell = Callable[[int, int], None]
"""Called with how many of how many are done."""

_log = logging.getLogger("cutegen.pack")


@dataclass(frozen=True, slots=True)
class Failure:
    """Reason why there is no kernel: the error's message, and its exit code."""

    why: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one kernel: an artifact or a failure."""

    wanted: RequestedKernel
    artifact: Artifact | None
    failure: Failure | None = None


def build_all(
    wanted: Sequence[RequestedKernel],
    cache: Cache,
    *,
    executor: Executor | None = None,
    workers: Workers | None = None,
    jobs: int | None = None,
    tell: Tell | None = None,
) -> tuple[Outcome, ...]:
    """Return the outcomes in the order of `wanted`; a failing kernel does not stop the others.

    Any executor works, of threads, processes or hosts that share the cache's folder. `workers` have their own caches,
    and their results are copied to `cache`. Without either, `jobs` threads each plan and wait for a compiler process;
    `jobs` defaults to the number of cores. Raises WorkerError if workers are lost.
    """
    if workers is not None:
        return _built([workers.submit(build_there, each) for each in wanted], tell, cache)
    if executor is not None:
        return _built([executor.submit(build_one, each, cache) for each in wanted], tell)
    with ThreadPoolExecutor(jobs or default_compilers(), "cutegen-build") as threads:
        return _built([threads.submit(build_one, each, cache) for each in wanted], tell)


def _built(futures: Sequence[Future[Outcome]], tell: Tell | None, home: Cache | None = None) -> tuple[Outcome, ...]:
    """Return the outcomes; artifacts are copied `home` one by one, so an early end keeps the finished ones."""
    outcomes: dict[Future[Outcome], Outcome] = {}
    try:
        for done, future in enumerate(as_completed(futures), start=1):
            outcome = future.result()  # a bug ends everything
            outcomes[future] = outcome if home is None else _brought_home(outcome, home)
            if tell is not None:
                tell(done, len(futures))
    except BaseException:
        _cancel(futures)
        raise
    return tuple(outcomes[future] for future in futures)


def _brought_home(outcome: Outcome, cache: Cache) -> Outcome:
    if outcome.artifact is None:
        return outcome
    try:
        found = kept(outcome.artifact.content.sealed(), cache)
    except CacheError as error:
        _log.warning("%s; %s is not cached here", error, outcome.wanted)
        return outcome
    return replace(outcome, artifact=replace(outcome.artifact, path=found.path))


def build_one(wanted: RequestedKernel, cache: Cache) -> Outcome:
    """Plan and build one kernel, or find it. A failure is an outcome, so that it does not stop the others."""
    try:
        return Outcome(wanted, build(build_request(wanted.spec, wanted.target, problem=wanted.problem), cache))
    except CutegenError as error:
        return Outcome(wanted, None, Failure(str(error), error.exit_code))


def build_there(wanted: RequestedKernel) -> Outcome:
    """Run `build_one` in the cache of the executing process."""
    return build_one(wanted, Cache.from_environment())


def _cancel(futures: Sequence[Future[Outcome]]) -> None:
    for future in futures:
        future.cancel()


# Writes built kernels into a pack or into folders.


def make_pack(path: Path, outcomes: Iterable[Outcome]) -> PackIndex:
    """Write the built kernels to a pack. Raises RequestError if there is none, OutsideError."""
    kernels = [
        ToPack(
            name=each.wanted.name,
            problem=each.wanted.problem,
            target=each.wanted.target,
            ops=each.wanted.spec.epilogue.ops or (),
            expression=each.wanted.spec.epilogue.expression,
            artifact=each.artifact,
        )
        for each in outcomes
        if each.artifact is not None
    ]
    if not kernels:
        raise RequestError(f"{path}: found no kernel to pack; expected one or more")
    return write_pack(path, kernels)


def folder_name(wanted: RequestedKernel) -> str:
    """Return the folder name of a kernel: `sm80_hgemm_tn-sm_80-64x8192x8192`; with a batch `...-4x64x64x64`."""
    name = re.sub(r"[^\w.-]", "_", wanted.name, flags=re.ASCII).lstrip(".") or "kernel"
    problem = () if wanted.problem is None else (str(wanted.problem).replace(" ", ""),)
    return "-".join((name, wanted.target, *problem))


def check_folders(folder: Path, wanted: Iterable[RequestedKernel]) -> None:
    """Raise RequestError for two kernels that would be written to the same folder in `folder`."""
    seen: set[str] = set()
    for name in map(folder_name, wanted):
        if name in seen:
            raise RequestError(
                f"{folder}: found two kernels whose folder is {name}; expected one; rename one spec's file, or give it "
                "another name in a list"
            )
        seen.add(name)


def copy_artifacts(folder: Path, outcomes: Iterable[Outcome]) -> dict[RequestedKernel, Path]:
    """Write each artifact to its own folder in `folder`, replacing existing ones; return the folders.

    `Kernel.open` opens them. Raises RequestError for duplicate names, before any is written, OutsideError if they
    cannot be written.
    """
    outcomes = [each for each in outcomes if each.artifact is not None]
    check_folders(folder, [each.wanted for each in outcomes])
    written: dict[RequestedKernel, Path] = {}
    for each in outcomes:
        assert each.artifact is not None
        target = folder / folder_name(each.wanted)
        try:
            each.artifact.content.sealed().write_folder(target)
        except OSError as error:
            raise OutsideError(f"{target} cannot be written: {error.strerror or error}") from error
        written[each.wanted] = target
    return written
