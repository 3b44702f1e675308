"""The Makefile installs what a target needs, in either order: `make run` neither torch nor what only tests need."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house.documents import ROOT

COMPILES, INSTALLED = ".venv/.compiles", ".venv/.installed"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv").mkdir()
    return tmp_path


def installs(target: str, clone: Path) -> list[str]:
    """What `make target` would hand to pip."""
    command = ["make", "--dry-run", "--no-print-directory", target]
    said = subprocess.run(command, cwd=clone, check=True, capture_output=True, text=True).stdout
    return [line.split("--editable ")[1].split(" --")[0] for line in said.splitlines() if "pip install" in line]


def touch(clone: Path, *names: str) -> None:
    for name in names:
        (clone / name).touch()


def test_run_installs_the_compiler_alone_and_tests_everything(clone: Path) -> None:
    assert installs("run", clone) == ["'.'"]
    assert installs("test", clone) == installs("check", clone) == ["'.[torch,dev]'"]


def test_after_run_tests_install_the_rest(clone: Path) -> None:
    touch(clone, COMPILES)
    assert installs("run", clone) == []
    assert installs("test", clone) == ["'.[torch,dev]'"]


def test_after_tests_run_installs_nothing(clone: Path) -> None:
    said = subprocess.run(["make", "--dry-run", "test"], cwd=clone, check=True, capture_output=True, text=True).stdout
    (stamps,) = [line.split()[1:] for line in said.splitlines() if line.startswith("touch ")]
    assert set(stamps) == {COMPILES, INSTALLED}
    touch(clone, *stamps)
    assert installs("run", clone) == installs("test", clone) == []
