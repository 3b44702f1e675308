"""Which test runs which lines, and for how long: a pytest plugin that writes it down, and what was written.

`pytest -p tests.mutation.recording --recording FOLDER`: each process of xdist leaves files in the folder as it goes on.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.mutation.lines import LineTracer
from tests.mutation.mutants import Mutant
from tests.mutation.source import ROOT

AT_IMPORT = ""
"""In place of a test: what runs while the tests are collected."""
FEW = 10
"""A line that so few tests run is perhaps one whose result is cached: tests that run callers of its function help."""
WRITTEN_EVERY_S = 5.0
EVERYTHING = ["cutegen", "tests"]
SEED = "0"
"""Of the tests' random inputs, which are the same when they are recorded and when they are tried."""
CAME_TO_AN_END = {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED}
FILE_COST_S = 0.1
"""About what it costs to import one more file of tests."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--recording", type=Path, help="the folder where the lines that tests run are written down")
    parser.addoption("--recorded", type=Path, help="a file that names the tests that had their turn: they do not run")


def pytest_configure(config: pytest.Config) -> None:
    spreads = hasattr(config.option, "numprocesses") and bool(config.option.numprocesses)  # and runs no test itself
    if (folder := config.getoption("--recording")) and not spreads:
        recorded = json.loads(path.read_text()) if (path := config.getoption("--recorded")) else []
        config.pluginmanager.register(Recorder(folder, set(recorded)))


class Recorder:
    """The plugin of one process."""

    def __init__(self, folder: Path, recorded: set[str]) -> None:
        self._folder, self._recorded, self._tracer = folder, recorded, LineTracer()
        self._tests: dict[str, tuple[float, dict[str, str]]] = {}
        self._failed: set[str] = set()
        self._written, self._parts = time.monotonic(), 0
        self._tracer.start()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid not in self._recorded]

    def pytest_collection_finish(self) -> None:
        self._keep(AT_IMPORT, 0.0)

    def _keep(self, test: str, seconds: float) -> None:
        lines = self._tracer.stop()
        hexadecimal = {} if test in self._failed else {path: f"{bits:x}" for path, bits in lines.items()}
        self._tests[test] = seconds, hexadecimal
        if time.monotonic() - self._written > WRITTEN_EVERY_S:
            self.pytest_sessionfinish()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._tracer.start()
        begun = time.perf_counter()
        try:
            return (yield)
        finally:
            self._keep(item.nodeid, time.perf_counter() - begun)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed":
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        if self._tests:
            _write(self._folder / f"{os.getpid()}-{self._parts}.json.gz", self._tests)
        self._written, self._parts, self._tests = time.monotonic(), self._parts + 1, {}


def _write(path: Path, value: object) -> None:
    partial = path.with_suffix(".partial")
    with gzip.open(partial, "wt", compresslevel=3) as file:
        json.dump(value, file)
    partial.rename(path)


def _read(path: Path) -> dict[str, Any]:
    with gzip.open(path, "rt") as file:
        return dict(json.load(file))


def digests(marks: str) -> dict[str, str]:
    """Of each file of tests; and under "" of all else that a recording depends on, but not of this driver."""
    found, rest = {}, hashlib.sha256(marks.encode())
    for path in sorted((*ROOT.glob("cutegen/**/*.py"), *ROOT.glob("tests/**/*.py"))):
        name = str(path.relative_to(ROOT))
        if name.startswith("tests/") and path.name.startswith("test_"):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif path.parent != Path(__file__).parent:
            rest.update(f"{name}\0".encode() + path.read_bytes())
    return {"": rest.hexdigest(), **found}


@dataclass(frozen=True)
class Recording:
    """Of each test its seconds, and the lines it ran (none if it failed): files, with lines as the bits of a number."""

    seconds: dict[str, float] = field(repr=False)
    lines: dict[str, dict[str, int]] = field(repr=False)
    whole: bool = True
    """Whether all tests had their turn."""

    @cached_property
    def _by_file(self) -> dict[str, list[tuple[str, int]]]:
        found: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for test, files in self.lines.items():
            for path, bits in files.items():
                found[path].append((test, bits))
        return found

    def running(self, path: str, lines: int) -> set[str]:
        """The tests that run one of the lines, the bits of a number, of a file."""
        return {test for test, bits in self._by_file.get(path, ()) if bits & lines}

    def covering(self, mutant: Mutant) -> list[str]:
        """The tests that can notice `mutant`, in a good order: of each test function its quickest case first."""
        tests = self.running(mutant.path, bits_of(mutant.line, mutant.end_line))
        tests = tests or self.running(mutant.path, bits_of(*mutant.statement_lines))
        more: set[str] = set()
        if mutant.binds or 0 < len(tests - {AT_IMPORT}) < FEW:
            for name in mutant.binds or mutant.function:
                for path, lines in _mentions(name).items():
                    more |= self.running(path, lines)
        elif tests == {AT_IMPORT}:
            more = self.running(mutant.path, -1)
        found = (in_turns(part - {AT_IMPORT}, self.seconds) for part in (tests, more - tests))
        return [test for part in found for test in part]


def in_turns(tests: set[str], seconds: dict[str, float]) -> list[str]:
    """The quickest case of every test function, quickest first; then the next of every one, and so on."""
    taken: dict[str, int] = defaultdict(int)
    ranked = []
    for test in sorted(tests, key=lambda test: (seconds[test], test)):
        function = test.partition("[")[0]
        ranked.append((taken[function], seconds[test], test))
        taken[function] += 1
    return [test for _, _, test in sorted(ranked)]


def within(tests: Sequence[str], seconds: dict[str, float], budget_s: float) -> list[str]:
    """The first of `tests` that together take no longer than `budget_s`; one at least."""
    found: list[str] = []
    spent_s, files = 0.0, set()
    for test in tests:
        path = _file(test)
        spent_s += seconds[test] + (0 if path in files else FILE_COST_S)
        if found and spent_s > budget_s:
            break
        files.add(path)
        found.append(test)
    return found


def bits_of(first: int, last: int) -> int:
    """The lines from `first` to `last` as the bits of a number.

    >>> bin(bits_of(2, 3))
    '0b1100'
    """
    return (1 << last + 1) - (1 << first)


@cache
def _mentions(name: str) -> dict[str, int]:
    """The lines of each file of the package where the word stands."""
    word = re.compile(rf"\b{re.escape(name)}\b")
    return {path: sum(1 << i for i, line in lines if word.search(line)) for path, lines in _package().items()}


@cache
def _package() -> dict[str, list[tuple[int, str]]]:
    paths = sorted(ROOT.glob("cutegen/**/*.py"))
    return {str(path.relative_to(ROOT)): list(enumerate(path.read_text().splitlines(), 1)) for path in paths}


def up_to_date(path: Path, jobs: int, marks: str, until: float) -> Recording:
    """The recording at `path`, once the files of tests that are new, changed or unfinished are recorded.

    All of them are, when a source, a helper of the tests or `marks` has changed. What time cut short goes on next time.
    """
    now = digests(marks)
    before: dict[str, Any] = _read(path) if path.exists() else {"digests": {}, "tests": {}, "unfinished": []}
    if before["digests"].get("") == now[""]:
        files = {name for name in now if now[name] != before["digests"].get(name)}
        changed = sorted(files | {name for name in before["unfinished"] if name in now or name in EVERYTHING})
        kept = {
            test: entry
            for test, entry in before["tests"].items()
            if now.get(_file(test), "") == before["digests"].get(_file(test), "")
        }
    else:
        changed, kept = EVERYTHING, {}
    new, whole = run(changed, jobs, marks, until, kept) if changed else ({}, True)
    tests = {**new, **kept}
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, {"digests": now, "tests": tests, "unfinished": [] if whole else changed})
    return recording_of(tests, whole)


def _file(test: str) -> str:
    return test.partition("::")[0]


def run(
    tests: Sequence[str], jobs: int, marks: str, until: float, recorded: Iterable[str] = ()
) -> tuple[dict[str, Any], bool]:
    """What those of the tests run that are not `recorded`; and whether all of them had their turn in the time."""
    with TemporaryDirectory() as folder:
        known = Path(folder, "recorded.json")
        known.write_text(json.dumps([*recorded]))
        words = ["-q", "-n", str(jobs), "-m", marks, "--tb=no", "-p", "no:cacheprovider", "-p", __name__]
        words += ["--seed", SEED]
        words += ["--recording", folder, "--recorded", str(known)]
        whole = _ends([sys.executable, "-m", "pytest", *words, *tests], until)
        parts = sorted(Path(folder).glob("*.json.gz"))
        return {test: entry for part in parts for test, entry in _read(part).items()}, whole


def _ends(command: list[str], until: float) -> bool:
    """Return whether the tests come to their end in the time; else they are ended, with all that they have started."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=sys.stderr, start_new_session=True)
    with suppress(subprocess.TimeoutExpired):
        return process.wait(max(0.0, until - time.monotonic())) in CAME_TO_AN_END
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return False


def recording_of(tests: dict[str, Any], whole: bool = True) -> Recording:
    """The entries of a file as values."""
    lines = {test: {path: int(bits, 16) for path, bits in files.items()} for test, (_, files) in tests.items()}
    seconds = {test: seconds for test, (seconds, _) in tests.items() if test != AT_IMPORT}
    return Recording(seconds, lines, whole)
