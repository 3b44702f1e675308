"""Plants every fault in the sources of any commit, and says which tests notice: `python -m tests.faults [COMMIT]`.

A fault is found by its text, wherever that is in the commit, and its test by its name: so faults outlive files that
move. Each runs in a process of its own, forked when the packages that tests import are there.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import hypothesis
import jinja2
import numpy
import pytest
import rich.console

from tests.faults.planted import PLANTED, Fault

ROOT = Path(__file__).parents[2]
SHARED = (hypothesis, jinja2, numpy, rich.console)
"""Imported once, for all processes."""
QUIET = (
    "-q",
    "-x",
    "-n",
    "0",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:warnings",
    "-W",
    "ignore",
    "--tb=no",
    "-m",
    "not gpu",
)
VERDICTS = {int(pytest.ExitCode.OK): "alive", int(pytest.ExitCode.TESTS_FAILED): "dead"}


def commit_of(name: str) -> str:
    """Return the hash of the commit that a hash, a branch or a tag names.

    Raises argparse.ArgumentTypeError for what names none.
    """
    words = ["git", "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}"]
    found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode:
        raise argparse.ArgumentTypeError(f"found {name!r}; expected a hash, branch or tag of a commit in {ROOT}")
    return found.stdout.strip()


def copied(commit: str, folder: Path) -> None:
    """Write the files of a commit into a folder."""
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")


def place_of(fault: Fault, tree: Path) -> Path | None:
    """Return the one file of a tree that a fault can be planted in; None if there is none, or several."""
    files = [
        path for of in ("cutegen", "templates") for path in (tree / of).rglob("*") if path.suffix in (".py", ".j2")
    ]
    found = [path for path in files if path.read_text().count(fault.before) == 1]
    named = tree / fault.file
    return named if named in found else found[0] if len(found) == 1 else None


def tests_of(fault: Fault, tree: Path) -> list[str]:
    """Return the tests of a fault's name in a tree."""
    file, _, name = fault.test.partition("::")
    found = [path for path in (tree / "tests").rglob("*.py") if f"\ndef {name}(" in path.read_text()]
    chosen = [tree / file] if tree / file in found else found
    return [f"{path.relative_to(tree)}::{name}" for path in chosen]


def passes(tree: Path, tests: list[str]) -> int:
    """Return the exit code of tests in a tree, from a process that has none of its modules."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = os.EX_SOFTWARE
    with contextlib.suppress(BaseException), open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
        os.chdir(tree)
        sys.path[:] = [str(tree), *(path for path in sys.path if path not in ("", str(ROOT)))]
        for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "cutegen")]:
            del sys.modules[name]
        sys.dont_write_bytecode = True
        code = int(pytest.main([*QUIET, *tests]))
    os._exit(code)


def verdict(fault: Fault, tree: Path) -> str:
    """Return "dead" if the test of a fault fails with it; "no place" or "no test" if the tree lacks one."""
    place, tests = place_of(fault, tree), tests_of(fault, tree)
    if place is None or not tests:
        return "no test" if place else "no place"
    right = place.read_text()
    place.write_text(right.replace(fault.before, fault.after))
    try:
        return VERDICTS.get(passes(tree, tests), "not run")
    finally:
        place.write_text(right)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each fault, then how many there are of each verdict; 1 if one is alive."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults",
        description="Plants each fault of tests/faults/planted.py in the sources of a commit, and runs its test.",
    )
    parser.add_argument(
        "commit", nargs="?", type=commit_of, default="HEAD", help="its hash, branch or tag (default: HEAD)"
    )
    commit = parser.parse_args(arguments).commit
    found = Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        copied(commit, Path(folder))
        for name, fault in PLANTED.items():
            found[said := verdict(fault, Path(folder))] += 1
            print(f"{said:9} {name}", flush=True)
    print(", ".join(f"{count} {said}" for said, count in found.most_common()))
    return int("alive" in found)


if __name__ == "__main__":
    sys.exit(main())
