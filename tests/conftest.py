"""For every test: `gpu` ones are skipped where there is no GPU; `--update-golden` rewrites expected texts."""

from __future__ import annotations

import pytest

from cutegen.targeting import present_target


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what is printed now as what is expected")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if "gpu" in item.keywords]
    if marked and present_target() is None:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no GPU here that kernels can be compiled for"))
