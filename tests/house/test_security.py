"""docs/security.md promises nothing that no test holds."""

from __future__ import annotations

import ast
import re

from tests.house.documents import ROOT

PAGE = ROOT / "docs" / "security.md"
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def promises() -> list[str]:
    """The rows of the page's tables."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return [row for row in rows if row != "| promise | test |"]


def test_every_promise_names_a_test_that_exists() -> None:
    assert len(promises()) > 20
    for row in promises():
        named = TEST.findall(row)
        assert named, row
        for file, name in named:
            tree = ast.parse((ROOT / file).read_text())
            assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}, row


def test_the_page_is_found_from_the_others() -> None:
    for page in ("README.md", "ARCHITECTURE.md"):
        assert "docs/security.md" in (ROOT / page).read_text()
