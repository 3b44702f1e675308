"""`make quick`: tests/quick.txt lists tests of every room, few of which compile; tests/slow.txt lists tests too.

Of the slow tests `make test-drawn` runs a fifth.
"""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.conftest import is_drawn
from tests.house.documents import ROOT

LISTED = (ROOT / "tests" / "quick.txt").read_text().split()
FILES = {ROOT / path.partition("::")[0] for path in LISTED}
ROOMS = {path.parent.name for path in (ROOT / "cutegen").glob("*/__init__.py")}
MOST_COMPILING = 4
"""Files with a kernel or two to compile: that compiler, executor and command line work together."""


def test_every_line_is_a_file_or_a_test_in_it() -> None:
    assert len(LISTED) == len(set(LISTED))
    for line in LISTED:
        file, _, test = line.partition("::")
        assert (ROOT / file).is_file(), line
        names = {
            node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.FunctionDef)
        }
        assert not test or test.partition("[")[0] in names, line


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_every_room_is_covered(room: str) -> None:
    assert any(file.parent.name == room for file in FILES)


def test_hardly_anything_is_compiled() -> None:
    assert 0 < len([file for file in FILES if "mark.dsl" in file.read_text()]) <= MOST_COMPILING


def test_what_make_test_leaves_out_exists() -> None:
    for line in (ROOT / "tests" / "slow.txt").read_text().split():
        file, _, test = line.partition("::")
        names = {
            node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.FunctionDef)
        }
        assert test in names, line


def collected(*options: str) -> set[str]:
    """Tests of one room by their names, as pytest would run them."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests/algebra"]
    said = subprocess.run([*command, *options], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {line for line in said.splitlines() if "::" in line}


def test_a_seed_draws_a_fifth_of_the_slow_tests_and_all_others() -> None:
    every, fast = collected(), collected("-m", "not slow")
    slow = every - fast
    drawn, others = collected("--draw", "one"), collected("--draw", "two")
    for of_seed in (drawn, others):
        assert fast < of_seed < every
        assert 0.1 < len(of_seed & slow) / len(slow) < 0.35
    assert drawn != others
    assert drawn == {name for name in every if name in fast or is_drawn(name, "one")}


def test_seeds_soon_draw_each() -> None:
    """A slow test is left out by 24 commits in a row once in 210 times."""
    names = [f"tests/run/test_probe.py::test_registers[{i}]" for i in range(1000)]
    assert sum(any(is_drawn(name, f"commit {i}") for i in range(24)) for name in names) > 970
