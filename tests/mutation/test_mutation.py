"""The driver that plants mistakes: what it changes, which tests it takes, and when a mutant counts as dead."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation import recording
from tests.mutation.__main__ import verdict_of
from tests.mutation.changes import KINDS
from tests.mutation.lines import LineTracer
from tests.mutation.mutants import Candidate, Mutant, candidates, files_of, sample
from tests.mutation.pool import Outcome
from tests.mutation.recording import bits_of, in_turns, within
from tests.mutation.source import ROOT, Source
from tests.mutation.verdicts import DEAD, NOT_COVERED, STILLBORN, SURVIVED, Verdict, Verdicts

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
    path = "cutegen/algebra/notation.py"
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


def test_only_files_of_tests_that_changed_are_recorded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"": "sources", "some/test_a.py": "a", "some/test_b.py": "b", "some/test_c.py": "c"}
    asked: list[list[str]] = []

    def run(tests: list[str], *_: object) -> tuple[dict[str, object], bool]:
        asked.append(tests)
        files = [name for name in now if name] if tests == ["tests", "cutegen"] else tests
        found = {f"{name}::t": [1.0 + len(asked), {"cutegen/x.py": "4"}] for name in files}
        return {**found, "cutegen/x.py::doctest": [1.0, {}], recording.AT_IMPORT: [0.0, {"cutegen/x.py": "8"}]}, True

    def recorded() -> dict[str, float]:
        return recording.up_to_date(tmp_path / "recording.json.gz", 1, "", 0.0).seconds

    monkeypatch.setattr(recording, "run", run)
    monkeypatch.setattr(recording, "digests", lambda _: dict(now))
    first = recorded()
    assert asked == [["tests", "cutegen"]]
    assert recorded() == first
    assert len(asked) == 1
    now["some/test_b.py"] = "changed"
    del now["some/test_c.py"]
    now["some/test_d.py"] = "new"
    assert recorded().keys() == first.keys() - {"some/test_c.py::t"} | {"some/test_d.py::t"}
    assert asked[1:] == [["some/test_b.py", "some/test_d.py"]]
    now[""] = "changed"
    recorded()
    assert asked[2:] == [["tests", "cutegen"]]


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
    verdict = verdict_of(Outcome(status, {"passed": 0.1}, failed, 1.0), covering=5)
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
        for i, line in enumerate((ROOT / "cutegen/plan/predict/occupancy.py").read_text().splitlines(), 1)
        if "return target.smem_per_sm_bytes // held" in line
    )
    words = [
        "--only",
        f"cutegen/plan/predict/occupancy.py:{number}",
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
