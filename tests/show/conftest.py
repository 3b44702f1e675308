"""A browser for the tests of pages, one for each file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.show.browser import Page, open_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    with open_browser() as page:
        yield page
