"""Each fault of the list is planted in a copy of the sources, and the test that it names dies of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sized
from pathlib import Path

import pytest

from tests.faults.__main__ import main, verdict
from tests.faults.planted import PLANTED, Fault
from tests.plan.families.test_grouped_rows import PLANTED as OF_GROUPED_ROWS
from tests.plan.families.test_scaled_sums import PLANTED as OF_SCALED_SUMS
from tests.run.test_block_scales import PLANTED as OF_BLOCK_SCALES
from tests.run.test_grouped_kernels import PLANTED as OF_GROUPED_KERNELS
from tests.run.test_sm100_factors import PLANTED as OF_SM100_FACTORS
from tests.run.test_sm100_kernels import PLANTED as OF_SM100_KERNELS

ROOT = Path(__file__).parents[2]
CHANGED = ("cutegen", "templates")
EXECUTED: tuple[Sized, ...] = (
    OF_GROUPED_ROWS,
    OF_SCALED_SUMS,
    OF_BLOCK_SCALES,
    OF_GROUPED_KERNELS,
    OF_SM100_KERNELS,
    OF_SM100_FACTORS,
)
"""Faults of templates that tests of their own plant, compile and execute."""


def test_the_list_has_a_hundred_faults() -> None:
    assert len(PLANTED) >= 100
    assert sum(len(each) for each in EXECUTED) > 20


@pytest.mark.parametrize("name", PLANTED)
def test_a_fault_still_has_its_place_and_its_test(name: str) -> None:
    fault = PLANTED[name]
    text = (ROOT / fault.file).read_text()
    assert text.count(fault.before) == 1
    assert fault.before != fault.after
    path, _, test = fault.test.partition("::")
    assert f"\ndef {test}(" in (ROOT / path).read_text()


@pytest.mark.parametrize("name", ["no-such-commit", "--no-such-option", "HEAD:README.md"])
def test_what_names_no_commit_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([name])
    assert left.value.code == 2
    (said,) = re.findall("error: .*", capsys.readouterr().err)
    assert name in said


@pytest.mark.slow
def test_a_fault_is_found_by_its_text_where_files_have_moved(tmp_path: Path) -> None:
    (tmp_path / "cutegen").mkdir()
    (tmp_path / "tests").mkdir()
    fault = Fault("cutegen/errors.py", "x = 1", "x = 2", "tests/seeding.py::test_x")  # neither is in this tree
    assert verdict(fault, tmp_path) == "no place"
    moved = tmp_path / "cutegen" / "there.py"
    moved.write_text("x = 1\n")
    assert verdict(fault, tmp_path) == "no test"
    test = tmp_path / "tests" / "test_there.py"
    test.write_text("from cutegen.there import x\n\n\ndef test_x() -> None:\n    assert x == 1\n")
    assert verdict(fault, tmp_path) == "dead"
    test.write_text(test.read_text().replace("== 1", "> 0"))
    assert verdict(fault, tmp_path) == "alive"
    assert moved.read_text() == "x = 1\n"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout whose packages are copies; everything else is this one's."""
    copy = tmp_path_factory.mktemp("planted")
    for path in ROOT.iterdir():
        if path.name in CHANGED:
            shutil.copytree(path, copy / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif path.name == "tests":
            # A test's root is found by its real path, so the folder is a copy of links.
            shutil.copytree(path, copy / path.name, copy_function=os.symlink, ignore=shutil.ignore_patterns("gpu"))
        elif not path.name.startswith("."):
            (copy / path.name).symlink_to(path)
    (copy / "tests" / "gpu").symlink_to(ROOT / "tests" / "gpu")
    return copy


@pytest.fixture
def run(sources: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run tests with the sources as they are now."""

    def run(*tests: str) -> subprocess.CompletedProcess[str]:
        words = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-m", "not gpu", *tests]
        environment = {**os.environ, "PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [sys.executable, "-m", "pytest", *words],
            cwd=sources,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run


@pytest.mark.slow
def test_what_notices_faults_passes_without_them(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    found = run(*sorted({fault.test for fault in PLANTED.values()}))
    assert found.returncode == 0, found.stdout[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_noticed(
    name: str, sources: Path, run: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    fault: Fault = PLANTED[name]
    file = sources / fault.file
    right = file.read_text()
    file.write_text(right.replace(fault.before, fault.after))
    try:
        found = run(fault.test)
    finally:
        file.write_text(right)
    assert found.returncode == 1, found.stdout[-2000:]  # 1: tests failed; anything else did not run them
