"""ARCHITECTURE.md lists every module with its docstring's first line; its floors are those of the import contract."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.house.documents import ROOT

ARCHITECTURE = ROOT / "ARCHITECTURE.md"
PACKAGE = ROOT / "cutegen"
TABLE = re.compile(r"(<!-- modules: ([\w.]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(folder: str) -> str:
    """The modules of one room, or with `.` those that belong to none."""
    paths = PACKAGE.glob("*.py") if folder == "." else (PACKAGE / folder).rglob("*.py")
    rows = [f"| `{_name(path)}` | {_first_line(path)} |\n" for path in sorted(paths)]
    return "".join(["\n| module | what it is for |\n|---|---|\n", *rows, "\n"])


def _name(path: Path) -> str:
    """A package goes by its folder's name."""
    return str(path.relative_to(PACKAGE)).removesuffix("__init__.py") or "__init__.py"


def _first_line(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(docstring.split("\n\n")[0].split()).replace("|", "\\|")


def test_every_module_says_what_it_is_for() -> None:
    assert [str(path) for path in PACKAGE.rglob("*.py") if not _first_line(path)] == []


def test_every_room_has_a_table() -> None:
    rooms = {"."} | {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert {match[2] for match in TABLE.finditer(ARCHITECTURE.read_text())} == rooms


def test_every_module_is_listed_as_it_is(request: pytest.FixtureRequest) -> None:
    text = ARCHITECTURE.read_text()
    current = TABLE.sub(lambda match: match[1] + table(match[2]) + match[3], text)
    if request.config.getoption("--update-golden"):
        ARCHITECTURE.write_text(current)
        return
    assert text.splitlines() == current.splitlines(), "pytest tests/house --update-golden writes the tables"


def test_the_floors_are_those_of_the_import_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    assert re.findall(r"^ {4}(\w+(?: \| \w+)*) {2,}\S", ARCHITECTURE.read_text(), re.MULTILINE) == layers
