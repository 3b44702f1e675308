"""The journal keeps what is done: a cut line costs its own problem alone, and a job that is told twice counts once."""

from __future__ import annotations

import logging
import random
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest

from cutegen.errors import OutsideError
from cutegen.tune.journal import Journal
from tests.tune.journals import counts_once


def _add(path: Path, name: str) -> bool:
    return Journal(path).add(name, {"who": name})


def test_results_are_read_back_in_their_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "new" / "a.jsonl")
    assert journal.read() == {}
    results = {f"job{n}": {"n": n, "text": "ä\n\x00", "times": [0.1, 1e-9, None]} for n in (3, 1, 2)}
    assert [journal.add(job, result) for job, result in results.items()] == [True] * 3
    assert journal.read() == results
    assert list(journal.read()) == ["job3", "job1", "job2"]


def test_the_first_complete_result_counts(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a.jsonl")
    assert journal.add("a", {"winner": 1})
    assert not journal.add("a", {"winner": 2})
    assert journal.read() == {"a": {"winner": 1}}
    assert counts_once(journal.path)


def test_of_two_complete_results_the_first_counts_where_it_stands(tmp_path: Path) -> None:
    """Two hosts may have tuned a job, and their journals been put together."""
    one, other = (Journal(tmp_path / f"{name}.jsonl") for name in ("one", "other"))
    for journal, names in ((one, "ab"), (other, "cba")):
        for name in names:
            journal.add(name, {"by": journal.path.stem})
    one.path.write_bytes(one.path.read_bytes() + other.path.read_bytes())
    assert list(one.read().items()) == [("a", {"by": "one"}), ("b", {"by": "one"}), ("c", {"by": "other"})]


def test_counting_a_job_twice_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path / "a.jsonl")
    journal.add("a", {"winner": 1})
    monkeypatch.setattr(
        Journal, "_read", lambda self: ({}, [])
    )  # the mistake: it does not look whether the job is there
    journal.add("a", {"winner": 2})
    assert not counts_once(journal.path)


@pytest.mark.parametrize("kept", ["most", "one byte", "all but the end of line"])
def test_a_cut_off_line_costs_its_own_problem(tmp_path: Path, caplog: pytest.LogCaptureFixture, kept: str) -> None:
    journal = Journal(tmp_path / "a.jsonl")
    journal.add("a", {"n": 1})
    whole = journal.path.stat().st_size
    journal.add("b", {"n": 2})
    data = journal.path.read_bytes()
    most = random.randrange(whole + 2, len(data) - 1)
    journal.path.write_bytes(data[: {"most": most, "one byte": whole + 1, "all but the end of line": -1}[kept]])
    damaged = kept != "all but the end of line"
    with caplog.at_level(logging.WARNING):
        assert list(journal.read()) == (["a"] if damaged else ["a", "b"])
    assert ("a.jsonl:2: " in caplog.text) == damaged
    assert journal.add("b", {"n": 3}) == damaged
    assert journal.add("c", {"n": 4})
    assert journal.read() == {"a": {"n": 1}, "b": {"n": 3 if damaged else 2}, "c": {"n": 4}}


def test_a_damaged_line_is_told_when_the_journal_is_read_and_not_for_each_result(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal(tmp_path / "a.jsonl")
    journal.add("first", {"x": 1})
    journal.path.write_bytes(b"{}\n" + journal.path.read_bytes())
    assert journal.read() == {"first": {"x": 1}}
    assert journal.add("second", {"x": 2})
    assert not journal.add("second", {"x": 3})
    assert [record.getMessage().partition(": ")[0] for record in caplog.records] == [f"{journal.path}:1"]


def test_one_changed_byte_is_noticed(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a.jsonl")
    for name in "abc":
        journal.add(name, {"us": 1.25, "name": name})
    data = bytearray(journal.path.read_bytes())
    middle = data.index(b"\n") + 1
    place = random.randrange(middle, data.index(b"\n", middle))
    data[place] = data[place] ^ 1 if data[place] ^ 1 != 10 else data[place] ^ 2
    journal.path.write_bytes(data)
    assert list(journal.read()) == ["a", "c"], place


@pytest.mark.slow
def test_processes_that_add_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    names = [str(n % 20) for n in range(80)]
    with ProcessPoolExecutor(2, get_context("spawn")) as processes:
        counted = list(processes.map(partial(_add, path), names))
    assert sum(counted) == 20
    assert set(Journal(path).read()) == set(names)
    assert counts_once(path)


def test_a_finished_campaign_begins_anew(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a.jsonl")
    journal.add("a", {})
    assert journal.finish() == tmp_path / "finished-a.jsonl"
    assert journal.read() == {}
    assert list(Journal(tmp_path / "finished-a.jsonl").read()) == ["a"]
    assert [path.name for path in tmp_path.iterdir()] == ["finished-a.jsonl"]


def test_a_journal_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutsideError, match=r"a\.jsonl cannot be written: "):
        Journal(tmp_path / "file" / "a.jsonl").add("a", {})
