"""Candidates that are wrong, crash or hang are recorded and never win; the others are measured all the same."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from cutegen.tune.jobs import Candidate, MeasureJob, Settings, Timer, job_id, spec_json
from cutegen.tune.measuring import end_children, measure_job
from cutegen.tune.pick_winner import record_of
from tests.tuned.made import PROBLEM, TARGET, open_spec

NAMES = ("favorite", "second", "third", "fourth")


@pytest.fixture(scope="module", autouse=True)
def _no_child_stays() -> Iterator[None]:
    yield
    end_children()


def job(**timer: object) -> MeasureJob:
    text = spec_json(open_spec())
    candidates = tuple(
        Candidate(name=name, settled=text, key=str(i) * 64, predicted_us=10.0) for i, name in enumerate(NAMES)
    )
    return MeasureJob(
        id=job_id("a job"),
        spec_name="open_tn",
        asked=text,
        target=TARGET,
        problem=PROBLEM,
        candidates=candidates,
        settings=Settings(candidate_limit_s=1.5),
        timer=Timer(kind="stand-in", **timer),  # type: ignore[arg-type]
    )


def test_the_fastest_wins_and_the_same_is_said_again() -> None:
    found, again = measure_job(job()), measure_job(job())
    us = {one.name: one.graph.median_us for one in found.results if one.graph}
    assert us.keys() == set(NAMES)
    best = min(us, key=us.__getitem__)
    assert found.winner == (best if us[NAMES[0]] / us[best] > 1.01 else NAMES[0])
    assert (again.results, again.winner) == (found.results, found.winner)


def test_whoever_misbehaves_is_recorded_and_never_wins() -> None:
    winner = measure_job(job()).winner
    assert winner is not None
    others = [name for name in NAMES if name != winner]
    found = measure_job(job(wrong=(winner,), crashing=(others[0],), hanging=(others[1],)))
    status = {one.name: one.status for one in found.results}
    assert status == {winner: "wrong", others[0]: "failed", others[1]: "timeout", others[2]: "ok"}
    assert found.winner == others[2]
    assert all(one.graph is None for one in found.results if one.status != "ok")


def test_where_nobody_is_right_nobody_wins() -> None:
    found = measure_job(job(wrong=NAMES))
    assert (found.winner, found.why) == (None, "no candidate is correct")
    assert record_of(found) is None


def test_a_job_without_the_favorite_is_won_by_somebody() -> None:
    found = measure_job(job(crashing=NAMES[:1]))
    assert found.winner in NAMES[1:]
    record = record_of(found)
    assert record is not None
    assert record.evidence.favorite == NAMES[1]


def test_seeds_make_other_times() -> None:
    one, other = (measure_job(replace(job(), timer=Timer(kind="stand-in", seed=seed))) for seed in (1, 2))
    assert one.results != other.results


def test_ending_the_children_ends_a_measurement_at_once() -> None:
    hangs = replace(job(hanging=NAMES), settings=Settings(candidate_limit_s=120.0))
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(measure_job, hangs)
        time.sleep(3.0)  # most of it for the start of the process; it may be ended before that
        assert not future.done()
        end_children()
        found = future.result(timeout=60.0)
    assert found.winner is None
    assert len(found.results) <= 1, "no other process went on"
    assert measure_job(job()).winner, "the next job has a process again"
