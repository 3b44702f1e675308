"""Plans and compiles many kernels in parallel, and reports the outcome of each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace

from cutegen.api import build_request
from cutegen.build import Artifact, Cache, build
from cutegen.errors import CacheError, CutegenError
from cutegen.executors import Workers
from cutegen.executors.artifact_transfer import kept
from cutegen.executors.workers import default_compilers
from cutegen.pack.kernel_list import RequestedKernel

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
