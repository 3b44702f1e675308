"""Parts of docs/measurements.md that are made of stored measurements: between `<!-- NAME -->` and `<!-- end -->`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "measurements.md"


def in_the_page(request: pytest.FixtureRequest, name: str, lines: Iterable[str]) -> None:
    """Assert that the part called `name` has these lines; with --update-golden, write them there."""
    text, part = PAGE.read_text(), re.compile(rf"(<!-- {name} -->\n\n).*?(\n<!-- end -->)", re.DOTALL)
    assert part.search(text), f"{PAGE} has no part called {name}"
    current = part.sub(lambda match: match[1] + "\n".join(lines) + "\n" + match[2], text)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(current)
        return
    assert text == current, "pytest --update-golden writes the page"
