"""docs/modules.md lists every module as its docstring begins; ARCHITECTURE.md's floors are the import contract's."""

from __future__ import annotations

import ast
import re
import runpy
import tomllib

from tests.house.documents import ROOT

ARCHITECTURE = ROOT / "ARCHITECTURE.md"
MODULES = ROOT / "docs" / "modules.md"
PACKAGE = ROOT / "cutegen"
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "make_modules.py"))


def test_every_module_says_what_it_is_for() -> None:
    assert [str(path) for path in PACKAGE.rglob("*.py") if not SCRIPT["first_line"](path)] == []


def test_every_module_is_listed_as_it_is() -> None:
    assert MODULES.read_text().splitlines() == SCRIPT["page"]().splitlines(), "scripts/make_modules.py writes the page"


def test_a_room_that_lists_its_modules_lists_all() -> None:
    left_out = {}
    for room in PACKAGE.rglob("__init__.py"):
        said = ast.get_docstring(ast.parse(room.read_text())) or ""
        if re.search(r"^ *\w+\.py {2,}\S", said, re.MULTILINE):
            modules = {path.name for path in room.parent.glob("*.py")} - {"__init__.py"}
            left_out[str(room.parent.relative_to(PACKAGE))] = modules - set(re.findall(r"\w+\.py", said))
    assert left_out
    assert {room: modules for room, modules in left_out.items() if modules} == {}


def test_the_floors_are_those_of_the_import_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract.get("containers") == ["cutegen"])
    assert re.findall(r"^ {4}(\w+(?: \| \w+)*) {2,}\S", ARCHITECTURE.read_text(), re.MULTILINE) == layers
