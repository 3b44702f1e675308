"""docs/modules.md lists every module as its docstring begins; ARCHITECTURE.md's floors are the import contract's."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.house.documents import ROOT

ARCHITECTURE = ROOT / "ARCHITECTURE.md"
MODULES = ROOT / "docs" / "modules.md"
PACKAGE = ROOT / "cutegen"
HEAD = """# Every module

One line per module, the first of its docstring. `pytest tests/house --update-golden` writes this page.
[ARCHITECTURE.md](../ARCHITECTURE.md) shows which packages may import which.
"""


def page() -> str:
    """The modules room by room, after those that belong to none."""
    rooms = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
    return "".join([HEAD, *(f"\n## `{_title(room)}`\n{table(room)}" for room in (".", *rooms))])


def _title(room: str) -> str:
    return "cutegen/" if room == "." else f"cutegen/{room}/"


def table(folder: str) -> str:
    """The modules of one room, or with `.` those that belong to none."""
    paths = PACKAGE.glob("*.py") if folder == "." else (PACKAGE / folder).rglob("*.py")
    rows = [f"| `{_name(path)}` | {_first_line(path)} |\n" for path in sorted(paths)]
    return "".join(["\n| module | what it is for |\n|---|---|\n", *rows])


def _name(path: Path) -> str:
    """A package goes by its folder's name."""
    return str(path.relative_to(PACKAGE)).removesuffix("__init__.py") or "__init__.py"


def _first_line(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(docstring.split("\n\n")[0].split()).replace("|", "\\|")


def test_every_module_says_what_it_is_for() -> None:
    assert [str(path) for path in PACKAGE.rglob("*.py") if not _first_line(path)] == []


def test_every_module_is_listed_as_it_is(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        MODULES.write_text(page())
        return
    assert MODULES.read_text().splitlines() == page().splitlines(), "pytest tests/house --update-golden writes the page"


def test_a_room_that_lists_its_modules_lists_all() -> None:
    left_out = {}
    for room in PACKAGE.rglob("__init__.py"):
        said = ast.get_docstring(ast.parse(room.read_text())) or ""
        if re.search(r"^ *\w+\.py {2,}\S", said, re.MULTILINE):
            modules = {path.name for path in room.parent.glob("*.py")} - {"__init__.py"}
            left_out[_name(room)] = modules - set(re.findall(r"\w+\.py", said))
    assert left_out
    assert {room: modules for room, modules in left_out.items() if modules} == {}


def test_the_floors_are_those_of_the_import_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract.get("containers") == ["cutegen"])
    assert re.findall(r"^ {4}(\w+(?: \| \w+)*) {2,}\S", ARCHITECTURE.read_text(), re.MULTILINE) == layers
