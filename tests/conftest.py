"""For every test: `gpu` ones are skipped where there is no GPU; `--update-golden` rewrites expected texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutegen.targeting import present_target


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what is printed now as what is expected")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and present_target() is None:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no GPU here that kernels can be compiled for"))


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Of the tests' helpers no doctests are taken: that would import them, and some need torch or a GPU."""
    return True if collection_path.suffix == ".py" and not collection_path.name.startswith("test_") else None
