"""Plans and compiles many kernels beside each other, and says of each what became of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from cutegen.api import build_request
from cutegen.build import Artifact, Cache, build
from cutegen.errors import CutegenError
from cutegen.pack.wanted import Wanted

MOST_JOBS = 16
"""Compilers beside each other unless more are asked for: each takes half a gigabyte."""

Tell = Callable[[int, int], None]
"""Told how many of how many are done."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no kernel: the error's message, and its exit code."""

    why: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one kernel: an artifact or a failure."""

    wanted: Wanted
    artifact: Artifact | None
    failure: Failure | None = None


def build_all(
    wanted: Sequence[Wanted],
    cache: Cache,
    *,
    executor: Executor | None = None,
    jobs: int | None = None,
    tell: Tell | None = None,
) -> tuple[Outcome, ...]:
    """The outcomes in the order of `wanted`; a kernel that fails stops no other.

    Any executor serves, of threads, processes or hosts that share the cache's folder. Without one, `jobs` threads each
    plan and wait for a compiler's process; without `jobs` as many as there are cores.
    """
    if executor is None:
        with ThreadPoolExecutor(jobs or min(cores(), MOST_JOBS), "cutegen-build") as threads:
            return _build_all(wanted, cache, threads, tell)
    return _build_all(wanted, cache, executor, tell)


def _build_all(wanted: Sequence[Wanted], cache: Cache, executor: Executor, tell: Tell | None) -> tuple[Outcome, ...]:
    futures = [executor.submit(build_one, each, cache) for each in wanted]
    try:
        for done, future in enumerate(as_completed(futures), start=1):
            future.result()  # a defect ends it all
            if tell is not None:
                tell(done, len(futures))
    except BaseException:
        _cancel(futures)
        raise
    return tuple(future.result() for future in futures)


def build_one(wanted: Wanted, cache: Cache) -> Outcome:
    """Plan and build one kernel, or find it. What goes wrong is an outcome: errors do not travel between processes."""
    try:
        return Outcome(wanted, build(build_request(wanted.spec, wanted.target, problem=wanted.problem), cache))
    except CutegenError as error:
        return Outcome(wanted, None, Failure(str(error), error.exit_code))


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _cancel(futures: Sequence[Future[Outcome]]) -> None:
    for future in futures:
        future.cancel()
