"""One mutant on trial, in a process of its own that was forked for it: plant it, run the tests, write down the verdict.

The process that is forked has imported what tests import, but nothing of cutegen: the fork imports that anew, with the
mistake in one of its modules. No file of the repository is written.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from tests.mutation.mutants import Mutant
from tests.mutation.recording import SEED
from tests.mutation.source import ROOT

MEMORY_BYTES = 6 << 30
TEST_FLOOR_S, TEST_FACTOR = 2.0, 8.0
"""A test that takes longer than this floor and this many times its usual time is in an endless loop."""

PRELOADED = (
    "numpy",
    "hypothesis.extra.numpy",
    "jinja2",
    "typer",
    "rich.console",
    "filelock",
    "platformdirs",
    "tensor_layouts",
    "PIL.Image",
    "concurrent.futures.process",
    "multiprocessing.spawn",
    "xml.etree.ElementTree",
    "torch",
)


def preload() -> None:
    """Import what tests import of others, so that forks have it."""
    for name in PRELOADED:
        with suppress(ImportError):
            importlib.import_module(name)
    assert "cutegen" not in sys.modules


@dataclass(frozen=True, slots=True)
class Trial:
    """The tests that are to run, with the usual seconds of each; without a mutant it is a rehearsal."""

    mutant: Mutant | None
    tests: Sequence[str]
    seconds: dict[str, float]
    kernels: Path | None = None
    """Where compiled kernels are kept, if what is planted changes none of them."""

    @property
    def limit_s(self) -> float:
        """When the process is ended from outside, should it not end by itself."""
        return 15.0 + 4 * sum(self.seconds[test] for test in self.tests)


class _MutatedLoader(importlib.machinery.SourceFileLoader):
    """Loads one module as `mutant` has it, past the cache of compiled modules."""

    mutant: Mutant

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.mutant.apply(self.get_data(path)), path)


@dataclass(frozen=True, slots=True)
class _Finder:
    """Finds the module with the mistake before anybody else does."""

    mutant: Mutant

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != self.mutant.module:
            return None
        loader = _MutatedLoader(name, str(ROOT / self.mutant.path))
        loader.mutant = self.mutant
        return importlib.util.spec_from_file_location(name, loader.path, loader=loader)


class _Watch:
    """The plugin of a trial: keeps the chosen tests in the chosen order, and notes what became of each."""

    def __init__(self, trial: Trial, verdict: Path) -> None:
        self._trial, self._verdict = trial, verdict
        self._passed: dict[str, float] = {}
        self._failed: dict[str, str] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        rank = {test: i for i, test in enumerate(self._trial.tests)}
        items[:] = sorted((item for item in items if item.nodeid in rank), key=lambda item: rank[item.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        if self._trial.mutant is not None:
            signal.signal(signal.SIGPROF, lambda *_: self._end_of(item))
            signal.setitimer(signal.ITIMER_PROF, TEST_FLOOR_S + TEST_FACTOR * self._trial.seconds[item.nodeid])
        begun = time.perf_counter()
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            if item.nodeid not in self._failed:
                self._passed[item.nodeid] = time.perf_counter() - begun
            if self._trial.mutant is None:
                self.write("ran")  # of a rehearsal that is cut short the tests before count

    def _end_of(self, item: pytest.Item) -> None:
        self._failed[item.nodeid] = "no end"
        self.write("ran")
        os._exit(1)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome == "failed":
            self._failed[report.nodeid] = "failed"
        elif report.outcome == "skipped":
            self._failed.setdefault(report.nodeid, "skipped")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._failed[report.nodeid] = "not collected"

    def write(self, status: str) -> None:
        """`status` is `ran`, or `stillborn` where the module cannot even be imported."""
        partial = self._verdict.with_suffix(".partial")
        partial.write_text(json.dumps({"status": status, "passed": self._passed, "failed": self._failed}))
        partial.rename(self._verdict)


def judge(trial: Trial, folder: Path) -> None:
    """Run the trial in this process, which ends with it. `folder`/verdict.json says what happened."""
    status = 1
    try:
        _settle(folder)
        watch = _Watch(trial, folder / "verdict.json")
        if _plant(trial.mutant):
            _run(trial, watch)
            watch.write("ran")
        else:
            watch.write("stillborn")
        status = 0
    finally:
        os._exit(status)


def _settle(folder: Path) -> None:
    """A session, a folder and limits of its own, and nothing printed."""
    os.setsid()
    os.chdir(ROOT)
    log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    (folder / "tmp").mkdir()
    os.environ |= {
        "TMPDIR": str(folder / "tmp"),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _plant(mutant: Mutant | None) -> bool:
    """Import the module with the mistake; False where that fails, which no test is needed for."""
    if mutant is None:
        return True
    sys.meta_path.insert(0, _Finder(mutant))
    try:
        importlib.import_module(mutant.module)
    except Exception:
        return False
    return True


def _run(trial: Trial, watch: _Watch) -> None:
    _hurry_hypothesis()
    paths = dict.fromkeys(test.partition("::")[0] for test in trial.tests)
    words = ["-q", "--tb=no", "-p", "no:cacheprovider", "--seed", SEED, *(["-x"] if trial.mutant else [])]
    if trial.kernels is not None:
        words += ["--kernels", str(trial.kernels)]
    pytest.main([*words, *paths], plugins=[watch])


def _hurry_hypothesis() -> None:
    """Examples are the same in every trial, and one that fails is not made smaller."""
    from hypothesis import Phase, settings

    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutants", database=None, derandomize=True, phases=phases, deadline=None)
    settings.load_profile("mutants")
