"""What tests draw at random follows from the seed of the run and from the test's own name, so that a failure can be
drawn again: alone, in another order, or in another process of xdist.

Seeded before each test are Python's `random`, NumPy's legacy generator, and torch's generators of the CPU and, for
tests marked `gpu`, of each GPU: also what the library itself draws, as a new layer its weights. Hypothesis takes the
seed of the run. A test that wants a generator of its own makes it with `new_generator()`.
"""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

LARGEST = 2**32
"""Seeds of a run are smaller: NumPy's legacy generator takes 32 bits."""


def new_generator() -> np.random.Generator:
    """Make a generator of NumPy's. Its seed is drawn from `random`, and so follows from the test's."""
    return np.random.default_rng(random.getrandbits(64))


def seed_of(run: int, name: str) -> int:
    """Return the seed of a test, or of a fixture that outlives one, in the run with this seed."""
    return int.from_bytes(hashlib.sha256(f"{run} {name}".encode()).digest()[:4])


def seed_of_commit() -> int:
    """Return the seed that the commit of this checkout draws; 0 outside a repository of git."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        commit = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(commit, 16) % LARGEST


def seed_all(seed: int, *, gpus: bool = False) -> None:
    """Seed every generator that a test may draw from without naming one."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - hidden in a library, it is a state to be set all the same
    if gpus:
        with suppress(ImportError):
            import torch

            torch.cuda.manual_seed_all(seed)
    if (torch_ := sys.modules.get("torch")) is not None:
        torch_.default_generator.manual_seed(seed)  # `torch.manual_seed` takes 0.1 ms for GPUs, also without one


@contextmanager
def states_kept() -> Iterator[None]:
    """The generators continue afterwards where they are now."""
    torch: Any = sys.modules.get("torch")
    python, numpy_ = random.getstate(), np.random.get_state()  # noqa: NPY002
    of_torch = None if torch is None else torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy_)  # noqa: NPY002
        if of_torch is not None:
            torch.set_rng_state(of_torch)


class Seeding:
    """The plugin that seeds tests, and says with what."""

    def __init__(self, run: int) -> None:
        self.run = run

    def pytest_report_header(self) -> str:
        return f"seed: {self.run}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        seed_all(seed_of(self.run, item.nodeid), gpus=item.get_closest_marker("gpu") is not None)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[Any]:
        """A test that changes torch's default type changes it for itself alone."""
        torch: Any = sys.modules.get("torch")
        before = None if torch is None else torch.get_default_dtype()
        result = yield
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.set_default_dtype(before or torch.float32)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: pytest.FixtureRequest) -> Iterator[None]:
        """A fixture of several tests draws the same, whichever needs it first."""
        if fixturedef.scope == "function":
            return (yield)
        with states_kept():
            seed_all(seed_of(self.run, f"{request.node.nodeid} {fixturedef.argname}"))
            return (yield)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if terminalreporter.getreports("failed") or terminalreporter.getreports("error"):
            terminalreporter.write_line(f"the same numbers are drawn again with --seed {self.run}")
