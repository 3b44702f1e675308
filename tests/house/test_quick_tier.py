"""`make quick`: tests/quick.txt lists tests of every room, few of which compile; tests/slow.txt lists tests too."""

from __future__ import annotations

import ast

import pytest

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
