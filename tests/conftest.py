"""For every test: `gpu` ones are skipped where there is no GPU; `--update-golden` rewrites expected texts.

`slow.txt` lists tests that `make test` leaves out beside those that are marked so.

`--draw SEED` runs a fifth of the slow tests, which the seed draws.

`--seed N` draws the random inputs of the run that printed this seed (`seeding.py`), `--seed new` those of no other run.
Without it they follow from the commit: what passed once passes again, and the next commit draws others.

`--kernels FOLDER` keeps the cache of kernels that tests share from run to run.

Tests that do not ask how kernels are built share a cache of them, and a compiler that is kept warm.
"""

from __future__ import annotations

import gc
import hashlib
import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import settings

from cutegen.build import Cache
from cutegen.hardware.targeting import present_target
from tests.build.warm import WarmCompiler, warm_compiler
from tests.seeding import LARGEST, Seeding, seed_of_commit

STARTS_THE_COMPILER = {"build", "fuzz"}
"""Folders of tests that compile as users do: what stands above that room finds the same kernels.

Builders that are killed must not share a compiler: its answers would go to each other.
"""

SLOW = frozenset((Path(__file__).parent / "slow.txt").read_text().split())
"""Tests that are slow beside those that say so themselves, by measurement."""

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # a process of xdist has one core; more threads would spin
    os.environ.setdefault(threads, "1")
os.environ.pop("COLUMNS", None)  # what pytest and shells say of their own terminal is not for expected texts


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what is printed now as what is expected")
    parser.addoption("--draw", metavar="SEED", help="of the slow tests run a fifth, drawn by the seed (default: all)")
    parser.addoption("--seed", metavar="N", help="draw what this seed drew, or `new` (default: the commit's)")
    parser.addoption("--kernels", type=Path, help="the folder of the kernels that tests share (default: a new one)")


@pytest.hookimpl(tryfirst=True)  # before Hypothesis looks for its seed
def pytest_configure(config: pytest.Config) -> None:
    """The processes of xdist are told of the seed: they are started with the options of this one."""
    asked = config.option.seed
    if asked == "new":
        asked = random.SystemRandom().randrange(LARGEST)
    config.option.seed = seed_of_commit() if asked is None else int(asked)
    if getattr(config.option, "hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(config.option.seed)
    if settings().derandomize:  # Hypothesis's choice where `CI` is set: the seed of the run would draw nothing
        settings.register_profile("seeded", settings(), derandomize=False)
        settings.load_profile("seeded")
    config.pluginmanager.register(Seeding(config.option.seed))


def is_drawn(name: str, seed: str) -> bool:
    """Return whether a slow test is of the fifth that `seed` draws, in every process of a run alike."""
    return hashlib.sha256(f"{seed} {name}".encode()).digest()[0] % 5 == 0


@pytest.hookimpl(tryfirst=True)  # before pytest looks at marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.split("[")[0] in SLOW:
            item.add_marker(pytest.mark.slow)
    if (seed := config.getoption("--draw")) is not None:
        left_out = [x for x in items if x.get_closest_marker("slow") and not is_drawn(x.nodeid, seed)]
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [x for x in items if x not in gone]
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and present_target() is None:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no GPU here that kernels can be compiled for"))


def pytest_collection_finish() -> None:
    """Some 13,000 tests and all modules stay to the end: the garbage collector need not look at them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _own_temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What refused kernels and processes that end early leave behind goes when pytest's folders go."""
    os.environ["TMPDIR"] = tempfile.tempdir = str(tmp_path_factory.mktemp("tmp"))


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Cache:
    """One cache for all tests that need kernels and not their building, shared by the processes of xdist."""
    if (kept := request.config.getoption("--kernels")) is not None:
        return Cache(kept)
    base = tmp_path_factory.getbasetemp()
    in_a_worker = hasattr(request.config, "workerinput")  # whose folder lies in the folder of the whole run
    return Cache((base.parent if in_a_worker else base) / "kernels")


@pytest.fixture(scope="session")
def compiler_kept_warm() -> Iterator[WarmCompiler]:
    """A compiler that has its start behind it."""
    with warm_compiler() as found:
        yield found


@pytest.fixture(scope="module", autouse=True)
def _compiled_warm(request: pytest.FixtureRequest, compiler_kept_warm: WarmCompiler) -> Iterator[None]:
    with nullcontext() if request.path.parent.name in STARTS_THE_COMPILER else compiler_kept_warm.used():
        yield


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Of the tests' helpers no doctests are taken: that would import them, and some need torch or a GPU."""
    return True if collection_path.suffix == ".py" and not collection_path.name.startswith("test_") else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests recorded as worth knowing, as the size of an environment."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{name}: {value}")
