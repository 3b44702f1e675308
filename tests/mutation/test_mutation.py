"""The driver that plants mistakes: what it changes, which tests it takes, and when a mutant counts as dead."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.mutation import campaign, recording
from tests.mutation.campaign import verdict_of
from tests.mutation.changes import KINDS
from tests.mutation.judge import Trial
from tests.mutation.lines import LineTracer
from tests.mutation.mutants import Candidate, Mutant, candidates, files_of, sample
from tests.mutation.pool import Outcome
from tests.mutation.recording import Recording, bits_of, in_turns, within
from tests.mutation.rehearsals import Rehearsals
from tests.mutation.source import ROOT, Source
from tests.mutation.verdicts import DEAD, NOT_COVERED, NOT_REACHED, STILLBORN, SURVIVED, Verdict, Verdicts

ROOMS = ["algebra", "run"]


def changes(text: str, kind: str) -> list[str]:
    """What `kind` makes of a function body that is one statement."""
    source = Source("nowhere.py")
    source.__dict__["content"] = f"def f(x: int) -> int:\n    {text}\n".encode()
    found = [Candidate(source, site, kind, node).mutant() for site in source.sites() for node in KINDS[kind](site)]
    return [mutant.apply(source.content).decode().splitlines()[1].strip() for mutant in found if mutant is not None]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("comparison", "return x % 4 == 0", ["return (x % 4 != 0)", "return (x % 4 >= 0)"]),
        ("comparison", "return x < y", ["return (x <= y)", "return (x >= y)"]),
        ("arithmetic", "return x + 1", ["return (x - 1)"]),
        ("arithmetic", "x += 1", ["x -= 1"]),
        ("constant", "return f(3, True)", ["return f(4, True)", "return f(2, True)"]),
        ("boolean", "return a and not b", ["return (a or not b)", "return (not b)", "return a", "return a and b"]),
        ("removed statement", "x.y = 3", ["pass"]),
        ("removed statement", "x = 3", ["pass"]),
        ("removed statement", "fresh = 3", []),
        ("condition", "return 1 if x else 2", ["return (1 if True else 2)", "return (1 if False else 2)"]),
        ("condition", "return [y for y in x if y]", ["return [y for y in x]"]),
        ("min/max", "g(np.maximum, min(x, 2))", ["g(np.minimum, min(x, 2))", "g(np.maximum, max(x, 2))"]),
        ("slice", "return a[x:3]", ["return a[:3]", "return a[x + 1:3]", "return a[x:]"]),
        ("return", "return y", ["return y + 1"]),
        ("argument", "g(x, y, key=2)", ["g(y, x, key=2)", "g(x, y)"]),
        ("argument", "zip(x, y, strict=True)", ["zip(y, x, strict=True)"]),
        ("boolean", "zip(x, y, strict=True)", []),
        ("boolean", "sorted(x, reverse=True)", ["sorted(x, reverse=False)"]),
        ("removed statement", "raise AssertionError(x)", []),
        ("removed statement", "raise ValueError(x)", ["pass"]),
        ("constant", 'assert x == 3, f"{x + 1}"', []),
    ],
)  # fmt: skip
def test_each_kind_of_mistake(kind: str, text: str, expected: list[str]) -> None:
    assert changes(text, kind) == expected


def test_a_sample_is_repeatable_and_has_every_stratum_in_proportion() -> None:
    found = list(candidates(files_of(ROOMS)))
    mutants = sample(found, 500, seed=3)
    assert mutants == sample(found, 500, seed=3) != sample(found, 500, seed=4)
    assert mutants[:100] == sample(found, 100, seed=3)
    assert len({mutant.name for mutant in mutants}) == 500
    for room in ROOMS:
        share = sum(one.stratum[0] == room for one in found) / len(found)
        assert abs(sum(mutant.room == room for mutant in mutants) / 500 - share) < 0.02
    for mutant in mutants[:20]:
        content = (ROOT / mutant.path).read_bytes()
        assert ast.dump(ast.parse(mutant.apply(content))) != ast.dump(ast.parse(content)), mutant.name


def test_the_lines_that_run_are_seen() -> None:
    from cutegen.algebra import parse_layout

    tracer = LineTracer()
    tracer.start()
    parse_layout("(4,8):(8,1)")
    found = tracer.stop()
    path = "cutegen/algebra/layout.py"
    text = (ROOT / path).read_text().splitlines()
    ran = [line.strip() for number, line in enumerate(text, 1) if found[path] & bits_of(number, number)]
    assert "def parse_layout(text: str) -> LayoutExpr:" in ran
    assert not any(line.startswith("def format_layout") for line in ran)


def test_of_each_test_function_the_quickest_case_comes_first() -> None:
    seconds = {"t.py::a[1]": 1.0, "t.py::a[2]": 2.0, "t.py::b": 3.0, "u.py::c[0]": 0.5}
    turns = in_turns(set(seconds), seconds)
    assert turns == ["u.py::c[0]", "t.py::a[1]", "t.py::b", "t.py::a[2]"]
    assert within(turns, seconds, 2.0) == turns[:2]
    assert within(turns, seconds, 0.1) == turns[:1]


def test_a_recording_that_time_cut_short_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {"some/test_a.py::t": [1.0, {"some/x.py": "4"}], "some/test_b.py::t": [2.0, {}]}
    turns = [(dict([*found.items()][:1]), False), (dict([*found.items()][1:]), True)]
    asked: list[tuple[list[str], set[str]]] = []

    def run(
        tests: list[str], jobs: int, marks: str, until: float, recorded: set[str]
    ) -> tuple[dict[str, object], bool]:
        asked.append((tests, set(recorded)))
        return turns[len(asked) - 1]

    monkeypatch.setattr(recording, "run", run)
    monkeypatch.setattr(recording, "digests", lambda _: {"": "s", "some/test_a.py": "a", "some/test_b.py": "b"})
    known = [recording.up_to_date(tmp_path / "recording.json.gz", 1, "", 0.0) for _ in range(3)]
    assert [one.whole for one in known] == [False, True, True]
    assert [set(one.seconds) for one in known] == [{"some/test_a.py::t"}, found.keys(), found.keys()]
    assert asked == [(recording.EVERYTHING, set()), (recording.EVERYTHING, {"some/test_a.py::t"})]


@pytest.mark.slow
def test_what_is_recorded_does_not_run_again() -> None:
    path = "tests/plan/test_occupancy.py"
    far = time.monotonic() + 600
    first, whole = recording.run([path], 1, "not slow and not gpu", far)
    assert whole
    tests = sorted(test for test in first if test != recording.AT_IMPORT)
    assert len(tests) > 1
    assert all("cutegen/plan/predict.py" in first[test][1] for test in tests)
    rest, _ = recording.run([path], 1, "not slow and not gpu", far, tests[1:])
    assert rest.keys() == {recording.AT_IMPORT, tests[0]}
    _, whole = recording.run([path], 1, "not slow and not gpu", time.monotonic())
    assert not whole


class _Trials:
    """Stands in for the forks: the tests named in `noticing` fail, and after `turns` trials time is up."""

    def __init__(self, noticing: set[str], turns: int) -> None:
        self.noticing, self.turns = noticing, turns
        self.rehearsed: list[str] = []
        self.tried: list[tuple[str, ...]] = []

    def __call__(self, trials: list[Trial], jobs: int, until: float, answer: Callable[[Trial, Outcome], None]) -> None:
        for trial in trials:
            if trial.mutant is None:
                self.rehearsed += trial.tests
                answer(trial, Outcome("ran", {test: 1.0 for test in trial.tests if test != "u.py::bad"}, {}, 1.0))
            elif self.turns:
                self.turns -= 1
                self.tried.append(tuple(trial.tests))
                failed = self.noticing & set(trial.tests)
                passed = dict.fromkeys(set(trial.tests) - failed, 1.0)
                answer(trial, Outcome("ran", passed, dict.fromkeys(failed, "failed"), 1.0))


def test_a_campaign_that_time_cut_short_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test is rehearsed twice, none tried twice on a mutant, and each survivor has all its rounds."""
    mutants = sample(candidates(files_of(["algebra"])), 2, seed=0)
    every = {mutant.path: (1 << 4000) - 1 for mutant in mutants}
    tests = {f"t.py::{name}": 1.0 for name in "abc"} | {"u.py::bad": 0.1}

    def call(trials: _Trials, count: int = 4, budgets: tuple[float, ...] = (1.5, 3.0)) -> Verdicts:
        monkeypatch.setattr(campaign, "run_trials", trials)
        seconds = dict([*tests.items()][-count:])
        found = Recording(seconds, dict.fromkeys(seconds, every))
        verdicts = Verdicts(mutants, tmp_path / "verdicts.json")
        rehearsals = Rehearsals(tmp_path / "rehearsals.json", {"": "s"})
        run = campaign.Campaign(verdicts, found, rehearsals, tmp_path, 1, time.monotonic() + 60)
        for number, budget_s in enumerate(budgets):
            run.round(mutants, number, budget_s)
        return verdicts

    first, second, third = (_Trials(set(), turns) for turns in (1, 2, 9))
    assert "1 not reached in the time" in call(first, count=2).text(2)  # two of the tests are not recorded yet
    assert first.rehearsed == ["t.py::c", "u.py::bad"]
    assert first.tried == [("t.py::c",)]
    assert "0 not reached in the time, 2 survivors have rounds to come" in call(second).text(2)
    assert second.rehearsed == ["t.py::a", "t.py::b"]
    verdicts = call(third)
    assert "same command" not in verdicts.text(2)
    assert not third.rehearsed
    assert [sorted(verdicts[mutant].passed) for mutant in mutants] == [["t.py::a", "t.py::b", "t.py::c"]] * 2
    assert len(first.tried + second.tried + third.tried) <= 6
    call(again := _Trials({"t.py::a"}, 9))
    assert not again.tried


@pytest.mark.parametrize(("whole", "state"), [(True, NOT_COVERED), (False, NOT_REACHED)])
def test_what_no_test_covers_is_known_once_all_are_recorded(tmp_path: Path, whole: bool, state: str) -> None:
    mutants = sample(candidates(files_of(["algebra"])), 2, seed=0)
    verdicts, found = Verdicts(mutants, None), Recording({}, {}, whole)
    campaign.Campaign(verdicts, found, Rehearsals(), tmp_path, 1, time.monotonic() + 60).round(mutants, 0, 1.0)
    assert verdicts.among([state]) == mutants


def test_only_files_of_tests_that_changed_are_recorded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"": "sources", "some/test_a.py": "a", "some/test_b.py": "b", "some/test_c.py": "c"}
    asked: list[list[str]] = []

    def run(tests: list[str], *_: object) -> tuple[dict[str, object], bool]:
        asked.append(tests)
        files = [name for name in now if name] if tests == recording.EVERYTHING else tests
        found = {f"{name}::t": [1.0 + len(asked), {"some/x.py": "4"}] for name in files}
        return {**found, "some/x.py::doctest": [1.0, {}], recording.AT_IMPORT: [0.0, {"some/x.py": "8"}]}, True

    def recorded() -> dict[str, float]:
        return recording.up_to_date(tmp_path / "recording.json.gz", 1, "", 0.0).seconds

    monkeypatch.setattr(recording, "run", run)
    monkeypatch.setattr(recording, "digests", lambda _: dict(now))
    first = recorded()
    assert asked == [recording.EVERYTHING]
    assert recorded() == first
    assert len(asked) == 1
    now["some/test_b.py"] = "changed"
    del now["some/test_c.py"]
    now["some/test_d.py"] = "new"
    assert recorded().keys() == first.keys() - {"some/test_c.py::t"} | {"some/test_d.py::t"}
    assert asked[1:] == [["some/test_b.py", "some/test_d.py"]]
    now[""] = "changed"
    recorded()
    assert asked[2:] == [recording.EVERYTHING]


@pytest.mark.parametrize(
    ("status", "failed", "state", "by"),
    [
        ("ran", {}, SURVIVED, ""),
        ("ran", {"t": "skipped"}, SURVIVED, ""),
        ("ran", {"t": "failed"}, DEAD, "t failed"),
        ("ran", {"t": "no end"}, DEAD, "t no end"),
        ("time limit", {}, DEAD, "time limit"),
        ("crashed with -11", {}, DEAD, "crashed with -11"),
        ("stillborn", {}, STILLBORN, ""),
    ],
)
def test_what_counts_as_dead(status: str, failed: dict[str, str], state: str, by: str) -> None:
    verdict = verdict_of(Outcome(status, {"passed": 0.1}, failed, 1.0), covering=5, rounds=1)
    assert (verdict.state, verdict.by) == (state, by)


def test_verdicts_are_kept_and_counted(tmp_path: Path) -> None:
    mutants: list[Mutant] = sample(candidates(files_of(["algebra"])), 4, seed=0)
    verdicts = Verdicts(mutants, tmp_path / "verdicts.json")
    states = [DEAD, SURVIVED, NOT_COVERED, STILLBORN]
    for mutant, state in zip(mutants, states, strict=True):
        verdicts[mutant] = Verdict(state)
    verdicts.save()
    again = Verdicts(mutants, tmp_path / "verdicts.json")
    assert [again[mutant].state for mutant in mutants] == states
    assert "1 of 3 dead, 33.3%" in again.text()
    assert all(mutant.name in again.text() for mutant in mutants[1:3])


@pytest.mark.slow
def test_a_mistake_is_seen_by_the_test_that_is_there_for_it(tmp_path: Path) -> None:
    """Of one line whose tests are given: recorded, rehearsed, tried, and written down."""
    (number,) = (
        i
        for i, line in enumerate((ROOT / "cutegen/plan/predict.py").read_text().splitlines(), 1)
        if "return target.smem_per_sm_bytes // held" in line
    )
    words = [
        "--only",
        f"cutegen/plan/predict.py:{number}",
        "--tests",
        "tests/plan/test_occupancy.py",
        "--jobs",
        "1",
    ]
    command = [sys.executable, "-m", "tests.mutation", *words, "--json", str(tmp_path / "verdicts.json")]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found = json.loads((tmp_path / "verdicts.json").read_text())
    assert {entry["kind"] for entry in found["mutants"]} == {"arithmetic", "return"}
    assert found["share_dead"] == 1, done.stdout
