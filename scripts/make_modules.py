"""Write docs/modules.md, every module in one line: `python scripts/make_modules.py`.

A test makes the page again and compares.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE, MODULES = ROOT / "cutegen", ROOT / "docs" / "modules.md"
HEAD = """# Every module

One line per module, the first of its docstring. `python scripts/make_modules.py` writes this page.
[ARCHITECTURE.md](../ARCHITECTURE.md) shows which packages may import which.
"""


def page() -> str:
    """Return the modules folder by folder, after those that belong to none."""
    folders = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
    return "".join([HEAD, *(f"\n## `{_title(folder)}`\n{_table(folder)}" for folder in (".", *folders))])


def _title(folder: str) -> str:
    return "cutegen/" if folder == "." else f"cutegen/{folder}/"


def _table(folder: str) -> str:
    """Return the modules of one folder, or with `.` those that belong to none."""
    paths = PACKAGE.glob("*.py") if folder == "." else (PACKAGE / folder).rglob("*.py")
    rows = [f"| `{_name(path)}` | {first_line(path)} |\n" for path in sorted(paths)]
    return "".join(["\n| module | what it is for |\n|---|---|\n", *rows])


def _name(path: Path) -> str:
    """Return a module's path in the package; a package goes by its folder's name."""
    return str(path.relative_to(PACKAGE)).removesuffix("__init__.py") or "__init__.py"


def first_line(path: Path) -> str:
    """Return the first paragraph of a module's docstring on one line, or "" without one."""
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(docstring.split("\n\n")[0].split()).replace("|", "\\|")


if __name__ == "__main__":
    MODULES.write_text(page())
