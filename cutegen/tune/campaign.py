"""Many problems tuned by many workers: candidates of one are compiled while those of another are timed.

Jobs are functions of plain values, executed on any free worker. A problem is finished when its line is in the
journal; the same campaign resumes after any interruption. The jobs of a lost worker go to another, and of two
results of one job the first counts.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from cutegen.api import request_of
from cutegen.build import Cache, build
from cutegen.errors import ArtifactError, CutegenError, RequestError, WorkerError
from cutegen.executors import Workers
from cutegen.hardware import target
from cutegen.support.typed_json import read
from cutegen.tune.jobs import Compiled, CompileJob, Measured, job_id, spec_of_json
from cutegen.tune.journal import Journal
from cutegen.tune.measuring import measure_job
from cutegen.tune.tune_requests import TuneRequest, compile_jobs, measure_job_of
from cutegen.tuned.answer import settled_plan

# Compiles one candidate; every failure is a result, since errors do not travel between processes.


def compile_job(job: CompileJob) -> Compiled:
    """Return the candidate's artifact in this machine's cache, found or compiled; or why there is none."""
    try:
        asked, settled = spec_of_json(job.asked, job.name), spec_of_json(job.settled, job.name)
        made = settled_plan(asked, settled, target(job.target), job.problem)
        artifact = build(request_of(made), Cache.from_environment())
    except CutegenError as error:
        return Compiled(id=job.id, why=" ".join(str(error).split()))
    return Compiled(id=job.id, key=artifact.key)


AHEAD = 4
"""Problems whose candidates are compiled in addition to those that wait for a GPU or have one."""
GRACE_S = 15.0
"""Seconds that a running measurement has to finish after Ctrl-C; a second Ctrl-C does not wait."""

Keep = Callable[[Measured], object]
Tell = Callable[[int, int], None]

_log = logging.getLogger("cutegen.tune")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Results of a campaign in request order, how many were already in the journal, and whether Ctrl-C ended it early.

    A result without a winner says why; the same campaign tries its problem again.
    """

    measured: tuple[Measured, ...]
    resumed: int
    interrupted: bool

    @property
    def failed(self) -> tuple[Measured, ...]:
        """The problems without a winner."""
        return tuple(each for each in self.measured if each.winner is None)


def campaign_id(asks: Sequence[TuneRequest]) -> str:
    """Return an id that is the same for the same problems in any order; it identifies the journal."""
    return job_id(*sorted(ask.id for ask in asks))


def run_campaign(
    asks: Sequence[TuneRequest], workers: Workers, journal: Journal, *, keep: Keep, tell: Tell | None = None
) -> Outcome:
    """Tune each problem once, except those in the journal; `keep` each winner; `tell` how many of how many are done.

    A journal with a winner for every problem is put aside at the end. Ctrl-C ends the campaign early and keeps finished
    problems. Raises RequestError for no problem, WorkerError if workers are lost, OutsideError if the journal cannot be
    written; finished problems are kept then as well.
    """
    asks = tuple({ask.id: ask for ask in asks}.values())
    if not asks:
        raise RequestError("tune: found no problem; expected one or more, as in --problem 4096,4096,4096")
    campaign = _Campaign(asks, workers, journal, keep, tell)
    interrupted = False
    try:
        campaign.resume()
        campaign.run()
    except KeyboardInterrupt:
        interrupted = True
        campaign.wind_up()
    except (WorkerError, BrokenExecutor) as error:
        lost = "a compile process was killed, possibly out of memory; use fewer --jobs"
        why, done = str(error) if isinstance(error, WorkerError) else lost, len(campaign.won())
        raise WorkerError(f"{why}; {done} of {len(asks)} problems are kept; the same command continues") from error
    finally:
        campaign.cancel()
    if len(campaign.won()) == len(asks):
        journal.finish()
    return campaign.outcome(interrupted=interrupted)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A problem whose candidates are being compiled."""

    ask: TuneRequest
    jobs: tuple[CompileJob, ...]


@dataclass(slots=True)
class _Campaign:
    asks: tuple[TuneRequest, ...]
    workers: Workers
    journal: Journal
    keep: Keep
    tell: Tell | None
    results: dict[str, Measured] = field(default_factory=dict)
    resumed: int = 0
    left: deque[TuneRequest] = field(default_factory=deque)
    waiting: list[_Waiting] = field(default_factory=list)
    compiled: dict[str, Compiled] = field(default_factory=dict)
    compiling: dict[Future[Compiled], str] = field(default_factory=dict)
    measuring: dict[Future[Measured], TuneRequest] = field(default_factory=dict)

    def resume(self) -> None:
        """Take results from the journal and keep them again: the campaign may have ended between the two steps."""
        found = self.journal.read()
        for ask in self.asks:
            try:
                measured = read(Measured, found[ask.id], str(self.journal.path)) if ask.id in found else None
            except (ArtifactError, RequestError) as error:
                _log.warning("%s; its problem is tuned again", error)
                measured = None
            if measured is None:
                self.left.append(ask)
                continue
            self.results[ask.id] = measured
            self.resumed += 1
            self.keep(measured)
        self._say()

    def run(self) -> None:
        """Plan, compile and measure until nothing is left."""
        while self.left or self.compiling or self.measuring:
            if self.left and self._has_room():
                self._plan(self.left.popleft())
            self._take_done(0.0 if self.left and self._has_room() else None)

    def wind_up(self) -> None:
        """Start nothing more, and collect what finishes within the grace period."""
        with suppress(KeyboardInterrupt):
            self.cancel()
            self.left.clear()
            self.waiting.clear()
            self.compiling.clear()
            done, _ = wait([each for each in self.measuring if not each.cancelled()], GRACE_S)
            for future in done:
                if future.exception() is None:
                    self._finish(self.measuring[future], future.result())

    def cancel(self) -> None:
        """Cancel everything that has not started."""
        for future in self._futures():
            future.cancel()

    def won(self) -> tuple[Measured, ...]:
        """Return the results with a winner."""
        return tuple(each for each in self.results.values() if each.winner is not None)

    def outcome(self, *, interrupted: bool) -> Outcome:
        """Return the current results."""
        found = tuple(self.results[ask.id] for ask in self.asks if ask.id in self.results)
        return Outcome(measured=found, resumed=self.resumed, interrupted=interrupted)

    def _futures(self) -> list[Future[Any]]:
        return [*self.compiling, *self.measuring]

    def _has_room(self) -> bool:
        return len(self.waiting) < AHEAD or len(self.waiting) + len(self.measuring) < AHEAD + 2 * self.workers.gpus

    def _plan(self, ask: TuneRequest) -> None:
        try:
            jobs = compile_jobs(ask)
        except CutegenError as error:
            self._finish(ask, _failed(ask, error))
            return
        for job in jobs:
            if job.id not in self.compiled and job.id not in self.compiling.values():
                self.compiling[self.workers.submit(compile_job, job, brings=_keys)] = job.id
        self.waiting.append(_Waiting(ask, jobs))
        self._measure_ready()

    def _take_done(self, timeout_s: float | None) -> None:
        wait(self._futures(), timeout_s, FIRST_COMPLETED)
        for compiled in [each for each in self.compiling if each.done()]:
            self.compiled[self.compiling.pop(compiled)] = compiled.result()
        for measured in [each for each in self.measuring if each.done()]:
            self._finish(self.measuring.pop(measured), measured.result())
        self._measure_ready()

    def _measure_ready(self) -> None:
        """Submit the problems whose candidates have all compiled or failed."""
        ready = [each for each in self.waiting if all(job.id in self.compiled for job in each.jobs)]
        for each in ready:
            self.waiting.remove(each)
            try:
                job = measure_job_of(each.ask, each.jobs, self.compiled)
            except CutegenError as error:
                self._finish(each.ask, _failed(each.ask, error))
                continue
            needs = tuple(candidate.key for candidate in job.candidates)
            self.measuring[self.workers.submit(measure_job, job, gpu=True, needs=needs)] = each.ask

    def _finish(self, ask: TuneRequest, measured: Measured) -> None:
        """Count a result once: first in the journal, then as a record."""
        if measured.winner is not None and self.journal.add(ask.id, asdict(measured)):
            self.keep(measured)
        self.results.setdefault(ask.id, measured)
        self._say()

    def _say(self) -> None:
        if self.tell is not None:
            self.tell(len(self.results), len(self.asks))


def _keys(compiled: Compiled) -> tuple[str, ...]:
    """Return the artifacts of a compilation."""
    return () if compiled.key is None else (compiled.key,)


def _failed(ask: TuneRequest, error: CutegenError) -> Measured:
    return Measured(
        id=ask.id,
        spec_name=ask.spec_name,
        asked=ask.asked,
        target=ask.target,
        problem=ask.problem,
        sizes=None if ask.sizes is None else ask.sizes.name,
        results=(),
        why=" ".join(str(error).split()),
    )
