"""Campaigns with a stand-in timer: nothing is lost and nothing counts twice, whoever does the jobs and what dies."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ALL_COMPLETED, Future, wait
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from cutegen.build import Cache
from cutegen.contract import ProblemShape
from cutegen.errors import RequestError, WorkerError
from cutegen.executors import LocalWorkers
from cutegen.spec.file import spec_of_table
from cutegen.tune import campaign
from cutegen.tune.campaign import campaign_id, run_campaign
from cutegen.tune.jobs import Compiled, Measured, MeasureJob, Timer
from cutegen.tune.journal import Journal
from cutegen.tune.measuring import end_children
from cutegen.tune.stand_in import stand_in_us
from cutegen.tune.tune_requests import TuneRequest, compile_jobs, measure_job_of, tune_request_of
from tests.tune.journals import counts_once, lines_of

OPERAND = {"dtype": "f16", "major": "k"}
SPEC = spec_of_table(
    {
        "family": "sm80",
        "problem": {"a": OPERAND, "b": OPERAND, "c": {"dtype": "f32", "major": "n"}},
        "tile": {"cta": [32, 32, 16]},
    },
    file="small.toml",
    name="small",
)


def asks(count: int, seconds: float = 0.0, **timer: Any) -> tuple[TuneRequest, ...]:
    """Problems for all of which one kernel or two are compared."""
    kind = Timer(kind="stand-in", seconds=seconds, **timer)
    problems = [ProblemShape(64 + 32 * n, 64, 256) for n in range(count)]
    return tuple(tune_request_of(SPEC, "sm_80", each, "stand-in", most=2, timer=kind) for each in problems)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "campaign.jsonl")


@pytest.fixture
def kept() -> list[Measured]:
    return []


@pytest.fixture
def shared(kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cache]:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    yield kernels
    end_children()


def winners(measured: Sequence[Measured]) -> dict[str, str | None]:
    return {each.id: each.winner for each in measured}


@pytest.mark.slow
def test_local_workers_do_each_problem_once(shared: Cache, journal: Journal, kept: list[Measured]) -> None:
    asked, told = asks(5), []
    workers = LocalWorkers(compilers=2, gpus=(None,))
    done = run_campaign(asked, workers, journal, keep=kept.append, tell=lambda *each: told.append(each))
    workers.close()
    assert [each.id for each in done.measured] == [ask.id for ask in asked]
    assert (done.resumed, done.interrupted, done.failed) == (0, False, ())
    assert told == [(n, 5) for n in range(6)]
    assert winners(kept) == winners(done.measured)
    finished = journal.path.with_name("finished-campaign.jsonl")
    assert dict(lines_of(finished)).keys() == {ask.id for ask in asked}
    assert counts_once(finished)


def alone(asked: Sequence[TuneRequest]) -> dict[str, str | None]:
    """Who wins by the stand-in's arithmetic, without workers, processes and artifacts."""
    expected = {}
    for ask in asked:
        jobs = compile_jobs(ask)
        compiled = {job.id: Compiled(id=job.id, key=f"{index:064x}") for index, job in enumerate(jobs)}
        measure = measure_job_of(ask, jobs, compiled)
        times = {each.name: stand_in_us(measure, each) for each in measure.candidates}
        expected[ask.id] = min(times, key=times.__getitem__)
    return expected


class Twice:
    """Workers that do each job that measures twice, as when a worker was thought lost: both answers arrive."""

    gpus, product, target = 1, "", ""

    def __init__(self, inner: LocalWorkers, journal: Journal) -> None:
        self._inner, self._journal = inner, journal

    def submit(self, function: Callable[..., Any], /, *arguments: Any, gpu: bool = False, **more: Any) -> Future[Any]:
        future = self._inner.submit(function, *arguments, gpu=gpu, **more)
        if gpu:
            first = future.result()
            self._journal.add(first.id, asdict(replace(first, seconds=-1.0)))  # the first answer, from elsewhere
        return future

    def close(self) -> None:
        self._inner.close()


@pytest.mark.slow
@pytest.mark.parametrize("mistaken", [False, True])
def test_of_two_answers_the_first_counts(
    shared: Cache, journal: Journal, kept: list[Measured], monkeypatch: pytest.MonkeyPatch, mistaken: bool
) -> None:
    if mistaken:  # a journal that does not look whether a job is there: it must be seen by the tests above
        monkeypatch.setattr(Journal, "_read", lambda self: ({}, []))
    workers = Twice(LocalWorkers(compilers=2, gpus=(None,)), journal)
    run_campaign(asks(2), workers, journal, keep=kept.append)
    workers.close()
    finished = journal.path.with_name("finished-campaign.jsonl")
    assert counts_once(finished) != mistaken
    if not mistaken:
        assert [result["seconds"] for _, result in lines_of(finished)] == [-1.0, -1.0]
        assert kept == [], "whose answer was first makes the record"


@pytest.mark.slow
def test_a_campaign_that_ended_early_goes_on(shared: Cache, journal: Journal, kept: list[Measured]) -> None:
    asked = asks(8, seconds=0.1)

    def stop(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    workers = LocalWorkers(compilers=2, gpus=(None,))
    first = run_campaign(asked, workers, journal, keep=kept.append, tell=stop)
    workers.close()
    assert first.interrupted
    assert 3 <= len(first.measured) < 8
    assert set(journal.read()) == {each.id for each in first.measured} == {each.id for each in kept}
    with open(journal.path, "ab") as file:  # a power cut, in the middle of a line
        file.write(b'{"job": "0123')
    kept.clear()
    workers = LocalWorkers(compilers=2, gpus=(None,))
    second = run_campaign(asked, workers, journal, keep=kept.append)
    workers.close()
    assert (second.resumed, second.interrupted) == (len(first.measured), False)
    assert second.measured[0] == first.measured[0], "it was not measured again"
    assert winners(second.measured) == alone(asked)
    assert {each.id for each in kept} == {ask.id for ask in asked}


@pytest.mark.slow
def test_a_candidate_that_is_wrong_crashes_or_hangs_never_wins(shared: Cache, journal: Journal) -> None:
    jobs = compile_jobs(asks(1)[0])
    names = [job.label for job in jobs]
    random.shuffle(names)
    misfortunes = random.sample(["wrong", "crashing"], 1)
    (asked,) = asks(1, **{misfortunes[0]: (names[0],)})
    (ruined,) = asks(1, wrong=tuple(names))
    workers = LocalWorkers(compilers=2, gpus=(None,))
    told: list[Measured] = []
    done = run_campaign([asked], workers, journal, keep=told.append)
    assert done.measured[0].winner == names[1]
    lost = run_campaign([ruined], workers, journal, keep=told.append)
    workers.close()
    assert [each.winner for each in lost.failed] == [None]
    assert lost.failed[0].why
    assert len(told) == 1
    assert journal.read() == {}, "what failed is tried again"


def test_workers_that_are_lost_leave_what_is_done(journal: Journal, kept: list[Measured]) -> None:
    class Lost:
        gpus, product, target = 1, "", ""

        def submit(self, function: Callable[..., Any], /, *arguments: Any, **more: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.set_exception(WorkerError("scheduler tcp://a:1: the connection was lost"))
            return future

        def close(self) -> None:
            pass

    with pytest.raises(WorkerError, match=r"lost; 0 of 2 problems are kept; the same command continues"):
        run_campaign(asks(2), Lost(), journal, keep=kept.append)


class Measures:
    """Workers whose candidates are compiled at once, and whose measurements end when told to."""

    gpus, product, target = 1, "", ""

    def __init__(self) -> None:
        self.measuring: list[tuple[Future[Any], MeasureJob]] = []

    def submit(self, function: Callable[..., Any], /, *arguments: Any, gpu: bool = False, **more: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        if gpu:
            self.measuring.append((future, arguments[0]))
        else:
            future.set_result(Compiled(id=arguments[0].id, key="0" * 64))
        return future

    def end(self) -> None:
        for future, job in self.measuring:
            same = {each: getattr(job, each) for each in ("id", "spec_name", "asked", "target", "problem")}
            future.set_result(Measured(**same, results=(), winner=job.candidates[0].name))

    def close(self) -> None:
        pass


@pytest.mark.parametrize("ends", [True, False])
def test_after_ctrl_c_a_measurement_may_end_within_the_grace_period(
    ends: bool, journal: Journal, kept: list[Measured], monkeypatch: pytest.MonkeyPatch
) -> None:
    workers, waited = Measures(), []

    def interrupted(futures: Sequence[Future[Any]], timeout_s: float | None, return_when: str = ALL_COMPLETED) -> Any:
        if workers.measuring and timeout_s is None:
            raise KeyboardInterrupt
        waited.append(timeout_s)
        if workers.measuring and ends:
            workers.end()
        return wait(futures, 0.0, return_when)

    monkeypatch.setattr(campaign, "wait", interrupted)
    done = run_campaign(asks(1), workers, journal, keep=kept.append)
    assert waited == [None, campaign.GRACE_S]
    assert (done.interrupted, len(done.measured), len(kept)) == (True, int(ends), int(ends))


def test_no_problem_is_refused_in_one_line(journal: Journal) -> None:
    with pytest.raises(RequestError, match=r"found no problem; expected one or more, as in --problem 4096,4096,4096"):
        run_campaign((), LocalWorkers(), journal, keep=print)


def test_a_campaign_is_known_by_its_problems_in_any_order() -> None:
    asked = asks(6)
    shuffled = random.sample(asked, len(asked))
    assert campaign_id(asked) == campaign_id(shuffled) != campaign_id(asked[1:])


def test_what_a_journal_holds_is_json(journal: Journal) -> None:
    (ask,) = asks(1)
    measured = Measured(
        id=ask.id, spec_name="a", asked=ask.asked, target="sm_80", problem=ask.problem, results=(), winner="b"
    )
    journal.add(ask.id, asdict(measured))
    assert json.loads(journal.path.read_text())["result"]["winner"] == "b"
    told: list[Measured] = []
    done = run_campaign([ask], LocalWorkers(), journal, keep=told.append)
    assert (done.resumed, done.measured, told) == (1, (measured,), [measured])
